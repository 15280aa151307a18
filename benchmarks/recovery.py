"""Parameters recovered out of core: data are simulated into files in blocks, fitted from their paths, and compared.

    python benchmarks/recovery.py --case covariates --length 10000000 --out docs/scale/recovery_covariates.json
    python benchmarks/recovery.py --case ar2 --length 10000000 --out docs/scale/recovery_ar2.json

Prints truth, posterior mean and standard deviation, and their distance in standard deviations, of every parameter, and
what the fit took. Ends with an error where one lies more than `--most` standard deviations off, or where more memory
was used than `out_of_core.py` allows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from kinds import kind
from out_of_core import LIMIT, Watch

BLOCK = 1 << 16
PER_ROW = 8  # bytes in files: a value, and a covariate beside it
CASES = {"covariates": "logit", "ar2": "ar2"}


def covariates_to_file(path: Path, length: int, seed: int = 3) -> np.ndarray:
    """A rhythm and noise, piece by piece."""
    rng, out = np.random.default_rng(seed), np.lib.format.open_memmap(path, "w+", np.float32, (length, 1))
    for start in range(0, length, BLOCK):
        rows = np.arange(start, min(start + BLOCK, length))
        out[rows[0] : rows[-1] + 1, 0] = np.cos(2 * np.pi * rows / 24) + 0.5 * rng.normal(size=len(rows))
    out.flush()
    return np.load(path, mmap_mode="r")


def simulated(name: str, length: int, folder: Path) -> tuple[Any, dict[str, Any], Any]:
    """The model, true parameters, and data that lie in files."""
    import jax

    import longhmm as lh
    from longhmm.model.row_by_row import row_by_row
    from longhmm.model.simulate import simulate_to_file

    values = folder / "y.npy"
    model, params = kind(CASES[name], 100)[:2]
    if name != "covariates":
        simulate_to_file(model, params, length, values, seed=1)
        return model, params, values
    model = lh.HMM(2, lh.Gaussian(), transitions=lh.Logit(1))  # which is yet to see its covariate
    x = covariates_to_file(folder / "x.npy", length)
    out = np.lib.format.open_memmap(values, "w+", np.float32, (length,))
    for start, _, found in row_by_row(model, model.validate(params), x, jax.random.key(1), BLOCK):
        out[start : start + len(found)] = found[:, 0]
    out.flush()
    return model, params, lh.open_data(values, covariates=folder / "x.npy")


def compared(posterior: Any, params: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One row for every number that was estimated."""
    for name, true in params.items():
        drawn = np.asarray(posterior.draws[name], np.float64)
        for entry in np.ndindex(drawn.shape[2:]):
            own, truth = drawn[(..., *entry)], float(np.asarray(true)[entry])
            if np.ptp(own) > 0:  # the rest is known
                mean, sd = float(own.mean()), float(own.std())
                label = f"{name}[{', '.join(map(str, entry))}]"
                yield {"parameter": label, "truth": truth, "mean": mean, "sd": sd, "z": (mean - truth) / sd}


def run(name: str, length: int, draws: int, folder: Path) -> dict[str, Any]:
    """Simulate, fit, compare."""
    import longhmm as lh

    began = time.perf_counter()
    model, params, data = simulated(name, length, folder)
    made = time.perf_counter() - began
    with Watch() as watch:
        began = time.perf_counter()
        posterior = lh.sample(model, data, draws=draws, seed=0, progress=False)
        fitted = time.perf_counter() - began
    rows, settings, summary = list(compared(posterior, params)), posterior.settings, posterior.summary()
    for row in rows:
        print("{parameter:<24} {truth:>10.5f} {mean:>10.5f} +- {sd:.2e}  z {z:>6.2f}".format(**row), flush=True)
    said = ("sampler", "windows", "half_width", "buffer", "full_passes", "versions")
    return {
        "case": name,
        "observations": length,
        "bytes": sum(each.stat().st_size for each in folder.glob("*.npy")),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[1], 1),
        "seconds_simulating": round(made, 1),
        "seconds_fitting": round(fitted, 1),
        "peak_anonymous_bytes": watch.peak,
        "within_limit": watch.peak < LIMIT,
        "largest_z": max(abs(row["z"]) for row in rows),
        "effective_draws": float(summary[["ess_bulk", "ess_tail"]].min().min()),
        "largest_rhat": float(summary["r_hat"].max()),
        "notes": list(posterior.notes),
        **{key: settings.get(key) for key in said},
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=list(CASES), default="covariates")
    parser.add_argument("--length", type=int, default=10_000_000)
    parser.add_argument("--draws", type=int, default=250)
    parser.add_argument("--most", type=float, default=4.0, help="posterior sds that a mean may be off")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    asked = parser.parse_args()
    free, needed = shutil.disk_usage(asked.folder).free, PER_ROW * asked.length + (1 << 30)
    if free < needed:
        parser.error(f"{asked.folder} has {free / 1e9:.1f} GB left, but {needed / 1e9:.1f} GB are needed")
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        log = run(asked.case, asked.length, asked.draws, Path(folder))
    print(json.dumps({key: value for key, value in log.items() if key != "rows"}, indent=1))
    if asked.out is not None:
        asked.out.write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")
    if not log["within_limit"] or log["largest_z"] > asked.most:
        raise SystemExit("longhmm used more memory than it may, or missed the truth")


if __name__ == "__main__":
    main()
