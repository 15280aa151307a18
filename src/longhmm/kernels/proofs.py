"""Proofs that guessed edges are exact, and the order in which blocks are run until they are.

From left to right: the first chunk of a sequence starts from its exact law. Whatever leaves it is exact, so a chunk
that started from the same message is exact too, and so on. "The same" is meant in the projective distance, the
largest difference of log odds: no later observation, however surprising, can make that distance grow, so likelihoods
and posteriors are right to the same relative accuracy. (A bound on absolute differences would not do: evidence of a
thousand nats turns 1e-30 and 1e-300 into two different answers.)

From right to left: the last chunk of a sequence ends with nothing after it. For the last chunk of a block, whose
sequence goes on, the rows beyond it must settle the state at the edge whatever state they lead to. Since the messages
from the left are exact already, the message from the right need only be right where it counts: it is the posterior at
each joint that has to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.messages.scaling import at_zero, log_sum_exp, safe_log

REACHES = (64, 512)  # neighbourhoods tried before messages are carried from end to end
TOLERANCE = 1e-11  # log odds, or total variation, below which two messages count as the same
ROUNDING = 64 * float(np.finfo(np.float64).eps)  # what a logarithm may be wrong by, relative to its size


def before_each(previous: np.ndarray | None, messages: np.ndarray) -> np.ndarray:
    """Messages `(K, W)` of the chunk before each chunk of a block; `previous` are those of the block before."""
    first = messages[:, :1] if previous is None else previous[:, -1:]
    return np.concatenate([first, messages[:, :-1]], axis=1)


@jax.jit
def filtered_gap(transition: jax.Array, leaving: jax.Array, before: jax.Array) -> jax.Array:
    """Disagreement `(W,)` of the log laws with which chunks were left and those with which the next ones began.

    One step on, since what is too small to matter is gone after the step.
    """
    log_transition = safe_log(transition)[:, :, None]
    return projective_gap(*(log_sum_exp(laws[:, None, :] + log_transition, 0) for laws in (leaving, before)))


@jax.jit
def scores_gap(transition: jax.Array, leaving: jax.Array, before: jax.Array) -> jax.Array:
    """The same for scores of best paths."""
    log_transition = safe_log(transition)[:, :, None]
    return projective_gap(*(jnp.max(scores[:, None, :] + log_transition, axis=0) for scores in (leaving, before)))


@jax.jit
def smoothed_gap(leaving: jax.Array, after: jax.Array, entering: jax.Array) -> jax.Array:
    """Disagreement `(W,)` of posteriors: log law at the end of a chunk, with the backward message that it assumed there
    and with the one that came out of the next chunk."""
    return law_gap(leaving + after, leaving + entering)


@jax.jit
def unsettled_gap(log_law: jax.Array, endings: jax.Array) -> jax.Array:
    """How far rows to the right leave the state at an edge open, by the state they end in.

    Args:
        log_law: `(K,)`, logarithm of the law at the edge given everything to its left.
        endings: `(K, K)`, logarithm, up to a constant for each k, of `p(the rows, x_end = k | x_edge = i)` at `[i, k]`.
    """
    joint = log_law[:, None] + endings
    reached = jnp.isfinite(jnp.max(joint, axis=0))  # an end that cannot be reached says nothing
    one = jnp.broadcast_to(joint[:, jnp.argmax(reached)][:, None], joint.shape)
    return jnp.max(jnp.where(reached, law_gap(joint, one), 0.0))


def projective_gap(one: jax.Array, other: jax.Array) -> jax.Array:
    """Largest difference of log odds, `(W,)`, less what rounding explains; infinite where only one is impossible."""
    one, other = at_zero(one)[0], at_zero(other)[0]
    impossible = jnp.isneginf(one) & jnp.isneginf(other)
    gap = jnp.abs(one - other) - _rounding(one.dtype) * jnp.abs(one)
    return _or_infinite(jnp.max(jnp.where(impossible, 0.0, gap), axis=0))


def law_gap(one: jax.Array, other: jax.Array) -> jax.Array:
    """Total variation between laws given as log weights, `(W,)`, less what rounding explains."""
    distance = 0.5 * jnp.sum(jnp.abs(jax.nn.softmax(one, axis=0) - jax.nn.softmax(other, axis=0)), axis=0)
    size = jnp.max(jnp.where(jnp.isneginf(one), 0.0, jnp.abs(one)), axis=0)
    return _or_infinite(distance - _rounding(one.dtype) * size)


def proved_blocks(
    n_blocks: int,
    run: Callable[[Iterable[int], int], Iterator[Any]],
    agree: Callable[[int, Any, Any], bool],
    carried: Callable[[int, Any], Iterator[tuple[int, int, Any]]],
) -> Iterator[tuple[int, int, Any]]:
    """Run every block, in order, as `(index, reach, outcome)`, each proved before it goes out.

    `run(indices, reach)` guesses the edges of blocks from `reach` rows; `agree(index, previous, outcome)` proves them,
    given the outcome of the block before; `carried(begin, previous)` does the rest of the blocks without guessing.
    """
    previous, begin = None, 0
    for reach in REACHES:
        for outcome in run(range(begin, n_blocks), reach):
            if not agree(begin, previous, outcome):
                break
            yield begin, reach, outcome
            previous, begin = outcome, begin + 1
        if begin == n_blocks:
            return
    yield from carried(begin, previous)


def _rounding(dtype: Any) -> float:
    return 64 * float(jnp.finfo(dtype).eps)


def _or_infinite(gap: jax.Array) -> jax.Array:
    return jnp.where(jnp.isnan(gap), jnp.inf, gap)
