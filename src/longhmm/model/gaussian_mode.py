"""The M step of a Gaussian emission in closed form, for the priors it has by default.

With a normal prior on the mean and an inverse Wishart (inverse gamma) one on the covariance (variances), or flat ones,
each is at its best in closed form given the other; a few rounds settle both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpyro import distributions as dist

from longhmm.model.emissions import Emission
from longhmm.model.gaussian import Gaussian

ROUNDS = 200
SETTLED = 1e-13  # relative change of the mean after which the rounds end


class _Scatter(NamedTuple):
    """What the prior adds to the second moments `(K, D, D)`, and to the number of observations."""

    matrix: np.ndarray
    weight: float


def gaussian_mode(
    emission: Emission,
    n_states: int,
    params: Mapping[str, np.ndarray],
    statistics: np.ndarray,
    counts: np.ndarray,
    centre: np.ndarray,
    *,
    prior: bool,
) -> dict[str, np.ndarray] | None:
    """The best mean and covariance for expected statistics `s(y - centre)`; None where there is no closed form."""
    if type(emission) is not Gaussian:
        return None
    table = emission.parameters(n_states)
    scatter_name = "covariance" if emission.covariance_kind == "full" else "variance"
    if not (table["mean"].is_free and table[scatter_name].is_free):
        return None
    location = _location_prior(table["mean"].prior, params["mean"].shape) if prior else _flat(params["mean"].shape)
    scatter = _scatter_prior(emission, table[scatter_name].prior, n_states) if prior else _Scatter(np.zeros(1), 0.0)
    if location is None or scatter is None or np.any(counts <= emission.dim):
        return None
    dim = emission.dim
    first, second = statistics[:, :dim], statistics[:, dim:]
    mean, precision_of_prior = location
    about = mean - centre  # of the prior, relative to the centre of the statistics
    estimate = params["mean"] - centre
    for _ in range(ROUNDS):
        spread = _best_spread(emission, first, second, counts, estimate, scatter)
        if spread is None:
            return None
        inverse = np.linalg.inv(spread) if spread.ndim == 3 else None
        if inverse is not None:
            system = counts[:, None, None] * inverse + precision_of_prior[:, :, None] * np.eye(dim)
            right = np.einsum("kij,kj->ki", inverse, first) + precision_of_prior * about
            new = np.linalg.solve(system, right[..., None])[..., 0]
        else:
            new = (first / spread + precision_of_prior * about) / (counts[:, None] / spread + precision_of_prior)
        change = np.abs(new - estimate).max() / (np.abs(new).max() + 1e-300)
        estimate = new
        if change < SETTLED:
            break
    spread = _best_spread(emission, first, second, counts, estimate, scatter)
    assert spread is not None
    if emission.covariance_kind == "spherical":
        spread = spread[:, 0]
    return {"mean": estimate + centre, scatter_name: spread}


def _best_spread(
    emission: Gaussian, first: np.ndarray, second: np.ndarray, counts: np.ndarray, mean: np.ndarray, prior: _Scatter
) -> np.ndarray | None:
    """Covariances `(K, D, D)`, or variances `(K, D)`, given the means (relative to the centre)."""
    dim = emission.dim
    if emission.covariance_kind == "full":
        rows, columns = np.triu_indices(dim)
        moments = np.zeros((len(counts), dim, dim))
        moments[:, rows, columns] = second
        moments[:, columns, rows] = second
        cross = mean[:, :, None] * first[:, None, :]
        about = moments - cross - np.swapaxes(cross, 1, 2)
        about = about + counts[:, None, None] * mean[:, :, None] * mean[:, None, :]
        spread = (about + prior.matrix) / (counts[:, None, None] + prior.weight)
        return spread if np.linalg.eigvalsh(spread).min() > 0 else None
    squares = second - (2 * mean * first - counts[:, None] * mean**2 if emission.covariance_kind == "diagonal" else 0.0)
    if emission.covariance_kind == "spherical":
        about = second[:, 0] - np.sum(2 * mean * first - counts[:, None] * mean**2, axis=1)
        variance = (about + prior.matrix) / (dim * counts + prior.weight)
        return np.repeat(variance[:, None], dim, axis=1) if variance.min() > 0 else None
    variance = (squares + prior.matrix) / (counts[:, None] + prior.weight)
    return variance if variance.min() > 0 else None


def _flat(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(shape), np.zeros(shape)


def _location_prior(prior: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray] | None:
    """Mean and precision of the prior of every entry, or None if it is not normal."""
    while isinstance(prior, dist.Independent | dist.ExpandedDistribution):
        prior = prior.base_dist
    if prior is None or isinstance(prior, dist.ImproperUniform):
        return _flat(shape)
    if not isinstance(prior, dist.Normal):
        return None
    loc, scale = np.asarray(prior.loc, np.float64), np.asarray(prior.scale, np.float64)
    return np.broadcast_to(loc, shape), np.broadcast_to(1.0 / scale**2, shape)


def _scatter_prior(emission: Gaussian, prior: Any, n_states: int) -> _Scatter | None:
    """What an inverse Wishart or inverse gamma prior adds to the sums, or None if it is something else."""
    while isinstance(prior, dist.Independent | dist.ExpandedDistribution):
        prior = prior.base_dist
    if prior is None or isinstance(prior, dist.ImproperUniform):
        return _Scatter(np.zeros(1), 0.0)
    if emission.covariance_kind == "full" and isinstance(prior, dist.InverseWishart):
        factor = np.asarray(prior.scale_tril, np.float64)
        freedom = np.asarray(prior.concentration, np.float64)
        if freedom.ndim:
            return None
        return _Scatter(factor @ np.swapaxes(factor, -1, -2), float(freedom) + emission.dim + 1)
    if emission.covariance_kind != "full" and isinstance(prior, dist.InverseGamma):
        shape, rate = np.asarray(prior.concentration, np.float64), np.asarray(prior.rate, np.float64)
        if shape.ndim or (emission.covariance_kind == "spherical" and rate.ndim):
            return None
        return _Scatter(2.0 * rate, 2.0 * float(shape) + 2.0)
    return None
