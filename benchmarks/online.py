"""Microseconds per sample as data arrive: one row at a time, and many.

python benchmarks/online.py
"""

from __future__ import annotations

import time

import numpy as np

import longhmm as lh
from longhmm.posterior.online import Online

ROWS = {1: 500, 64: 50, 2048: 5}  # rows of an update, and how many updates are timed


def seconds(live: Online, y: np.ndarray, size: int, updates: int) -> float:
    """Of this process per row, the best of three rounds."""
    live.update(y[:size])  # compiles
    best = np.inf
    for _ in range(3):
        began = time.process_time()
        for index in range(updates):
            live.update(y[index * size : (index + 1) * size])
        best = min(best, (time.process_time() - began) / (updates * size))
    return best


def main() -> None:
    print("states  draws  lag  rows at a time  microseconds per row")
    for n_states, draws, lag in ((2, 20, 14), (3, 20, 14), (3, 1, 14), (3, 20, 100), (8, 20, 14)):
        model = lh.HMM(n_states, lh.Gaussian(mean=np.arange(n_states) * 2.0, sd=1.0))
        transition = np.full((n_states, n_states), 0.05 / max(n_states - 1, 1))
        np.fill_diagonal(transition, 0.95)
        params = model.validate({"transition": transition})
        y = lh.simulate(model, params, 12_000)[1]
        live = Online(model, [params] * draws, lag)
        for size, updates in ROWS.items():
            print(f"{n_states:6d} {draws:6d} {lag:4d} {size:15d} {1e6 * seconds(live, y, size, updates):21.1f}")


if __name__ == "__main__":
    main()
