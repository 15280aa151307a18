"""Distribution functions of single features, where a closed form is at hand."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

from longhmm.model.emissions import Emission
from longhmm.model.gaussian import Gaussian
from longhmm.model.mixture import GaussianMixture
from longhmm.model.tied import Tied


def feature_cdfs(
    emission: Emission, params: Mapping[str, jax.Array], values: jax.Array
) -> tuple[jax.Array, jax.Array] | None:
    """`P(y_d < value | x = k)` and `P(y_d <= value | x = k)`, each `(n, K, D)`, for values `(n, D)`.

    The two differ for discrete observations only. None where no closed form is known.
    """
    if isinstance(emission, Tied):
        found = feature_cdfs(emission.emission, params, values)
        levels = np.array(emission.levels)
        return None if found is None else (found[0][:, levels], found[1][:, levels])
    if isinstance(emission, Gaussian):
        if emission.covariance_kind == "full":
            variance = jnp.diagonal(params["covariance"], axis1=-2, axis2=-1)
        else:
            variance = params["variance"].reshape(params["mean"].shape[0], -1)
        below = ndtr((values[:, None, :] - params["mean"]) / jnp.sqrt(variance))
        return below, below
    if isinstance(emission, GaussianMixture):
        parts = ndtr((values[:, :, None] - params["means"]) / params["scales"])
        below = jnp.sum(params["weights"] * parts, axis=-1)[:, :, None]
        return below, below
    return _from_distribution(emission, params, values)


def _from_distribution(
    emission: Emission, params: Mapping[str, jax.Array], values: jax.Array
) -> tuple[jax.Array, jax.Array] | None:
    """From the distribution's own function, where features are independent and it has one."""
    if emission._distribution is None or emission._vector:
        return None
    at = values[:, None, :] if emission.dim > 1 else values
    try:
        distribution = emission._build(params)
        upper = distribution.cdf(at)
    except (NotImplementedError, AttributeError, ImportError, TypeError):
        return None
    lower = upper
    if emission.support.is_discrete:
        lower = upper - jnp.exp(distribution.log_prob(at))
    shape = (values.shape[0], -1, emission.dim)
    return lower.reshape(shape), upper.reshape(shape)
