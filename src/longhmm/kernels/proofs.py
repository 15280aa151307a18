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

import numpy as np

from longhmm.kernels.blocks import Plan

REACHES = (64, 512)  # neighbourhoods tried before messages are carried from end to end
TOLERANCE = 1e-11  # log odds, or total variation, below which two messages count as the same
ROUNDING = 64 * float(np.finfo(np.float64).eps)  # what a logarithm may be wrong by, relative to its size


def pair(joints: np.ndarray, previous: Any, run: Any, left: str, right: str) -> tuple[np.ndarray, np.ndarray]:
    """Messages on both sides of every joint: field `left` of the earlier chunk and field `right` of the later one."""
    count = len(joints)
    earlier, later = getattr(run, left)[:, : count - 1], getattr(run, right)[:, :count]
    if previous is None:
        joints, later = joints[1:], later[:, 1:]
    else:
        earlier = np.concatenate([getattr(previous, left)[:, -1:], earlier], axis=1)
    return earlier[:, joints], later[:, joints]


def predicted(log_laws: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """Logarithm of each law `(K, J)` moved one step forward: what is too small to matter is gone after the step."""
    terms = log_laws[:, None, :] + _log(transition)[:, :, None]
    peak = _finite(terms.max(axis=0))
    return _log(np.exp(terms - peak).sum(axis=0)) + peak


def moved_scores(scores: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """Viterbi scores `(K, J)` moved one step forward."""
    return np.asarray((scores[:, None, :] + _log(transition)[:, :, None]).max(axis=0))


def same_messages(one: np.ndarray, other: np.ndarray, tolerance: float = TOLERANCE) -> bool:
    """Whether corresponding columns of two sets of log messages `(K, J)` agree up to a constant each."""
    if one.shape[1] == 0:
        return True
    one, other = one - _finite(one.max(axis=0)), other - _finite(other.max(axis=0))
    if not np.array_equal(np.isneginf(one), np.isneginf(other)):
        return False
    gap = np.abs(_finite(one) - _finite(other))
    return bool(np.all(gap <= tolerance + ROUNDING * np.abs(_finite(one))))  # NaN is refused


def same_laws(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether corresponding columns of log weights `(K, J)`, once normalised, agree in total variation."""
    if one.shape[1] == 0:
        return True
    one_law, other_law = normalised(one), normalised(other)
    distance = 0.5 * np.abs(one_law - other_law).sum(axis=0)
    size = np.abs(_finite(one)).max(axis=0)
    return bool(np.all(distance <= TOLERANCE + ROUNDING * size))


def settled(log_law: np.ndarray, endings: np.ndarray) -> bool:
    """Whether rows to the right fix the state at an edge whatever state they end in.

    Args:
        log_law: `(K,)`, logarithm of the law at the edge given everything to its left.
        endings: `(K, K)`, logarithm, up to a constant for each k, of `p(the rows, x_end = k | x_edge = i)` at `[i, k]`.
    """
    joint = log_law[:, None] + endings
    joint = joint[:, np.isfinite(joint.max(axis=0))]  # an end that cannot be reached says nothing
    return same_laws(joint, np.repeat(joint[:, :1], joint.shape[1], axis=1))


def normalised(logs: np.ndarray) -> np.ndarray:
    """Log weights as probabilities over the first axis."""
    weights = np.exp(logs - _finite(logs.max(axis=0)))
    with np.errstate(invalid="ignore"):
        return np.asarray(weights / weights.sum(axis=0))


def proved_blocks(
    plan: Plan,
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
        for outcome in run(range(begin, plan.n_blocks), reach):
            if not agree(begin, previous, outcome):
                break
            yield begin, reach, outcome
            previous, begin = outcome, begin + 1
        if begin == plan.n_blocks:
            return
    yield from carried(begin, previous)


def _log(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def _finite(logs: np.ndarray) -> np.ndarray:
    return np.where(np.isneginf(logs), 0.0, logs)
