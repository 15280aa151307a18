"""Recursions for rows that arrive one after the other: the filter, and each row smoothed from a fixed number of rows
behind it, for several sets of parameters side by side. All in log space, so that nothing can underflow.

Arrays are shaped (row, draw, state), or (row, draw, from, to).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.inference.scaling import at_zero, log_sum_exp, safe_log

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class Held(NamedTuple):
    """What is remembered of the rows so far: the last of them, which are not settled yet, and where the filter stands.
    Where there are fewer rows than `lag`, they are the last ones, and what stands before them means nothing."""

    log_filtered: Float[Any, "S K"]  # `log P(x_t = k | y_0 .. y_t)` of the last row; else of `initial`
    fresh: Bool[Any, ""]  # whether the next row is the first of its sequence
    log_forward: Float[Any, "lag S K"]  # `log P(x_t = k | y_0 .. y_t)`
    log_steps: Float[Any, "lag S 1 K"] | Float[Any, "lag S K K"]  # see `Arrived`


class Arrived(NamedTuple):
    """What new rows say: `M_t(i, j) = p(x_t = j, y_t | x_{t-1} = i)` is the product of both."""

    log_matrices: Float[jax.Array, "S K K"] | Float[jax.Array, "S 1 1"]  # what is the same for all rows
    log_steps: Float[jax.Array, "rows S 1 K"] | Float[jax.Array, "rows S K K"]
    log_first: Float[jax.Array, "S K"] | None  # `log p(y_t | x_t = k)` of the first row; None where it depends on two


def arrived(transition: jax.Array, log_likelihoods: jax.Array, couples: bool) -> Arrived:
    """From potentials of each draw: `(S, K, K)`, or `(S, rows, K, K)`, and `(S, rows, K)`, or of pairs of states."""
    logs = log_likelihoods if couples else log_likelihoods[..., None, :]
    log_matrices = safe_log(transition)
    if transition.ndim == 4:
        log_matrices, logs = jnp.zeros((len(transition), 1, 1), logs.dtype), log_matrices + logs
    return Arrived(log_matrices, jnp.swapaxes(logs, 0, 1), None if couples else log_likelihoods[:, 0])


def advance(held: Held, new: Arrived, count: jax.Array) -> tuple[Held, jax.Array, jax.Array, jax.Array]:
    """Go on by `count` rows, the first of those given: what is held then; `log P(x_t = k | y_0 .. y_t)` of the new
    rows; `P(x_t = k | y_0 .. y_{t+lag})` of as many rows, `lag` earlier; and the logarithms of the normalisers."""

    Pair = tuple[jax.Array, jax.Array]

    def step(carry: Pair, log_step: jax.Array) -> tuple[Pair, Pair]:
        before, fresh = carry
        joint = log_sum_exp(before[..., None] + (new.log_matrices + log_step), 1)
        if new.log_first is not None:  # no transition leads into the first row of a sequence
            joint = jnp.where(fresh, before + new.log_first, joint)
        size = log_sum_exp(joint, 1)
        after = joint - jnp.where(jnp.isneginf(size), 0.0, size)[:, None]
        return (after, jnp.zeros_like(fresh)), (after, size)

    n, lag = len(new.log_steps), len(held.log_steps)
    _, (log_filtered, sizes) = jax.lax.scan(step, (held.log_filtered, held.fresh), new.log_steps)
    log_forward = jnp.concatenate([held.log_forward, log_filtered])
    log_steps = jnp.concatenate([held.log_steps, new.log_steps])

    def back(log_beta: jax.Array, behind: jax.Array) -> tuple[jax.Array, None]:
        steps = jax.lax.dynamic_slice_in_dim(log_steps, behind, n)
        return _earlier(new.log_matrices, steps, log_beta), None

    log_beta = jax.lax.scan(back, jnp.zeros_like(log_filtered), jnp.arange(lag, 0, -1))[0]
    kept = (jax.lax.dynamic_slice_in_dim(each, count, lag) for each in (log_forward, log_steps))
    last = jax.lax.dynamic_index_in_dim(log_filtered, count - 1, keepdims=False)
    held = Held(last, jnp.zeros_like(held.fresh), *kept)
    return held, log_filtered, jax.nn.softmax(log_forward[:n] + log_beta), sizes


def settle(held: Held, log_matrices: jax.Array) -> jax.Array:
    """`P(x_t = k | all rows)` of the rows that are held, at the end of a sequence."""

    def back(log_beta: jax.Array, log_step: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _earlier(log_matrices, log_step, log_beta), log_beta

    log_beta = jax.lax.scan(back, jnp.zeros_like(held.log_filtered), held.log_steps, reverse=True)[1]
    return jax.nn.softmax(held.log_forward + log_beta)


def _earlier(log_matrices: jax.Array, log_steps: jax.Array, log_beta: jax.Array) -> jax.Array:
    """Backward messages of the rows before: `sum_j M(i, j) beta(j)`, with their peak moved to 0."""
    return at_zero(log_sum_exp(log_matrices + (log_steps + log_beta[..., None, :]), -1), -1)
