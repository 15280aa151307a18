"""Joining chunks: each starts some rows early, and where the messages at their boundaries agree, all is exact.

From left to right: the first chunk of a sequence starts from its exact distribution. What leaves it is exact, so that a
chunk that started from the same message is exact too, and so on. "The same" is meant in the projective distance, the
largest difference of log odds: no later observation, however surprising, can make it grow, so that likelihoods and
posteriors are right to the same relative accuracy. (Absolute differences would not do: evidence of a thousand nats
turns 1e-30 and 1e-300 into two different answers.) From right to left, messages need only be right where it counts: the
posterior at each boundary has to agree. Where not all that follows is at hand, the rows behind the last chunk must
settle its last state, whatever state they lead to.

Where messages do not agree, chunks start earlier. In the end they are propagated exactly: what a chunk does to any
message is its transfer operator, found by running it from every state, and operators are applied one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.protocol import PAIR, Lowered, Messages, Varying
from longhmm.data.layout import Layout
from longhmm.inference.markov import stationary
from longhmm.inference.scaling import at_zero, log_sum_exp, safe_log

OVERLAPS = (32, 128, 512)  # rows by which chunks start early, in the order in which they are tried
TOLERANCE = 1e-11  # log odds, or total variation, below which two messages count as the same
SCORE_TOLERANCE = 1e-8  # the same for scores of best paths: sums of thousands of log probabilities
# Share of the uniform distribution in the one that chunks warm up from. Every state that is possible in truth is then
# possible in the warm-up, and an observation that is impossible there is so in truth.
UNIFORM_SHARE = 1e-3


def one_step(model: Any, transition: jax.Array) -> jax.Array:
    """The matrix by which boundary messages are moved before they are compared; none where it does not say all that the
    next row makes of the state before it."""
    constant = not (model.transitions.varies or model.emission.couples)
    return transition if constant else jnp.eye(transition.shape[-1], dtype=transition.dtype)


def warm_start(transition: Any) -> jax.Array:
    """The distribution `(K,)` that chunks inside a sequence warm up from: nearly the stationary one."""
    matrix = jnp.mean(transition.matrices, axis=0) if isinstance(transition, Varying) else transition
    return (1 - UNIFORM_SHARE) * stationary(matrix) + UNIFORM_SHARE / matrix.shape[-1]


def boundary_steps(lowered: Lowered, transition: Any, layout: Layout) -> jax.Array:
    """Log weights `(W, K, K)` of the step into the first core row of every chunk, up to what its new state decides."""
    begin = jnp.asarray(layout.begin)
    matrices = transition.matrices[transition.index[begin]] if isinstance(transition, Varying) else transition
    steps = safe_log(jnp.broadcast_to(matrices, (layout.size, *matrices.shape[-2:])))
    if lowered.kind == PAIR:
        logs = jnp.asarray(lowered.rows)[begin]
        steps = steps + jnp.where(jnp.isnan(logs), 0.0, logs)
    return steps


def forward_gap(log_step: jax.Array, forward_out: jax.Array, forward_in: jax.Array, best: bool = False) -> jax.Array:
    """Largest difference of log odds `(W,)` of the messages that left chunks and those the next ones began with.

    One step on, with `log_step` `(K, K)` or `(W, K, K)`: what is too small to matter is gone after the step. `best`:
    messages are scores of best paths.
    """
    total = jnp.max if best else log_sum_exp
    one, other = (at_zero(total(each[:, :, None] + log_step, 1).T)[0] for each in (forward_out, forward_in))
    impossible = jnp.isneginf(one) & jnp.isneginf(other)
    gap = jnp.abs(one - other) - _rounding(one) * jnp.abs(one)
    return _or_infinite(jnp.max(jnp.where(impossible, 0.0, gap), axis=0))


def posterior_gap(forward_out: jax.Array, backward_in: jax.Array, backward_out: jax.Array) -> jax.Array:
    """Total variation `(W,)` between the posteriors at the ends of chunks: with the backward message that a chunk
    assumed there, and with the one that came out of the next chunk."""
    return _total_variation(forward_out + backward_in, forward_out + backward_out)


def open_gap(forward_out: jax.Array, behind: jax.Array) -> jax.Array:
    """How far the rows behind a chunk leave its last state open: total variation between its posteriors, given where
    these rows end. `forward_out` `(K,)` left the chunk, `behind` `(K, K)` is the transfer operator of the rows."""
    given_end = (forward_out[:, None] + behind).T
    reached = jnp.any(jnp.isfinite(given_end), axis=1)  # an end that cannot be reached says nothing
    one = given_end[jnp.argmax(reached)]
    return jnp.max(jnp.where(reached, _total_variation(given_end, jnp.broadcast_to(one, given_end.shape)), 0.0))


def inner_disagreement(transition: jax.Array, messages: Messages, joined: Any, forward_only: bool) -> jax.Array:
    """The largest disagreement between neighbours; `joined` `(W,)`: whether a chunk continues the one before it."""
    left, right = (Messages(*(each[part] for each in messages)) for part in (slice(None, -1), slice(1, None)))
    step = transition[1:] if transition.ndim == 3 else transition
    gaps = forward_gap(safe_log(step), left.forward_out, right.forward_in)
    if not forward_only:
        gaps = jnp.maximum(gaps, posterior_gap(left.forward_out, left.backward_in, right.backward_out))
    return jnp.max(jnp.where(jnp.asarray(joined)[1:], gaps, 0.0), initial=0.0)


def inner_forward_gap(
    steps: jax.Array, forward_out: jax.Array, forward_in: jax.Array, joined: Any, *, best: bool
) -> Any:
    """The same for forward messages alone, with the steps `(W, K, K)` into chunks."""
    gaps = forward_gap(steps[1:], forward_out[:-1], forward_in[1:], best)
    return jnp.max(jnp.where(jnp.asarray(joined)[1:], gaps, 0.0), initial=0.0)


# From every state: the boundary message `(W, K)` to log likelihoods `(W,)` and what leaves the chunks, `(W, K)`.
Forward = Callable[[jax.Array], tuple[jax.Array, jax.Array]]


def transfer_operators(forward: Forward, n_states: int, n_chunks: int, dtype: Any) -> jax.Array:
    """What each chunk does to any message: at `[w, i, j]` the log weight of all its paths from state i just before it
    to state j at its last row. Where a chunk opens its sequence it is the same for all i."""

    def from_state(state: jax.Array) -> jax.Array:
        alone = safe_log((jnp.arange(n_states) == state).astype(dtype))
        log_likelihood, out = forward(jnp.broadcast_to(alone, (n_chunks, n_states)))
        possible = jnp.isfinite(log_likelihood)
        out = out - log_sum_exp(jnp.where(possible[:, None], out, 0.0), 1)[:, None]
        return jnp.where(possible[:, None], out + log_likelihood[:, None], -jnp.inf)

    # One at a time: all at once would multiply the memory by K.
    return jnp.moveaxis(jax.lax.map(from_state, jnp.arange(n_states)), 0, 1)


@partial(jax.jit, static_argnames=("best",))
def propagate_forward(carry: jax.Array, operators: jax.Array, best: bool = False) -> tuple[jax.Array, jax.Array]:
    """Messages before consecutive chunks, `(W, K)`, from the one before the first; and the one behind the last.

    `best`: messages are scores of best paths.
    """
    total = jnp.max if best else log_sum_exp

    def step(message: jax.Array, operator: jax.Array) -> tuple[jax.Array, jax.Array]:
        onward = total(message[:, None] + operator, 0)
        scale = log_sum_exp(onward, 0)
        # After an impossible observation, the uniform message: that its likelihood is zero is found elsewhere.
        return jnp.where(jnp.isfinite(scale), onward - scale, -jnp.log(float(message.shape[0]))), message

    last, before = jax.lax.scan(step, carry, operators)
    return before, last


@jax.jit
def propagate_backward(carry: jax.Array, operators: jax.Array, ends: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Messages behind consecutive chunks, `(W, K)`, from the one behind the last; and the one before the first.

    `ends` `(W,)`: whether a chunk ends its sequence.
    """

    def step(message: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        operator, last = inputs
        behind = jnp.where(last, 0.0, message)
        onward = at_zero(log_sum_exp(operator + behind[None, :], 1))[0]
        return jnp.where(jnp.all(jnp.isneginf(onward)), 0.0, onward), behind

    first, behind = jax.lax.scan(step, carry, (operators, ends), reverse=True)
    return behind, first


_forward_gap = jax.jit(forward_gap)


def blocks_agree(transition: Any, forward_out: np.ndarray, forward_in: np.ndarray) -> bool:
    """On the host: whether a block began with the message `(K,)` that left the one before it."""
    with jax.enable_x64(True):
        step = safe_log(jnp.asarray(transition))
        return bool(_forward_gap(step, jnp.asarray(forward_out)[None], jnp.asarray(forward_in)[None])[0] <= TOLERANCE)


def _total_variation(one: jax.Array, other: jax.Array) -> jax.Array:
    """Between distributions given as log weights `(W, K)`, less what rounding explains."""
    distance = 0.5 * jnp.sum(jnp.abs(jax.nn.softmax(one) - jax.nn.softmax(other)), axis=1)
    size = jnp.max(jnp.where(jnp.isneginf(one), 0.0, jnp.abs(one)), axis=1)
    return _or_infinite(distance - _rounding(one) * size)


def _rounding(messages: jax.Array) -> float:
    """What a logarithm may be wrong by, relative to its size."""
    return 64 * float(jnp.finfo(messages.dtype).eps)


def _or_infinite(gap: jax.Array) -> jax.Array:
    return jnp.where(jnp.isnan(gap), jnp.inf, gap)
