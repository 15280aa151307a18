"""What a gradient needs of the data: expected first states, expected transitions, and the emission's score.

By Fisher's identity (F8) the gradient of the log likelihood is the posterior expectation of the complete-data score,
so these three, with the posteriors held constant, are all that ever has to be summed over observations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.data.windows import WindowBatch
from longhmm.messages.forward_backward import forward_backward
from longhmm.messages.scaling import safe_log
from longhmm.model.hmm import HMM


class Statistics(NamedTuple):
    """Expected complete-data statistics, of each window (leading axis W) or summed (no leading axis).

    Attributes:
        first: `(..., K)`, sum of `P(x = k | y)` over first observations of sequences in the core.
        transitions: `(..., K, K)`, sum over core times of `xi_t(i, j)`.
        emission: for every free emission parameter, the derivative of `sum_t sum_k gamma_t(k) log p(y_t | k)` with
            respect to its natural value, `(..., *shape)`.
        log_likelihood: `(...)`, sum over core times of `log p(y_t | earlier y in the window)`.
    """

    first: Any
    transitions: Any
    emission: dict[str, Any]
    log_likelihood: Any

    def total(self, weights: jax.Array) -> Statistics:
        """The sum over windows, each times its weight, taken in double precision."""
        return jax.tree.map(lambda each: weighted_sum(weights, each).astype(each.dtype), self)


def weighted_sum(weights: jax.Array, parts: jax.Array) -> jax.Array:
    """`sum_w weights[w] parts[w]` in float64, whatever comes in and wherever it runs."""
    with jax.enable_x64(True):
        # No matrix product: under `jax.vmap` its type would be chosen anew, outside of this scope.
        by = weights.astype(jnp.float64).reshape(-1, *[1] * (parts.ndim - 1))
        return jnp.sum(by * parts.astype(jnp.float64), axis=0)


def free_emission(model: HMM, params: Mapping[str, Any]) -> dict[str, Any]:
    """The emission's free parameters, by name."""
    table = model.emission.parameters(model.n_states)
    return {name: params[name] for name, parameter in table.items() if parameter.is_free}


def window_statistics(
    model: HMM, params: Mapping[str, jax.Array], windows: WindowBatch, start: jax.Array, *, partial: bool = True
) -> Statistics:
    """Expected statistics of the core of every window, from forward-backward over buffer, core and buffer.

    Args:
        params: natural parameters.
        windows: a batch of W windows.
        start: `(K,)`, law of the state before each window that does not begin its sequence.
        partial: False promises that no row is observed in part only.
    """
    free = free_emission(model, params)

    def logs_of_one(window: tuple[Any, Any, Any]) -> tuple[jax.Array, Any]:
        def logs(values: dict[str, jax.Array]) -> jax.Array:
            return model.log_likelihoods({**params, **values}, *window, partial=partial)

        return jax.vjp(logs, free)

    # One evaluation of the density serves the recursion and, later, the score of each window.
    logs, pull = jax.vmap(logs_of_one)((windows.values, windows.observed, windows.states))
    core, gamma, smoothed = smooth_windows(params, windows, start, logs)
    weights = jnp.moveaxis(gamma, 2, 0)
    emission = jax.vmap(lambda one, weight: one(weight)[0])(pull, weights)
    first = jnp.where(windows.at_start & (windows.core_start == 0), gamma[0], 0.0).T
    log_likelihood = jnp.sum(smoothed.log_normaliser * core, axis=0)
    return Statistics(first, jnp.moveaxis(smoothed.transitions, 2, 0), emission, log_likelihood)


def smooth_windows(
    params: Mapping[str, jax.Array], windows: WindowBatch, start: jax.Array, logs: jax.Array
) -> tuple[jax.Array, jax.Array, Any]:
    """Forward-backward over windows with `logs` `(W, time, K)`: core mask `(time, W)`, gamma in the core, and all."""
    times = jnp.arange(logs.shape[1])[:, None]
    core = ((times >= windows.core_start) & (times < windows.core_stop)).astype(logs.dtype)
    before = jnp.broadcast_to(safe_log(start)[:, None], (start.shape[0], logs.shape[0]))
    smoothed = forward_backward(
        before,
        jnp.zeros_like(before),
        windows.at_start,
        params["initial"],
        params["transition"],
        jnp.transpose(logs, (1, 2, 0)),
        core,
    )
    return core, smoothed.gamma * core[:, None, :], smoothed


def mixture_statistics(
    params: Mapping[str, jax.Array], find: Callable[[Mapping[str, jax.Array]], Statistics]
) -> Statistics:
    """The same for observations taken as independent: a mixture whose weights are the mean of the rows of `A`.

    `find` gives the statistics of windows at the parameters of a chain that forgets everything at every step. With
    `w_j = sum_i A[i, j] / K`, the derivative with respect to `A[i, j]` has the form of expected transitions: the
    responsibility of state j is shared out over the rows in proportion to `A[i, j]`.
    """
    transition = params["transition"]
    weights = jnp.mean(transition, axis=0)
    flat = {**params, "transition": jnp.broadcast_to(weights, transition.shape), "initial": weights}
    statistics = find(flat)
    visits = statistics.first + jnp.sum(statistics.transitions, axis=-2)
    reached = jnp.sum(transition, axis=0)
    share = transition / jnp.where(reached > 0, reached, 1.0)  # a state that no row leads to has no visits
    return statistics._replace(first=jnp.zeros_like(statistics.first), transitions=visits[..., None, :] * share)
