"""Emissions of angles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import i0e
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.family import Family, as_float, sum_features
from longhmm.model.layout import Layout
from longhmm.model.multivariate_normal import LOG_2PI
from longhmm.model.parameter import Parameter, Params
from longhmm.model.summary import DataSummary
from longhmm.model.turn import WHOLE, Turn, wrapped


class VonMises(Family):
    """y | x = k is von Mises on (-pi, pi] with mean direction `loc` and `concentration`, each (K,), or (K, D).

    A direction has no unconstrained coordinates without a cut (see `Turn`). The default prior is uniform on one turn
    that begins in the widest gap of the data, where no state's direction is expected; `loc` is meant modulo 2 pi and
    reported in (-pi, pi]. The concentration is log-normal, wide, around 3. A prior of your own should have one turn,
    or less, as support.
    """

    builder = dist.VonMises
    support = constraints.circular

    def __init__(self, dim: int = 1, *, loc: Any = None, concentration: Any = None) -> None:
        super().__init__(
            dim=dim,
            vector=False,
            loc=loc,
            concentration=concentration,
            regions={"loc": constraints.real, "concentration": constraints.positive},
        )
        if loc is None:
            self._specs["loc"] = self._specs["loc"]._replace(support=constraints.circular)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        cut = self.per_feature(np.array([widest_gap(row) for row in summary.quantiles]))
        return {"loc": dist.Uniform(cut, cut + WHOLE), "concentration": dist.LogNormal(np.log(3.0), 1.5)}

    def _table(self, n_states: int, layout: Layout) -> dict[str, Parameter]:
        table = super()._table(n_states, layout)
        prior = table["loc"].prior
        if isinstance(prior, dist.Uniform) and np.allclose(prior.high - prior.low, WHOLE):
            table["loc"] = table["loc"]._replace(support=Turn(prior.low))
        return table

    def check(self, values: np.ndarray, observed: np.ndarray, describe: Callable[[int], str]) -> None:
        # float32 rounds pi upwards: such an angle is still in range.
        rounded = np.where(np.abs(np.abs(values) - np.pi) < 1e-6, np.clip(values, -np.pi, np.pi), values)
        super().check(rounded, observed, describe)

    def location(self, params: Params) -> jax.Array:
        return self.with_features(params["loc"])[:, 0]

    def sufficient_statistics(self, y: jax.Array) -> jax.Array:
        """(cos y, sin y), features one after the other."""
        angles = as_float(self.with_features(y))
        return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], -1)

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        loc, concentration = self.with_features(params["loc"]), self.with_features(params["concentration"])
        eta = jnp.concatenate([concentration * jnp.cos(loc), concentration * jnp.sin(loc)], -1)
        return eta, sum_features(LOG_2PI + jnp.log(i0e(concentration)) + concentration)

    def log_base_measure(self, y: jax.Array) -> jax.Array:
        return jnp.zeros(self.with_features(y).shape[:-1], as_float(y).dtype)


def widest_gap(quantiles: np.ndarray) -> float:
    """The middle of the widest gap between neighbouring quantiles of angles, on the circle."""
    angles = np.sort(wrapped(quantiles))
    gaps = np.diff(np.append(angles, angles[0] + WHOLE))
    return float(wrapped(angles[int(gaps.argmax())] + 0.5 * float(gaps.max())))
