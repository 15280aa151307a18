"""How often 90 % intervals hold the truth: models of kinetics, each on many data sets with a truth from its prior.

    python benchmarks/coverage.py --workers 16 --each 200 --budget 480 --out coverage
    python benchmarks/coverage.py --table --out coverage

The first command adds a line to `coverage.jsonl` for every data set, and does not repeat what is there already: it can
be stopped and called again. After `--budget` seconds it ends. The second prints, for each kind, how often intervals
held the truth, with the standard error of that share. Where xarray is missing, draws are taken before checks: see
`drawn`.
"""

import argparse
import importlib.util
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
INTERVAL = (0.05, 0.95)
DRAWS = 250  # of each of four chains
SPREAD = 0.1  # scale of the prior of how much brightness differs

Kind = Callable[[Any], tuple[Any, Any, dict[str, Any], Any]]  # a generator to a model, a simulator, the truth, rows


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
    """Two states, each left 0.3 times in a frame, which shows the mean over its exposure; fitted without cutting it,
    and simulated in 32 parts."""
    import numpy as np
    import numpyro.distributions as dist

    import longhmm as lh

    prior = {name: dist.LogNormal(np.log(rate), 0.3) for name, rate in (("1 -> 2", 3.0), ("2 -> 1", 2.0))}
    moves = lh.Rates("1 <-> 2", dt=0.1, prior=prior)
    inner = lh.Gaussian(mean=dist.Normal(np.array([0.0, 1.0]), 0.2), sd=dist.LogNormal(np.log(0.15), 0.2))
    model, fine = (
        lh.HMM(2, lh.FrameAverage(inner, substeps=substeps), transitions=moves, initial="stationary")
        for substeps in (None, 32)
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
    return model, model, truth, 3_000


def durations(rng: Any) -> tuple[Any, Any, dict[str, Any], int]:
    """Two states with negative binomial dwell times, more regular than geometric ones."""
    import numpy as np
    import numpyro.distributions as dist

    import longhmm as lh

    prior = {"mean": dist.LogNormal(np.log(5.0), 0.3), "shape": dist.LogNormal(np.log(3.0), 0.4)}
    moves = lh.Durations("negative-binomial", phases=12, **prior)
    emission = lh.Gaussian(mean=dist.Normal(np.array([0.0, 1.0]), 0.2), sd=dist.LogNormal(np.log(0.3), 0.2))
    model = lh.HMM(2, emission, transitions=moves, initial="stationary")
    mean, shape = 1 + 5.0 * np.exp(0.3 * rng.normal(size=2)), 3.0 * np.exp(0.4 * rng.normal(size=2))
    numbers = np.concatenate([mean, shape, np.ones(2)])
    truth = {"durations": numbers, "mean": rng.normal([0.0, 1.0], 0.2), "sd": 0.3 * np.exp(0.2 * rng.normal(size=2))}
    return model, model, truth, 1_000


def brightness(rng: Any) -> tuple[Any, Any, dict[str, Any], Any]:
    """Two levels in 30 traces of unlike brightness, whose spread is not beyond 0.6, as it is in a seventh of all
    draws of the prior."""
    import numpy as np
    import numpyro.distributions as dist

    import longhmm as lh

    prior = {name: dist.LogNormal(np.log(rate), 0.3) for name, rate in (("1 -> 2", 1.5), ("2 -> 1", 2.5))}
    given = {"mean": dist.Normal(np.array([1.0, 2.0]), 0.2), "sd": dist.LogNormal(np.log(0.2), 0.2)}
    moves, lengths, spread = lh.Rates("1 <-> 2", dt=0.1, prior=prior), [100] * 30, np.inf
    while spread > 0.6:
        spread = SPREAD / abs(rng.normal())
    logs = spread * rng.normal(size=len(lengths))
    model, simulator = (
        lh.HMM(
            2, lh.Brightness(lh.Gaussian(**given), scale=SPREAD, lengths=known), transitions=moves, initial="stationary"
        )
        for known in (None, lengths)
    )
    truth = {"rates": np.array([1.5, 2.5]) * np.exp(0.3 * rng.normal(size=2)), "mean": rng.normal([1.0, 2.0], 0.2)}
    truth |= {"sd": 0.2 * np.exp(0.2 * rng.normal(size=2)), "log_brightness": logs - logs.mean(), "spread": [spread]}
    return model, simulator, truth, lengths


KINDS: dict[str, Kind] = {each.__name__: each for each in (scheme, frames, channels, durations, brightness)}


def drawn(model: Any, values: Any, seed: int) -> tuple[Any, Any]:
    """What `lh.sample` draws, by name, and its settings. On a machine with JAX and NumPyro alone, what it would draw
    before exact gradients have checked it: always from windows where there is no BlackJAX."""
    import jax

    import longhmm as lh

    if importlib.util.find_spec("xarray") is not None:
        posterior = lh.sample(model, values, draws=DRAWS, seed=seed, progress=False, verdict=False)
        return posterior.draws, posterior.settings
    from longhmm.run.run import Run, carry_out
    from longhmm.run.sample import requested

    chosen = None if importlib.util.find_spec("blackjax") is not None else lh.ControlVariateSGLD()
    asked = {"windows": None, "buffer": None, "warmup": None, "thin": None, "init": None, "checkpoint": None}
    request = requested(model, values, sampler=chosen, seed=seed, chains=4, draws=DRAWS, **asked)
    chains = carry_out(Run(request))
    with jax.enable_x64(True):
        natural = jax.jit(jax.vmap(jax.vmap(request.model.constrain)))(chains.coordinates)
    return natural, chains.settings


def trial(job: tuple[str, int]) -> dict[str, Any]:
    """One data set: for every number with a prior, whether its interval holds the truth."""
    import numpy as np

    import longhmm as lh
    from longhmm.model.emissions.brightness import spreads
    from longhmm.run.compilation import cached_compilation

    name, number = job
    began, busy = time.perf_counter(), time.process_time()
    result: dict[str, Any] = {"kind": name, "number": number}
    try:
        rng = np.random.default_rng([number, *map(ord, name)])
        model, simulator, truth, length = KINDS[name](rng)
        with cached_compilation():  # what one process compiled the others need not
            given = {each: value for each, value in truth.items() if each != "spread"}
            values = lh.simulate(simulator, given, length, seed=number)[1]
            found, settings = drawn(model, values, number)
        if "spread" in truth:
            logs = np.asarray(found["log_brightness"], np.float64)
            found = {**{each: found[each] for each in given}, "spread": spreads(logs, SPREAD)}
        held = {}
        for each, right in truth.items():
            draws = np.asarray(found[each]).reshape(-1, len(right))
            low, high = np.quantile(draws, INTERVAL, axis=0)
            free = np.ptp(draws, axis=0) > 0
            held[each] = ((low <= right) & (right <= high))[free].tolist()
        result |= {"held": held, "sampler": str(settings.get("sampler"))}
    except Exception as failed:
        result["failed"] = f"{type(failed).__name__}: {failed}"
    return {**result, "seconds": time.perf_counter() - began, "busy": time.process_time() - busy}


def stored(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(place.glob("*.jsonl")) for line in file.read_text().splitlines()]


class Group:
    """Some processes that keep to one kind, whose programs they have compiled, as long as data sets of it wait."""

    def __init__(self, size: int, kind: str) -> None:
        self.size, self.kind, self.running = size, kind, []
        self.pool = multiprocessing.get_context("spawn").Pool(size)

    def fill(self, waiting: dict[str, list[int]]) -> None:
        while len(self.running) < self.size and any(waiting.values()):
            if not waiting[self.kind]:
                self.kind = max(waiting, key=lambda kind: len(waiting[kind]))
            job = (self.kind, waiting[self.kind].pop(0))
            self.running.append(self.pool.apply_async(trial, (job,)))

    def done(self) -> list[dict[str, Any]]:
        found = [each for each in self.running if each.ready()]
        self.running = [each for each in self.running if each not in found]
        return [each.get() for each in found]


def run(options: argparse.Namespace, place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    known = {(one["kind"], one["number"]) for one in stored(place)}
    kinds, numbers = options.only.split(",") if options.only else list(KINDS), range(options.each)
    every = {kind: [options.first + number for number in numbers] for kind in kinds}
    waiting = {kind: [each for each in every[kind] if (kind, each) not in known] for kind in kinds}
    size = max(1, options.workers // len(kinds))
    groups = [Group(size, kinds[i % len(kinds)]) for i in range(max(1, options.workers // size))]
    began = time.perf_counter()
    with open(place / "coverage.jsonl", "a", encoding="utf-8") as file:
        while any(waiting.values()) or any(group.running for group in groups):
            over = time.perf_counter() - began > options.budget
            for group in groups:
                for result in group.done():
                    file.write(json.dumps(result) + "\n")
                    file.flush()
                if not over:
                    group.fill(waiting)
            if over:
                break  # what is under way is begun anew next time
            time.sleep(0.05)
    for group in groups:
        group.pool.terminate()


def table(place: Path) -> None:
    import numpy as np

    every = stored(place)
    print("kind         data sets  failed  intervals    held   error   CPU s  by parameter")
    for kind in KINDS:
        mine = [one for one in every if one["kind"] == kind]
        right = [one for one in mine if "held" in one]
        if not mine:
            continue
        # Intervals of one data set depend on one another: the error is that of the mean over data sets.
        shares = [np.mean([hit for hits in one["held"].values() for hit in hits]) for one in right] or [np.nan]
        count = sum(len(hits) for one in right for hits in one["held"].values())
        error, took = np.std(shares) / np.sqrt(len(shares)), np.median([one["busy"] for one in mine])
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
    os.environ.setdefault("LONGHMM_THREADS", "1")
    if not options.table:
        run(options, Path(options.out))
    table(Path(options.out))


if __name__ == "__main__":
    main()
