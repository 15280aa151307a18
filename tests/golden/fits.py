"""Draws of every sampler for a few steps, on three small models: what must not change unless it is meant to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import longhmm as lh
from golden.cases import Arrays, cut, made, normal, staying

CHAINS, DRAWS, WARM_UP = 2, 3, 4


class Fit(NamedTuple):
    """A model, data, and parameters from which samplers start."""

    model: lh.HMM
    data: Any
    start: Arrays


def counts(length: int = 600) -> Fit:
    rate = np.array([1.0, 6.0])
    _, y = made(30, staying(2, 0.9), length, lambda rng, x: rng.poisson(rate[x]))
    return Fit(lh.HMM(2, lh.Poisson()), y, {"transition": staying(2, 0.88), "rate": np.array([1.1, 6.2])})


def plane() -> Fit:
    mean = np.array([[0.0, 0.0], [2.0, 1.0], [0.0, 3.0]])
    _, y = made(31, staying(3, 0.9), 800, normal(mean, np.full((3, 2), 0.6)))
    start = {"transition": staying(3, 0.88), "mean": mean + 0.05, "covariance": np.full((3, 1, 1), 0.4) * np.eye(2)}
    return Fit(lh.HMM(3, lh.Gaussian(dim=2)), y.astype(np.float32), start)


def heavy() -> Fit:
    """Ragged sequences, and an emission that has no closed form."""
    loc, scale = np.array([0.0, 2.0]), np.array([0.4, 0.6])
    _, y = made(32, staying(2, 0.95), 700, lambda rng, x: loc[x] + scale[x] * rng.standard_t(5.0, len(x)))
    start = {"transition": staying(2, 0.93), "df": np.array([5.0, 6.0]), "loc": loc + 0.05, "scale": 1.05 * scale}
    return Fit(lh.HMM(2, lh.StudentT()), cut(y, (300, 50, 350)), start)


def windows() -> dict[str, Any]:
    return {"windows": lh.Windows(5, 6), "buffer": lh.FixedBuffer(8)}


def draws_of(fit: Fit, sampler: Any, options: dict[str, Any]) -> Arrays:
    """Draws by natural name, (chain, draw, ...)."""
    settings = {"chains": CHAINS, "draws": DRAWS, "warmup": WARM_UP, "init": fit.start, "seed": 5} | options
    posterior = lh.sample(fit.model, fit.data, sampler=sampler, progress=False, **settings)
    return {name: np.asarray(value.values) for name, value in posterior.draws.items()}


def default_on_windows() -> Arrays:
    """Long enough that the default sampler stays with windows, and finds start, windows and spacing by itself."""
    return draws_of(counts(30_000), None, {"init": None, "warmup": None})


def expectation_maximisation() -> Arrays:
    fit = heavy()
    found = lh.fit_em(fit.model, fit.data, init=fit.start, max_iterations=4, progress=False)
    return {**found.params, "log_posterior": found.log_posterior, "log_likelihood": np.array(found.log_likelihood)}


def search_for_a_start() -> Arrays:
    fit = plane()
    return dict(lh.fit_em(fit.model, fit.data, restarts=2, max_iterations=3, seed=2, progress=False).params)


def _by(model: Callable[[], Fit], sampler: Callable[[], Any], options: Callable[[], dict[str, Any]] = dict) -> Any:
    return lambda: draws_of(model(), sampler(), options())


def _mass(size: int) -> dict[str, Any]:
    return {"step_size": 0.3, "inverse_mass": 0.01 * np.eye(size)}


RUNS: dict[str, Callable[[], Arrays]] = {
    "default, counts": default_on_windows,
    "default exact, counts": _by(counts, lambda: None),
    "SGRLD, counts": _by(counts, lambda: lh.SGRLD(), windows),
    "SGLD, counts": _by(counts, lambda: lh.SGLD(step_size=1e-4), windows),
    "SGHMC, counts": _by(counts, lambda: lh.SGHMC(), windows),
    "BatchRLD, counts": _by(counts, lambda: lh.samplers.BatchRLD()),
    "StochasticVariational, counts": _by(counts, lambda: lh.samplers.StochasticVariational(), windows),
    "NUTS, counts": _by(counts, lambda: lh.NUTS(max_tree_depth=3, **_mass(4))),
    "HMC, counts": _by(counts, lambda: lh.HMC(leapfrogs=3, **_mass(4))),
    "Gibbs, counts": _by(counts, lambda: lh.Gibbs()),
    "SGRLD of the paper, plane": _by(plane, lambda: lh.SGRLD.paper(step_size=1e-4), windows),
    "SGLD, plane": _by(plane, lambda: lh.SGLD(step_size=1e-4, noise_correction=True), windows),
    "StochasticVariational, plane": _by(plane, lambda: lh.samplers.StochasticVariational(), windows),
    "Gibbs, plane": _by(plane, lambda: lh.Gibbs()),
    "adapted NUTS, plane": _by(plane, lambda: lh.NUTS(max_tree_depth=2, adaptation_steps=10)),
    "SGHMC, heavy": _by(heavy, lambda: lh.SGHMC(), windows),
    "Gibbs, heavy": _by(heavy, lambda: lh.Gibbs(adaptation_steps=6)),
    "HMC, heavy": _by(heavy, lambda: lh.HMC(leapfrogs=3, **_mass(8))),
    "EM, heavy": expectation_maximisation,
    "EM with a search, plane": search_for_a_start,
}
