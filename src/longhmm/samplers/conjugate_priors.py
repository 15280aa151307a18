"""Numbers of conjugate priors, read off NumPyro's distributions: what Gibbs sampling and variational inference need."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpyro import distributions as dist

from longhmm.model.emissions import Emission
from longhmm.model.parameter import Parameter
from longhmm.model.tied import Tied


class NormalPrior(NamedTuple):
    """A vector of each group is normal: `mean` `(G, D)`, `precision` `(G, D, D)`, zero for a flat prior."""

    mean: Any
    precision: Any


class InverseWishartPrior(NamedTuple):
    """A covariance of each group is inverse Wishart: `degrees` `(G,)`, `scale` `(G, D, D)`; zero for a flat prior."""

    degrees: Any
    scale: Any

    @property
    def proper(self) -> bool:
        """Whether it is a law at all, as a flat prior is not."""
        return bool(np.all(self.degrees > 0))


class PairPrior(NamedTuple):
    """Two numbers per value: shape and rate of a gamma or inverse gamma, both concentrations of a beta."""

    one: Any
    two: Any


def grouped(emission: Emission, n_states: int) -> tuple[Emission, np.ndarray]:
    """The emission whose parameters are inferred, and the group of parameters `(K,)` that each state uses."""
    if isinstance(emission, Tied):
        return emission.emission, np.array(emission.levels)
    return emission, np.arange(n_states)


def normal_prior(parameter: Parameter) -> NormalPrior | None:
    """For the mean of a Gaussian: normal, multivariate normal, or flat; None for any other."""
    prior, shape = _bare(parameter), parameter.shape
    if type(prior) is dist.Normal:
        precision = _spread(prior.scale, shape) ** -2.0
        return NormalPrior(_spread(prior.loc, shape), precision[..., None] * np.eye(shape[-1]))
    if type(prior) is dist.MultivariateNormal:
        precision = np.linalg.inv(np.asarray(prior.covariance_matrix, np.float64))
        return NormalPrior(_spread(prior.loc, shape), _spread(precision, (*shape, shape[-1])))
    if type(prior) is dist.ImproperUniform:
        return NormalPrior(np.zeros(shape), np.zeros((*shape, shape[-1])))
    return None


def inverse_wishart_prior(parameter: Parameter) -> InverseWishartPrior | None:
    """For the covariance of a Gaussian: inverse Wishart, or flat."""
    prior = _bare(parameter)
    if type(prior) is dist.ImproperUniform:  # |S|^-(degrees + D + 1)/2 is 1
        groups, size = parameter.shape[:2]
        return InverseWishartPrior(np.full(groups, -(size + 1.0)), np.zeros(parameter.shape))
    if type(prior) is not dist.InverseWishart:
        return None
    factor = _spread(prior.base_dist.scale_tril, parameter.shape)
    degrees = _spread(prior.base_dist.concentration, parameter.shape[:1])
    return InverseWishartPrior(degrees, factor @ np.swapaxes(factor, -1, -2))


def inverse_gamma_prior(parameter: Parameter) -> PairPrior | None:
    """For a variance: shape and rate."""
    prior = _bare(parameter)
    if type(prior) is not dist.InverseGamma:
        return None
    return PairPrior(_spread(prior.concentration, parameter.shape), _spread(prior.rate, parameter.shape))


def gamma_prior(parameter: Parameter) -> PairPrior | None:
    """For a rate: gamma, exponential, or flat; shape and rate."""
    prior, shape = _bare(parameter), parameter.shape
    if type(prior) is dist.Gamma:
        return PairPrior(_spread(prior.concentration, shape), _spread(prior.rate, shape))
    if type(prior) is dist.Exponential:
        return PairPrior(np.ones(shape), _spread(prior.rate, shape))
    if type(prior) is dist.ImproperUniform:
        return PairPrior(np.ones(shape), np.zeros(shape))
    return None


def beta_prior(parameter: Parameter) -> PairPrior | None:
    """For the probability of a one: beta, or uniform; both concentrations."""
    prior, shape = _bare(parameter), parameter.shape
    if type(prior) is dist.Beta:
        return PairPrior(_spread(prior.concentration1, shape), _spread(prior.concentration0, shape))
    if type(prior) is dist.ImproperUniform or _is_standard_uniform(prior):
        return PairPrior(np.ones(shape), np.ones(shape))
    return None


def dirichlet_prior(parameter: Parameter) -> Any:
    """For shares `(G, C)`: Dirichlet or flat; the concentrations."""
    prior = _bare(parameter)
    if type(prior) is dist.Dirichlet:
        return _spread(prior.concentration, parameter.shape)
    return np.ones(parameter.shape) if type(prior) is dist.ImproperUniform else None


def _bare(parameter: Parameter) -> Any:
    """The prior without what only repeats it."""
    prior = parameter.prior
    while isinstance(prior, dist.ExpandedDistribution | dist.Independent):
        prior = prior.base_dist
    return prior


def _spread(numbers: object, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(np.asarray(numbers, np.float64), shape).copy()


def _is_standard_uniform(prior: Any) -> bool:
    return type(prior) is dist.Uniform and bool(
        np.all(np.asarray(prior.low) == 0) and np.all(np.asarray(prior.high) == 1)
    )
