"""`make soak`: kills, odd input and data larger than memory, in full; prints a table and fails if anything was lost.

`--share 0.1` runs a tenth of the cases of every suite, on a tenth of the data.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE))

KILLS, WORKERS, LENGTH = 20, 20, 100_000_000
Row = tuple[str, int, list[str]]  # suite, cases, what was lost


def kills(count: int) -> list[Row]:
    """Processes killed at random moments."""
    from soak.kills import kill_fits, kill_writers

    with tempfile.TemporaryDirectory() as folder:
        writers = kill_writers(Path(folder) / "writers", 10 * count)
        fits = kill_fits(Path(folder) / "fits", count)
        gibbs = kill_fits(Path(folder) / "gibbs", count, seed=1, sampler="gibbs")
    return [
        ("killed while writing", *writers),
        ("killed fits, windows", *fits),
        ("killed fits, Gibbs", *gibbs),
    ]


def workers(count: int) -> list[Row]:
    """Workers of a cluster killed at random moments."""
    from soak.cluster_kills import kill_workers

    with tempfile.TemporaryDirectory() as folder:
        return [("killed workers of a cluster", *kill_workers(Path(folder), count))]


def fuzz(share: float) -> list[Row]:
    """The cases of the fuzz suite."""
    from fuzz.suite import QUICK, SLOW, run_suite, seconds_for

    rows = []
    for kind, (make, count) in {**QUICK, **SLOW}.items():
        # Evenly over all of them: neighbours are of one kind.
        seeds = np.unique(np.linspace(0, count - 1, max(1, round(share * count))).astype(int)).tolist()
        result = run_suite(make, seeds, seconds_for(kind))
        print(f"{kind}: {result.worked} worked, {result.sentences} ended in a sentence", flush=True)
        rows.append((f"odd {kind}", result.cases, result.lost))
    return rows


def out_of_core(length: int) -> list[Row]:
    """A memory map fitted within the limit of memory, with the truth found again."""
    script = HERE.parent / "benchmarks" / "out_of_core.py"
    done = subprocess.run([sys.executable, str(script), "--length", str(length)], capture_output=True, text=True)
    lost = []
    if done.returncode:
        lost.append(f"out of core: {done.stderr.strip()[-300:]}")
    else:
        log = json.loads(done.stdout)
        for state, level in enumerate(log["truth"]["mean"]):
            found = log["posterior"][f"mean[{state}]"]
            if abs(found["mean"] - level) > 5 * found["sd"]:
                lost.append(f"out of core: level {state} is {found['mean']:.6f} ± {found['sd']:.6f}, not {level}")
    return [(f"out of core, {length:,} observations", 1, lost)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the cases and of the data, from 0 to 1")
    parser.add_argument("--only", choices=("fuzz", "kills", "workers", "out_of_core"))
    asked = parser.parse_args()
    if not 0 < asked.share <= 1:
        parser.error(f"--share must lie between 0 and 1, got {asked.share}")

    def part(whole: int) -> int:
        return max(1, round(asked.share * whole))

    parts = {
        "fuzz": lambda: fuzz(asked.share),
        "kills": lambda: kills(part(KILLS)),
        "workers": lambda: workers(part(WORKERS)),
        "out_of_core": lambda: out_of_core(part(LENGTH)),
    }
    began = time.monotonic()
    rows: list[Row] = []
    for name, run in parts.items():
        if asked.only in (None, name):
            try:
                rows += run()
            except Exception as error:  # the other suites have something to say, too
                traceback.print_exc()
                rows.append((name, 1, [f"{name}: {type(error).__name__}: {error}"]))
            print(f"{name}: done after {time.monotonic() - began:,.0f} seconds", flush=True)
    for sentence in (each for row in rows for each in row[2]):
        print(f"LOST {sentence}")
    print(f"\n{'suite':40} {'cases':>7} {'survived':>9} {'lost':>5}")
    for suite, cases, lost in rows:
        print(f"{suite:40} {cases:7,} {cases - len(lost):9,} {len(lost):5,}")
    total = sum(len(lost) for _, _, lost in rows)
    print(f"{'all':40} {sum(row[1] for row in rows):7,} {sum(row[1] for row in rows) - total:9,} {total:5,}")
    print(f"{time.monotonic() - began:,.0f} seconds")
    return 1 if total else 0


if __name__ == "__main__":
    raise SystemExit(main())
