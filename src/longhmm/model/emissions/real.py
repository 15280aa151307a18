"""Real numbers beyond the Gaussian: Student's t, which forgives outliers, mixtures, states with several humps, and
angles."""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, i0e, ndtr
from jax.typing import ArrayLike
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.constraints import Constraint

from longhmm.errors import ModelError
from longhmm.model.covariance import LOG_2PI
from longhmm.model.emissions.family import Family, as_float
from longhmm.model.parameters import Parameter, Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary
from longhmm.model.support import WHOLE, Turn, wrapped


class AccurateStudentT(dist.StudentT):
    """Student's t whose derivative in `df` survives single precision. The textbook normaliser is a difference of two
    log gamma functions and a logarithm, which agree in all but the last digits once `df` is large. Over half a million
    observations the rounding errors of its derivative in float32 add up to several posterior standard deviations. The
    differences are taken on paper here, by Stirling's series."""

    def log_prob(self, value: Any, intermediates: Any = None) -> jax.Array:
        squared = ((value - self.loc) / self.scale) ** 2
        df = jnp.asarray(self.df)
        return log_normaliser(df) - jnp.log(self.scale) - 0.5 * (df + 1.0) * jnp.log1p(squared / df)


def log_normaliser(df: jax.Array) -> jax.Array:
    """`log Gamma((v + 1) / 2) - log Gamma(v / 2) - log(pi v) / 2`."""
    # The first term that is left out is 0.9 / v^9: below the last digit of either precision from here on.
    limit = 30.0 if df.dtype == jnp.float64 else 8.0
    large = jnp.where(df > limit, df, limit)
    inverse = 1.0 / large
    square = inverse * inverse
    series = inverse * (-1.0 / 4 + square * (1.0 / 24 + square * (-1.0 / 20 + square * (17.0 / 112))))
    small = jnp.where(df > limit, limit, df)
    direct = gammaln(0.5 * (small + 1.0)) - gammaln(0.5 * small) - 0.5 * jnp.log(np.pi * small)
    return jnp.where(df > limit, series - 0.5 * np.log(2 * np.pi), direct)


@EMISSIONS.register("student-t")
class StudentT(Family):
    """y | x = k is Student's t with `df` degrees of freedom, `loc` and `scale`, each (K,), or (K, D) if dim > 1.

    Default priors: `df` is Gamma(2, 1/10), which keeps away from both 0 and the Gaussian limit; `loc` is normal around
    the middle of the data with their range as standard deviation; `scale` is log-normal around a third of their
    standard deviation.
    """

    builder = AccurateStudentT
    regions: ClassVar = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}

    def __init__(self, dim: int = 1, *, df: Any = None, loc: Any = None, scale: Any = None) -> None:
        super().__init__(dim, df=df, loc=loc, scale=scale)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        loc = dist.Normal(self.per_feature(summary.centre), self.per_feature(summary.spread))
        return {"df": dist.Gamma(2.0, 0.1), "loc": loc, "scale": self.scale_prior(summary.sd)}


class OrderedNormal(Distribution):
    """The order statistics of `size` independent normal draws with one `loc` and `scale`: an increasing vector.

    Its density is size! times the product of the normal densities, on increasing vectors. Labels of mixture components
    cannot switch under it, and it favours no component.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.ordered_vector
    pytree_data_fields = ("loc", "scale")

    def __init__(self, loc: ArrayLike, scale: ArrayLike, size: int, *, validate_args: bool | None = None) -> None:
        self.loc, self.scale = loc, scale
        batch = jnp.broadcast_shapes(jnp.shape(loc), jnp.shape(scale))
        super().__init__(batch_shape=batch, event_shape=(size,), validate_args=validate_args)

    def _normal(self) -> dist.Normal:
        return dist.Normal(jnp.asarray(self.loc)[..., None], jnp.asarray(self.scale)[..., None])

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw and sort."""
        return jnp.sort(self._normal().expand((*self.batch_shape, *self.event_shape)).sample(key, sample_shape), -1)

    def log_prob(self, value: ArrayLike) -> jax.Array:
        """Log density of an increasing vector."""
        values = self._normal().log_prob(value)
        return jnp.sum(values, -1) + gammaln(jnp.asarray(self.event_shape[0] + 1.0, values.dtype))


@EMISSIONS.register("gaussian-mixture")
class GaussianMixture(Family):
    """y | x = k is a mixture of M Gaussians with `weights`, `means` and `scales`, each (K, M), for one feature.

    The means of a state increase from component to component, so components cannot switch labels. Default priors:
    weights Dirichlet(2, ..., 2); means are the order statistics of normal draws around the middle of the data with
    their range as standard deviation; scales are log-normal around a third of the standard deviation of the data.
    """

    regions: ClassVar = {
        "weights": constraints.simplex,
        "means": constraints.ordered_vector,
        "scales": constraints.positive,
    }

    def __init__(self, n_components: int = 2, *, weights: Any = None, means: Any = None, scales: Any = None) -> None:
        if isinstance(n_components, bool) or not isinstance(n_components, int | np.integer) or n_components < 1:
            raise ModelError(f"n_components must be a positive integer, but it was {n_components!r}.")
        self.n_components = int(n_components)
        super().__init__(weights=weights, means=means, scales=scales)

    def options(self) -> dict[str, Any]:
        return {"n_components": self.n_components}

    def tails(self, n_states: int) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(self.specifications, (self.n_components,))

    def axes(self, name: str, n_states: int) -> tuple[str, ...]:
        return ("state", "component")

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        return {
            "weights": dist.Dirichlet(np.full(self.n_components, 2.0)),
            "means": OrderedNormal(float(summary.centre[0]), float(summary.spread[0]), self.n_components),
            "scales": self.scale_prior(summary.sd),
        }

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        inverse_scale = 1.0 / jnp.asarray(params["scales"])
        z = (as_float(y)[..., None, None] - params["means"]) * inverse_scale
        offset = jnp.log(jnp.asarray(params["weights"])) + jnp.log(inverse_scale) - 0.5 * LOG_2PI
        return jax.nn.logsumexp(offset - 0.5 * z * z, -1)

    def means(self, params: Params) -> jax.Array:
        """Of the whole mixture."""
        return jnp.sum(jnp.asarray(params["weights"]) * params["means"], -1, keepdims=True)

    def cdf(self, params: Params, values: jax.Array) -> tuple[jax.Array, jax.Array]:
        parts = ndtr((values[:, :, None] - params["means"]) / params["scales"])
        below = jnp.sum(params["weights"] * parts, axis=-1)[:, :, None]
        return below, below

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        choice, noise = jax.random.split(key)
        logits = jnp.log(jnp.asarray(params["weights"]))[states]
        component = jax.random.categorical(choice, logits, axis=-1)
        scales = jnp.asarray(params["scales"])[states, component]
        draws = jax.random.normal(noise, states.shape, scales.dtype)
        return (jnp.asarray(params["means"])[states, component] + scales * draws)[:, None]


@EMISSIONS.register("von-mises")
class VonMises(Family):
    """y | x = k is von Mises on (-pi, pi] with mean direction `loc` and `concentration`, each (K,), or (K, D).

    A direction has no unconstrained coordinates without a cut (see `Turn`). The default prior is uniform on one turn
    that begins in the widest gap of the data, where no state's direction is expected; `loc` is meant modulo 2 pi and
    reported in (-pi, pi]. The concentration is log-normal, wide, around 3. A prior of your own should have one turn,
    or less, as support.
    """

    builder, support = dist.VonMises, constraints.circular
    regions: ClassVar = {"loc": constraints.real, "concentration": constraints.positive}

    def __init__(self, dim: int = 1, *, loc: Any = None, concentration: Any = None) -> None:
        super().__init__(dim, loc=loc, concentration=concentration)
        self._whole_turn = isinstance(loc, dist.Uniform) and bool(np.allclose(loc.high - loc.low, WHOLE))
        if loc is None:
            self.specifications["loc"] = self.specifications["loc"]._replace(support=constraints.circular)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        cut = self.per_feature(np.array([widest_gap(row) for row in summary.quantiles]))
        return {"loc": dist.Uniform(cut, cut + WHOLE), "concentration": dist.LogNormal(np.log(3.0), 1.5)}

    def parameters(self, n_states: int) -> dict[str, Parameter]:
        table = super().parameters(n_states)
        if not self._whole_turn:
            return table
        return {**table, "loc": table["loc"]._replace(support=Turn(table["loc"].prior.low))}  # type: ignore[union-attr]

    def check(self, values: np.ndarray, observed: np.ndarray, describe: Callable[[int], str]) -> None:
        # float32 rounds pi upwards: such an angle is still in range.
        rounded = np.where(np.abs(np.abs(values) - np.pi) < 1e-6, np.clip(values, -np.pi, np.pi), values)
        super().check(rounded, observed, describe)

    def means(self, params: Params) -> jax.Array:
        return self.with_features(params["loc"])

    def sufficient_statistics(self, y: jax.Array) -> jax.Array:
        """(cos y, sin y), features one after the other."""
        return jnp.concatenate([jnp.cos(as_float(y)), jnp.sin(as_float(y))], -1)

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        loc, concentration = self.with_features(params["loc"]), self.with_features(params["concentration"])
        eta = jnp.concatenate([concentration * jnp.cos(loc), concentration * jnp.sin(loc)], -1)
        return eta, jnp.sum(LOG_2PI + jnp.log(i0e(concentration)) + concentration, -1)


def widest_gap(quantiles: np.ndarray) -> float:
    """The middle of the widest gap between neighbouring quantiles of angles, on the circle."""
    angles = np.sort(wrapped(quantiles))
    gaps = np.diff(np.append(angles, angles[0] + WHOLE))
    return float(wrapped(angles[int(gaps.argmax())] + 0.5 * float(gaps.max())))
