"""The most memory that a process holds at once, each kind of work in a process of its own.

    python benchmarks/peak_memory.py gradient data.npy      prints megabytes

Data lie in a memory map, whose pages count while they are in memory, though the system may take them back.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

WORKS = ("start", "gradient", "decode", "sampler")


def by_work(params: dict[str, np.ndarray], piece: np.ndarray, length: int) -> dict[str, float]:
    """Megabytes for every kind of work on `length` rows that repeat `piece`; "start" is a model and its first rows."""
    import steps

    with tempfile.TemporaryDirectory() as folder:
        path = steps.write_map(Path(folder) / "data.npy", piece, length)
        np.savez(Path(folder) / "params.npz", **params)
        found = {}
        for work in WORKS:
            command = [sys.executable, __file__, work, str(path), str(Path(folder) / "params.npz")]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[work] = float(json.loads(done.stdout.splitlines()[-1]))
    return found


def main() -> None:
    work, path, given = sys.argv[1:4]
    import longhmm as lh

    params = dict(np.load(given))
    n_states, dim = params["mean"].shape
    model = lh.HMM(n_states, lh.Gaussian(dim=dim))
    if work == "gradient":
        lh.gradient(model, params, path)
    elif work == "decode":
        lh.decode(model, params, path)
    elif work == "sampler":
        import steps

        steps.step_cost(model, params, path, lh.Windows(half_width=10, count=100), 10, steps=50)
    else:
        lh.gradient(model, params, np.load(path, mmap_mode="r")[:1000].copy())
    print(json.dumps(peak()))


def peak() -> float:
    """Megabytes that this process has held at most."""
    status = Path("/proc/self/status")
    if status.exists():
        # What `getrusage` tells goes back to before this program was started, to the process that started it.
        return int(re.findall(r"VmHWM:\s+(\d+)", status.read_text())[0]) / 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()
