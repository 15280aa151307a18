"""Angles."""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import i0e
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.covariance import LOG_2PI
from longhmm.model.emissions.family import Family
from longhmm.model.parameters import Parameter, Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary
from longhmm.model.support import WHOLE, Turn, wrapped


@EMISSIONS.register("von-mises")
class VonMises(Family):
    """y | x = k is von Mises on (-pi, pi] with mean direction `loc` and `concentration`, each (K,), or (K, D).

    A direction has no unconstrained coordinates without a cut (see `Turn`). The default prior is uniform on one turn
    that begins in the widest gap of the data, where no state's direction is expected; `loc` is meant modulo 2 pi and
    reported in (-pi, pi]. The concentration is log-normal, wide, around 3. A prior of your own should have one turn,
    or less, as support.
    """

    builder, support, statistics = dist.VonMises, constraints.circular, ("cos", "sin")
    regions: ClassVar = {"loc": constraints.real, "concentration": constraints.positive}

    def __init__(self, dim: int = 1, *, loc: Any = None, concentration: Any = None) -> None:
        super().__init__(dim, loc=loc, concentration=concentration)
        whole = isinstance(loc, dist.Uniform) and bool(np.allclose(loc.high - loc.low, WHOLE))
        self._whole_turn = whole or loc is None
        if loc is None:
            self.specifications["loc"] = self.specifications["loc"]._replace(support=constraints.circular)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        cut = self.per_feature(np.array([widest_gap(row) for row in summary.quantiles]))
        return {"loc": dist.Uniform(cut, cut + WHOLE), "concentration": dist.LogNormal(np.log(3.0), 1.5)}

    def parameters(self, n_states: int) -> dict[str, Parameter]:
        table = super().parameters(n_states)
        if not self._whole_turn or table["loc"].prior is None:
            return table
        return {**table, "loc": table["loc"]._replace(support=Turn(table["loc"].prior.low))}

    def check(self, values: np.ndarray, observed: np.ndarray, describe: Callable[[int], str]) -> None:
        if (np.abs(values) <= np.pi).all():
            return
        # float32 rounds pi upwards: such an angle is still in range.
        rounded = np.where(np.abs(np.abs(values) - np.pi) < 1e-6, np.clip(values, -np.pi, np.pi), values)
        super().check(rounded, observed, describe)

    def means(self, params: Params) -> jax.Array:
        return self.with_features(params["loc"])

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        loc, concentration = self.with_features(params["loc"]), self.with_features(params["concentration"])
        eta = jnp.concatenate([concentration * jnp.cos(loc), concentration * jnp.sin(loc)], -1)
        return eta, LOG_2PI + jnp.log(i0e(concentration)) + concentration


def widest_gap(quantiles: np.ndarray) -> float:
    """The middle of the widest gap between neighbouring quantiles of angles, on the circle."""
    angles = np.sort(wrapped(quantiles))
    gaps = np.diff(np.append(angles, angles[0] + WHOLE))
    return float(wrapped(angles[int(gaps.argmax())] + 0.5 * float(gaps.max())))
