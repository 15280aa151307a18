"""How often 90 % intervals hold the truth: models of kinetics, each on many data sets with a truth from its prior.

    python benchmarks/coverage.py --workers 16 --each 200 --budget 580 --out coverage
    python benchmarks/coverage.py --table --out coverage

The first command adds a line to `coverage.jsonl` for every data set, in rounds over the kinds, and does not repeat what
is there already: it can be stopped and called again. After `--budget` seconds no more are begun. The second prints,
for each kind, how often intervals held the truth, with the standard error of that share.
"""

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
INTERVAL = (0.05, 0.95)

Kind = Callable[[Any], tuple[Any, Any, dict[str, Any], int]]  # a generator to a model, a simulator, the truth, rows


def scheme(rng: Any) -> tuple[Any, Any, dict[str, Any], int]:
    """Three states in a row, half of all dwell times shorter than seven rows."""
    import numpy as np
    import numpyro.distributions as dist

    import longhmm as lh

    centre, spread = np.array([1.0, 0.5, 2.0, 1.0]), 0.4
    names = ("1 -> 2", "2 -> 1", "2 -> 3", "3 -> 2")
    prior = {name: dist.LogNormal(np.log(rate), spread) for name, rate in zip(names, centre, strict=True)}
    moves = lh.Rates("1 <-> 2 <-> 3", dt=0.1, prior=prior)
    means = np.array([0.0, 1.5, 3.0])
    emission = lh.Gaussian(mean=dist.Normal(means, 0.3), sd=dist.LogNormal(np.log(0.5), 0.2))
    model = lh.HMM(3, emission, transitions=moves, initial="stationary")
    truth = {"rates": centre * np.exp(spread * rng.normal(size=4)), "mean": rng.normal(means, 0.3)}
    return model, model, {**truth, "sd": 0.5 * np.exp(0.2 * rng.normal(size=3))}, 10_000


def frames(rng: Any) -> tuple[Any, Any, dict[str, Any], int]:
    """Two states, each left 0.3 times in a frame, which shows the mean over its exposure; simulated in finer steps than
    it is fitted."""
    import numpy as np
    import numpyro.distributions as dist

    import longhmm as lh

    prior = {name: dist.LogNormal(np.log(rate), 0.3) for name, rate in (("1 -> 2", 3.0), ("2 -> 1", 2.0))}
    moves = lh.Rates("1 <-> 2", dt=0.1, prior=prior)
    inner = lh.Gaussian(mean=dist.Normal(np.array([0.0, 1.0]), 0.2), sd=dist.LogNormal(np.log(0.15), 0.2))
    model, fine = (
        lh.HMM(2, lh.FrameAverage(inner, substeps=substeps), transitions=moves, initial="stationary")
        for substeps in (8, 32)
    )
    truth = {"rates": np.array([3.0, 2.0]) * np.exp(0.3 * rng.normal(size=2)), "mean": rng.normal([0.0, 1.0], 0.2)}
    return model, fine, {**truth, "sd": 0.15 * np.exp(0.2 * rng.normal(size=2))}, 3_000


def channels(rng: Any) -> tuple[Any, Any, dict[str, Any], int]:
    """Three channels that open and close."""
    import numpy as np
    import numpyro.distributions as dist

    import longhmm as lh

    prior = {name: dist.LogNormal(np.log(rate), 0.4) for name, rate in (("C -> O", 40.0), ("O -> C", 80.0))}
    moves = lh.Channels(3, lh.Rates("C <-> O", dt=1e-3, prior=prior))
    given = {"base": dist.Normal(0.0, 0.3), "step": dist.LogNormal(0.0, 0.1), "sd": dist.LogNormal(np.log(0.3), 0.2)}
    model = lh.HMM(4, lh.EquallySpaced(moves.levels, **given), transitions=moves, initial="stationary")
    truth = {"rates": np.array([40.0, 80.0]) * np.exp(0.4 * rng.normal(size=2)), "base": rng.normal(0, 0.3, 1)}
    truth |= {"step": np.exp(rng.normal(0, 0.1, 1)), "sd": 0.3 * np.exp(0.2 * rng.normal(size=4))}
    return model, model, truth, 10_000


def durations(rng: Any) -> tuple[Any, Any, dict[str, Any], int]:
    """Two states with negative binomial dwell times, more regular than geometric ones."""
    import numpy as np
    import numpyro.distributions as dist

    import longhmm as lh

    moves = lh.Durations(2, phases=12, mean=dist.LogNormal(np.log(5.0), 0.3), shape=dist.LogNormal(np.log(3.0), 0.4))
    inner = lh.Gaussian(mean=dist.Normal(np.array([0.0, 1.0]), 0.2), sd=dist.LogNormal(np.log(0.3), 0.2))
    model = lh.HMM(moves.n_states, lh.Tied(inner, moves.levels), transitions=moves, initial=moves.first)
    mean, shape = 1 + 5.0 * np.exp(0.3 * rng.normal(size=2)), 3.0 * np.exp(0.4 * rng.normal(size=2))
    numbers = np.concatenate([mean, shape, np.ones(2)])
    truth = {"durations": numbers, "mean": rng.normal([0.0, 1.0], 0.2), "sd": 0.3 * np.exp(0.2 * rng.normal(size=2))}
    return model, model, truth, 2_000


KINDS: dict[str, Kind] = {each.__name__: each for each in (scheme, frames, channels, durations)}


def trial(job: tuple[str, int]) -> dict[str, Any]:
    """One data set: for every number with a prior, whether its interval holds the truth."""
    import numpy as np

    import longhmm as lh

    name, number = job
    began = time.perf_counter()
    result: dict[str, Any] = {"kind": name, "number": number}
    try:
        rng = np.random.default_rng([number, *map(ord, name)])
        model, simulator, truth, length = KINDS[name](rng)
        values = lh.simulate(simulator, truth, length, seed=number)[1]
        posterior = lh.sample(model, values, seed=number, progress=False, verdict=False)
        held = {}
        for each, right in truth.items():
            draws = np.asarray(posterior.draws[each]).reshape(-1, len(right))
            low, high = np.quantile(draws, INTERVAL, axis=0)
            free = np.ptp(draws, axis=0) > 0
            held[each] = ((low <= right) & (right <= high))[free].tolist()
        result |= {"held": held, "sampler": str(posterior.settings.get("sampler"))}
    except Exception as failed:
        result["failed"] = f"{type(failed).__name__}: {failed}"
    return {**result, "seconds": time.perf_counter() - began}


def stored(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(place.glob("*.jsonl")) for line in file.read_text().splitlines()]


def run(options: argparse.Namespace, place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    known = {(one["kind"], one["number"]) for one in stored(place)}
    kinds, numbers = options.only.split(",") if options.only else list(KINDS), range(options.each)
    every = [(kind, options.first + number) for number in numbers for kind in kinds]
    waiting = [job for job in every if job not in known]
    began, context = time.perf_counter(), multiprocessing.get_context("spawn")
    with (
        context.Pool(options.workers) as pool,
        open(place / "coverage.jsonl", "a", encoding="utf-8") as file,
    ):
        running: list[Any] = []
        while waiting or running:
            over = time.perf_counter() - began > options.budget
            while waiting and not over and len(running) < options.workers:
                running.append(pool.apply_async(trial, (waiting.pop(0),)))
            for each in [one for one in running if one.ready()]:
                running.remove(each)
                file.write(json.dumps(each.get()) + "\n")
                file.flush()
            if over:
                break  # what is under way is begun anew next time
            time.sleep(0.1)
        pool.terminate()


def table(place: Path) -> None:
    import numpy as np

    every = stored(place)
    print("kind         data sets  failed  intervals    held   error  s each  by parameter")
    for kind in KINDS:
        mine = [one for one in every if one["kind"] == kind]
        right = [one for one in mine if "held" in one]
        if not mine:
            continue
        # Intervals of one data set depend on one another: the error is that of the mean over data sets.
        shares = [np.mean([hit for hits in one["held"].values() for hit in hits]) for one in right] or [np.nan]
        count = sum(len(hits) for one in right for hits in one["held"].values())
        error, took = np.std(shares) / np.sqrt(len(shares)), np.mean([one["seconds"] for one in mine])
        names = right[0]["held"] if right else {}
        by = ", ".join(f"{name} {np.mean([one['held'][name] for one in right]):.3f}" for name in names)
        lost = len(mine) - len(right)
        print(f"{kind:<12}{len(mine):>10}{lost:>8}{count:>11}{np.mean(shares):>8.3f}{error:>8.3f}{took:>8.1f}  {by}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--each", type=int, default=200, help="data sets of each kind")
    parser.add_argument("--first", type=int, default=0, help="number of the first data set")
    parser.add_argument("--budget", type=float, default=580.0, help="seconds after which none is begun")
    parser.add_argument("--only", default="", help=f"kinds, with commas, of {', '.join(KINDS)}")
    parser.add_argument("--out", default="coverage")
    parser.add_argument("--table", action="store_true", help="print what is stored")
    options = parser.parse_args()
    os.environ.setdefault("XLA_FLAGS", ONE_THREAD)
    if not options.table:
        run(options, Path(options.out))
    table(Path(options.out))


if __name__ == "__main__":
    main()
