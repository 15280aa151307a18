"""Fit a memory map that is far larger than what the fit may hold in memory, and log time, rates and memory.

    python benchmarks/out_of_core.py --length 1000000000 --out docs/scale/out_of_core_1e9.json

The map (float32, two Gaussian states) is simulated into a temporary file that is removed afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

PIECE = 1 << 22
STAY, LEVELS, SD = (0.98, 0.95), (0.0, 2.0), 1.0
LIMIT = 1.5e9  # bytes of anonymous memory that a fit may use


def simulate(path: Path, length: int, seed: int = 1) -> None:
    """A two-state chain in Gaussian noise, piece by piece: dwell times are geometric, so the chain is drawn by runs."""
    rng = np.random.default_rng(seed)
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(length,))
    state = 0
    for start in range(0, length, PIECE):
        size = min(PIECE, length - start)
        levels = np.empty(0, np.float32)
        while len(levels) < size:
            # Pairs of dwells, beginning with the present state; a piece that ends within a dwell begins a new one,
            # which by lack of memory is the same chain.
            pairs = np.stack([rng.geometric(1 - STAY[each], 50_000) for each in (state, 1 - state)], axis=1)
            values = np.tile(np.float32([LEVELS[state], LEVELS[1 - state]]), 50_000)
            levels = np.concatenate([levels, np.repeat(values, pairs.ravel())])
        state = int(levels[size - 1] == LEVELS[1])
        if rng.random() > STAY[state]:
            state = 1 - state
        out[start : start + size] = levels[:size] + SD * rng.standard_normal(size, dtype=np.float32)
    out.flush()


def anonymous() -> int:
    """Bytes of this process's own memory; pages of files, which the system may drop at any time, do not count."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    return 0


class Watch:
    """Looks at the memory several times a second."""

    def __init__(self) -> None:
        self.peak, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._stop.wait(0.2):
            self.peak = max(self.peak, anonymous())

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def run(length: int, draws: int, folder: Path) -> dict[str, object]:
    """Simulate, fit, measure."""
    import longhmm as lh

    path = folder / "y.npy"
    began = time.perf_counter()
    simulate(path, length)
    simulated = time.perf_counter() - began
    model = lh.HMM(2, lh.Gaussian())
    with Watch() as watch:
        began = time.perf_counter()
        posterior = lh.sample(model, path, draws=draws, seed=0, checkpoint=folder / "run", progress=False)
        fitted = time.perf_counter() - began
        began = time.perf_counter()
        lh.log_likelihood(model, posterior.mode, path)
        one_pass = time.perf_counter() - began
    summary = posterior.summary()
    settings = posterior.settings
    return {
        "observations": length,
        "bytes": path.stat().st_size,
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[1], 1),
        "seconds_simulating": round(simulated, 1),
        "seconds_fitting": round(fitted, 1),
        "seconds_one_pass": round(one_pass, 2),
        "nanoseconds_per_observation_and_pass": round(one_pass / length * 1e9, 1),
        "steps": settings["steps"] * settings["chains"],
        "peak_anonymous_bytes": watch.peak,
        "within_limit": watch.peak < LIMIT,
        "sampler": settings["sampler"],
        "windows": settings.get("windows"),
        "half_width": settings.get("half_width"),
        "buffer": settings.get("buffer"),
        "full_passes": settings.get("full_passes"),
        "effective_draws": float(summary[["ess_bulk", "ess_tail"]].min().min()),
        "largest_rhat": float(summary["r_hat"].max()),
        "truth": {"mean": list(LEVELS), "sd": SD, "stay": list(STAY)},
        "posterior": {str(name): {"mean": row["mean"], "sd": row["sd"]} for name, row in summary.iterrows()},
        "versions": settings["versions"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=100_000_000)
    parser.add_argument("--draws", type=int, default=250)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    asked = parser.parse_args()
    free = shutil.disk_usage(asked.folder).free
    if free < 4 * asked.length + (5 << 30):
        parser.error(f"{asked.folder} has {free / 1e9:.1f} GB left, but {4 * asked.length / 1e9 + 5:.1f} GB are needed")
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        log = run(asked.length, asked.draws, Path(folder))
    text = json.dumps(log, indent=1)
    print(text)
    if asked.out is not None:
        asked.out.write_text(text + "\n", encoding="utf-8")
    if not log["within_limit"]:
        raise SystemExit("longhmm used more memory than it may")


if __name__ == "__main__":
    main()
