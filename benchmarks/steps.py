"""The cost of one sampler step, everything included: random numbers, windows, gradient, update, recording."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import longhmm as lh
from longhmm.data.sequences import open_data
from longhmm.gradients.api import unconstrain
from longhmm.kernels import native
from longhmm.run.driver import Driver

CHAINS = 4


def step_cost(
    model: Any, params: Any, data: Any, windows: lh.Windows, buffer: int, *, fused: bool, steps: int
) -> float:
    """Seconds per step of one chain of SG-RLD, four chains at a time; the best of three blocks."""
    sequences = open_data(data)
    resolved = model.resolve(sequences)
    sampler = lh.SGRLD(0.01)

    def run() -> float:
        bound = sampler.estimator(windows, lh.FixedBuffer(buffer)).bind(resolved, sequences, params)
        driver = Driver(sampler, resolved, bound, seed=0)
        states = driver.start([unconstrain(resolved, params)] * CHAINS)
        driver.advance(states, 1, 10, record=True)
        best = np.inf
        for _ in range(3):
            began = time.perf_counter()
            driver.advance(states, 1, steps, record=True)
            best = min(best, time.perf_counter() - began)
        return best / steps / CHAINS

    if fused:
        return run()
    with native.switched_off():
        return run()


def by_length(model: Any, params: Any, lengths: list[int]) -> dict[str, float]:
    """Microseconds per chain-step with 100 windows of 41 on memory maps of several lengths."""
    found = {}
    piece = np.asarray(lh.simulate(model, params, min(lengths), seed=2)[1], np.float32)
    with tempfile.TemporaryDirectory() as folder:
        for length in lengths:
            path = Path(folder) / "data.npy"
            map_ = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(length, piece.shape[1]))
            for start in range(0, length, len(piece)):
                map_[start : start + len(piece)] = piece[: length - start]
            map_.flush()
            del map_
            cost = step_cost(model, params, str(path), lh.Windows(half_width=10, count=100), 10, fused=True, steps=200)
            found[f"{length:.0e}"] = cost * 1e6
            path.unlink()
    return found
