"""Write the golden results of the code as it is: `python tests/golden/make.py`.

Only after a deliberate change. `--draws` writes draws and sampled paths alone, for a change of the random numbers or
of the order of sums; `--check` writes nothing and prints how far today's results are from the stored ones.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from golden.cases import CASES, Arrays
from golden.fits import RUNS
from golden.results import exact, opened, probabilities, sampled_paths
from quick_programs import compile_quickly

compile_quickly()  # as in all tests

STORED = Path(__file__).with_name("golden.npz")
DRAWS = ("paths", "run")  # what `--draws` writes


def load() -> Arrays:
    """Everything stored, by "kind: case: name"."""
    with np.load(STORED, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def of(stored: Arrays, kind: str, case: str) -> Arrays:
    """What is stored of one kind for one case."""
    start = f"{kind}: {case}: "
    return {name.removeprefix(start): value for name, value in stored.items() if name.startswith(start)}


def compute(draws_only: bool) -> Arrays:
    """All results, or those of draws and sampled paths."""
    results: Arrays = {}
    for name, maker in CASES.items():
        case = maker()
        data = opened(case)
        found = {"paths": {"sampled": sampled_paths(case, data)}}
        if not draws_only:
            found |= {"exact": exact(case, data), "probabilities": probabilities(case, data)}
        for kind, arrays in found.items():
            results |= {f"{kind}: {name}: {each}": value for each, value in arrays.items()}
        print(name, file=sys.stderr, flush=True)
    for name, run in RUNS.items():
        results |= {f"run: {name}: {each}": value for each, value in run().items()}
        print(name, file=sys.stderr, flush=True)
    return results


def check(results: Arrays) -> None:
    """Print the largest difference of every stored array, relative to its largest entry."""
    for name, value in load().items():
        if name not in results:
            print("missing".rjust(9), name)
        elif value.shape != results[name].shape:
            print("shape".rjust(9), name)
        elif not np.array_equal(value, results[name]):
            difference = np.abs(value.astype(float) - results[name]).max() / np.abs(value).max()
            print(f"{difference:9.1e}", name)
    print(f"{len(results)} arrays; those not named are equal in every bit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", action="store_true", help="write draws and sampled paths alone")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    chosen = parser.parse_args()
    results = compute(chosen.draws)
    if chosen.check:
        return check(results)
    if chosen.draws:
        results = {name: value for name, value in load().items() if not name.startswith(DRAWS)} | results
    np.savez_compressed(STORED, **results)  # type: ignore[arg-type]
    print(f"{STORED}: {len(results)} arrays, {STORED.stat().st_size / 1000:.0f} kB")
    return None


if __name__ == "__main__":
    main()
