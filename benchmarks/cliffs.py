"""No cliffs: what every family costs, in processor time, against the Gaussian of the same shape; and what its data cost
as a file, or with one number missing, against the same data as an array.

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
AIMS = {"Laplace, own": 5.0, "path": 1.2, "one missing": 1.2, "few covariates": 1.5, "covariates": 4.0}  # else 3


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
        "Product": (movement, moved, np.stack([steps, turns], 1), "Gaussian 2-D"),
        "Laplace, own": (own, {"loc": level, "scale": wide}, normal, "Gaussian"),
    }
    transition = np.full((n, n), 0.05 / max(1, n - 1)) + (0.95 - 0.05 / max(1, n - 1)) * np.eye(n)
    return {
        name: Problem(lh.HMM(n, emission), {"transition": transition, **params}, rows, like)
        for name, (emission, params, rows, like) in given.items()
    }


def with_covariates(n: int, length: int) -> dict[str, tuple[lh.HMM, dict[str, np.ndarray], Any]]:
    """Gaussian rows whose transitions follow two covariates, with 16 pairs of values or all different."""
    like, rng, off = problems(n, length)["Gaussian"], np.random.default_rng(1), ~np.eye(n, dtype=bool)
    coefficients = np.stack([-3.0 * off, 0.3 * off, 0.3 * off], axis=-1)
    params = {"coefficients": coefficients, "mean": like.params["mean"], "sd": like.params["sd"]}
    values = {"few covariates": rng.integers(4, size=(length, 2)), "covariates": rng.standard_normal((length, 2))}
    model = lh.HMM(n, lh.Gaussian(), transitions=lh.Logit(2))
    return {
        name: (model, params, lh.open_data(like.rows, covariates=each.astype(float))) for name, each in values.items()
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


def of_forms(call: Callable[..., Any], problem: Problem, data: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    return {form: partial(call, problem.model, problem.params, each) for form, each in data.items()}


def costs(runs: dict[str, Callable[[], Any]], rows: int, repeats: int) -> dict[str, float]:
    """Nanoseconds of processor time for each row, the least of several runs, which take turns: what else the machine
    does falls on all alike. The first compiles."""
    best = dict.fromkeys(runs, np.inf)
    for turn in range(repeats + 1):
        for name, run in runs.items():
            begin = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - begin) if turn else np.inf
    return {name: seconds / rows * 1e9 for name, seconds in best.items()}


def main() -> int:
    """Print the table; how many entries miss their aim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--states", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--only", nargs="+", default=None)
    parser.add_argument("--repeats", type=int, default=9)
    asked = parser.parse_args()
    missed = 0
    print(f"{'K':>2}  {'family':24}{'data':13}" + "".join(f"{answer:>24}" for answer in ANSWERS))
    for n in asked.states:
        all_problems, arrays = problems(n, asked.rows), {}
        for name, problem in all_problems.items():
            if asked.only and name not in (*asked.only, "Gaussian", "Gaussian 2-D"):
                continue
            with tempfile.TemporaryDirectory() as folder:
                data = dict(forms(problem, Path(folder)))
                found = {
                    answer: costs(of_forms(call, problem, data), asked.rows, asked.repeats)
                    for answer, call in ANSWERS.items()
                }
                for form in data:
                    line = f"{n:>2}  {name:24}{form:13}"
                    for answer in ANSWERS:
                        own = found[answer][form]
                        arrays.setdefault((name, answer), own)
                        against = arrays[problem.like if form == "array" else name, answer]
                        aim = AIMS.get(form, AIMS.get(name, 3.0))
                        missed += own > aim * against
                        line += f"{own:>9.0f} ns {own / against:>6.2f}{'*' if own > aim * against else ' '}    "
                    print(line, flush=True)
        for name, given in with_covariates(n, asked.rows).items():
            if asked.only and name not in asked.only:
                continue
            line = f"{n:>2}  {name:24}{'array':13}"
            for answer, call in ANSWERS.items():
                run = {"array": partial(call, *given)}
                own, against = costs(run, asked.rows, asked.repeats)["array"], arrays["Gaussian", answer]
                missed += own > AIMS[name] * against
                line += f"{own:>9.0f} ns {own / against:>6.2f}{'*' if own > AIMS[name] * against else ' '}    "
            print(line, flush=True)
    print(f"array: against the Gaussian of the same shape; else against the array. {missed} miss their aim (*).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
