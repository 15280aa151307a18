"""Mixtures: states with several humps."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.constraints import Constraint

from longhmm.errors import check_whole
from longhmm.model.densities import MIXTURE, DensityLowering, mixture, ndtr
from longhmm.model.emissions.family import Family
from longhmm.model.lowering import as_float
from longhmm.model.parameters import Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary


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
        check_whole("n_components", n_components, 1)
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
        offset, means, inverse_scale = mixture(params)
        z = (as_float(y)[..., None, None] - means) * inverse_scale
        return jax.nn.logsumexp(offset - 0.5 * z * z, -1)

    @property
    def lowering(self) -> DensityLowering:
        return DensityLowering(self, MIXTURE, 3 * self.n_components, mixture)

    def means(self, params: Params) -> jax.Array:
        """Of the whole mixture."""
        return jnp.sum(jnp.asarray(params["weights"]) * params["means"], -1, keepdims=True)

    def cdf(self, params: Params, values: jax.Array) -> tuple[jax.Array, jax.Array]:
        parts = ndtr((values[:, :, None] - params["means"]) / params["scales"])
        below = jnp.sum(params["weights"] * parts, axis=-1)[:, :, None]
        return below, below

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        choice, noise = jax.random.split(key)
        component = jax.random.categorical(choice, jnp.log(jnp.asarray(params["weights"]))[states], axis=-1)
        scales = jnp.asarray(params["scales"])[states, component]
        draws = jax.random.normal(noise, states.shape, scales.dtype)
        return (jnp.asarray(params["means"])[states, component] + scales * draws)[:, None]
