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
from numpyro.distributions import Distribution

from longhmm.errors import ModelError, check_whole
from longhmm.inference.scaling import safe_log
from longhmm.model.parameters import Named, specification
from longhmm.model.phases import long_run
from longhmm.model.registry import TRANSITIONS
from longhmm.model.transitions import TransitionModel
from longhmm.model.transitions.dwell_kinds import KINDS, Kind
from longhmm.model.transitions.hazards import Steps

FAMILIES = {"NegativeBinomial": "negative-binomial", "Gamma": "gamma"}
GEOMETRIC = "geometric"  # dwell times as those of an ordinary chain are called
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
            up to whole rows, with a mean and a shape; "free": one hazard, the chance to leave, for every phase;
            "phase-type": phases of geometric times, each longer on average than the one before, after each of which
            a visit ends or goes on (a Coxian distribution): visits of several kinds, brief and long, in one state.
            The first two may also be `NegativeBinomial()` and `Gamma()`.
        phases: number of phases D of each state; 20 by default, and 2 of "phase-type". In other kinds dwell times
            beyond D rows have a geometric tail; one with a shape is right as far as its mean is well below 8 D, or 256.
        mean: prior of the mean of T - 1, in rows, or of the mean of each phase less 1; log-normal with median 20 and a
            standard deviation of 2 of the logarithm by default.
        shape: prior of the shape; log-normal with median 1 and a standard deviation of 1 by default.
        hazard: prior of hazards where they are free, Beta(1, 3) by default, or of the chance that a visit ends after a
            phase of "phase-type", uniform by default.
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
        kind: Any = "negative-binomial",
        *,
        phases: int | None = None,
        mean: Any = None,
        shape: Any = None,
        hazard: Any = None,
        fresh: bool = False,
    ) -> None:
        kind = FAMILIES.get(type(kind).__name__, kind)
        if kind not in KINDS:
            raise ModelError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r}.")
        phases = KINDS[kind].phases if phases is None else phases
        check_whole("phases", phases, 1)
        self.kind, self.phases, self.fresh, self.n_states = kind, int(phases), bool(fresh), 0
        self.priors = Named(
            {
                "mean": _one("mean", dist.LogNormal(np.log(20.0), 2.0) if mean is None else mean),
                "shape": _one("shape", dist.LogNormal(0.0, 1.0) if shape is None else shape),
                "hazard": _one(
                    "hazard", dist.Beta(1.0, 1.0 if KINDS[kind].repeats else 3.0) if hazard is None else hazard
                ),
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
        states, names = range(self.n_states), self._kind.names(self.phases)
        own = [name.format(state) for state in states for name in names]
        if not self._kind.by_state:
            own = [name.format(state) for name in names for state in states]
        return (*own, *(f"{one} -> {other}" for one in states for other in states if one != other))

    @property
    def _kind(self) -> Kind:
        return KINDS[self.kind]

    @property
    def _n_own(self) -> int:
        """How many of the numbers belong to dwell times; the others say where states lead."""
        return self.n_states * len(self._kind.names(self.phases))

    @property
    def n_free(self) -> int:
        return self._n_own + self.n_states * (self.n_states - 2)

    def _own(self, listed: Any) -> Any:
        """`(..., S, W)`, the numbers of every state's dwell times."""
        own = listed[..., : self._n_own]
        if self._kind.by_state:
            return own.reshape(*own.shape[:-1], self.n_states, -1)
        return own.reshape(*own.shape[:-1], -1, self.n_states).swapaxes(-1, -2)

    def _listed(self, own: Any) -> Any:
        """Inverse of `_own`."""
        return (own if self._kind.by_state else own.swapaxes(-1, -2)).reshape(*own.shape[:-2], -1)

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        rest = coordinates[self._n_own :].reshape(self.n_states, self.n_states - 2)
        logits = jnp.concatenate([rest, jnp.zeros((self.n_states, 1), rest.dtype)], axis=1)
        times = self._listed(self._kind.constrain(self._own(coordinates)))
        return jnp.concatenate([times, jnp.ravel(jax.nn.softmax(logits, axis=1))])

    def unconstrain(self, parameter: jax.Array) -> jax.Array:
        logs = safe_log(self._onward(parameter))
        times = self._listed(self._kind.unconstrain(self._own(jnp.asarray(parameter))))
        return jnp.concatenate([times, jnp.ravel(logs[:, :-1] - logs[:, -1:])])

    def _onward(self, parameter: jax.Array) -> jax.Array:
        """`(S, S - 1)` probabilities of the next state."""
        return parameter[self._n_own :].reshape(self.n_states, self.n_states - 1)

    def log_jacobian(self, parameter: jax.Array) -> jax.Array:
        exits = self._onward(parameter)
        volume = jnp.sum(safe_log(exits)) if self.n_states > 2 else jnp.zeros((), parameter.dtype)
        return volume + self._kind.log_jacobian(self._own(jnp.asarray(parameter)))

    def log_prior(self, parameter: jax.Array) -> jax.Array:
        return self._kind.log_prior(self._own(parameter), self.priors)  # uniform in where states lead

    @property
    def possible(self) -> tuple[np.ndarray, np.ndarray]:
        """`(D,)` each: whether a phase may repeat itself, and whether another follows it."""
        last = np.arange(self.phases) == self.phases - 1
        return last | self._kind.repeats, ~last

    def steps(self, parameter: jax.Array) -> Steps:
        """What may happen in every phase of every state."""
        return self._kind.steps(self._own(jnp.asarray(parameter)), self.phases)

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
        xp: Any = np if isinstance(parameter, np.ndarray) else jnp
        own = self._listed(self._own(parameter).take(order, -2))
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
        if self._kind.repeats:
            stay, onward = (np.exp(each)[..., None] for each in steps[:2])
            within = stay * np.eye(self.phases) + onward * np.eye(self.phases, k=1)
            powers = [np.linalg.matrix_power(within, int(length))[..., 0, :].sum(-1) for length in lengths]
            return np.stack(powers, axis=-1)
        # In the phases that count, and from then on in the last.
        counted = np.cumsum(steps.onward, axis=2) - steps.onward
        behind = np.maximum(np.asarray(lengths) - self.phases + 1, 0)
        logs = counted[..., np.minimum(lengths, self.phases - 1)] + behind * steps.stay[..., -1:]
        return np.asarray(np.exp(logs))

    def start(self, counts: np.ndarray) -> np.ndarray:
        """Dwell times, geometric or nearly so, with the means that counted transitions imply."""
        off = ~np.eye(self.n_states, dtype=bool)
        exits = (counts + 0.5)[off].reshape(self.n_states, -1)
        leave = np.clip(exits.sum(axis=1) / (exits.sum(axis=1) + np.diag(counts) + 0.5), 1e-4, 0.9)
        own = self._listed(self._kind.geometric(leave, self.phases))
        return np.concatenate([own, np.ravel(exits / exits.sum(axis=1, keepdims=True))])

    def complete(self, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
        given = np.asarray(params.get(self.parameter, ()), np.float64)
        if given.shape == self.shape:
            exits = given[self._n_own :].reshape(self.n_states, -1)
            right = np.allclose(exits.sum(axis=1), 1.0, atol=1e-4) and np.all(exits >= 0)
            if not (right and self._kind.right(self._own(given))):
                what = f"{self._kind.needs}, and where each state leads"
                raise ModelError(f"params['durations'] must hold {what}, got {given}.")
        return super().complete(params)

    def options(self) -> dict[str, Any]:
        return {"kind": self.kind, "phases": self.phases, "fresh": self.fresh, **self.priors}

    @classmethod
    def rebuilt(cls, n_states: int, options: Mapping[str, Any]) -> Durations:
        return cls(**options).between(n_states)


def by_dwell_times(durations: str | None, others: Any, stay: Any) -> Any:
    """What the command line says of dwell times, "gamma" or "gamma:30" phases; else of transitions, `others`."""
    kind, _, phases = (GEOMETRIC if durations is None else durations).partition(":")
    if kind == GEOMETRIC and not phases:
        return others
    if kind not in KINDS or (":" in str(durations) and not phases.isdecimal()):
        known = ", ".join([GEOMETRIC, *KINDS])
        raise ModelError(f"--durations must be one of {known}, or with phases, gamma:30; got {durations!r}.")
    if others is not None or stay is not None:
        raise ModelError("--durations must not be given with --scheme, --transitions or --stay: they are other models.")
    return Durations(kind, phases=int(phases) if phases else None)


def _one(name: str, given: Any) -> Distribution:
    prior = specification(name, given)
    if not isinstance(prior, Distribution) or prior.batch_shape or prior.event_shape:
        raise ModelError(f"{name} must be one prior for all states, such as LogNormal(0, 1), got {given!r}.")
    return prior
