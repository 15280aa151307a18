"""Speed against peers, on the same model and data, in the same run; answers are compared before anything is timed.

Ratios matter, not seconds: machines differ and are noisy; the load at the beginning and at the end is recorded. Prints
tables, says whether the aims are reached, and writes `speed.json` and a figure to --out. `make bench` runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import loop_profile
import numpy as np
import peak_memory
import peers
import steps

import longhmm as lh
from longhmm.backends import native

N_STATES, DIM = 8, 2
AIMS = {"dynamax value and gradient": 100.0, "dynamax E step": 30.0, "hmmlearn EM iteration": 150.0}
STEP_AIM = 4.0
LENGTH_AIM = 1.2  # cost of a step on the longest data over that on the shortest, with large minibatches


def problem(length: int, n_states: int = N_STATES, dim: int = DIM) -> tuple[lh.HMM, dict[str, np.ndarray], np.ndarray]:
    """A Gaussian model with overlapping states, and data from it."""
    rng = np.random.default_rng(0)
    params = {
        "transition": 0.9 * np.eye(n_states) + 0.1 * rng.dirichlet(np.ones(n_states), size=n_states),
        "mean": 3 * rng.normal(size=(n_states, dim)),
        "covariance": np.tile(np.eye(dim), (n_states, 1, 1)),
    }
    if dim == 1:
        params = {"transition": params["transition"], "mean": params["mean"][:, 0], "sd": np.ones(n_states)}
    model = lh.HMM(n_states, lh.Gaussian(dim=dim))
    return model, params, np.asarray(lh.simulate(model, params, length, seed=1)[1])


def timed(work: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """The best of several runs after a first one that compiles."""
    answer = work()
    best = np.inf
    for _ in range(repeats):
        began = time.perf_counter()
        answer = work()
        best = min(best, time.perf_counter() - began)
    return best, answer


def taking_turns(works: dict[str, Callable[[], Any]], rounds: int = 4) -> dict[str, float]:
    """The best time of each, one after the other in every round: what else the machine does falls on all alike."""
    best = dict.fromkeys(works, np.inf)
    for _ in range(rounds):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def against_peers(length: int, peer_length: int) -> dict[str, float]:
    """Nanoseconds per observation of one exact pass. Peers get fewer observations: their cost is linear too."""
    model, params, y = problem(length)
    short = y[: peer_length // 100 * 100]

    def reference() -> Any:
        with patch.object(native, "available", lambda: False):
            return lh.gradient(model, params, short)

    ours = {
        "longhmm gradient": lambda: lh.gradient(model, params, y),
        "longhmm log likelihood": lambda: lh.log_likelihood(model, params, y),
        "longhmm state probabilities": lambda: lh.state_probabilities(model, params, y),
        "longhmm decoding": lambda: lh.decode(model, params, y),
        "longhmm sampled path": lambda: lh.sample_states(model, params, y),
    }
    contenders = {
        "dynamax value and gradient": peers.dynamax_gradient(params, short),
        "dynamax E step": peers.dynamax_e_step(params, short),
        "hmmlearn EM iteration": peers.hmmlearn_iteration(params, short),
    }
    pieces = peers.pomegranate_pass(params, short, 100)
    if pieces is not None:
        contenders["pomegranate forward-backward (100 sequences)"] = pieces
    expected = dict.fromkeys(contenders, lh.log_likelihood(model, params, short))
    expected["pomegranate forward-backward (100 sequences)"] = lh.log_likelihood(model, params, np.split(short, 100))
    for name, work in contenders.items():
        if not np.isclose(answer := work(), expected[name], rtol=1e-4):
            sys.exit(f"{name} disagrees: log likelihood {answer}, expected {expected[name]}.")
    for work in (*ours.values(), reference):
        work()  # compiles
    seconds = taking_turns({**ours, "longhmm gradient, JAX reference": reference, **contenders}, rounds=8)
    return {name: cost / (length if name in ours else len(short)) * 1e9 for name, cost in seconds.items()}


def scaling(length: int) -> dict[str, dict[str, float]]:
    """Nanoseconds per observation of the exact gradient by number of states, features, length and threads."""

    def cost(size: int, n_states: int = N_STATES, dim: int = DIM, threads: int | None = None) -> float:
        model, params, y = problem(size, n_states, dim)
        with using(threads):
            return timed(lambda: lh.gradient(model, params, y))[0] / size * 1e9

    half = length // 2
    return {
        "states": {str(n): cost(half, n_states=n) for n in (2, 4, 8, 16, 32)},
        "features": {str(d): cost(half, dim=d) for d in (1, 2, 4, 8)},
        "length": {f"{size:.0e}": cost(size) for size in (10_000, 100_000, length)},
        "threads": {str(n): cost(half, threads=n) for n in range(1, native.threads() + 1)},
    }


@contextmanager
def using(threads: int | None) -> Iterator[None]:
    """Run with so many threads of the kernel, which compiled programs know: they are made anew."""
    if threads is None:
        yield
        return
    with patch.dict(os.environ, {"LONGHMM_THREADS": str(threads)}):
        jax.clear_caches()
        yield
    jax.clear_caches()


def roofline(gradient_ns: float) -> dict[str, float]:
    """Multiply-adds of the recursions and sums per observation, and the share of the machine's measured peak."""
    k, d = N_STATES, DIM
    forms = 1 + d + d * (d + 1) // 2
    per_row = 3 * k * k + k * (
        d * (d + 3) // 2 + forms + 16
    )  # three products; density, sums, and 16 for the exponential
    size = 768
    a = np.random.default_rng(0).normal(size=(size, size))
    seconds, _ = timed(lambda: a @ a, 10)
    peak = size**3 / seconds  # multiply-adds per second of the matrix library, in double precision
    large = np.zeros(1 << 25)
    bandwidth = large.nbytes / timed(large.sum, 3)[0] * 1e-9  # bytes per nanosecond that one thread reads
    return {
        "multiply_adds_per_observation": float(per_row),
        "peak_multiply_adds_per_ns": peak * 1e-9,
        "share_of_peak": per_row / gradient_ns / (peak * 1e-9),
        "bytes_read_per_observation": 4.0 * d,
        "share_of_memory_bandwidth": 4.0 * d / gradient_ns / bandwidth,
    }


def figure(found: dict[str, Any], path: Path) -> None:
    """Bars of nanoseconds per observation, on a logarithmic axis."""
    from matplotlib.figure import Figure

    costs = dict(sorted(found["ns_per_observation"].items(), key=lambda item: item[1]))
    drawing = Figure(figsize=(8, 3.2), layout="constrained")
    axes = drawing.subplots()
    colours = ["#0072b2" if name.startswith("longhmm") else "#999999" for name in costs]
    axes.barh(list(costs), list(costs.values()), color=colours)
    axes.set_xscale("log")
    axes.set_xlabel("nanoseconds per observation")
    drawing.suptitle(f"One exact pass, K = {N_STATES}, {DIM}-D Gaussian, {found['machine']}")
    for place, value in enumerate(costs.values()):
        axes.text(value, place, f" {value:,.0f}", va="center", fontsize=8)
    axes.margins(x=0.2)
    drawing.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=4_000_000, help="observations")
    parser.add_argument("--peer-length", type=int, default=100_000, help="observations for the peers")
    parser.add_argument("--longest", type=float, default=1e7, help="longest memory map for the cost of a step")
    parser.add_argument("--out", type=Path, default=Path("docs/speed"))
    parser.add_argument("--json", action="store_true", help="print one JSON document and write nothing")
    options = parser.parse_args()
    busy = [os.getloadavg()[0]]
    costs = against_peers(options.length, options.peer_length)
    base = costs["longhmm gradient"]
    ratios = {name: costs[name] / base for name in AIMS}
    model, params, y = problem(100_000)
    small, large = lh.Windows(half_width=2, count=10), lh.Windows(half_width=10, count=100)
    fused, reference = steps.with_and_without(model, params, y, small, 10)
    piece = y.astype(np.float32)
    found = {
        "machine": native.status().removeprefix("fused kernel: "),
        "python": platform.python_version(),
        "length": options.length,
        "ns_per_observation": costs,
        "ratios": ratios,
        "step_us_per_chain": {"fused": fused * 1e6, "JAX reference": reference * 1e6},
        "step_ratio": reference / fused,
        "step_us_by_windows": steps.by_count(model, params, y, [1, 10, 100, 1000]),
        "loop_us_per_chain": {
            "10 windows of 5 + 2 x 10": loop_profile.shares(model, params, y, small, 10),
            "100 windows of 21 + 2 x 10": loop_profile.shares(model, params, y, large, 10),
        },
        "step_us_by_length": steps.by_length(model, params, piece, [100_000, int(options.longest)]),
        "scaling_ns": scaling(min(options.length, 1_000_000)),
        "roofline": roofline(base),
        "peak_memory_mb": peak_memory.by_work(params, piece, options.length),
    }
    found["load"] = [*busy, os.getloadavg()[0]]
    if options.json:
        print(json.dumps(found))
        return
    for line in lines(found):
        print(line)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "speed.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    figure(found, options.out / "speed.png")


def lines(found: dict[str, Any]) -> Iterator[str]:
    """What is printed."""
    costs, ratios = found["ns_per_observation"], found["ratios"]
    yield f"K = {N_STATES}, {DIM}-D Gaussian, {found['length']:,} observations, {found['machine']}"
    yield "load of the machine, before and after: " + ", ".join(f"{each:.1f}" for each in found["load"])
    for name, cost in costs.items():
        aim = f"(aim {AIMS[name]:.0f}: {judged(ratios[name] >= AIMS[name])})" if name in AIMS else ""
        times = cost / costs["longhmm gradient"]
        yield f"{name:<45} {cost:>9.1f} ns per observation {times:>8.1f} x the gradient {aim}"
    step = found["step_us_per_chain"]
    yield "one step, 10 windows of 5 + 2 x 10, 4 chains, us per chain: " + row(step)
    yield f"  ratio {found['step_ratio']:.1f} (aim {STEP_AIM:.0f}: {judged(found['step_ratio'] >= STEP_AIM)})"
    yield "one step by number of windows, us per chain: " + row(found["step_us_by_windows"])
    for size, parts in found["loop_us_per_chain"].items():
        shares = {name: f"{cost / parts['total']:.0%}" for name, cost in parts.items() if name != "total"}
        yield f"the loop, {size}: {parts['total']:.1f} us; " + ", ".join(f"{k} {v}" for k, v in shares.items())
    for index, (size, by_length) in enumerate(found["step_us_by_length"].items()):
        ratio = length_ratio(by_length)
        aim = "" if index else f" (aim at most {LENGTH_AIM}: {judged(ratio <= LENGTH_AIM)})"
        yield f"one step on memory maps, {size}, us per chain by length: {row(by_length)}; ratio {ratio:.2f}{aim}"
    for kind, each in found["scaling_ns"].items():
        yield f"gradient by {kind}, ns per observation: {row(each)}"
    yield f"roofline: {json.dumps(found['roofline'])}"
    yield "peak memory, MB: " + row(found["peak_memory_mb"])


def length_ratio(by_length: dict[str, float]) -> float:
    """Cost of a step on the longest data over that on the shortest."""
    costs = list(by_length.values())
    return costs[-1] / costs[0]


def judged(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def row(values: dict[str, float]) -> str:
    return ", ".join(f"{name}: {value:,.1f}" for name, value in values.items())


if __name__ == "__main__":
    main()
