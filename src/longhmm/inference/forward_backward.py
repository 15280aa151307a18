"""Smoothing: the posterior of states and of transitions given all observations of a window.

The recursion runs on likelihoods divided by their peak, which is fast. The backward messages carry the forward
normalisers, so `beta[t, k] = p(later | x_t = k) / p(later | y_0 .. y_t)`; underflow takes at most `(K + 2) tiny / c_t`
from `alpha[t, k]` and changes the likelihood by a relative `beta[t, k]` times that. A bounded `beta / c` is therefore a
proof that nothing was lost, provided that beta itself was not: it gets at every step at least what underflow may have
taken, which makes it an upper bound and changes posteriors by no more. Windows without that proof are redone on
logarithms.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from longhmm.inference.forward import first_impossible, log_forward, scaled_forward
from longhmm.inference.scaling import (
    first_law,
    least_normaliser,
    log_first_law,
    log_sum_exp,
    peak_scaled,
    pull_back,
    safe_log,
)


class Smoothed(NamedTuple):
    """The outcome of forward-backward over a batch of windows.

    Attributes:
        gamma: `(time, K, W)`, `P(x_t = k | all y of the window)`.
        transitions: `(K, K, W)`, the sum over core times t of `xi_t(i, j) = P(x_{t-1} = i, x_t = j | all y)`.
        log_normaliser: `(time, W)`, `log p(y_t | y_0 .. y_{t-1})`.
        impossible_at: `(W,)`, the first time whose observation no reachable state allows, or -1.
        log_leaving: `(K, W)`, logarithm of `P(x_t = k | y_0 .. y_t)` at the window's last time.
        log_entering: `(K, W)`, logarithm, up to a constant, of `p(all y and what follows | x_{-1} = k)`: the backward
            message at the window's left edge (of no use for windows at the start of a sequence).
        log_alpha, log_beta: `(time, K, W)`, the messages of both recursions at every time, up to a constant each.
    """

    gamma: jax.Array
    transitions: jax.Array
    log_normaliser: jax.Array
    impossible_at: jax.Array
    log_leaving: jax.Array
    log_entering: jax.Array
    log_alpha: jax.Array
    log_beta: jax.Array


def forward_backward(
    log_before: jax.Array,
    log_after: jax.Array,
    at_start: jax.Array,
    initial: jax.Array,
    transition: jax.Array,
    log_likelihoods: jax.Array,
    core: jax.Array,
    *,
    messages: bool = False,
) -> Smoothed:
    """Run the forward and the backward recursion over a batch of windows.

    Args:
        log_before: `(K, W)`, logarithm of the law of the state just before each window's first time.
        log_after: `(K, W)`, backward message at the last time: logarithm, up to a constant, of
            `p(y after the window | x_last = k)`; zeros at the end of a sequence or where nothing is known.
        at_start: `(W,)`, True where the window begins at the first observation of its sequence.
        initial: `(K,)`, law of the state of a sequence's first observation.
        transition: `(K, K)`, `A[i, j] = P(x_t = j | x_{t-1} = i)`.
        log_likelihoods: `(time, K, W)`, `log p(y_t | x_t = k)`; 0 where missing or padding.
        core: `(time, W)`, weight of each time in `transitions`: 1 in the core, 0 elsewhere.
        messages: whether forward messages serve what follows the window: what makes no difference here may make one
            there, so that their small entries are kept.
    """
    # A sequence's first observation has no transition into it: the initial-state term stands in its place.
    core = core.astype(log_likelihoods.dtype)
    into = core.at[0].set(jnp.where(at_start, 0.0, core[0]))
    arguments = (log_before, log_after, at_start, initial, transition, log_likelihoods, into)

    smoothed, proved = _linear(*arguments, messages)
    return jax.lax.cond(jnp.all(proved), lambda: smoothed, lambda: _logarithmic(*arguments))


def _linear(
    log_before: jax.Array,
    log_after: jax.Array,
    at_start: jax.Array,
    initial: jax.Array,
    transition: jax.Array,
    log_likelihoods: jax.Array,
    into: jax.Array,
    messages: bool,
) -> tuple[Smoothed, jax.Array]:
    likelihoods, peak = peak_scaled(log_likelihoods)
    first = first_law(log_before, at_start, initial, transition)
    alpha, normaliser = scaled_forward(first, transition, likelihoods)
    length, n_states = alpha.shape[:2]
    limits = jnp.finfo(alpha.dtype)
    taken = (n_states + 2) * limits.tiny
    scale = 1.0 / jnp.where(normaliser > 0, normaliser, 1.0)[:, None, :]
    after = jnp.maximum(jnp.exp(log_after - jnp.max(log_after, axis=0)), limits.tiny)
    # Scaled so that sum_k alpha beta = 1 at the last time, hence at every time.
    last = after / jnp.sum(alpha[-1] * after, axis=0)

    def step(beta: jax.Array, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
        return pull_back(transition, weight * beta) + taken, beta

    entering, beta = jax.lax.scan(step, last, jnp.maximum(likelihoods, limits.tiny) * scale, reverse=True)
    gamma = alpha * beta
    previous = jnp.concatenate([jnp.exp(log_before)[None], alpha[:-1]])
    weighted = likelihoods * scale * beta * into[:, None, :]
    transitions = transition[:, :, None] * jnp.einsum("tiw,tjw->ijw", previous, weighted)

    bound = limits.eps / (length * n_states * taken)
    proved = jnp.all(jnp.max(beta, axis=1) < bound * normaliser, axis=0) & (jnp.max(entering, axis=0) < bound)
    log_normaliser = safe_log(normaliser) + peak
    never = jnp.full(log_before.shape[1:], -1, jnp.int32)

    log_alpha = safe_log(alpha)
    if messages:

        def in_log_space() -> jax.Array:
            log_transition = safe_log(transition)
            log_first = log_first_law(log_before, at_start, initial, log_transition)
            return log_forward(log_first, log_transition, log_likelihoods)[0]

        sound = jnp.all(normaliser > least_normaliser(transition, length))
        log_alpha = jax.lax.cond(sound, lambda: log_alpha, in_log_space)
    ends = (log_alpha[-1], safe_log(entering))
    smoothed = Smoothed(gamma, transitions, log_normaliser, never, *ends, log_alpha, safe_log(beta))
    return smoothed, proved


def _logarithmic(
    log_before: jax.Array,
    log_after: jax.Array,
    at_start: jax.Array,
    initial: jax.Array,
    transition: jax.Array,
    log_likelihoods: jax.Array,
    into: jax.Array,
) -> Smoothed:
    log_transition = safe_log(transition)
    log_first = log_first_law(log_before, at_start, initial, log_transition)
    log_alpha, log_normaliser = log_forward(log_first, log_transition, log_likelihoods)
    impossible_at = first_impossible(log_normaliser)
    previous = jnp.concatenate([log_before[None], log_alpha[:-1]])

    Carry = tuple[jax.Array, jax.Array]

    def scaled(log_beta: jax.Array, log_law: jax.Array) -> tuple[jax.Array, jax.Array]:
        """So that `sum_k alpha beta = 1`, at every time anew: rounding does not add up; and by what it was divided."""
        size = log_sum_exp(log_law + log_beta, 0)
        size = jnp.where(jnp.isneginf(size), 0.0, size)
        return log_beta - size, size

    def step(carry: Carry, inputs: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[Carry, jax.Array]:
        log_beta, transitions = carry
        log_likelihood, before_step, counts = inputs
        onward = log_transition[:, :, None] + (log_likelihood + log_beta)[None, :, :]
        earlier, size = scaled(log_sum_exp(onward, 1), before_step)
        transitions = transitions + counts * jnp.exp(before_step[:, None, :] + onward - size)
        return (earlier, transitions), log_beta

    n_states, n_windows = log_before.shape
    carry = (scaled(log_after, log_alpha[-1])[0], jnp.zeros((n_states, n_states, n_windows), log_alpha.dtype))
    (log_entering, transitions), log_beta = jax.lax.scan(step, carry, (log_likelihoods, previous, into), reverse=True)
    possible = impossible_at < 0
    gamma = jnp.where(possible, jnp.exp(log_alpha + log_beta), 0.0)
    transitions = jnp.where(possible, transitions, 0.0)
    # An impossible window passes on ignorance, so that what follows it is not drowned in NaN.
    log_leaving = jnp.where(possible, log_alpha[-1], -jnp.log(float(n_states)))
    log_entering = jnp.where(possible, log_entering, 0.0)
    ends = (log_leaving, log_entering)
    return Smoothed(gamma, transitions, log_normaliser, impossible_at, *ends, log_alpha, log_beta)
