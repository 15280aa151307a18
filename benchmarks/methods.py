"""Every method side by side on one posterior: bias, width, shape of rare transitions, speed, data touched.

The yardstick is NumPyro's No-U-Turn sampler on the exact log posterior, as in `calibration.py`. Every method draws
until it has as many effective draws as are wanted (--effective), or until its time is over (--seconds), after tuning,
compilation and warm-up, whose time is told apart. Needs JAX, NumPyro and NumPy; NUTS and HMC also need BlackJAX and are
left out where that is missing. Writes `methods-CASE.json` to --out, keeping other methods that are there already;
`report.py` makes the table from it.

    python benchmarks/methods.py --case rare3 --seconds 900 --workers 2 --out docs/calibration
"""

import argparse
import importlib.util
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from calibration import ONE_THREAD, compare, data_of, exact_chain, natural

from longhmm.samplers.contract import Sampler

CHAINS = 4
TRIAL_SECONDS = 15.0


@dataclass(frozen=True)
class With(Sampler):
    """A sampler on an estimator that is not its own."""

    sampler: Any
    policy: Any
    name: str

    def estimator(self, windows: Any, buffer: Any) -> Any:
        return self.policy

    def init(self, target: Any, key: Any, u: Any) -> Any:
        return self.sampler.init(target, key, u)

    def step(self, target: Any, key: Any, state: Any, minibatch: Any) -> Any:
        return self.sampler.step(target, key, state, minibatch)


def samplers(length: int) -> dict[str, tuple[Any, Any, Any]]:
    """By name: sampler, windows, buffer."""
    import longhmm as lh
    from longhmm.samplers.preconditioning import InverseInformation

    windows = lh.Windows(half_width=10, count=100)
    corrected = lh.SGRLD(0.05, noise_correction=True)
    found = {
        "default": (lh.ControlVariateSGLD(), None, None),
        "SG-RLD, corrected": (corrected, windows, None),
        "SG-RLD, the paper's settings": (lh.SGRLD.paper(0.05 / length), windows, None),
        "SGLD": (lh.SGLD(0.05, InverseInformation()), windows, None),
        "SGHMC": (lh.SGHMC(0.1), windows, None),
        "SG-RLD without buffers": (corrected, windows, lh.FixedBuffer(0)),
        "SG-RLD on i.i.d. gradients": (With(lh.SGRLD(0.05), lh.estimators.IID(windows), "iid"), None, None),
        "batch RLD": (lh.samplers.BatchRLD(0.2), None, None),
        "Gibbs": (lh.Gibbs(), None, None),
    }
    if importlib.util.find_spec("blackjax") is not None:
        found |= {"NUTS": (lh.NUTS(), None, None), "HMC": (lh.HMC(), None, None)}
    return found


def run_method(
    case: str, name: str, init: dict[str, np.ndarray], seconds: float, seed: int, effective: int
) -> dict[str, Any]:
    """Draws of one method as natural columns, with what they cost."""
    from longhmm.run.driver import BLOCK_DRAWS
    from longhmm.run.limit import Limit
    from longhmm.run.request import Request
    from longhmm.run.run import Run, carry_out
    from longhmm.samplers.contract import Start
    from longhmm.target.target import StreamedPosterior

    model, sequences = data_of(case)
    sampler, windows, buffer = samplers(sequences.length)[name]
    began = time.perf_counter()
    start = Start(None if sampler.learned else init, windows, buffer, seed)
    tuned = sampler.tune(StreamedPosterior(model, sequences), start)
    warmup = 50 if "adaptation_steps" in getattr(sampler, "__dataclass_fields__", {}) else None
    warmup = 20 if name == "batch RLD" else warmup
    request = Request(
        model, sequences, sampler, windows, buffer, CHAINS, BLOCK_DRAWS, warmup, tuned.spacing, start.init, seed
    )
    # A first block warms up and compiles; the clock starts after it.
    run = Run(request, tuned)
    carry_out(run)
    setup, allowed = time.perf_counter() - began, min(TRIAL_SECONDS, seconds)
    while True:  # a short run tells how long a run with enough draws takes
        began = time.perf_counter()
        chains = carry_out(replace(run, request=replace(request, draws=1_000_000)), limit=Limit(allowed))
        taken, columns = time.perf_counter() - began, natural(model, chains.coordinates)
        found = least_effective(columns)
        if found >= effective or allowed >= seconds:
            break
        allowed = min(seconds, allowed * 1.3 * effective / max(found, 1.0))
    return {
        "columns": columns,
        "setup_seconds": setup,
        "seconds": taken,
        "touched": touched(chains, sequences.length),
    }


def least_effective(columns: dict[str, np.ndarray]) -> float:
    """Effective draws of the parameter that has fewest."""
    from longhmm.run.chains import bulk_effective_size

    return min(float(bulk_effective_size(each[..., None])[0]) for each in columns.values())


def touched(chains: Any, length: int) -> float:
    """Observations read by all steps of all chains, warm-up included."""
    settings, stats = chains.settings, chains.stats
    steps = settings["steps"] * CHAINS
    if "leapfrogs" in stats:
        return float(steps * stats["leapfrogs"].mean() * length)
    if "buffer" not in settings:
        return float(steps * length)
    half_width, count = settings.get("half_width", 10), settings.get("windows", 100)
    each = count * (2 * half_width + 1 + 2 * settings["buffer"])
    return float(steps * each * (2 if "gradient_noise" in settings else 1))


def run_variational(case: str, init: dict[str, np.ndarray], seconds: float, seed: int) -> dict[str, Any]:
    """SVI for the given time, which is all setup, then draws from its approximation."""
    import jax
    import jax.numpy as jnp

    import longhmm as lh
    from longhmm.samplers.stochastic_variational import StochasticVariational, draw_from_posterior

    model, sequences = data_of(case)
    sampler, windows = StochasticVariational(), lh.Windows(half_width=25, count=40)
    began = time.perf_counter()
    target: Any = sampler.estimator(windows, None).bind(model, sequences, init)

    @jax.jit
    def many(state: Any, key: jax.Array) -> Any:
        def one(state: Any, key: jax.Array) -> tuple[Any, None]:
            draw_key, step_key = jax.random.split(key)
            return sampler.step(target, step_key, state, target.minibatch(draw_key))[0], None

        return jax.lax.scan(one, state, jax.random.split(key, 500))[0]

    start = {name: jnp.asarray(value, jnp.float32) for name, value in lh.unconstrain(model, init).items()}
    state, blocks = sampler.init(target, jax.random.key(seed), start), 0
    while time.perf_counter() - began < seconds or blocks < 4:
        state, blocks = jax.block_until_ready(many(state, jax.random.key(seed + blocks))), blocks + 1
    ready = time.perf_counter()
    draws = jax.block_until_ready(draw_from_posterior(model, jax.random.key(seed + 10**6), state, 8000))
    chains = {name: np.asarray(value, np.float64).reshape(4, 2000, *value.shape[1:]) for name, value in draws.items()}
    width = 2 * windows.half_width + 1 + 2 * target.buffer.length
    return {
        "columns": natural(model, chains),
        "setup_seconds": ready - began,
        "seconds": time.perf_counter() - ready,
        "touched": float(500 * blocks * windows.count * width),
    }


def run_em(case: str, exact: dict[str, np.ndarray]) -> dict[str, Any]:
    """The mode of the natural density, as a point: its distance from the posterior mean in posterior sds."""
    import longhmm as lh

    model, sequences = data_of(case)
    began = time.perf_counter()
    fit = lh.fit_em(model, sequences, progress=False, tolerance=1e-6)
    seconds = time.perf_counter() - began
    rows = []
    for name, draws in exact.items():
        parameter, _, index = name.partition("[")
        entry = tuple(int(each) for each in index.rstrip("]").split(","))
        shift = (float(fit.params[parameter][entry]) - draws.mean()) / draws.std()
        rows.append({"parameter": name, "shift": float(shift), "rare": is_rare(name, draws)})
    return {
        "method": "EM (a point)",
        "worst_shift": worst_by(rows, lambda row: abs(row["shift"])),
        "setup_seconds": seconds,
        "touched": float((fit.n_iterations + 1) * sequences.length),
        "rows": rows,
    }


def is_rare(name: str, draws: np.ndarray) -> bool:
    from calibration import RARE

    return bool(name.startswith("transition") and draws.mean() < RARE)


def worst_by(rows: list[dict[str, Any]], size: Callable[[dict[str, Any]], float]) -> float:
    return max((size(row) for row in rows if not row["rare"]), default=0.0)


def summary(name: str, made: dict[str, Any], exact: dict[str, np.ndarray]) -> dict[str, Any]:
    rows = compare(made["columns"], exact)
    common = [row for row in rows if not row["rare"]]
    least = min(row["ess"] for row in rows)
    widest = max(common, key=lambda row: abs(np.log(max(row["sd_ratio"], 1e-9))))
    return {
        "method": name,
        "worst_shift": max(abs(row["shift"]) for row in common),
        "worst_shift_error": max(common, key=lambda row: abs(row["shift"]))["shift_error"],
        "worst_sd_ratio": widest["sd_ratio"],
        "worst_sd_ratio_error": widest["sd_ratio_error"],
        "worst_kolmogorov": max((row["kolmogorov"] for row in rows if row["rare"]), default=None),
        "least_ess": least,
        "ess_per_second": least / made["seconds"],
        "setup_seconds": made["setup_seconds"],
        "seconds": made["seconds"],
        "touched": made["touched"],
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", default="rare3")
    parser.add_argument("--seconds", type=float, default=900.0, help="longest time of every method")
    parser.add_argument("--effective", type=int, default=5000, help="effective draws wanted of each method")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--methods", default="", help="some of the methods, separated by semicolons")
    parser.add_argument("--out", default="docs/calibration")
    options = parser.parse_args()
    os.environ.setdefault("XLA_FLAGS", ONE_THREAD)
    from longhmm.samplers.control_variate_sgld import whitening
    from longhmm.samplers.mode import find_mode
    from longhmm.target.coordinates import Flat, constrain

    model, sequences = data_of(options.case)
    mode = find_mode(model, sequences)
    factor = whitening(mode.information)
    each = -(-options.effective * 5 // 4 // options.workers)
    jobs = [(options.case, None, mode.coordinates, factor, 100 + worker, each) for worker in range(options.workers)]
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        whitened = np.stack(pool.map(exact_chain, jobs))
    yardstick = time.perf_counter() - began
    flat = Flat.like(mode.coordinates)
    exact = natural(model, flat.unravel(flat.ravel_numpy(mode.coordinates) + whitened @ factor.T))
    init = constrain(model, mode.coordinates)
    names = [*samplers(sequences.length), "SVI", "EM (a point)"]
    wanted = [name for name in names if not options.methods or name in options.methods.split(";")]
    results = []
    for seed, name in enumerate(wanted):
        try:
            if name == "EM (a point)":
                results.append(run_em(options.case, exact))
            elif name == "SVI":
                results.append(summary(name, run_variational(options.case, init, options.seconds, seed), exact))
            else:
                made = run_method(options.case, name, init, options.seconds, seed, options.effective)
                results.append(summary(name, made, exact))
        except ValueError as error:  # a sampler that diverges says so in a sentence, and that is its result
            results.append({"method": name, "failed": str(error)})
        shown = {key: value for key, value in results[-1].items() if key != "rows"}
        print(json.dumps(shown), flush=True)
    place = Path(options.out)
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"methods-{options.case}.json"
    kept = {each["method"]: each for each in json.loads(file.read_text())["methods"]} if file.exists() else {}
    kept |= {each["method"]: each for each in results}
    document = {
        "case": options.case,
        "length": sequences.length,
        "n_states": model.n_states,
        "seconds_each": options.seconds,
        "yardstick_seconds": yardstick,
        "yardstick_workers": options.workers,
        "methods": [kept[name] for name in names if name in kept],
    }
    file.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
