"""Whole fits of data that are odd but not refused at once; each compiles, so that only `make soak` runs them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import longhmm as lh
from fuzz.arrays import PATTERNS, values
from fuzz.outcome import Case, Lost

EMISSIONS = {
    "Gaussian": lh.Gaussian,
    "StudentT": lh.StudentT,
    "Poisson": lh.Poisson,
    "LogNormal": lh.LogNormal,
    "duplicated states": lambda: lh.Gaussian(mean=np.zeros(2)),
}


def fit_case(seed: int) -> Case:
    """A short run of the default pipeline, or of another sampler, on odd data."""
    rng = np.random.default_rng([seed, 7])
    pattern = PATTERNS[seed % len(PATTERNS)]
    name = str(rng.choice(list(EMISSIONS)))
    shape = [(1,), (2,), (7,), (300, 1), (300, 2)][rng.integers(5)]
    sampler = [None, None, lh.Gibbs(), lh.SGRLD()][rng.integers(4)]
    n_states = 2 if name == "duplicated states" else int(rng.choice([1, 2, 5]))

    def run(folder: Path) -> None:
        data = values(rng, pattern, shape)
        if name == "Poisson":
            data = np.abs(np.nan_to_num(data, nan=0.0, posinf=0.0, neginf=0.0)).clip(0, 1e9).astype("i8")
        if name == "LogNormal":
            data = np.abs(data) + 1e-12
        model = lh.HMM(n_states, EMISSIONS[name]())
        posterior = lh.sample(model, data, sampler=sampler, chains=2, draws=4, warmup=4, seed=seed, progress=False)
        found = posterior.draws["transition"]
        if not np.all(np.isfinite(found)) or not np.allclose(found.sum("to_state"), 1.0, atol=1e-5):
            raise Lost("draws that are no transition matrices")

    return Case(f"fit {seed}: {name} {n_states} on {pattern} {shape}, {type(sampler).__name__}", run)
