"""One table of emissions that every test of emissions runs through, with independent densities from SciPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints
from scipy import stats

from longhmm import (
    Bernoulli,
    Categorical,
    Emission,
    Gamma,
    Gaussian,
    GaussianMixture,
    LogNormal,
    NegativeBinomial,
    Poisson,
    StudentT,
    Tied,
    VonMises,
)
from longhmm.model.parameters import draw_prior
from longhmm.model.summary import summarise

# The law of state k: one SciPy distribution per independent feature, or one multivariate distribution.
Law = Callable[[dict[str, np.ndarray], int], Any]


class Configuration(NamedTuple):
    """An emission with parameters to try it at; `law(params, k)` is what state k must emit, according to SciPy."""

    name: str
    emission: Emission
    n_states: int
    params: dict[str, np.ndarray]
    law: Law


class MixtureLaw:
    """A mixture of normals, with the few methods of a SciPy distribution that the tests use."""

    def __init__(self, weights: np.ndarray, means: np.ndarray, scales: np.ndarray) -> None:
        self.weights, self.means, self.scales = weights, means, scales

    def logpdf(self, y: np.ndarray) -> np.ndarray:
        return np.log(self.pdf(y))

    def pdf(self, y: np.ndarray) -> np.ndarray:
        return (self.weights * stats.norm.pdf(np.asarray(y)[..., None], self.means, self.scales)).sum(-1)

    def mean(self) -> float:
        return float((self.weights * self.means).sum())

    def entropy(self) -> float:
        grid = np.linspace(self.means.min() - 12, self.means.max() + 12, 200_001)
        density = self.pdf(grid)
        return float(np.trapezoid(-density * np.log(density), grid))


class Logistic(Emission):
    """What a user might write: a density of one's own, without draws."""

    def __init__(self) -> None:
        super().__init__(None, centre=dist.Normal(0.0, 3.0), width=dist.HalfNormal(2.0))

    def log_density(self, params: Any, y: jax.Array) -> jax.Array:
        z = (y[..., None] - params["centre"]) / params["width"]
        return -z - jnp.log(params["width"]) - 2.0 * jnp.logaddexp(0.0, -z)


def exponential_scale(loc: Any, log_scale: Any) -> dist.Distribution:
    return dist.Normal(loc, jnp.exp(log_scale))


def independent_pair(loc: Any, scale: Any) -> dist.Distribution:
    return dist.Laplace(loc, scale).to_event(1)


def covariances(n_states: int, dim: int, seed: int) -> np.ndarray:
    factors = np.random.default_rng(seed).normal(size=(n_states, dim, dim + 2))
    return factors @ factors.transpose(0, 2, 1) / dim + 0.3 * np.eye(dim)


def each(maker: Callable[..., Any]) -> Law:
    """One-dimensional law from the k-th entries of the parameters, by name."""
    return lambda params, k: [maker(**{name: value[k] for name, value in params.items()})]


def per_feature(maker: Callable[..., Any]) -> Law:
    """Independent features from parameters of shape (K, D)."""
    return lambda params, k: [
        maker(**{name: value[k, d] for name, value in params.items()})
        for d in range(next(iter(params.values())).shape[1])
    ]


def binary(probs: float) -> Any:
    return stats.bernoulli(probs)


def category(probs: np.ndarray) -> Any:
    return stats.rv_discrete(values=(np.arange(len(probs)), probs))


def _table() -> list[tuple[str, Emission, int, dict[str, Any], Law]]:
    real = np.random.default_rng(1).normal(size=(40, 6)) * 3 + 1
    positive, whole = np.exp(0.5 * real), np.floor(np.abs(real) * 2)
    angles = np.mod(real, 2 * np.pi) - np.pi
    simplex4 = np.array([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]])

    def full(params: Any, k: int) -> Any:
        return stats.multivariate_normal(params["mean"][k], params["covariance"][k])

    def data(values: np.ndarray, dim: int) -> Any:
        return summarise(values[:, :dim])

    return [
        (
            "gaussian-full-2d",
            Gaussian(2).resolve(data(real, 2)),
            3,
            {"mean": [[0.0, 1.0], [2.0, -1.0], [4.0, 0.0]], "covariance": covariances(3, 2, 0)},
            full,
        ),
        (
            "gaussian-1d",
            Gaussian().resolve(data(real, 1)),
            2,
            {"mean": [0.0, 2.0], "sd": np.sqrt([0.5, 2.0])},
            each(lambda mean, sd: stats.norm(mean, sd)),
        ),
        (
            "gaussian-full-6d",
            Gaussian(6).resolve(data(real, 6)),
            2,
            {"mean": real[:2], "covariance": covariances(2, 6, 1)},
            full,
        ),
        (
            "gaussian-diagonal",
            Gaussian(3, "diagonal").resolve(data(real, 3)),
            2,
            {"mean": real[:2, :3], "variance": [[1.0, 0.3, 2.0], [0.1, 5.0, 1.0]]},
            per_feature(lambda mean, variance: stats.norm(mean, np.sqrt(variance))),
        ),
        (
            "gaussian-spherical",
            Gaussian(2, "spherical").resolve(data(real, 2)),
            2,
            {"mean": real[:2, :2], "variance": [0.4, 3.0]},
            lambda params, k: [stats.norm(m, np.sqrt(params["variance"][k])) for m in params["mean"][k]],
        ),
        (
            "log-normal",
            LogNormal(loc=dist.Normal(0.0, 1.0), scale=dist.HalfNormal(1.0)),
            2,
            {"loc": [0.0, 1.0], "scale": [0.5, 0.8]},
            each(lambda loc, scale: stats.lognorm(scale, scale=np.exp(loc))),
        ),
        (
            "student-t",
            StudentT().resolve(data(real, 1)),
            2,
            {"df": [5.0, 20.0], "loc": [-1.0, 3.0], "scale": [0.5, 1.5]},
            each(stats.t),
        ),
        (
            "gamma-2d",
            Gamma(2).resolve(data(positive, 2)),
            2,
            {"concentration": [[1.5, 3.0], [9.0, 2.0]], "rate": [[1.0, 0.2], [3.0, 2.0]]},
            per_feature(lambda concentration, rate: stats.gamma(concentration, scale=1 / rate)),
        ),
        (
            "poisson",
            Poisson().resolve(data(whole, 1)),
            3,
            {"rate": [0.4, 3.0, 20.0]},
            each(lambda rate: stats.poisson(rate)),
        ),
        (
            "negative-binomial",
            NegativeBinomial().resolve(data(whole, 1)),
            2,
            {"mean": [2.0, 9.0], "concentration": [1.5, 6.0]},
            each(lambda mean, concentration: stats.nbinom(concentration, concentration / (concentration + mean))),
        ),
        ("categorical", Categorical(4).resolve(data(whole, 1)), 2, {"probs": simplex4}, each(category)),
        (
            "bernoulli-3d",
            Bernoulli(3).resolve(data(whole, 3)),
            2,
            {"probs": [[0.1, 0.5, 0.8], [0.6, 0.3, 0.95]]},
            per_feature(binary),
        ),
        (
            "von-mises",
            VonMises().resolve(data(angles, 1)),
            2,
            {"loc": [2.3, -1.0], "concentration": [2.0, 8.0]},
            each(lambda loc, concentration: stats.vonmises(concentration, loc)),
        ),
        (
            "gaussian-mixture",
            GaussianMixture(2).resolve(data(real, 1)),
            2,
            {
                "weights": [[0.3, 0.7], [0.5, 0.5]],
                "means": [[-2.0, 1.0], [0.0, 4.0]],
                "scales": [[0.5, 1.0], [2.0, 0.3]],
            },
            each(MixtureLaw),
        ),
        (
            "tied",
            Tied(Gaussian(2).resolve(data(real, 2)), levels=(0, 1, 0)),
            3,
            {"mean": [[0.0, 1.0], [2.0, -1.0]], "covariance": covariances(2, 2, 3)},
            lambda params, k: full(params, (0, 1, 0)[k]),
        ),
        (
            "fixed-and-per-state",
            Emission(
                dist.StudentT,
                df=6.0,
                loc=dist.Normal(np.array([-1.0, 0.0, 1.0]), 2.0),
                scale=dist.HalfNormal(np.array([1.0, 2.0, 3.0])),
            ),
            3,
            {"df": [6.0] * 3, "loc": [-1.0, 0.5, 3.0], "scale": [0.5, 1.0, 1.5]},
            each(stats.t),
        ),
        (
            "class-2d",
            Emission(
                dist.Laplace,
                dim=2,
                loc=dist.Normal(0.0, np.array([1.0, 5.0])),
                scale=dist.LogNormal(0.0, np.ones((2, 1))),
            ),
            2,
            {"loc": real[:2, :2], "scale": [[1.0, 2.0], [0.5, 0.3]]},
            per_feature(stats.laplace),
        ),
        (
            "class-unit-interval",
            Emission(dist.Beta, concentration1=dist.Gamma(2.0, 1.0), concentration0=dist.Gamma(2.0, 1.0)),
            2,
            {"concentration1": [2.0, 5.0], "concentration0": [3.0, 1.5]},
            each(lambda concentration1, concentration0: stats.beta(concentration1, concentration0)),
        ),
        (
            "class-multivariate-normal",
            Emission(
                dist.MultivariateNormal,
                dim=2,
                loc=dist.Normal(0.0, 5.0),
                covariance_matrix=dist.InverseWishart(5.0, np.eye(2)),
            ),
            2,
            {"loc": real[:2, :2], "covariance_matrix": covariances(2, 2, 4)},
            lambda params, k: stats.multivariate_normal(params["loc"][k], params["covariance_matrix"][k]),
        ),
        (
            "class-multivariate-t",
            Emission(
                dist.MultivariateStudentT,
                dim=2,
                df=12.0,
                loc=dist.Normal(0.0, 5.0),
                scale_tril=np.linalg.cholesky(covariances(1, 2, 5)[0]),
            ),
            2,
            {"df": [12.0, 12.0], "loc": real[:2, :2], "scale_tril": [np.linalg.cholesky(covariances(1, 2, 5)[0])] * 2},
            lambda params, k: stats.multivariate_t(params["loc"][k], covariances(1, 2, 5)[0], params["df"][k]),
        ),
        (
            "numpyro-function",
            Emission(dist.Categorical, probs=dist.Dirichlet(np.ones(4))),
            2,
            {"probs": simplex4},
            each(category),
        ),
        (
            "support-differs-by-state",
            Emission(dist.Binomial, total_count=np.array([3, 8]), probs=dist.Beta(1.0, 2.0)),
            2,
            {"total_count": [3, 8], "probs": [0.4, 0.7]},
            each(lambda total_count, probs: stats.binom(total_count, probs)),
        ),
        (
            "nothing-to-infer",
            Emission(dist.Uniform, low=0.0, high=np.array([2.0, 5.0])),
            2,
            {"low": [0.0, 0.0], "high": [2.0, 5.0]},
            each(lambda low, high: stats.uniform(low, high - low)),
        ),
        (
            "user-function",
            Emission(exponential_scale, loc=dist.Normal(0.0, 3.0), log_scale=dist.Normal(0.0, 1.0)),
            2,
            {"loc": [0.0, 2.0], "log_scale": [-1.0, 0.5]},
            each(lambda loc, log_scale: stats.norm(loc, np.exp(log_scale))),
        ),
        (
            "user-function-2d",
            Emission(independent_pair, dim=2, loc=dist.Normal(0.0, 3.0), scale=dist.HalfNormal(1.0)),
            2,
            {"loc": real[:2, :2], "scale": [[1.0, 2.0], [0.5, 0.3]]},
            per_feature(stats.laplace),
        ),
        (
            "user-subclass",
            Logistic(),
            2,
            {"centre": [0.0, 2.0], "width": [0.5, 1.0]},
            each(lambda centre, width: stats.logistic(centre, width)),
        ),
        (
            "flat-priors",
            Gaussian(
                2,
                mean=dist.ImproperUniform(constraints.real, (), ()),
                covariance=dist.ImproperUniform(constraints.positive_definite, (), (2, 2)),
            ),
            2,
            {"mean": real[:2, :2], "covariance": covariances(2, 2, 6)},
            full,
        ),
    ]


@cache
def configurations() -> list[Configuration]:
    """The whole table; parameters are float64, integers where a constant is one."""
    return [
        Configuration(name, emission, n_states, {key: np.asarray(value) for key, value in params.items()}, law)
        for name, emission, n_states, params, law in _table()
    ]


def names() -> list[str]:
    """The names of the configurations, for `pytest.mark.parametrize`."""
    return [row.name for row in configurations()]


def named(name: str) -> Configuration:
    """One configuration by name."""
    return next(row for row in configurations() if row.name == name)


def observations(configuration: Configuration, n: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """States (n,) that visit every state, and observations (n, D) drawn from SciPy's law of each."""
    rng = np.random.default_rng(7)
    states = np.arange(n) % configuration.n_states
    rows = []
    for state in states:
        law = configuration.law(configuration.params, int(state))
        if isinstance(law, list):
            rows.append([_draw(one, rng) for one in law])
        else:
            rows.append(np.ravel(law.rvs(random_state=rng)))
    return states, np.array(rows, dtype=np.float64)


def _draw(law: Any, rng: np.random.Generator) -> float:
    if isinstance(law, MixtureLaw):
        component = rng.choice(len(law.weights), p=law.weights)
        return float(rng.normal(law.means[component], law.scales[component]))
    return float(law.rvs(random_state=rng))


def log_law(law: Any, y: np.ndarray) -> Any:
    """SciPy's log density or log probability."""
    return law.logpmf(y) if hasattr(law, "pmf") else law.logpdf(y)


def prior_draw(emission: Emission, key: jax.Array, n_states: int) -> dict[str, jax.Array]:
    """One draw of every parameter from its prior; fixed parameters have their values."""
    table = emission.parameters(n_states)
    keys = jax.random.split(key, max(len(table), 1))
    return {name: draw_prior(one, each) for one, (name, each) in zip(keys, table.items(), strict=False)}
