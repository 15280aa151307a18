"""No cliffs: what every family costs, in processor time, against the Gaussian of the same shape; and what its data cost
as a file, or with one number missing, against the same data as an array; and transitions that follow covariates, with
16 or 32 distinct rows or all different, against constant ones in turns.

    LONGHMM_THREADS=1 python benchmarks/cliffs.py [--rows 400000] [--states 2 8] [--only StudentT Gamma]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("LONGHMM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import numpy as np
import numpyro.distributions as dist

import longhmm as lh

ANSWERS: dict[str, Callable[..., Any]] = {
    "log likelihood": lh.log_likelihood,
    "gradient": lh.gradient,
    "probabilities": lh.state_probabilities,
}
AIMS = {"Laplace, own": 5.0, "path": 1.2, "one missing": 1.2}  # else 3
AIMS |= {"covariates, 16 rows": 1.5, "covariates, 32 rows": 1.5, "covariates": 4.0}


class Problem(NamedTuple):
    """A model of K states, its parameters, rows `(T,)` or `(T, D)`, and the Gaussian that it is compared with."""

    model: lh.HMM
    params: dict[str, np.ndarray]
    rows: np.ndarray
    like: str


def problems(n: int, length: int) -> dict[str, Problem]:
    """Every family, with rows of its own."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.integers(0, n, length // 20 + 1), 20)[:length]
    level, wide, ones = np.linspace(-2.5, 2.5, n), np.linspace(0.6, 1.0, n), np.ones(n)
    rate, zeros = np.linspace(1.0, 12.0, n), np.zeros(n)
    plane = np.stack([level, -level], 1)
    normal, noise = level[x] + wide[x] * rng.standard_normal(length), rng.standard_normal((length, 2))
    flat = plane[x] + wide[x, None] * noise
    steps, turns = 1e-3 + rng.gamma(rate[x]), rng.vonmises(0.0, rate[x])
    counts = rng.poisson(rate[x] * rng.gamma(4.0, 0.25, length))
    mixed = normal + 2.0 * (rng.random(length) > 0.5)
    halves = {"weights": np.full((n, 2), 0.5), "means": level[:, None] + [0, 2.0], "scales": np.tile(wide, (2, 1)).T}
    gamma, angle = {"concentration": rate, "rate": ones}, {"loc": zeros, "concentration": rate}
    direction = dist.Uniform(-np.pi, np.pi)
    movement = lh.Product(step=lh.Gamma(), angle=lh.VonMises(loc=direction))
    moved = {**{f"step_{k}": v for k, v in gamma.items()}, **{f"angle_{k}": v for k, v in angle.items()}}
    tied = lh.Tied(lh.Gaussian(), np.arange(n) // 2)
    own = lh.Emission(dist.Laplace, loc=dist.Normal(0.0, 5.0), scale=dist.LogNormal(0.0, 1.0))
    pairs = {"mean": plane, "covariance": (wide**2)[:, None, None] * np.eye(2)}
    given: dict[str, tuple[lh.Emission, dict[str, np.ndarray], np.ndarray, str]] = {
        "Gaussian": (lh.Gaussian(), {"mean": level, "sd": wide}, normal, "Gaussian"),
        "Gaussian 2-D": (lh.Gaussian(dim=2), pairs, flat, "Gaussian 2-D"),
        "Gaussian 2-D, diagonal": (
            *(lh.Gaussian(dim=2, covariance="diagonal"), {"mean": plane, "variance": np.stack([wide**2] * 2, 1)}),
            *(flat, "Gaussian 2-D"),
        ),
        "Tied": (tied, {"mean": level[: -(-n // 2)], "sd": wide[: -(-n // 2)]}, normal, "Gaussian"),
        "LogNormal": (lh.LogNormal(), {"loc": level, "scale": wide}, np.exp(normal), "Gaussian"),
        "Poisson": (lh.Poisson(), {"rate": rate}, counts, "Gaussian"),
        "Poisson 2-D": (lh.Poisson(2), {"rate": plane + 3}, rng.poisson(plane[x] + 3.0), "Gaussian 2-D"),
        "NegativeBinomial": (lh.NegativeBinomial(), {"mean": rate, "concentration": 4 * ones}, counts, "Gaussian"),
        "StudentT": (lh.StudentT(), {"df": 6 * ones, "loc": level, "scale": wide}, normal, "Gaussian"),
        "Gamma": (lh.Gamma(), gamma, steps, "Gaussian"),
        "VonMises": (lh.VonMises(loc=direction), angle, turns, "Gaussian"),
        "GaussianMixture": (lh.GaussianMixture(2), halves, mixed, "Gaussian"),
        **{
            f"AR({lags})": (lh.AR(lags=lags), {**own, "phi": np.full((n, lags), 0.3 / lags)}, normal, "Gaussian")
            for lags, own in ((lags, {"intercept": level, "sd": wide}) for lags in (1, 4))
        },
        "Product": (movement, moved, np.stack([steps, turns], 1), "Gaussian 2-D"),
        "Laplace, own": (own, {"loc": level, "scale": wide}, normal, "Gaussian"),
    }
    transition = np.full((n, n), 0.05 / max(1, n - 1)) + (0.95 - 0.05 / max(1, n - 1)) * np.eye(n)
    return {
        name: Problem(lh.HMM(n, emission), {"transition": transition, **params}, rows, like)
        for name, (emission, params, rows, like) in given.items()
    }


class Against(NamedTuple):
    """Model, parameters and data of transitions that follow covariates, and of constant ones."""

    own: tuple[lh.HMM, dict[str, np.ndarray], Any]
    like: tuple[lh.HMM, dict[str, np.ndarray], Any]


def with_covariates(n: int, length: int) -> dict[str, Against]:
    """Gaussian rows whose transitions follow two covariates of mean 0, where they are the constant ones of `problems`.
    Standard deviations are so small that every row says much: no pass is repeated because chunks began too late."""
    like, rng, off = problems(n, length)["Gaussian"], np.random.default_rng(1), ~np.eye(n, dtype=bool)
    transition, narrow = like.params["transition"], {"mean": like.params["mean"], "sd": like.params["sd"] / 4}
    intercept = np.log(transition / np.diag(transition)[:, None])
    params = {"coefficients": np.stack([intercept, 0.2 * off, -0.2 * off], axis=-1), **narrow}
    values = {
        f"covariates, {count} rows": rng.integers([4, count // 4], size=(length, 2)) - [1.5, (count // 4 - 1) / 2]
        for count in (16, 32)
    }
    values["covariates"] = rng.standard_normal((length, 2))
    model = lh.HMM(n, lh.Gaussian(), transitions=lh.Logit(2))
    return {
        name: Against(
            (model, params, lh.open_data(like.rows, covariates=each)),
            (like.model, {"transition": transition, **narrow}, like.rows),
        )
        for name, each in values.items()
    }


def forms(problem: Problem, folder: Path) -> Iterator[tuple[str, Any]]:
    """The same rows as an array, as a file, and with one number missing."""
    yield "array", problem.rows
    path = folder / "rows.npy"
    np.save(path, problem.rows)
    yield "path", path
    holed = problem.rows.astype(np.float64)
    holed.reshape(len(holed), -1)[len(holed) // 3, 0] = np.nan
    yield "one missing", holed


def costs(runs: list[Callable[[], Any]], rows: int, repeats: int) -> list[float]:
    """Nanoseconds of processor time for each row, the least of several runs in turns; the first compiles. None finds
    its rows in the cache because the run before it had the same."""
    times, others = np.empty((1 + repeats, len(runs))), np.zeros(1 << 23)
    for at in np.ndindex(times.shape):
        others += 1.0
        begin = time.process_time()
        runs[at[1]]()
        times[at] = time.process_time() - begin
    return list(times[1:].min(axis=0) / rows * 1e9)


def main() -> int:
    """Print the table; how many entries miss their aim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--states", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--only", nargs="+", default=None)
    parser.add_argument("--repeats", type=int, default=9)
    asked = parser.parse_args()
    missed = 0

    def show(n: int, name: str, form: str, pairs: list[tuple[float, float]]) -> int:
        """A line of costs and of what they are compared with; how many miss their aim."""
        aim = AIMS.get(form, AIMS.get(name, 3.0))
        cells = (f"{own:>9.0f} ns {own / like:>6.2f}{'*' if own > aim * like else ' '}    " for own, like in pairs)
        print(f"{n:>2}  {name:24}{form:13}" + "".join(cells), flush=True)
        return sum(own > aim * like for own, like in pairs)

    print(f"{'K':>2}  {'family':24}{'data':13}" + "".join(f"{answer:>24}" for answer in ANSWERS))
    for n in asked.states:
        arrays: dict[str, list[float]] = {}
        for name, problem in problems(n, asked.rows).items():
            if asked.only and name not in (*asked.only, "Gaussian", "Gaussian 2-D"):
                continue
            with tempfile.TemporaryDirectory() as folder:
                data = dict(forms(problem, Path(folder)))
                found = [
                    costs([partial(call, *problem[:2], each) for each in data.values()], asked.rows, asked.repeats)
                    for call in ANSWERS.values()
                ]
            for form, own in zip(data, zip(*found, strict=True), strict=True):
                arrays.setdefault(name, list(own))
                like = arrays[problem.like if form == "array" else name]
                missed += show(n, name, form, list(zip(own, like, strict=True)))
        for name, given in with_covariates(n, asked.rows).items():
            if asked.only and name not in asked.only:
                continue
            pairs = [
                costs([partial(call, *each) for each in given], asked.rows, asked.repeats) for call in ANSWERS.values()
            ]
            missed += show(n, name, "array", [(own, like) for own, like in pairs])
    print(f"array: against the Gaussian of the same shape; else against the array. {missed} miss their aim (*).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
