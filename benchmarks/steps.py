"""The cost of one sampler step, everything included: random numbers, windows, gradient, update, recording."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np

import longhmm as lh
from longhmm.backends import native
from longhmm.data.sequences import open_data
from longhmm.run.driver import Driver
from longhmm.target.coordinates import unconstrain

CHAINS = 4
ROUNDS = 6


class Steps:
    """A sampler that has been compiled and waits for its next block of steps."""

    def __init__(self, model: Any, params: Any, data: Any, windows: lh.Windows, buffer: int) -> None:
        sequences = open_data(data)
        resolved = model.resolve(sequences)
        sampler = lh.SGRLD(0.01)
        bound = sampler.estimator(windows, lh.FixedBuffer(buffer)).bind(resolved, sequences, params)
        self.driver = Driver(sampler, bound, seed=0)
        self.states = self.driver.start([unconstrain(resolved, params)] * CHAINS)
        self.driver.advance(self.states, 1, 10, record=True)

    def seconds(self, steps: int) -> float:
        """Per step of one chain, four chains at a time, over one block of steps."""
        began = time.perf_counter()
        self.driver.advance(self.states, 1, steps, record=True)
        return (time.perf_counter() - began) / steps / CHAINS


def step_cost(model: Any, params: Any, data: Any, windows: lh.Windows, buffer: int, *, steps: int) -> float:
    """Seconds per step of one chain of SG-RLD, four chains at a time; the best of three blocks."""
    run = Steps(model, params, data, windows, buffer)
    return min(run.seconds(steps) for _ in range(3))


def with_and_without(model: Any, params: Any, data: Any, windows: lh.Windows, buffer: int) -> tuple[float, float]:
    """The same with the fused kernel, before and after, and with the JAX reference. Programs are forgotten in between:
    they do not know that the kernel is gone, and one would serve both."""

    def best() -> float:
        jax.clear_caches()
        run = Steps(model, params, data, windows, buffer)
        return min(run.seconds(500) for _ in range(ROUNDS))

    fused = best()
    with patch.object(native, "available", lambda: False):
        reference = best()
    return min(fused, best()), reference


def by_count(model: Any, params: Any, data: Any, counts: list[int]) -> dict[str, float]:
    """Microseconds per chain-step by number of windows, 5 long with buffers of 10, data in memory."""
    return {
        str(count): 1e6 * step_cost(model, params, data, lh.Windows(half_width=2, count=count), 10, steps=200)
        for count in counts
    }


def by_length(model: Any, params: Any, piece: np.ndarray, lengths: list[int]) -> dict[str, dict[str, float]]:
    """Microseconds per chain-step on memory maps of several lengths, by minibatch; windows are read in advance.

    Lengths take turns, so that what else the machine does falls on all of them alike.
    """
    sizes = {"100 windows of 21 + 2 x 10": (10, 100), "10 windows of 5 + 2 x 10": (2, 10)}
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = {length: write_map(Path(folder) / f"{length}.npy", piece, length) for length in lengths}
        for name, (half_width, count) in sizes.items():
            windows = lh.Windows(half_width=half_width, count=count)
            runs = {length: Steps(model, params, str(path), windows, 10) for length, path in paths.items()}
            best = dict.fromkeys(lengths, np.inf)
            for _ in range(ROUNDS):
                for length, run in runs.items():
                    best[length] = min(best[length], run.seconds(100))
            found[name] = {f"{length:.0e}": 1e6 * seconds for length, seconds in best.items()}
    return found


def write_map(path: Path, piece: np.ndarray, length: int) -> Path:
    """A file of `length` rows that repeat `piece`, written in full."""
    mapped = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(length, piece.shape[1]))
    for start in range(0, length, len(piece)):
        mapped[start : start + len(piece)] = piece[: length - start]
    mapped.flush()
    return path
