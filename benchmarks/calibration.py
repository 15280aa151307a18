"""Is the default posterior right? Its draws against exact ones, parameter by parameter.

For every case: simulate data, run the default pipeline, run the No-U-Turn sampler of NumPyro on the exact log posterior
of all data in several processes, and compare means, standard deviations and, for transitions that are nearly never
seen, whole distributions. Needs only JAX, NumPyro and NumPy. Writes one JSON file per case to --out,
from which `report.py` makes the table.

    python benchmarks/calibration.py --cases gaussian3,poisson3 --workers 2 --effective 1000 --out calibration
"""

import argparse
import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from kinds import KINDS, Case, kind

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
RARE = 2e-3  # transitions below this probability are compared as whole distributions

REVERSED_CYCLES = np.zeros((8, 8))
for start, cycle, bridge in ((0, (0, 1, 2), 3), (4, (4, 5, 6), 7)):
    a, b, c = cycle
    REVERSED_CYCLES[a, [a, b]] = 0.01, 0.99
    REVERSED_CYCLES[b, [b, c]] = 0.01, 0.99
    REVERSED_CYCLES[c, [a, bridge]] = 0.85, 0.15
    REVERSED_CYCLES[bridge, (start + 4) % 8] = 1.0
MEANS = [(-50, 0), (30, -30), (30, 30), (-100, -10), (40, -40), (-65, 0), (40, 40), (100, 10)]


def case(name: str, length: int | None = None) -> Case:
    """Model, true parameters, length and covariates; of another length where one is given."""
    import numpyro.distributions as dist

    import longhmm as lh

    if name in KINDS:
        return kind(name, length)
    slow3 = [[0.95, 0.03, 0.02], [0.04, 0.9, 0.06], [0.02, 0.08, 0.9]]
    cases = {
        "gaussian3": (
            lh.HMM(3, lh.Gaussian()),
            {"transition": slow3, "mean": [-2.0, 0.0, 2.0], "sd": np.sqrt([1.0, 0.6, 1.2])},
            100_000,
        ),
        "cycles8": (
            lh.HMM(8, lh.Gaussian(dim=2)),
            {"transition": REVERSED_CYCLES, "mean": MEANS, "covariance": np.tile(20 * np.eye(2), (8, 1, 1))},
            50_000,
        ),
        "lognormal2": (
            lh.HMM(2, lh.Emission(dist.LogNormal, loc=dist.Normal(0, 1), scale=dist.HalfNormal(1))),
            {"transition": [[0.1, 0.9], [0.9, 0.1]], "loc": [0.0, 4.0], "scale": [2.0, 2.0]},
            100_000,
        ),
        "poisson3": (lh.HMM(3, lh.Poisson()), {"transition": slow3, "rate": [1.0, 4.0, 12.0]}, 10_000),
        "student2": (
            lh.HMM(2, lh.StudentT()),
            {"transition": [[0.98, 0.02], [0.05, 0.95]], "df": [4.0, 8.0], "loc": [-1.0, 1.5], "scale": [0.7, 1.0]},
            30_000,
        ),
        "rare3": (
            lh.HMM(3, lh.Poisson()),
            {"transition": [[0.95, 0.0499, 0.0001], [0.04, 0.9, 0.06], [0.02, 0.08, 0.9]], "rate": [1.0, 4.0, 12.0]},
            30_000,
        ),
        "poisson2": (
            lh.HMM(2, lh.Poisson()),
            {"transition": [[0.99, 0.01], [0.02, 0.98]], "rate": [2.0, 4.0]},
            1_000_000,
        ),
        # States that last and can hardly be told apart from a row: the widest windows, few of them a step.
        "categories2": (
            lh.HMM(2, lh.Categorical(4)),
            {
                "transition": [[0.999, 0.001], [0.002, 0.998]],
                "probs": [[0.3, 0.2, 0.2, 0.3], [0.2, 0.3, 0.3, 0.2]],
            },
            300_000,
        ),
    }
    model, params, usual = cases[name]
    return Case(model, params, length or usual)


def data_of(name: str, length: int | None = None) -> tuple[Any, Any]:
    """The resolved model and its simulated data; the same in every process."""
    import longhmm as lh

    model, params, rows, covariates = case(name, length)
    sequences = lh.open_data(lh.simulate(model, params, rows, seed=11, covariates=covariates)[1], covariates=covariates)
    return model.resolve(sequences), sequences


def exact_chain(job: tuple[str, int | None, dict[str, np.ndarray], np.ndarray, int, int]) -> np.ndarray:
    """One chain of exact draws in whitened coordinates `z`, `theta = theta* + L z`; `(draws, P)`."""
    name, length, centre, factor, seed, draws = job
    os.environ["LONGHMM_THREADS"] = "1"  # chains run side by side, a process each
    import jax
    import jax.numpy as jnp
    from numpyro.infer import MCMC, NUTS

    from longhmm.target.coordinates import Flat
    from longhmm.target.target import ExactPosterior

    model, sequences = data_of(name, length)
    with jax.enable_x64(True):
        flat = Flat.like(centre)
        start = jnp.asarray(flat.ravel_numpy(centre))
        posterior = ExactPosterior.of(model, sequences)
        whiten = jnp.asarray(factor)
        kernel = NUTS(
            potential_fn=lambda z: -posterior(flat.unravel(start + whiten @ z)),
            adapt_mass_matrix=False,
            max_tree_depth=6,
        )
        chain = MCMC(kernel, num_warmup=100, num_samples=draws, progress_bar=False)
        first = np.random.default_rng(seed).normal(size=flat.size)
        chain.run(jax.random.key(seed), init_params=jnp.asarray(first))
        return np.asarray(chain.get_samples())


def natural(model: Any, coordinates: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Natural parameters of draws `(chain, draw, ...)`, one column per number."""
    import jax
    import jax.numpy as jnp

    lead = next(iter(coordinates.values())).shape[:2]
    with jax.enable_x64(True):
        flat = {k: jnp.asarray(v.reshape((-1, *v.shape[2:]))) for k, v in coordinates.items()}
        params = jax.jit(jax.vmap(model.constrain))(flat)
    params.pop("initial")
    free = {name for name, each in model.emission.parameters(model.n_states).items() if each.is_free}
    columns = {}
    for name in sorted({model.transitions.parameter} | free):
        value = np.asarray(params[name])
        for entry in np.ndindex(value.shape[1:]):
            column = value[(slice(None), *entry)]
            if not (name == "covariance" and entry[1] > entry[2]) and np.ptp(column) > 0:  # the rest is known
                columns[f"{name}{list(entry)}"] = column.reshape(lead)
    return columns


def compare(ours: dict[str, np.ndarray], exact: dict[str, np.ndarray]) -> list[dict[str, float]]:
    """One row per parameter, with Monte Carlo standard errors of shift and sd ratio."""
    from longhmm.run.chains import bulk_effective_size

    rows = []
    for name in ours:
        one, two = ours[name], exact[name]
        sizes = [float(bulk_effective_size(each[..., None])[0]) for each in (one, two)]
        spread = [float(bulk_effective_size(((each - each.mean()) ** 2)[..., None])[0]) for each in (one, two)]
        sd = two.std()
        grid = np.sort(np.concatenate([one.ravel(), two.ravel()]))
        below = [np.searchsorted(np.sort(each.ravel()), grid, side="right") / each.size for each in (one, two)]
        rows.append({
            "parameter": name,
            "exact_mean": float(two.mean()),
            "exact_sd": float(sd),
            "shift": float((one.mean() - two.mean()) / sd),
            "shift_error": float(np.sqrt(1 / sizes[0] + 1 / sizes[1])),
            "sd_ratio": float(one.std() / sd),
            "sd_ratio_error": float(np.hypot(_relative_error(one, spread[0]), _relative_error(two, spread[1]))),
            "kolmogorov": float(np.abs(below[0] - below[1]).max()),
            "ess": sizes[0],
            "exact_ess": sizes[1],
            "rare": bool(name.startswith("transition") and two.mean() < RARE),
        })  # fmt: skip
    return rows


def _relative_error(draws: np.ndarray, size: float) -> float:
    """Standard error of the standard deviation, relative to it."""
    squares = (draws - draws.mean()) ** 2
    return float(0.5 * squares.std() / squares.mean() / np.sqrt(size))


def run_case(name: str, workers: int, effective: int, length: int | None = None) -> dict[str, Any]:
    from longhmm.run.request import Request
    from longhmm.run.run import Run, carry_out
    from longhmm.samplers.contract import Start
    from longhmm.samplers.control_variate_sgld import ControlVariateSGLD
    from longhmm.target.coordinates import Flat
    from longhmm.target.target import StreamedPosterior

    model, sequences = data_of(name, length)
    draws = -(-effective * 2 // 4)
    began = time.perf_counter()
    sampler = ControlVariateSGLD().tune(StreamedPosterior(model, sequences), Start(seed=5))
    tuned, found = time.perf_counter() - began, sampler.found
    chains = carry_out(Run(Request(model, sequences, sampler, draws=draws, seed=5, spaced=True), sampler))
    seconds = time.perf_counter() - began
    flat = Flat.like(found.mode)
    factor = np.asarray(found.factor, np.float64)
    jobs = [(name, length, found.mode, factor, 100 + n, -(-effective * 5 // 4 // workers)) for n in range(workers)]
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        whitened = np.stack(pool.map(exact_chain, jobs))
    exact_seconds = time.perf_counter() - began
    centre = flat.ravel_numpy(found.mode)
    exact = natural(model, flat.unravel(centre + whitened @ factor.T))
    rows = compare(natural(model, chains.coordinates), exact)
    settings = chains.settings
    touched = (
        2 * settings["steps"] * 4 * settings["windows"] * (2 * settings["half_width"] + 1 + 2 * settings["buffer"])
    )
    return {
        "case": name,
        "length": sequences.length,
        "settings": settings,
        "tuning_seconds": tuned,
        "seconds": seconds,
        "exact_seconds": exact_seconds,
        "exact_workers": workers,
        "observations_touched": touched,
        "rows": rows,
    }


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """The worst figures of a case, each beyond twice its Monte Carlo error where the criterion says so."""
    common = [row for row in result["rows"] if not row["rare"]]
    rare = [row for row in result["rows"] if row["rare"]]
    over = {
        "shift": max(abs(row["shift"]) - 2 * row["shift_error"] for row in common),
        "sd_ratio": max(abs(row["sd_ratio"] - 1) - 2 * row["sd_ratio_error"] for row in common),
        "kolmogorov": max((row["kolmogorov"] - 2 * 0.87 * row["shift_error"] for row in rare), default=0.0),
    }
    return {
        "worst_shift": max(abs(row["shift"]) for row in common),
        "worst_sd_ratio": max((row["sd_ratio"] for row in common), key=lambda ratio: abs(ratio - 1)),
        "worst_kolmogorov": max((row["kolmogorov"] for row in rare), default=None),
        "holds": over["shift"] <= 0.05 and over["sd_ratio"] <= 0.03 and over["kolmogorov"] <= 0.05,
        "least_ess": min(row["ess"] for row in result["rows"]),
        "least_exact_ess": min(row["exact_ess"] for row in result["rows"]),
    }


def table(results: list[dict[str, Any]]) -> str:
    lines = [
        "| case | T | worst mean shift (sd) | worst sd ratio | worst Kolmogorov distance, rare transitions | "
        "ESS, default | ESS, exact | seconds, default | seconds, exact (workers) | holds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        found = verdict(result)
        rare = "" if found["worst_kolmogorov"] is None else f"{found['worst_kolmogorov']:.3f}"
        lines.append(
            f"| {result['case']} | {result['length']:,} | {found['worst_shift']:.3f} | "
            f"{found['worst_sd_ratio']:.3f} | {rare} | {found['least_ess']:,.0f} | {found['least_exact_ess']:,.0f} | "
            f"{result['seconds']:.0f} | {result['exact_seconds']:.0f} ({result['exact_workers']}) | "
            f"{'yes' if found['holds'] else 'no'} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    usual = ("gaussian3", "cycles8", "lognormal2", "poisson2", "poisson3", "rare3", "student2", "categories2", *KINDS)
    parser.add_argument("--cases", default=",".join(usual))
    parser.add_argument("--length", type=int, help="rows of every case, to try one; its own by default")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--effective", type=int, default=5000, help="effective draws wanted on both sides")
    parser.add_argument("--out", default="calibration")
    options = parser.parse_args()
    os.environ.setdefault("XLA_FLAGS", ONE_THREAD)
    place = Path(options.out)
    place.mkdir(parents=True, exist_ok=True)
    for name in filter(None, options.cases.split(",")):
        result = run_case(name, options.workers, options.effective, options.length)
        (place / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(table([result]).splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
