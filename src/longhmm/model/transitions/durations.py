"""States whose dwell times have a distribution of their own: hidden semi-Markov models, by phases (see `phases.py`)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.errors import ModelError, check_whole
from longhmm.inference.scaling import safe_log
from longhmm.model.parameters import Named, Parameter, prior_of, specification
from longhmm.model.phases import long_run
from longhmm.model.registry import TRANSITIONS
from longhmm.model.transitions import TransitionModel
from longhmm.model.transitions import hazards as dwell
from longhmm.model.transitions.hazards import Steps

KINDS = ("negative-binomial", "gamma", "free")
LEAST, MOST = 1e-6, 1 - 1e-6  # of hazards: what rounding leaves of them
_long_run = jax.jit(long_run)
_steps = jax.jit(lambda moves, parameters: jax.vmap(moves.steps)(parameters))


@TRANSITIONS.register("durations")
class Durations(TransitionModel):
    """Dwell times with a distribution of their own for each state: a hidden semi-Markov model.

    Its parameter, `durations`, holds the numbers of each state's distribution, and where each state leads; beside it
    `transition` says how often, in the long run, a row in one state is followed by one in each. All answers are those
    of the states: phases, which count how long a state has lasted, are within.

    Args:
        kind: "negative-binomial": T - 1 has the mean `mean - 1` and a shape, 1 where dwell times are geometric as those
            of an ordinary hidden Markov model, larger where they scatter less; "gamma": T is a gamma variable, rounded
            up to whole rows, with a mean and a shape; "free": one hazard, the chance to leave, for every phase.
        phases: number of phases D of each state. Dwell times beyond D rows have a geometric tail; a distribution with a
            shape is right as far as its mean is well below 8 D, or 256.
        mean: prior of the mean of T - 1, in rows; log-normal with median 20 and a standard deviation of 2 of the
            logarithm by default.
        shape: prior of the shape; log-normal with median 1 and a standard deviation of 1 by default.
        hazard: prior of hazards where they are free; Beta(1, 3) by default.
        fresh: whether sequences begin with a new dwell time, as trials do; else they begin in the midst of one, as
            recordings do.

    Where a state leads has a uniform prior among the other states.

    >>> import longhmm as lh
    >>> model = lh.HMM(2, lh.Gaussian(), transitions=lh.Durations("negative-binomial", phases=3))
    >>> model.transitions.terms
    ('mean 0', 'mean 1', 'shape 0', 'shape 1', '0 -> 1', '1 -> 0')
    """

    varies, remembers, exchangeable = False, True, True
    parameter, axes = "durations", ("term",)

    def __init__(
        self,
        kind: str = "negative-binomial",
        *,
        phases: int = 20,
        mean: Any = None,
        shape: Any = None,
        hazard: Any = None,
        fresh: bool = False,
    ) -> None:
        check_whole("phases", phases, 1)
        if kind not in KINDS:
            raise ModelError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r}.")
        self.kind, self.phases, self.fresh, self.n_states = kind, int(phases), bool(fresh), 0
        self.priors = Named(
            {
                "mean": _one("mean", dist.LogNormal(np.log(20.0), 2.0) if mean is None else mean),
                "shape": _one("shape", dist.LogNormal(0.0, 1.0) if shape is None else shape),
                "hazard": _one("hazard", dist.Beta(1.0, 3.0) if hazard is None else hazard),
            }
        )

    def between(self, n_states: int) -> Durations:
        if n_states < 2:
            raise ModelError(f"n_states must be at least 2 for transitions={self!r}, got {n_states}.")
        found = copy.copy(self)
        found.n_states = n_states
        return found

    def __repr__(self) -> str:
        return f"Durations({self.kind!r}, phases={self.phases}{', fresh=True' if self.fresh else ''})"

    __str__ = __repr__

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (len(self.terms),)

    @property
    def terms(self) -> tuple[str, ...]:  # type: ignore[override]
        states = range(self.n_states)
        own = [f"{name} {state}" for name in ("mean", "shape") for state in states]
        free = [f"hazard {state} at {phase + 1}" for state in states for phase in range(self.phases)]
        exits = [f"{one} -> {other}" for one in states for other in states if one != other]
        return (*(free if self.kind == "free" else own), *exits)

    @property
    def _n_own(self) -> int:
        """How many of the numbers belong to dwell times; the others say where states lead."""
        return self.n_states * (self.phases if self.kind == "free" else 2)

    @property
    def n_free(self) -> int:
        return self._n_own + self.n_states * (self.n_states - 2)

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        own, rest = coordinates[: self._n_own], coordinates[self._n_own :].reshape(self.n_states, self.n_states - 2)
        logits = jnp.concatenate([rest, jnp.zeros((self.n_states, 1), rest.dtype)], axis=1)
        if self.kind == "free":
            times = jnp.clip(jax.nn.sigmoid(own), LEAST, MOST)
        else:
            times = jnp.exp(own).at[: self.n_states].add(1.0)
        return jnp.concatenate([times, jnp.ravel(jax.nn.softmax(logits, axis=1))])

    def unconstrain(self, parameter: jax.Array) -> jax.Array:
        own, exits = self._parts(parameter)
        logs = safe_log(exits)
        if self.kind == "free":
            times = safe_log(own) - jnp.log1p(-own)
        else:
            times = safe_log(own.at[: self.n_states].add(-1.0))
        return jnp.concatenate([times, jnp.ravel(logs[:, :-1] - logs[:, -1:])])

    def _parts(self, parameter: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Numbers of dwell times, and `(S, S - 1)` probabilities of the next state."""
        return parameter[: self._n_own], parameter[self._n_own :].reshape(self.n_states, self.n_states - 1)

    def log_jacobian(self, parameter: jax.Array) -> jax.Array:
        own, exits = self._parts(parameter)
        volume = jnp.sum(safe_log(exits)) if self.n_states > 2 else jnp.zeros((), parameter.dtype)
        if self.kind == "free":
            return volume + jnp.sum(safe_log(own) + jnp.log1p(-own))
        return volume + jnp.sum(safe_log(own.at[: self.n_states].add(-1.0)))

    def log_prior(self, parameter: jax.Array) -> jax.Array:
        own, _ = self._parts(parameter)  # uniform in where states lead
        if self.kind == "free":
            return jnp.sum(self._prior("hazard", constraints.unit_interval).log_prob(own))
        mean = self._prior("mean", constraints.positive).log_prob(own[: self.n_states] - 1.0)
        return jnp.sum(mean) + jnp.sum(self._prior("shape", constraints.positive).log_prob(own[self.n_states :]))

    def _prior(self, name: str, region: Any) -> Any:
        return prior_of(Parameter(name, (), self.priors[name], None, region))

    @property
    def possible(self) -> tuple[np.ndarray, np.ndarray]:
        """`(D,)` each: whether a phase may repeat itself, and whether another follows it."""
        last = np.arange(self.phases) == self.phases - 1
        return last, ~last

    def steps(self, parameter: jax.Array) -> Steps:
        """What may happen in every phase of every state."""
        own, _ = self._parts(jnp.asarray(parameter))
        if self.kind == "free":
            return dwell.free(own.reshape(self.n_states, self.phases))
        of = {"negative-binomial": dwell.negative_binomial, "gamma": dwell.gamma}[self.kind]
        return of(own[: self.n_states], own[self.n_states :], self.phases)

    @cached_property
    def _others(self) -> np.ndarray:
        """`(S, S)`, where in the list of probabilities, and of 0 behind them, that of the next state stands."""
        found = np.full((self.n_states, self.n_states), self.n_states * (self.n_states - 1))
        found[~np.eye(self.n_states, dtype=bool)] = np.arange(self.n_states * (self.n_states - 1))
        return found

    def exits(self, parameter: Any) -> Any:
        """`(..., S, S)`, where each state leads, 0 for itself."""
        xp: Any = np if isinstance(parameter, np.ndarray) else jnp
        exits = parameter[..., self._n_own :]
        return xp.concatenate([exits, xp.zeros_like(exits[..., :1])], axis=-1)[..., self._others]

    def renumbered(self, parameter: Any, order: Any) -> Any:
        lead, xp = parameter.shape[:-1], np if isinstance(parameter, np.ndarray) else jnp
        shape, axis = ((self.n_states, self.phases), -2) if self.kind == "free" else ((2, self.n_states), -1)
        own = parameter[..., : self._n_own].reshape(*lead, *shape).take(order, axis).reshape(*lead, -1)
        exits = self.exits(parameter).take(order, -2).take(order, -1)[..., ~np.eye(self.n_states, dtype=bool)]
        return xp.concatenate([own, exits], axis=-1)

    def typical(self, parameter: Any) -> jax.Array:
        found: jax.Array = _long_run(self, jnp.asarray(parameter))
        return found

    def matrices(self, parameter: jax.Array, covariates: jax.Array) -> jax.Array:
        return jnp.broadcast_to(self.typical(parameter), (covariates.shape[0], self.n_states, self.n_states))

    def survival(self, params: Mapping[str, Any], lengths: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            steps = jax.tree.map(np.asarray, _steps(self, np.asarray(params[self.parameter], np.float64)))
        # In the phases that count, and from then on in the last.
        counted = np.cumsum(steps.onward, axis=2) - steps.onward
        behind = np.maximum(np.asarray(lengths) - self.phases + 1, 0)
        logs = counted[..., np.minimum(lengths, self.phases - 1)] + behind * steps.stay[..., -1:]
        return np.asarray(np.exp(logs))

    def start(self, counts: np.ndarray) -> np.ndarray:
        """Geometric dwell times with the means that counted transitions imply."""
        off = ~np.eye(self.n_states, dtype=bool)
        exits = (counts + 0.5)[off].reshape(self.n_states, -1)
        leave = np.clip(exits.sum(axis=1) / (exits.sum(axis=1) + np.diag(counts) + 0.5), 1e-4, 0.9)
        own = np.repeat(leave, self.phases) if self.kind == "free" else np.append(1.0 / leave, np.ones(self.n_states))
        return np.concatenate([own, np.ravel(exits / exits.sum(axis=1, keepdims=True))])

    def complete(self, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
        given = np.asarray(params.get(self.parameter, ()), np.float64)
        if given.shape == self.shape:
            own, exits = given[: self._n_own], given[self._n_own :].reshape(self.n_states, -1)
            right = np.allclose(exits.sum(axis=1), 1.0, atol=1e-4) and np.all(exits >= 0) and np.all(own > 0)
            if not (right and np.all(own < 1 if self.kind == "free" else own[: self.n_states] > 1)):
                what = "hazards between 0 and 1" if self.kind == "free" else "means above 1, positive shapes"
                raise ModelError(f"params['durations'] must hold {what}, and where each state leads, got {given}.")
        return super().complete(params)

    def options(self) -> dict[str, Any]:
        return {"kind": self.kind, "phases": self.phases, "fresh": self.fresh, **self.priors}

    @classmethod
    def rebuilt(cls, n_states: int, options: Mapping[str, Any]) -> Durations:
        return cls(**options).between(n_states)


def _one(name: str, given: Any) -> Distribution:
    prior = specification(name, given)
    if not isinstance(prior, Distribution) or prior.batch_shape or prior.event_shape:
        raise ModelError(f"{name} must be one prior for all states, such as LogNormal(0, 1), got {given!r}.")
    return prior
