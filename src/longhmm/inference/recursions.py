"""Recursions over the rows of chunks: filter, smoother, and what paths are made of, for every kind of potentials.

A row says `M_t(i, j) = p(x_t = j, y_t | x_{t-1} = i)`: a transition matrix times likelihoods. These are given apart, so
that nothing of size K x K is made for each row where one matrix serves all of them.

Recursions run on likelihoods divided by their peak, which is fast. Backward messages carry the forward normalisers, so
`beta[t, k] = p(later | x_t = k) / p(later | y_0 .. y_t)`; underflow takes at most `(K + 2) tiny / c_t` from
`alpha[t, k]` and changes the likelihood by a relative `beta[t, k]` times that. A bounded `beta / c` shows that
nothing was lost, provided that beta itself was not: it gets at every step at least what underflow may have taken, which
makes it an upper bound and changes posteriors by no more. Otherwise all is done again in log space.

Arrays are shaped (time, state, chunk) or (time, from, to, chunk).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.inference.scaling import at_zero, least_normaliser, log_sum_exp, peak_scaled, safe_log

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Integer

# Up to this many states a broadcast product is faster than a call of the matrix library (measured on two cores).
BROADCAST_STATES = 16


class Steps(NamedTuple):
    """What leads from row to row of W chunks: `A[i, j] = P(x_t = j | x_{t-1} = i)`, one matrix or those of the steps
    into rows; and `log p(y_t | x_t = k)`, or of pairs of states, 0 where the observation is missing or padding."""

    matrices: Float[jax.Array, "K K"] | Float[jax.Array, "time K K W"]
    log_likelihoods: Float[jax.Array, "time K W"] | Float[jax.Array, "time K K W"]
    initial: Float[jax.Array, " K"]  # distribution of the state at a sequence's first row; of pairs, before it
    opens: Bool[jax.Array, " W"]  # True where a chunk begins at the first row of its sequence

    @property
    def pairs(self) -> bool:
        return self.log_likelihoods.ndim == 4

    @property
    def varying(self) -> jax.Array | None:
        return self.matrices if self.matrices.ndim == 4 else None

    @property
    def each_matrix(self) -> jax.Array:
        """`(time, K, K, W)`, or ones in the place of what they do not depend on."""
        return self.matrices if self.matrices.ndim == 4 else self.matrices[None, :, :, None]

    @property
    def by_pair(self) -> bool:
        return self.pairs or self.varying is not None


class Smoothed(NamedTuple):
    """The outcome of both recursions; of the forward one alone, given the rows so far, and without transitions."""

    gamma: Float[jax.Array, "time K W"]  # `P(x_t = k | all y of the chunk)`
    transitions: Float[jax.Array, "K K W"]  # sum over core times of `xi_t(i, j) = P(x_{t-1} = i, x_t = j | all y)`
    pairs: Float[jax.Array, "time K K W"] | None  # `xi_t` of core times, where matrices vary or likelihoods couple
    log_normaliser: Float[jax.Array, "time W"]  # `log p(y_t | y_0 .. y_{t-1})`; together, the log likelihood
    log_forward: Float[jax.Array, "time+1 K W"]  # of `P(x_t = k | y_0 .. y_t)`; the first is the one before the chunk
    log_backward: Float[jax.Array, "time+1 K W"]  # `log p(y_t .. | x_{t-1} = k) + constant`; the last is the one behind
    impossible_at: Integer[jax.Array, " W"]  # the first time whose observation no reachable state allows, or -1


class Ring(NamedTuple):
    """How weights are joined: along a path, over paths, and divided by a total."""

    times: Callable[[Any, Any], jax.Array]
    total: Callable[[Any, int], jax.Array]
    over: Callable[[Any, Any], jax.Array]


def _less(values: jax.Array, size: jax.Array) -> jax.Array:
    return values - jnp.where(jnp.isneginf(size), 0.0, size)


LINEAR = Ring(jnp.multiply, jnp.sum, lambda values, size: values / jnp.where(size > 0, size, 1.0))
LOG = Ring(jnp.add, log_sum_exp, _less)
BEST = Ring(jnp.add, jnp.max, _less)


def filtered(log_before: jax.Array, steps: Steps) -> Smoothed:
    """The forward recursion (F3, F4), from the log distribution `(K, W)` of the state just before each chunk."""
    log_before, steps = _opened(log_before, steps)
    likelihoods, peak = peak_scaled(steps.log_likelihoods)
    alpha, normaliser = _forward(LINEAR, jnp.exp(log_before), steps._replace(log_likelihoods=likelihoods))
    log_alpha, log_normaliser = _unless_lost(log_before, steps, normaliser, _logs(log_before, alpha, normaliser, peak))
    gamma, (n, size) = jnp.exp(log_alpha[1:]), log_before.shape
    none = jnp.zeros((n, n, size), gamma.dtype)
    pairs = jnp.zeros((len(gamma), *none.shape), gamma.dtype) if steps.by_pair else None
    if steps.pairs:
        joint = log_alpha[:-1, :, None] + (safe_log(steps.each_matrix) + steps.log_likelihoods)
        pairs = jnp.exp(_less(joint, log_normaliser[:, None, None]))
    uniform, impossible_at = jnp.zeros_like(log_alpha), _first_impossible(log_normaliser)
    return Smoothed(gamma, none, pairs, log_normaliser, log_alpha, uniform, impossible_at)


def smoothed(
    log_before: jax.Array, log_after: jax.Array, steps: Steps, core: jax.Array, *, messages: bool = False
) -> Smoothed:
    """Both recursions (F3, F5), from the log distribution `(K, W)` of the state just before each chunk and the log
    likelihood `(K, W)` of what lies behind it, up to a constant.

    `core` `(time, W)`: True in the core. `messages`: whether forward messages serve what follows the chunk: what makes
    no difference here may make one there, so that their small entries are kept.
    """
    log_before, steps = _opened(log_before, steps)
    # A sequence's first observation has no transition into it: the initial-state term stands in its place.
    core = core.astype(steps.log_likelihoods.dtype)
    into = core.at[0].set(jnp.where(steps.opens, 0.0, core[0]))
    found, sound = _smoothed_linear(log_before, log_after, steps, into, messages)
    return jax.lax.cond(sound, lambda: found, lambda: _smoothed_in_logs(log_before, log_after, steps, into))


def path_messages(log_before: jax.Array, steps: Steps, *, best: bool) -> tuple[jax.Array, jax.Array]:
    """In log space, as in `Smoothed`: messages and normalisers; or scores of the best path into each state, the best of
    them moved to 0, and by how much."""
    log_before, steps = _opened(log_before, steps)
    return _forward(BEST if best else LOG, log_before, _in_logs(steps))


def path_origins(messages: jax.Array, steps: Steps, uniforms: jax.Array | None) -> jax.Array:
    """`origins[t, j, w]`: the state before time t of the best path into state j; or, with `uniforms` `(time, W)`, drawn
    in proportion to `alpha(i) M_t(i, j)`, with one number for all j (F7)."""
    logs = steps.log_likelihoods if steps.pairs else steps.log_likelihoods[:, None]
    weights = messages[:-1, :, None, :] + (safe_log(steps.each_matrix) + logs)
    return jnp.argmax(weights, axis=1).astype(jnp.int32) if uniforms is None else drawn(weights, uniforms[:, None, :])


def drawn(log_weights: jax.Array, uniforms: jax.Array) -> jax.Array:
    """A state drawn in proportion to `(time, K, ...)` weights for each number `(time, ...)`."""
    weights = jnp.exp(at_zero(log_weights, 1))
    cumulative = jnp.cumsum(weights, axis=1)
    below = cumulative <= uniforms[:, None] * cumulative[:, -1:]
    # Counting partial sums at or below the threshold can never choose a state of probability 0.
    return jnp.minimum(jnp.sum(below, axis=1), log_weights.shape[1] - 1).astype(jnp.int32)


def _opened(log_before: jax.Array, steps: Steps) -> tuple[jax.Array, Steps]:
    """Of pairs, the state before the first row has the initial distribution, and its step is like any other."""
    if not steps.pairs:
        return log_before, steps
    before = jnp.where(steps.opens, safe_log(steps.initial)[:, None], log_before)
    return before, steps._replace(opens=jnp.zeros_like(steps.opens))


def _in_logs(steps: Steps) -> Steps:
    return steps._replace(matrices=safe_log(steps.matrices), initial=safe_log(steps.initial))


def _moved(ring: Ring, steps: Steps, matrix: Any, likelihood: jax.Array, message: jax.Array, axis: int) -> jax.Array:
    """`sum_i message[i] A[i, j]` for axis 0, `sum_j A[i, j] message[j]` for axis 1; of pairs with their likelihoods."""
    if ring is LINEAR and matrix is None and not steps.pairs and len(steps.matrices) > BROADCAST_STATES:
        return jnp.einsum("ij,iw->jw" if axis == 0 else "ij,jw->iw", steps.matrices, message)
    operator = steps.matrices[:, :, None] if matrix is None else matrix
    operator = ring.times(operator, likelihood) if steps.pairs else operator
    return ring.total(ring.times(operator, jnp.expand_dims(message, 1 - axis)), axis)


def _forward(ring: Ring, before: jax.Array, steps: Steps) -> tuple[jax.Array, jax.Array]:
    """Messages `(time + 1, K, W)`, divided by their totals, and these `(time, W)`; all numbers are the ring's."""

    def step(message: jax.Array, row: tuple[Any, jax.Array, jax.Array]) -> tuple[jax.Array, tuple[jax.Array, Any]]:
        matrix, likelihood, first = row
        joint = _moved(ring, steps, matrix, likelihood, message, 0)
        if not steps.pairs:
            joint = ring.times(jnp.where(first & steps.opens, steps.initial[:, None], joint), likelihood)
        normaliser = ring.total(joint, 0)
        message = ring.over(joint, normaliser)
        return message, (message, normaliser)

    rows = (steps.varying, steps.log_likelihoods, jnp.arange(len(steps.log_likelihoods)) == 0)
    _, (messages, normalisers) = jax.lax.scan(step, before, rows)
    return jnp.concatenate([before[None], messages]), normalisers


Logs = tuple[jax.Array, jax.Array]  # messages and normalisers


def _logs(log_before: jax.Array, forward: jax.Array, normaliser: jax.Array, peak: jax.Array) -> Logs:
    return safe_log(forward).at[0].set(log_before), safe_log(normaliser) + peak


def _unless_lost(log_before: jax.Array, steps: Steps, normaliser: jax.Array, found: Logs) -> Logs:
    """What a linear recursion has found, unless underflow may have taken something; else it is done in log space."""
    least = jnp.inf if steps.pairs else least_normaliser(steps.matrices, len(normaliser))
    again = partial(_forward, LOG, log_before, _in_logs(steps))
    return jax.lax.cond(jnp.all(normaliser > least), lambda: found, again)


def _smoothed_linear(
    log_before: jax.Array, log_after: jax.Array, steps: Steps, into: jax.Array, messages: bool
) -> tuple[Smoothed, jax.Array]:
    """What was found, and whether underflow took nothing that matters."""
    likelihoods, peak = peak_scaled(steps.log_likelihoods)
    linear = steps._replace(log_likelihoods=likelihoods)
    forward, normaliser = _forward(LINEAR, jnp.exp(log_before), linear)
    length, n_states = len(normaliser), log_before.shape[0]
    limits = jnp.finfo(forward.dtype)
    taken = (n_states + 2) * limits.tiny
    scale = jnp.expand_dims(LINEAR.over(1.0, normaliser), range(1, likelihoods.ndim - 1))
    after = jnp.maximum(jnp.exp(log_after - jnp.max(log_after, axis=0)), limits.tiny)
    # Scaled so that sum_k alpha beta = 1 at the last time, hence at every time.
    last = after / jnp.sum(forward[-1] * after, axis=0)

    def step(beta: jax.Array, row: tuple[Any, jax.Array]) -> tuple[jax.Array, jax.Array]:
        matrix, weight = row
        onward = beta if steps.pairs else weight * beta
        return _moved(LINEAR, linear, matrix, weight, onward, 1) + taken, beta

    entering, beta = jax.lax.scan(
        step, last, (steps.varying, jnp.maximum(likelihoods, limits.tiny) * scale), reverse=True
    )
    weighted = likelihoods * scale
    pairs = None
    if steps.by_pair:
        onward = weighted * beta[:, None] if steps.pairs else (weighted * beta)[:, None]
        pairs = forward[:-1, :, None] * steps.each_matrix * onward * into[:, None, None]
        transitions = jnp.sum(pairs, axis=0)
    else:
        made = jnp.einsum("tiw,tjw->ijw", forward[:-1], weighted * beta * into[:, None])
        transitions = steps.matrices[:, :, None] * made
    bound = limits.eps / (length * n_states * taken)
    sound = jnp.all(jnp.max(beta, axis=1) < bound * normaliser) & jnp.all(jnp.max(entering, axis=0) < bound)
    logs = _logs(log_before, forward, normaliser, peak)
    log_forward, log_normaliser = _unless_lost(log_before, steps, normaliser, logs) if messages else logs
    log_backward = safe_log(jnp.concatenate([entering[None], beta]))
    never = jnp.full(log_before.shape[1:], -1, jnp.int32)
    return Smoothed(forward[1:] * beta, transitions, pairs, log_normaliser, log_forward, log_backward, never), sound


def _smoothed_in_logs(log_before: jax.Array, log_after: jax.Array, steps: Steps, into: jax.Array) -> Smoothed:
    logs = _in_logs(steps)
    log_forward, log_normaliser = _forward(LOG, log_before, logs)
    Carry = tuple[jax.Array, jax.Array]

    def scaled(log_beta: jax.Array, message: jax.Array) -> tuple[jax.Array, jax.Array]:
        """So that `sum_k alpha beta = 1`, at every time anew: rounding does not add up; and by what it was divided."""
        size = log_sum_exp(message + log_beta, 0)
        return _less(log_beta, size), jnp.where(jnp.isneginf(size), 0.0, size)

    def step(carry: Carry, row: tuple[Any, jax.Array, jax.Array, jax.Array]) -> tuple[Carry, tuple[jax.Array, Any]]:
        log_beta, transitions = carry
        matrix, log_likelihood, before, counted = row
        behind = log_likelihood + log_beta[None] if steps.pairs else (log_likelihood + log_beta)[None]
        onward = (logs.matrices[:, :, None] if matrix is None else matrix) + behind
        earlier, size = scaled(log_sum_exp(onward, 1), before)
        pairs = counted * jnp.exp(before[:, None, :] + onward - size)
        return (earlier, transitions + pairs), (log_beta, pairs if steps.by_pair else None)

    shape = (log_before.shape[0], *log_before.shape)
    carry = (scaled(log_after, log_forward[-1])[0], jnp.zeros(shape, log_forward.dtype))
    rows = (logs.varying, logs.log_likelihoods, log_forward[:-1], into)
    (entering, transitions), (log_beta, pairs) = jax.lax.scan(step, carry, rows, reverse=True)
    impossible_at = _first_impossible(log_normaliser)
    # An impossible chunk counts nothing, and passes a uniform message on, so that what comes before it is not NaN.
    possible = impossible_at < 0
    gamma, transitions = (jnp.where(possible, each, 0.0) for each in (jnp.exp(log_forward[1:] + log_beta), transitions))
    pairs = None if pairs is None else jnp.where(possible, pairs, 0.0)
    log_backward = jnp.concatenate([jnp.where(possible, entering, 0.0)[None], log_beta])
    return Smoothed(gamma, transitions, pairs, log_normaliser, log_forward, log_backward, impossible_at)


def _first_impossible(log_normaliser: jax.Array) -> jax.Array:
    zero = jnp.isneginf(log_normaliser)
    return jnp.where(zero.any(axis=0), jnp.argmax(zero, axis=0), -1).astype(jnp.int32)
