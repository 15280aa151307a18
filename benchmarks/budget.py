"""The speed budget: what everything costs, in one table, to compare before and after a change.

    python benchmarks/budget.py --json before.json
    python benchmarks/budget.py --compare before.json       exits with 1 where something costs over 5 % more

Nanoseconds per observation of exact answers for every family and source of data, microseconds per step of the default
sampler, memory of a streamed pass, programs compiled and seconds of a first and a second fit. Everything is measured in
two rounds and the best counts; how far the rounds are apart is allowed for as noise. Only the public interface is used.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import peak_memory
from families import FAMILIES, Problem, problem
from steps import write_map

import longhmm as lh

ALLOWED = 1.05
ROUNDS = 2
MORE_ROUNDS = 4  # at most, where that is in doubt
SPENT = 0.1  # seconds of repeats per round
MOST = 7  # repeats per round
QUICK = ("Gaussian", "Gaussian 2-D", "Poisson", "StudentT")
ANSWERS: dict[str, Callable[..., Any]] = {
    "log_likelihood": lh.log_likelihood,
    "gradient": lh.gradient,
    "decode": lh.decode,
    "state_probabilities": lh.state_probabilities,
}
SOURCES = ("array", "path", "missing", "ragged")
THIN = 50  # steps per draw: what a draw costs beside its steps hardly counts

Measured = dict[str, dict[str, float]]  # by name: "value", and "noise" relative to it


def source(name: str, values: np.ndarray, folder: Path) -> Any:
    """The same values as a user may have them."""
    if name == "path":
        file = folder / f"{len(list(folder.iterdir()))}.npy"
        np.save(file, values)
        return str(file)
    if name == "missing":
        values = values.astype(np.result_type(values, np.float32))
        values.flat[len(values) // 3] = np.nan
    if name == "ragged":
        ends = np.sort(np.random.default_rng(1).choice(len(values) - 1, len(values) // 1000, replace=False)) + 1
        return np.split(values, ends)
    return values


def best_of(work: Callable[[], Any]) -> float:
    """Seconds: the best of a few runs."""
    best, spent, repeats = np.inf, 0.0, 0
    while repeats < 2 or (spent < SPENT and repeats < MOST):
        began = time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        best, spent, repeats = min(best, seconds), spent + seconds, repeats + 1
    return best


def in_rounds(works: dict[str, Callable[[], Any]], scale: float, before: Measured) -> Measured:
    """The best of all rounds, times a scale; rounds are apart in time, so that their difference shows the noise.

    Where rounds differ, or seem slower than before, some more follow: most of that is what else the machine does.
    """
    for work in works.values():
        work()  # compiles
    seen: dict[str, list[float]] = {name: [] for name in works}
    names = list(works)
    for _ in range(ROUNDS + MORE_ROUNDS):
        for name in names:
            seen[name].append(best_of(works[name]) * scale)
        measured = {name: settled(values) for name, values in seen.items() if len(values) >= ROUNDS}
        names = [name for name in works if name not in measured or doubtful(name, measured, before)]
    return measured


def doubtful(name: str, measured: Measured, before: Measured) -> bool:
    """Whether it takes more rounds to tell what this costs."""
    seems_slower = name in before and ratio_of(name, measured, before) > ALLOWED
    return seems_slower or measured[name]["noise"] > ALLOWED - 1


def settled(values: list[float]) -> dict[str, float]:
    """The smallest of several measurements, and how much larger the second smallest is."""
    first, second = sorted(values)[:2]
    return {"value": first, "noise": second / first - 1}


def exact_answers(families: list[str], length: int, before: Measured) -> Measured:
    """Nanoseconds per observation."""
    works: dict[str, Callable[[], Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for family in families:
            made = problem(family, length)
            for kind in SOURCES:
                data = source(kind, made.data, Path(folder))
                for name, answer in ANSWERS.items():
                    works[f"{family}, {kind}, {name}, ns"] = _asked(answer, made, data)
        return in_rounds(works, 1e9 / length, before)


def _asked(answer: Callable[..., Any], made: Problem, data: Any) -> Callable[[], Any]:
    return lambda: answer(made.model, made.params, data)


def default_steps(length: int, draws: int) -> Measured:
    """Microseconds per step of one chain of the default sampler, everything included.

    The cost of many draws, less that of few: what a call compiles and prepares falls out.
    """
    made = problem("Gaussian 2-D", length)
    posterior = lh.sample(made.model, made.data, draws=4, thin=THIN, seed=0, progress=False)
    seconds: dict[int, list[float]] = {draws: [], 10: []}
    for _ in range(ROUNDS + 1):
        for more, seen in seconds.items():
            began = time.perf_counter()
            posterior.extend(more, progress=False)
            seen.append(time.perf_counter() - began)
    many, few = (settled(seen) for seen in seconds.values())
    cost = many["value"] - few["value"]
    noise = (many["value"] * many["noise"] + few["value"] * few["noise"]) / cost
    steps = (draws - 10) * THIN * posterior.draws.sizes["chain"]
    return {"default sampler, us per step and chain": {"value": cost / steps * 1e6, "noise": noise}}


def streamed(length: int) -> Measured:
    """Memory that a full pass over a file takes beside what a small one takes, as a share of the file."""
    piece = problem("Poisson", 100_000).data.astype(np.float32)[:, None]
    with tempfile.TemporaryDirectory() as folder:
        file = write_map(Path(folder) / "long.npy", piece, length)
        small = write_map(Path(folder) / "short.npy", piece, len(piece))
        rounds = [child("memory", str(file))["peak"] - child("memory", str(small))["peak"] for _ in range(ROUNDS)]
        size = file.stat().st_size
    return {"memory of a streamed gradient, share of the file": settled([1e6 * each / size for each in rounds])}


def fits(length: int, draws: int) -> Measured:
    """Programs and seconds of a first fit, of another of the same shape, and of a first one with a full cache."""
    with tempfile.TemporaryDirectory() as cache:
        empty = child("fits", str(length), str(draws), "3", cache=cache)
        full = child("fits", str(length), str(draws), "1", cache=cache)
    refits = settled(empty["seconds"][1:])
    return {
        "first fit, programs": {"value": empty["programs"][0], "noise": 0.0},
        "first fit, s": {"value": empty["seconds"][0], "noise": refits["noise"]},
        "first fit with a full cache, s": {"value": full["seconds"][0], "noise": refits["noise"]},
        "refit of the same shape, programs": {"value": empty["programs"][-1], "noise": 0.0},
        "refit of the same shape, s": refits,
    }


def child(work: str, *arguments: str, cache: str = "0") -> dict[str, Any]:
    """Do some work in a process of its own, which prints what it measured."""
    environment = {**os.environ, "LONGHMM_COMPILATION_CACHE": cache}
    command = [sys.executable, __file__, "--child", work, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def memory_child(file: str) -> dict[str, float]:
    """The most megabytes held with one exact gradient of a file."""
    made = problem("Poisson", 1000)
    lh.gradient(made.model, made.params, file)
    return {"peak": peak_memory.peak()}


def fits_child(length: str, draws: str, times: str) -> dict[str, list[float]]:
    """Default fits of one model to several data sets of the same shape."""
    import jax

    compiled = [0]

    def listen(event: str, seconds: float, **_: Any) -> None:
        compiled[0] += event.endswith("backend_compile_duration")

    jax.monitoring.register_event_duration_secs_listener(listen)
    model = problem("Poisson", 10).model
    found: dict[str, list[float]] = {"seconds": [], "programs": []}
    for seed in range(int(times)):
        data = problem("Poisson", int(length), seed).data
        began, before = time.perf_counter(), compiled[0]
        lh.sample(model, data, draws=int(draws), seed=0, progress=False)
        found["seconds"].append(time.perf_counter() - began)
        found["programs"].append(compiled[0] - before)
    return found


def measure(quick: bool, before: Measured) -> Measured:
    """The whole budget; the quick one leaves out most families, and fits."""
    if quick:
        return {**exact_answers(list(QUICK), 50_000, before), **streamed(5_000_000)}
    return {
        **exact_answers(list(FAMILIES), 100_000, before),
        **default_steps(100_000, 500),
        **streamed(20_000_000),
        **fits(20_000, 200),
    }


def table(measured: Measured, before: Measured) -> Iterator[str]:
    """One line per family and source, then the rest; with ratios to an earlier budget where there is one."""

    def cell(name: str) -> str:
        ratio = f" ({ratio_of(name, measured, before):.2f})" if name in before else ""
        return f"{measured[name]['value']:,.4g}{ratio}"

    answers = list(ANSWERS)
    yield "ns per observation".ljust(28) + "".join(f"{name:>22}" for name in answers)
    rows = dict.fromkeys(name.rsplit(", ", 2)[0] for name in measured if name.endswith(", ns"))
    for row in rows:
        yield row.ljust(28) + "".join(f"{cell(f'{row}, {name}, ns'):>22}" for name in answers)
    for name in measured:
        if not name.endswith(", ns"):
            yield f"{name:<55} {cell(name)}"


def ratio_of(name: str, measured: Measured, before: Measured) -> float:
    """Now to then; at least one program counts as compiled, so that none can be divided by."""
    least = 1.0 if name.endswith("programs") else 1e-9
    return max(measured[name]["value"], least) / max(before[name]["value"], least)


def slower(measured: Measured, before: Measured) -> dict[str, str]:
    """What costs more than is allowed, beyond the noise of both measurements: names, and by how much in words."""
    found = {}
    for name in measured.keys() & before.keys():
        ratio = ratio_of(name, measured, before)
        noise = measured[name]["noise"] + before[name]["noise"]
        if ratio > ALLOWED + noise:
            found[name] = f"{ratio:6.2f} times {name} (noise {noise:.0%})"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the budget to this file")
    parser.add_argument("--compare", type=Path, help="compare with the budget in this file")
    parser.add_argument("--quick", action="store_true", help="a few families, and no fits")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        work, *arguments = options.child
        print(json.dumps({"memory": memory_child, "fits": fits_child}[work](*arguments)))
        return
    before: dict[str, Any] = {"measured": {}, "quick": options.quick}
    if options.compare:
        before = json.loads(options.compare.read_text(encoding="utf-8"))
    if before["quick"] != options.quick:
        sys.exit(f"{options.compare} was measured {'with' if before['quick'] else 'without'} --quick: do the same.")
    load = [os.getloadavg()[0]]
    began = time.perf_counter()
    measured = measure(options.quick, before["measured"])
    load.append(os.getloadavg()[0])
    for each in table(measured, before["measured"]):
        print(each)
    print(f"{time.perf_counter() - began:.0f} s; load of the machine, before and after: {load[0]:.1f}, {load[1]:.1f}")
    if options.json:
        options.json.write_text(
            json.dumps({"quick": options.quick, "load": load, "measured": measured}, indent=1), encoding="utf-8"
        )
    worse = sorted(slower(measured, before["measured"]).values(), reverse=True)
    if worse:
        sys.exit("\n".join(["slower than before:", *worse]))


if __name__ == "__main__":
    main()
