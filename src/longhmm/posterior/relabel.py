"""The numbering of states, by rising first component of the emission's location where the prior treats them alike: one
permutation per chain, never one per draw. The numbers of a draw are moved, never recomputed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.model.initialise import checked, exchangeable, permute, permuted, state_order
from longhmm.model.transitions.renumbering import matched

Params = Mapping[str, Any]
DRAWS_PER_STATE = 256
MARGIN = 0.1  # by how much a matching must beat the default order, so that noise never renumbers states
HARDLY = 0.1  # of a parameter's size, and of what lies between two states: no divergence need be computed
FARTHEST = 700.0  # logarithm of the largest divergence that is a number


def permute_coordinates(model: HMM, coordinates: Params, order: Any) -> dict[str, np.ndarray]:
    """The same for unconstrained coordinates, without passing through natural parameters that could underflow:
    log-ratio coordinates of permuted rows are an orthogonal transformation of the original ones."""
    order, transition, size = checked(model, order), np.asarray(coordinates["transition"]), model.transitions.n_free
    if size and np.any(order != np.arange(model.n_states)):  # the matrix that permutes is found by its action on units
        with jax.enable_x64(True):
            transition = transition @ np.asarray(_moved_units(model, order, np.eye(size)))
    return permuted(model, coordinates, order, {"transition": transition}, transition.ndim - 1)


@jax.jit
def _moved_units(model: HMM, order: jax.Array, units: jax.Array) -> jax.Array:
    """`(P, P)`, the coordinates of permuted matrices whose own coordinates are the units."""

    def moved(unit: jax.Array) -> jax.Array:
        return model.transitions.unconstrain(model.transitions.renumbered(model.transitions.constrain(unit), order))

    return jax.vmap(moved)(units)


def match_states(model: HMM, reference: Params, params: Params, *, otherwise: np.ndarray | None = None) -> np.ndarray:
    """The order in which the states of `params` come closest to those of `reference`, by the logarithm of the
    divergence between emissions, with the self-transition to break ties; `otherwise` is kept unless clearly beaten."""
    if otherwise is not None and _hardly_moved(model, reference, params, otherwise):
        return np.asarray(otherwise)
    # Where a density is so narrow that the divergence is no number, the states are as far apart as can be.
    cost = np.nan_to_num(np.log1p(_divergences(model, reference, params)), nan=FARTHEST, posinf=FARTHEST)
    stays = [np.diag(np.asarray(each["transition"])) for each in (reference, params)]
    cost = cost + 0.01 * np.abs(stays[0][:, None] - stays[1][None, :])
    states, best = np.arange(model.n_states), matched(model, cost)
    if otherwise is not None and cost[states, otherwise].sum() <= cost[states, best].sum() + MARGIN:
        return np.asarray(otherwise)
    return best


def _hardly_moved(model: HMM, reference: Params, params: Params, order: np.ndarray) -> bool:
    """Whether all parameters of each state are close to where they were, and any two states are further apart."""
    levels, close, apart = model.emission.state_levels(model.n_states), True, np.eye(model.n_states, dtype=bool)
    for name in set(model.emission.names) - set(model.emission.shared):
        one, other = (np.reshape(each[name], (len(each[name]), -1))[levels] for each in (reference, params))
        moved, gaps = np.abs(one - other[order]).max(axis=1), np.abs(one[:, None] - one[None]).max(axis=2)
        close = close and bool(np.all(moved <= HARDLY * np.abs(one).max()))
        apart |= np.maximum(moved[:, None], moved) < HARDLY * gaps
    return close and bool(apart.all())


def chain_orders(model: HMM, means: Sequence[Params], mode: Params | None) -> list[np.ndarray]:
    """One order per chain, given the mean parameters of each: all agree with the mode, or with the first chain."""
    if model.n_states == 1 or not exchangeable(model):
        return [np.arange(model.n_states)] * len(means)
    centre = means[0] if mode is None else mode
    base = state_order(model, centre)
    reference = permute(model, centre, base)
    return [
        match_states(model, reference, mean, otherwise=state_order(model, mean) if mode is None else base)
        for mean in means
    ]


def _divergences(model: HMM, reference: Params, params: Params) -> np.ndarray:
    """`(K, K)`, divergence of state j of `params` from state i of `reference`, over draws of the latter."""
    states = np.repeat(np.arange(model.n_states), DRAWS_PER_STATE)
    both = ({name: np.asarray(value) for name, value in each.items()} for each in (reference, params))
    try:
        with jax.enable_x64(True):
            own, logs = map(np.asarray, _log_likelihoods_of_draws(model, *both, states))
    except ModelError:  # the emission is the user's own and cannot draw
        return _distances(model, reference, params)
    own = own[np.arange(len(states)), states]
    gaps = np.clip(own[:, None] - logs, -1e6, 1e6).reshape(model.n_states, DRAWS_PER_STATE, model.n_states)
    return np.maximum(gaps.mean(axis=1), 0.0)


@jax.jit
def _log_likelihoods_of_draws(model: HMM, one: Any, other: Any, states: jax.Array) -> tuple[jax.Array, jax.Array]:
    values = model.emission.sample(jax.random.key(0), one, states)
    rows = Rows(values, jnp.ones(values.shape, bool))
    # States far out draw numbers too large to hold. Compiled, their densities are quietly not finite, which here
    # means: as far apart as can be.
    return model.log_likelihoods(one, rows), model.log_likelihoods(other, rows)


def _distances(model: HMM, reference: Params, params: Params) -> np.ndarray:
    """`(K, K)`, squared distance between the emission parameters of states, each parameter on its own scale."""
    levels = model.emission.state_levels(model.n_states)
    total = np.zeros((model.n_states, model.n_states))
    for name in set(model.emission.names) - set(model.emission.shared):
        one, other = (np.asarray(each[name], np.float64)[levels] for each in (reference, params))
        gaps = ((one[:, None] - other[None]) ** 2).reshape(*total.shape, -1).sum(axis=2)
        total += gaps / max(float(gaps.mean()), np.finfo(float).tiny)
    return total
