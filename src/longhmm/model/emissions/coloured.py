"""Gaussian observations of levels that an instrument shows: its noise is correlated, its filter rounds the steps."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.conjugate import RootInverseGamma
from longhmm.model.emissions import Before
from longhmm.model.emissions.ar import AR, ARLowering
from longhmm.model.emissions.gaussian import VARIANCE_SHARE
from longhmm.model.memory import Memory, remember
from longhmm.model.noise import coloured_options, with_noise
from longhmm.model.parameters import Parameter, Params, Pending, make_parameter, specification
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary

MOST_REMEMBERED = 32  # states; where more are needed to remember everything, the latest change must do
WEIGHTS = {"ar": ("phi",), "ma": ("theta",), "white": ()}  # the parameter of each kind of noise


@EMISSIONS.register("coloured", offered=False)
class Coloured(AR):
    """`y_t = sum_j w_j mean_{x_{t-j}} + e_t` with noise e that is white, autoregressive or a moving average; made by
    `Gaussian(noise=..., response=...)`.

    Parameters: `mean (K,)`; `sd (K,)` of the innovations while in state k, or `(1,)` where `common`; and `phi (p,)`,
    `e_t = sum_l phi_l e_{t-l} + sd u_t`, or `theta (q,)`, `e_t = sd (u_t + sum_l theta_l u_{t-l})`, of which the
    autoregression with `lags` terms is taken. The weights w are the steps of the `response`; of one that is estimated,
    over so many `samples`, `rise (samples,)` is what they show of a step from 0 to 1.

    What a row says depends on the levels of rows before it: states remember them (see `Memory`); with `latest` only
    the latest change. The likelihood is conditional, as of `AR`.
    """

    call, takes_response = "Gaussian(..., ", True

    def __init__(
        self,
        kind: str = "white",
        order: int = 0,
        *,
        lags: int | None = None,
        response: Sequence[float] = (1.0,),
        samples: int = 0,
        latest: bool | None = None,
        common: bool = False,
        mean: Any = None,
        sd: Any = None,
        phi: Any = None,
        theta: Any = None,
        rise: Any = None,
    ) -> None:
        self.kind, self.order, self.latest, self.common = kind, int(order), latest, bool(common)
        self.lags = self.order if lags is None else int(lags)
        self.response, self.samples = np.asarray(response, np.float64), int(samples)
        # Of an emission whose states remember: how many there are without memory, and what each remembers.
        self._levels = 0
        self._remembered: tuple[tuple[int, ...], ...] | None = None
        self._spread = "sd"
        given = {"mean": mean, "sd": sd, "phi": phi, "theta": theta, "rise": rise}
        specs: dict[str, Any] = {}
        for name in ("mean", "sd", *WEIGHTS[kind], *self._risen):
            region = constraints.positive if name == "sd" else constraints.real
            specs[name] = Pending(region) if given[name] is None else specification(name, given[name])
        self._describe(1, specs, vector=True)

    @classmethod
    def instead(cls, dim: int = 1, covariance: Any = "full", **priors: Any) -> Coloured:
        """What a Gaussian with these arguments is."""
        return cls(**coloured_options(dim, **priors))

    @property
    def shared(self) -> tuple[str, ...]:  # type: ignore[override]
        """Parameters of all states together."""
        return (*(("sd",) if self.common else ()), *WEIGHTS[self.kind], *self._risen)

    @property
    def _risen(self) -> tuple[str, ...]:
        return ("rise",) if self.samples else ()

    @property
    def reach(self) -> int:
        """How many rows before it a row depends on."""
        return self.samples + len(self.response) - 1 + self.lags

    def shown(self, params: Params) -> Any:
        """What is shown after a step from 0 to 1, sample by sample."""
        return jnp.concatenate([jnp.asarray(params["rise"]), self.response]) if self.samples else self.response

    def options(self) -> dict[str, Any]:
        chosen = {"lags": self.lags, "response": self.response.tolist(), "samples": self.samples}
        return {"kind": self.kind, "order": self.order, **chosen, "latest": self.latest, "common": self.common}

    def parameters(self, n_states: int) -> dict[str, Parameter]:
        n_states = self._levels or n_states
        sizes = dict.fromkeys(self.specifications, n_states) | dict.fromkeys(self.shared, self.order)
        sizes |= ({"sd": 1} if self.common else {}) | dict.fromkeys(self._risen, self.samples)
        table = {name: make_parameter(name, spec, sizes[name], ()) for name, spec in self.specifications.items()}
        # One event: the levels of several states meet in one density.
        free = table["mean"].is_free
        return {**table, "mean": table["mean"]._replace(support=constraints.real_vector) if free else table["mean"]}

    def axes(self, name: str, n_states: int) -> tuple[str, ...]:
        own = {"sd": "noise", "rise": "sample"}
        return (own.get(name, "lag"),) if name in self.shared else ("state",)

    def states_differ(self, n_states: int) -> bool:
        own = {name: spec for name, spec in self.specifications.items() if name not in self.shared}
        return any(np.shape(jax.tree.leaves(spec)[0])[:1] > (1,) for spec in own.values() if jax.tree.leaves(spec))

    def state_levels(self, n_states: int) -> np.ndarray:
        return self._past(self._levels)[:, 0] if self._levels else np.arange(n_states)

    def memory(self, n_states: int) -> Memory | None:
        if self._levels or self.reach == 0 or n_states == 1:
            return None
        latest = n_states ** (self.reach + 1) > MOST_REMEMBERED if self.latest is None else self.latest
        return remember(n_states, self.reach, latest=latest)

    def unfolded(self, n_states: int) -> Coloured:
        """The emission of states that remember, each with a column of its own in `log_likelihoods`."""
        if self._levels:
            return self
        memory, found = self.memory(n_states), copy.copy(self)
        found._levels, found._remembered = n_states, None if memory is None else tuple(map(tuple, memory.past.tolist()))
        return found

    def more_noise(self, far: int) -> str:
        return with_noise("ar", self.lags + 2)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        sd = RootInverseGamma(1.5, 0.5 * VARIANCE_SHARE * float(summary.sd[0]) ** 2)
        mean = dist.Normal(float(summary.centre[0]), float(summary.spread[0]))
        noise = {name: dist.Normal(0.0, 0.5) for name in WEIGHTS[self.kind]}
        return {"mean": mean, "sd": sd, **noise, **{name: dist.Normal(self._line, 0.25) for name in self._risen}}

    @property
    def _line(self) -> np.ndarray:
        """A rise at even steps."""
        return np.arange(1, self.samples + 1) / (self.samples + 1)

    def weights(self, params: Params) -> jax.Array:
        """`(p,)`, of the autoregression of the noise."""
        if self.kind == "white":
            return jnp.zeros(0)
        if self.kind == "ar":
            return jnp.asarray(params["phi"])
        theta = jnp.asarray(params["theta"])
        inverse = [jnp.ones((), theta.dtype)]  # of the polynomial 1 + theta_1 B + ..., term by term
        for lag in range(1, self.lags + 1):
            terms = [theta[i] * inverse[lag - 1 - i] for i in range(min(self.order, lag))]
            inverse.append(-jnp.sum(jnp.stack(terms)))
        return -jnp.stack(inverse[1:])

    def regression(self, params: Params) -> tuple[jax.Array, jax.Array, jax.Array]:
        mean, phi = jnp.asarray(params["mean"]), self.weights(params).astype(jnp.asarray(params["mean"]).dtype)
        past = self._past(mean.shape[0])
        steps = jnp.diff(jnp.asarray(self.shown(params), mean.dtype), prepend=0.0)
        share = jnp.convolve(steps, jnp.concatenate([jnp.ones(1, mean.dtype), -phi]))
        sd = jnp.broadcast_to(jnp.asarray(params["sd"]), mean.shape)[past[:, 0]]
        intercept = jnp.sum(mean[past] * share, axis=1)
        return intercept[:, None], jnp.broadcast_to(phi, (len(past), 1, self.lags)), (sd * sd)[:, None, None]

    def predicted(self, params: Params, lags: jax.Array) -> jax.Array:
        """As of `AR`; rows before count alike in all states, which is evaluated once."""
        intercept, phi, _ = self.regression(params)
        return intercept + jnp.sum(phi[0] * lags[..., 0], axis=-1)[..., None, None]

    def _past(self, n_states: int) -> np.ndarray:
        lasting = np.repeat(np.arange(n_states)[:, None], self.reach + 1, axis=1)
        return lasting if self._remembered is None else np.array(self._remembered)

    def level(self, params: Params, damping: float = 0.0) -> jax.Array:
        mean = jnp.asarray(params["mean"])
        return mean[self._past(mean.shape[0])[:, 0]][:, None]

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        if self.lags:
            return super().sample(key, params, states)
        return self.sample_after(key, params, states, Before(None, jnp.zeros((states.shape[0], 0, 1)), None))

    @cached_property
    def lowering(self) -> ARLowering:
        return ColouredLowering(self)

    def fit(self, groups: list[np.ndarray]) -> dict[str, np.ndarray]:
        """Where to begin: groups of rows without their order say nothing of how noise is correlated."""
        sd = np.maximum([group.std() for group in groups], 1e-3 * np.ptp(np.concatenate(groups)))
        noise = {name: np.zeros(self.order) for name in WEIGHTS[self.kind]}
        noise |= {name: self._line for name in self._risen}
        found = {"mean": np.array([group.mean() for group in groups]), "sd": sd[:1] if self.common else sd, **noise}
        return {name: value for name, value in found.items() if name in self.free_names}

    def __repr__(self) -> str:
        noise = {"ar": f"noise=ARNoise({self.order})", "ma": f"noise=MANoise({self.order}, lags={self.lags})"}
        parts = [noise[self.kind]] if self.kind in noise else []
        if self.samples or len(self.response) > 1:
            parts.append(f"response=StepResponse({self.samples or self.response.round(4).tolist()})")
        return f"Gaussian({', '.join(parts)})"


class ColouredLowering(ARLowering):
    """Always of states that remember."""

    emission: Coloured

    def of(self, params: Params) -> AR:
        return self.emission.unfolded(params["mean"].shape[0])
