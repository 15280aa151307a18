"""One model of three states for every emission, with parameters and data: what the speed budget is measured on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist

import longhmm as lh

N_STATES = 3
STAY = 0.95
TRANSITION = STAY * np.eye(N_STATES) + (1 - STAY) / (N_STATES - 1) * (1 - np.eye(N_STATES))
LEVELS = np.array([-2.0, 0.0, 2.5])
WIDTHS = np.array([0.6, 0.8, 1.0])
POSITIVE = np.array([0.7, 2.0, 6.0])
SHARES = np.array([[0.6, 0.3, 0.05, 0.05], [0.1, 0.5, 0.3, 0.1], [0.1, 0.1, 0.2, 0.6]])


class Problem(NamedTuple):
    """A model, natural parameters, and data in memory."""

    model: lh.HMM
    params: dict[str, np.ndarray]
    data: np.ndarray


def line(mean: np.ndarray, sd: np.ndarray) -> dict[str, np.ndarray]:
    """Parameters of a Gaussian in one dimension: the only place here that knows how they are laid out."""
    return {"mean": mean, "sd": sd}


def path(rng: np.random.Generator, length: int) -> np.ndarray:
    """States of a chain with geometric dwell times; each move goes one up or down the circle of three."""
    dwells = rng.geometric(1 - STAY, int(length * (1 - STAY) * 1.5) + 20)
    visited = np.cumsum(rng.integers(1, N_STATES, len(dwells))) % N_STATES
    return np.repeat(visited, dwells)[:length]


def mixture(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    second = rng.random(len(x)) > 0.4
    return (LEVELS[x] + second + 0.4 * rng.standard_normal(len(x))).astype(np.float32)


def normal(rng: np.random.Generator, x: np.ndarray, dim: int) -> np.ndarray:
    noise = rng.standard_normal((len(x), dim), dtype=np.float32)
    return (LEVELS[x, None] + WIDTHS[x, None] * noise).astype(np.float32)


Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]
PLANE = {"mean": np.stack([LEVELS, LEVELS], 1), "covariance": (WIDTHS**2)[:, None, None] * np.eye(2)}
COMPONENTS = {
    "weights": np.tile([0.4, 0.6], (N_STATES, 1)),
    "means": np.stack([LEVELS, LEVELS + 1], 1),
    "scales": np.full((N_STATES, 2), 0.4),
}

FAMILIES: dict[str, tuple[Callable[[], Any], dict[str, np.ndarray], Draw]] = {
    "Gaussian": (lh.Gaussian, line(LEVELS, WIDTHS), lambda rng, x: normal(rng, x, 1)[:, 0]),
    "Gaussian 2-D": (lambda: lh.Gaussian(dim=2), PLANE, lambda rng, x: normal(rng, x, 2)),
    "Poisson": (lh.Poisson, {"rate": POSITIVE}, lambda rng, x: rng.poisson(POSITIVE[x])),
    "Categorical": (
        lambda: lh.Categorical(4),
        {"probs": SHARES},
        lambda rng, x: (rng.random(len(x))[:, None] > np.cumsum(SHARES, 1)[x]).sum(1).clip(0, 3),
    ),
    "Bernoulli": (lh.Bernoulli, {"probs": SHARES[:, 0]}, lambda rng, x: 1 * (rng.random(len(x)) < SHARES[x, 0])),
    "LogNormal": (
        lh.LogNormal,
        {"loc": LEVELS, "scale": WIDTHS},
        lambda rng, x: np.exp(normal(rng, x, 1)[:, 0]),
    ),
    "Gamma": (
        lh.Gamma,
        {"concentration": POSITIVE, "rate": np.ones(N_STATES)},
        lambda rng, x: 1e-3 + rng.gamma(POSITIVE[x]).astype(np.float32),
    ),
    "StudentT": (
        lh.StudentT,
        {"df": np.full(N_STATES, 6.0), "loc": LEVELS, "scale": WIDTHS},
        lambda rng, x: (LEVELS[x] + WIDTHS[x] * rng.standard_t(6.0, len(x))).astype(np.float32),
    ),
    "VonMises": (
        # A prior of its own: the default is cut where these data have a gap, which the parameters need not know.
        lambda: lh.VonMises(loc=dist.Uniform(-np.pi, np.pi)),
        {"loc": LEVELS, "concentration": 2 * POSITIVE},
        lambda rng, x: rng.vonmises(LEVELS[x], 2 * POSITIVE[x]).astype(np.float32),
    ),
    "NegativeBinomial": (
        lh.NegativeBinomial,
        {"mean": POSITIVE, "concentration": np.full(N_STATES, 4.0)},
        lambda rng, x: rng.poisson(POSITIVE[x] * rng.gamma(4.0, 0.25, len(x))),
    ),
    "GaussianMixture": (lambda: lh.GaussianMixture(2), COMPONENTS, mixture),
    "Tied Gaussian": (
        lambda: lh.Tied(lh.Gaussian(), (0, 1, 0)),
        line(LEVELS[:2], WIDTHS[:2]),
        lambda rng, x: normal(rng, x % 2, 1)[:, 0],
    ),
    "own (Laplace)": (
        lambda: lh.Emission(dist.Laplace, loc=dist.Normal(0.0, 5.0), scale=dist.LogNormal(0.0, 1.0)),
        {"loc": LEVELS, "scale": WIDTHS},
        lambda rng, x: rng.laplace(LEVELS[x], WIDTHS[x]).astype(np.float32),
    ),
}


def problem(name: str, length: int, seed: int = 0) -> Problem:
    """The model of this family, and `length` rows from it."""
    emission, params, draw = FAMILIES[name]
    rng = np.random.default_rng(seed)
    values = draw(rng, path(rng, length))
    return Problem(lh.HMM(N_STATES, emission()), {"transition": TRANSITION, **params}, values)
