"""States whose dwell times have a distribution of their own: every state is a row of phases, one for each row of data
that it has lasted.

In phase d a state ends with the hazard `h(d) = P(T = d | T >= d)` and goes to the first phase of another state; else it
goes on to phase d + 1. The last phase repeats itself, so that longer dwell times have a geometric tail.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.errors import ModelError, check_whole
from longhmm.inference.scaling import safe_log
from longhmm.model.parameters import Named, Parameter, prior_of, specification
from longhmm.model.registry import TRANSITIONS
from longhmm.model.transitions import TransitionModel
from longhmm.model.transitions.renumbering import Unmoved

KINDS = ("negative-binomial", "free")
FURTHER = 8  # times as many terms as phases are added up in the tail of a distribution
LEAST, MOST = 1e-6, 1 - 1e-6  # of hazards: what rounding leaves of them


def negative_binomial_hazards(mean: jax.Array, shape: jax.Array, phases: int) -> jax.Array:
    """`(K, D)`, hazards of T where T - 1 is negative binomial with mean `mean - 1`; geometric with a shape of 1.
    Survival is added up from its end and on logarithms, where nothing is lost, nor in derivatives."""
    terms = jnp.arange(FURTHER * phases, dtype=mean.dtype)
    mean, shape = (mean - 1.0)[:, None], shape[:, None]
    log_stay, log_leave = (jnp.log(each) - jnp.log(mean + shape) for each in (mean, shape))
    logs = gammaln(terms + shape) - gammaln(shape) - gammaln(terms + 1.0) + shape * log_leave + terms * log_stay
    # What lies beyond the last term is nearly geometric.
    ratio = jnp.minimum((terms[-1] + shape) / (terms[-1] + 1.0) * jnp.exp(log_stay), MOST)
    beyond = logs[:, -1:] + jnp.log(ratio) - jnp.log1p(-ratio)
    survival = jax.lax.cumlogsumexp(jnp.concatenate([logs, beyond], axis=1), axis=1, reverse=True)
    return jnp.exp(logs[:, :phases] - survival[:, :phases])


@TRANSITIONS.register("durations")
class Durations(Unmoved, TransitionModel):
    """Dwell times with a distribution of their own for each of `states` states: a hidden semi-Markov model.

    The model has a state for every phase; `levels` says to which of the original states each belongs, for
    `Tied(emission, levels)` and for answers (`levels[path]`). A geometric distribution, that of an ordinary hidden
    Markov model, is "negative-binomial" with a shape of 1, or "free" with one phase.

    Args:
        states: number of original states S, at least 2.
        kind: "negative-binomial" (T - 1 has the mean `mean - 1` and a shape, 1 where it is geometric, larger where
            dwell times scatter less), or "free" (one hazard for every phase).
        phases: number of phases D of each state. Dwell times beyond have a geometric tail, and a negative binomial
            with a shape other than 1 is right as far as its mean is well below 8 D.
        mean: prior of the mean of T - 1, in rows; log-normal with median 20 and a standard deviation of 2 of the
            logarithm by default.
        shape: prior of the shape; log-normal with median 1 and a standard deviation of 1 by default.
        hazard: prior of hazards where they are free; Beta(1, 3) by default.

    Where a state leads has a uniform prior among the other states.

    >>> import longhmm as lh
    >>> moves = lh.Durations(2, phases=3)
    >>> moves.levels
    (0, 0, 0, 1, 1, 1)
    >>> lh.HMM(moves.n_states, lh.Tied(lh.Gaussian(), moves.levels), transitions=moves).transitions
    Durations(2, 'negative-binomial', phases=3)
    """

    varies, remembers, parameter, axes = False, True, "durations", ("term",)

    def __init__(
        self,
        states: int,
        kind: str = "negative-binomial",
        *,
        phases: int = 20,
        mean: Any = None,
        shape: Any = None,
        hazard: Any = None,
    ) -> None:
        check_whole("states", states, 2)
        check_whole("phases", phases, 1)
        if kind not in KINDS:
            raise ModelError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r}.")
        self.size, self.kind, self.phases = int(states), kind, int(phases)
        self.n_states = self.size * self.phases
        self.priors = Named(
            {
                "mean": _one("mean", dist.LogNormal(np.log(20.0), 2.0) if mean is None else mean),
                "shape": _one("shape", dist.LogNormal(0.0, 1.0) if shape is None else shape),
                "hazard": _one("hazard", dist.Beta(1.0, 3.0) if hazard is None else hazard),
            }
        )

    @property
    def levels(self) -> tuple[int, ...]:
        """`(K,)`, the original state of every phase."""
        return tuple(np.repeat(np.arange(self.size), self.phases).tolist())

    @property
    def first(self) -> np.ndarray:
        """`(K,)`, for `HMM(..., initial=moves.first)`: sequences that begin with a dwell time, in any state."""
        return np.tile(np.arange(self.phases) == 0, self.size) / self.size

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (len(self.terms),)

    @cached_property
    def terms(self) -> tuple[str, ...]:  # type: ignore[override]
        own = [f"{name} {state}" for name in ("mean", "shape") for state in range(self.size)]
        free = [f"hazard {state} at {phase + 1}" for state in range(self.size) for phase in range(self.phases)]
        exits = [f"{one} -> {other}" for one in range(self.size) for other in range(self.size) if one != other]
        return (*(free if self.kind == "free" else own), *exits)

    def __repr__(self) -> str:
        return f"Durations({self.size}, {self.kind!r}, phases={self.phases})"

    __str__ = __repr__

    @property
    def _n_own(self) -> int:
        """How many of the numbers belong to dwell times; the others say where states lead."""
        return self.size * self.phases if self.kind == "free" else 2 * self.size

    @property
    def n_free(self) -> int:
        return self._n_own + self.size * (self.size - 2)

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        own, rest = coordinates[: self._n_own], coordinates[self._n_own :].reshape(self.size, self.size - 2)
        logits = jnp.concatenate([rest, jnp.zeros((self.size, 1), rest.dtype)], axis=1)
        if self.kind == "free":
            times = jnp.clip(jax.nn.sigmoid(own), LEAST, MOST)
        else:
            times = jnp.exp(own).at[: self.size].add(1.0)
        return jnp.concatenate([times, jnp.ravel(jax.nn.softmax(logits, axis=1))])

    def unconstrain(self, parameter: jax.Array) -> jax.Array:
        own, exits = self._parts(parameter)
        logs = safe_log(exits)
        if self.kind == "free":
            times = safe_log(own) - jnp.log1p(-own)
        else:
            times = safe_log(own.at[: self.size].add(-1.0))
        return jnp.concatenate([times, jnp.ravel(logs[:, :-1] - logs[:, -1:])])

    def _parts(self, parameter: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Numbers of dwell times, and `(S, S - 1)` probabilities of the next state."""
        return parameter[: self._n_own], parameter[self._n_own :].reshape(self.size, self.size - 1)

    def log_jacobian(self, parameter: jax.Array) -> jax.Array:
        own, exits = self._parts(parameter)
        volume = jnp.sum(safe_log(exits)) if self.size > 2 else jnp.zeros((), parameter.dtype)
        if self.kind == "free":
            return volume + jnp.sum(safe_log(own) + jnp.log1p(-own))
        return volume + jnp.sum(safe_log(own.at[: self.size].add(-1.0)))

    def log_prior(self, parameter: jax.Array) -> jax.Array:
        own, _ = self._parts(parameter)  # uniform in where states lead
        if self.kind == "free":
            return jnp.sum(self._prior("hazard", constraints.unit_interval).log_prob(own))
        mean = self._prior("mean", constraints.positive).log_prob(own[: self.size] - 1.0)
        return jnp.sum(mean) + jnp.sum(self._prior("shape", constraints.positive).log_prob(own[self.size :]))

    def _prior(self, name: str, region: Any) -> Any:
        return prior_of(Parameter(name, (), self.priors[name], None, region))

    def hazards(self, parameter: jax.Array) -> jax.Array:
        """`(S, D)`, the probability of every phase to be the last."""
        own, _ = self._parts(parameter)
        if self.kind == "free":
            return own.reshape(self.size, self.phases)
        return negative_binomial_hazards(own[: self.size], own[self.size :], self.phases)

    def typical(self, parameter: Any) -> jax.Array:
        given = jnp.asarray(parameter)
        hazards, exits = self.hazards(given), self._parts(given)[1]
        rows, phases = np.arange(self.n_states), np.tile(np.arange(self.phases), self.size)
        following = rows + (phases < self.phases - 1)
        found = jnp.zeros((self.n_states, self.n_states), given.dtype).at[rows, following].add(1.0 - jnp.ravel(hazards))
        owner = np.repeat(np.arange(self.size), self.phases)
        other = np.array([[to for to in range(self.size) if to != state] for state in range(self.size)])
        leaving = jnp.ravel(hazards)[:, None] * exits[owner]
        return found.at[rows[:, None], other[owner] * self.phases].add(leaving)

    def matrices(self, parameter: jax.Array, covariates: jax.Array) -> jax.Array:
        return jnp.broadcast_to(self.typical(parameter), (covariates.shape[0], self.n_states, self.n_states))

    @cached_property
    def allowed(self) -> np.ndarray:
        with jax.enable_x64(True):
            middle = np.concatenate([np.full(self._n_own, 0.5), np.full(self.size * (self.size - 1), 0.5)])
            if self.kind != "free":
                middle[: self._n_own] = 2.0
            return np.asarray(self.typical(middle)) > 0

    def start(self, counts: np.ndarray) -> np.ndarray:
        """From counted transitions between original states: geometric dwell times with the mean that these imply."""
        level = np.array(self.levels)
        among = np.array(
            [[counts[np.ix_(level == i, level == j)].sum() for j in range(self.size)] for i in range(self.size)]
        )
        off = ~np.eye(self.size, dtype=bool)
        exits = (among + 0.5)[off].reshape(self.size, -1)
        leave = np.clip(exits.sum(axis=1) / (exits.sum(axis=1) + np.diag(among) + 0.5), 1e-4, 0.9)
        if self.kind == "free":
            times = np.repeat(leave, self.phases)
        else:
            times = np.concatenate([1.0 / leave, np.ones(self.size)])
        return np.concatenate([times, np.ravel(exits / exits.sum(axis=1, keepdims=True))])

    def complete(self, params: Any) -> dict[str, np.ndarray]:
        found = super().complete(params)
        own, exits = found[self.parameter][: self._n_own], found[self.parameter][self._n_own :]
        right = np.allclose(exits.reshape(self.size, -1).sum(axis=1), 1.0, atol=1e-4) and np.all(exits >= 0)
        inside = (
            np.all((own > 0) & (own < 1)) if self.kind == "free" else np.all(own > 0) and np.all(own[: self.size] > 1)
        )
        if not right or not inside:
            what = "hazards between 0 and 1" if self.kind == "free" else "means above 1, positive shapes"
            raise ModelError(
                f"params['durations'] must hold {what}, and where each state leads, got {found['durations']}."
            )
        return found

    def options(self) -> dict[str, Any]:
        return {"states": self.size, "kind": self.kind, "phases": self.phases, **self.priors}


def _one(name: str, given: Any) -> Distribution:
    prior = specification(name, given)
    if not isinstance(prior, Distribution) or prior.batch_shape or prior.event_shape:
        raise ModelError(f"{name} must be one prior for all states, such as LogNormal(0, 1), got {given!r}.")
    return prior
