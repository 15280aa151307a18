"""States whose dwell times are not geometric, as phases: a chain of S states becomes one of S times D phases, in which
all that is computed of a hidden Markov model holds, and whose answers are folded back to those of the S states.

From phase d of state i the chain stays, goes on to phase d + 1, or leaves for the first phase of another state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from longhmm.inference.scaling import safe_log
from longhmm.model.registry import EMISSIONS
from longhmm.model.transitions.hazards import running_sum

_models: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # those of phases, which are made once


def log_times(moves: Any, parameter: jax.Array) -> jax.Array:
    """`(S, D)`, logarithm of the expected rows in every phase of a visit."""
    steps, (stays, goes) = moves.steps(parameter), moves.possible
    # Where a phase does not repeat itself it is left for certain.
    away = jnp.logaddexp(jnp.where(goes, steps.onward, -jnp.inf), steps.leave)
    reached = running_sum(jnp.where(goes, steps.onward - jnp.where(stays, away, 0.0), 0.0))
    before = jnp.concatenate([jnp.zeros_like(reached[:, :1]), reached[:, :-1]], axis=1)
    return before - jnp.where(stays, away, 0.0)


def log_shares(moves: Any, parameter: jax.Array) -> jax.Array:
    """`(S, D)`, logarithm of the probability of every phase of a state at any time in the long run."""
    logs = log_times(moves, parameter)
    return logs - logsumexp(logs, axis=1, keepdims=True)


def long_run(moves: Any, parameter: jax.Array) -> jax.Array:
    """`(S, S)`, how often, in the long run, a row in one state is followed by one in each: the chain of S states with
    the same mean dwell times and the same share of time in each state."""
    mean = jnp.exp(logsumexp(log_times(moves, parameter), axis=1))
    return jnp.diag(1.0 - 1.0 / mean) + moves.exits(parameter) / mean[:, None]


def expand(moves: Any, parameter: jax.Array, initial: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The transition matrix `(M, M)` and the initial distribution `(M,)` of the M = S D phases."""
    size, length = moves.n_states, moves.phases
    stays, goes = moves.possible
    steps, (state, phase) = moves.steps(parameter), np.divmod(np.arange(size * length), length)
    stay, onward = jnp.exp(steps.stay) * stays, jnp.exp(steps.onward) * goes
    found = jnp.zeros((size, length, size, length), parameter.dtype)
    found = found.at[:, :, :, 0].set(jnp.exp(steps.leave)[..., None] * moves.exits(parameter)[:, None, :])
    found = found.at[state, phase, state, phase].add(stay.ravel())
    found = found.at[state, phase, state, np.minimum(phase + 1, length - 1)].add(onward.ravel())
    return found.reshape(size * length, -1), start_in(moves, parameter, initial)


def start_in(moves: Any, parameter: jax.Array, distribution: jax.Array) -> jax.Array:
    """`(M,)` from the distribution `(S,)` of the first state."""
    begun = np.arange(moves.phases) == 0
    share = jnp.exp(log_shares(moves, parameter)) if not moves.fresh else jnp.asarray(begun, parameter.dtype)
    return jnp.ravel(jnp.asarray(distribution)[:, None] * share)


def slopes(moves: Any, parameter: jax.Array, first: jax.Array, transitions: jax.Array) -> jax.Array:
    """Derivative of the log likelihood by the parameter, the initial distribution of states held, from expected first
    phases `(..., M)` and transitions between phases `(..., M, M)`: that of their expected log probability (F8)."""
    size, length = moves.n_states, moves.phases
    (stays, goes), each, others = moves.possible, np.arange(length), 1.0 - np.eye(size)

    def expected(at: jax.Array, first: jax.Array, counts: jax.Array) -> jax.Array:
        steps = moves.steps(at)
        own = jnp.diagonal(counts, axis1=0, axis2=2)  # (D, D, S)
        left = counts[:, :, :, 0] * others[:, None, :]
        total = jnp.sum(stays * own[each, each].T * steps.stay) + jnp.sum(jnp.sum(left, axis=2) * steps.leave)
        total += jnp.sum((goes * own[each, np.minimum(each + 1, length - 1)].T) * steps.onward)
        total += jnp.sum(jnp.sum(left, axis=1) * jnp.where(others > 0, safe_log(moves.exits(at)), 0.0))
        return total if moves.fresh else total + jnp.sum(first * log_shares(moves, at))

    def of_one(first: jax.Array, counts: jax.Array) -> jax.Array:
        return jax.grad(expected)(parameter, first, counts)

    shape = (size, length)
    first = jnp.asarray(first, parameter.dtype).reshape(*first.shape[:-1], *shape)
    counts = jnp.asarray(transitions, parameter.dtype).reshape(*transitions.shape[:-2], *shape, *shape)
    for _ in range(counts.ndim - 4):
        of_one = jax.vmap(of_one)
    return of_one(first, counts)


_expand, _start_in, _slopes = jax.jit(expand), jax.jit(start_in), jax.jit(slopes)


class Phases:
    """What folds answers about phases back, at some parameters of the model with S states."""

    def __init__(self, moves: Any, params: Mapping[str, Any]) -> None:
        self.moves, self.params, self.shape = moves, params, (moves.n_states, moves.phases)

    def _computed(self, inside: Any, compiled: Any, *arrays: Any) -> Any:
        """In a program as part of it; of arrays on the host, in double precision, by a program of its own."""
        parameter = self.params[self.moves.parameter]
        if not isinstance(parameter, np.ndarray):
            return inside(self.moves, parameter, *arrays)
        with jax.enable_x64(True):
            return jax.tree.map(np.array, compiled(self.moves, parameter, *map(np.asarray, arrays)))

    def expand(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters of the chain of phases."""
        transition, initial = self._computed(expand, _expand, params["initial"])
        kept = {name: value for name, value in params.items() if name != self.moves.parameter}
        return {**kept, "transition": transition, "initial": initial}

    def fold(self, values: Any) -> Any:
        """`(..., S)`, summed over phases, of `(..., M)`."""
        return values.reshape(*values.shape[:-1], *self.shape).sum(-1)

    def fold_pairs(self, values: Any) -> Any:
        """`(..., S, S)` of `(..., M, M)`."""
        return values.reshape(*values.shape[:-2], *self.shape, *self.shape).sum((-3, -1))

    def path(self, states: np.ndarray) -> np.ndarray:
        """The states of a path of phases."""
        return (states // self.shape[1]).astype(states.dtype)

    def along(self, states: np.ndarray, opens: np.ndarray) -> np.ndarray:
        """A phase of every state of a path: all are observed alike."""
        return states * self.shape[1]

    def start(self, params: Mapping[str, Any], distribution: Any) -> Any:
        """`(M,)` from `(S,)` or None."""
        return None if distribution is None else self._computed(start_in, _start_in, distribution)

    def folded(self, found: Any) -> Any:
        """A named tuple of statistics with those of phases folded, and the derivative by the parameter beside those of
        other natural parameters: transitions between states alone do not say it."""
        changed: dict[str, Any] = {
            name: self.fold(getattr(found, name)) for name in ("first", "probabilities") if name in found._fields
        }
        if "natural" in found._fields:
            slope = self._computed(slopes, _slopes, found.first, found.transitions)
            changed["natural"] = {**found.natural, self.moves.parameter: slope}
            changed["transitions"] = self.fold_pairs(found.transitions)
        if "centred" in found._fields:
            changed["centred"] = jnp.zeros_like(changed["transitions"])
        if "sums" in found._fields:  # expected sufficient statistics of every phase, which collectors may give, too
            changed |= {name: self._by_state(getattr(found, name)) for name in ("sums", "collected")}
        return found._replace(**changed)

    def _by_state(self, values: Any) -> Any:
        return values.reshape(*self.shape, -1).sum(1) if isinstance(values, np.ndarray) else values


def model_of_phases(model: Any) -> Any:
    """The same model with every phase a state of its own."""
    found, moves = _models.get(model), model.transitions
    if found is None:
        levels = np.repeat(model.emission.state_levels(model.n_states), moves.phases)
        tied = EMISSIONS.classes()["tied"](model.emission.untied, levels.tolist())
        found = _models[model] = type(model)(len(levels), tied, transition_prior=allowed(moves).astype(float))
        found.labels = tuple(np.repeat(np.arange(model.n_states), moves.phases).tolist())
    return found


def allowed(moves: Any) -> np.ndarray:
    """`(M, M)`, which transitions between phases are possible."""
    size, length = moves.n_states, moves.phases
    stays, goes = moves.possible
    found = np.zeros((size, length, size, length), bool)
    found[:, :, :, 0] = (1 - np.eye(size, dtype=int)).astype(bool)[:, None, :]
    for state in range(size):
        found[state, :, state] |= np.diag(stays) | np.eye(length, k=1, dtype=bool) & goes[:, None]
    return found.reshape(size * length, -1)
