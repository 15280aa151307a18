"""Full passes on a local cluster by number of workers, and what sending work costs; answers are compared first.

python benchmarks/cluster.py --out docs/scale/cluster.json
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import longhmm as lh
from longhmm.backends import native
from longhmm.backends.evaluate import Statistics
from longhmm.data.executor import Task
from longhmm.data.sequences import Sequences, open_data
from longhmm.run import cluster as workers
from longhmm.run.cluster import Cluster
from longhmm.target.target import exact

MODEL = lh.HMM(2, lh.Gaussian())
PARAMS = {"transition": [[0.95, 0.05], [0.1, 0.9]], "mean": [0.0, 2.0], "sd": [1.0, 1.0]}
SIMULATED = 1_000_000
CHUNK = 1 << 21  # rows of a chunk of the Dask array
ERRANDS = 200
WINDOWS = [(1_000 * number, 1_000 * number + 49) for number in range(16)]  # the windows of one step


def write(path: Path, length: int) -> None:
    """Simulated data, repeated to the length."""
    piece = lh.simulate(MODEL, PARAMS, SIMULATED, seed=0)[1].astype(np.float32)
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (length, 1))
    for start in range(0, length, SIMULATED):
        rows[start : start + SIMULATED] = piece[: length - start]


def timed(ask: Callable[[], Any], repeats: int) -> float:
    """The median of the seconds that it takes, after once in vain."""
    ask()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        ask()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def statistics(data: Any) -> Statistics:
    """One pass: all that a gradient needs."""
    sequences = open_data(data)
    found: Statistics = exact(MODEL.resolve(sequences), MODEL.validate(PARAMS), sequences)[1].totals
    return found


def doing_nothing(model: Any, sequences: Sequences) -> Callable[[Any], None]:
    return lambda argument: None


def held_by_workers(path: Path, length: int) -> Any:
    """The data as a Dask array whose chunks lie in the memory of the workers, which read them themselves."""
    import dask.array
    import distributed

    def rows(block_info: Any = None) -> np.ndarray:
        first, last = block_info[None]["array-location"][0]
        return np.array(np.load(path, mmap_mode="r")[first:last])

    sizes = [min(CHUNK, length - start) for start in range(0, length, CHUNK)]
    held = dask.array.map_blocks(rows, chunks=(tuple(sizes), (1,)), dtype=np.float32).persist()
    distributed.wait(held)
    return held


def on_workers(path: Path, count: int, repeats: int) -> dict[str, Any]:
    """One gradient on so many workers with one thread each, and what it costs to send them something."""
    import distributed

    os.environ["LONGHMM_THREADS"] = "1"  # for the workers, which inherit it
    with (
        distributed.LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        del os.environ["LONGHMM_THREADS"]
        expected = statistics(path)
        in_file = lh.on_cluster(path, client)
        length = in_file.length
        held = held_by_workers(path, length)
        in_memory = lh.on_cluster(held, client)
        for data in (in_file, in_memory):
            jax.tree.map(np.testing.assert_array_equal, statistics(data), expected)
        executor, opened = Cluster(client), open_data(held)
        tasks = [Task(None, row, row + 1) for row in range(ERRANDS)]

        def errands() -> None:
            usual, workers.PARCEL_ROWS = workers.PARCEL_ROWS, 1  # each travels alone
            list(executor.run(doing_nothing, MODEL, in_file, tasks))
            workers.PARCEL_ROWS = usual

        return {
            "workers": count,
            "file_ns": 1e9 * timed(lambda: statistics(in_file), repeats) / length,
            "dask_array_ns": 1e9 * timed(lambda: statistics(in_memory), repeats) / length,
            "errand_ms": 1e3 * timed(errands, repeats) / len(tasks),
            "step_windows_of_dask_array_ms": 1e3 * timed(lambda: list(opened.rows_of(WINDOWS)), repeats),
            "step_windows_of_memory_map_ms": 1e3 * timed(lambda: list(in_file.rows_of(WINDOWS)), repeats),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--length", type=int, default=100_000_000)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "y.npy"
        write(path, asked.length)
        here = 1e9 * timed(lambda: statistics(path), asked.repeats) / asked.length
        report: dict[str, Any] = {
            "observations": asked.length,
            "cores": os.cpu_count(),
            "load_before": os.getloadavg()[0],
            "kernel": native.status(),
            "here_ns": here,
            "workers": [],
        }
        for count in asked.workers:
            report["workers"].append(on_workers(path, count, asked.repeats))
            print(json.dumps(report["workers"][-1]), flush=True)
            asked.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
