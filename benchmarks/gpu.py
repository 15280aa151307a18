"""The fused GPU kernel against the JAX reference: results first, then times. Needs only JAX, NumPyro and NumPy.

    PYTHONPATH=src python benchmarks/gpu.py --out gpu.json

A measurement that fails is reported with its error, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

import longhmm as lh
from longhmm.backends import evaluate, native, reference
from longhmm.backends.pallas import windows as pallas
from longhmm.backends.pallas.full import Laid, block_sums
from longhmm.backends.pallas.plan import Config
from longhmm.backends.read import Reader
from longhmm.data.sequences import Sequences, open_data
from longhmm.target.minibatch import MinibatchSource
from longhmm.target.target import ExactPosterior, exact

OTHERS = [  # layouts beside the one that is used
    Config(held=True, fused_counts=True),
    Config(held=True),
    Config(held=False),
    Config(lanes=64, warps=2),
]
CHUNKS = (592, 448, 296, 1184)


@cache
def make(n: int, length: int) -> tuple[lh.HMM, dict[str, np.ndarray], np.ndarray]:
    """A model with n states in the plane, and data; a short simulation repeated, since only the time matters."""
    rng = np.random.default_rng(n)
    model = lh.HMM(n, lh.Gaussian(dim=2))
    angle = 2 * np.pi * np.arange(n) / n
    params = {
        "transition": 0.9 * np.eye(n) + 0.1 / n,
        "mean": 0.7 * n * np.stack([np.cos(angle), np.sin(angle)], axis=1),
        "covariance": np.tile(np.array([[1.0, 0.3], [0.3, 1.0]]), (n, 1, 1)),
    }
    _, y = lh.simulate(model, params, min(length, 50_000), seed=int(rng.integers(1 << 30)))
    return model, model.validate(params), np.resize(np.asarray(y, np.float32), (length, 2))


def timed(run: Callable[[], Any], repeats: int, inner: int = 1) -> float:
    """Median seconds of one call, after a warm-up."""
    jax.block_until_ready(run())
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(inner):
            found = run()
        jax.block_until_ready(found)
        times.append((time.perf_counter() - begin) / inner)
    return float(np.median(times))


def tried(name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `work` found, or the error that stopped it."""
    begin = time.perf_counter()
    try:
        found = {"name": name, **work()}
    except Exception as error:
        found = {"name": name, "error": f"{type(error).__name__}: {str(error)[:600]}"}
    found["spent_seconds"] = round(time.perf_counter() - begin, 2)
    print(json.dumps(found), flush=True)
    return found


def full_gradient(model: lh.HMM, params: Mapping[str, np.ndarray], laid: Laid, repeats: int) -> dict[str, Any]:
    """Milliseconds of one pass from parameters to all expected statistics with data on the device, one of several in a
    row and alone, and how far boundaries disagree."""

    @jax.jit
    def run(blocks: Any, arrays: Any) -> Any:
        ends, found = jnp.ones((2, model.n_states), jnp.float32), []
        for block in blocks:
            found.append(block_sums(model, laid.plan, block, arrays, ends))
            ends = found[-1][2]
        # All of them: the compiler leaves out what nobody asks for, such as the kernel that counts transitions.
        checks, sums, _ = zip(*found, strict=True)
        return checks, jax.tree.map(lambda *parts: sum(parts), *sums)

    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(value, jnp.float64) for name, value in params.items()}
        # Several passes follow each other without waiting for the host, as they do in a sampler.
        row, alone = (1e3 * timed(lambda: run(laid.blocks, arrays), repeats, inner) for inner in (5, 1))
        gaps, lost = zip(*jax.device_get(run(laid.blocks, arrays)[0]), strict=True)
    return {"ms": row, "ms_alone": alone, "gap": float(max(gaps)), "lost": any(map(bool, lost))}


def emission_slopes(model: lh.HMM, params: Mapping[str, Any], sums: Any) -> dict[str, Any]:
    """Derivatives by the emission's parameters, from its expected statistics."""
    lowering = model.emission.lowering
    assert lowering is not None
    return lowering.gradient(params, sums)


def accuracy(n: int, length: int) -> dict[str, Any]:
    """Largest relative error of the log likelihood and of the gradient against the float64 reference."""
    model, params, y = make(n, length)
    sequences = open_data(y)
    found = Laid(Reader(model, sequences), 32).totals(model, params)
    if found is None:
        return {"exact": False}
    likelihood, first, transitions, sums = found[0]
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(value) for name, value in params.items()}
        emission = jax.tree.map(np.asarray, emission_slopes(model, arrays, jnp.asarray(sums)))
    with without_kernel():
        expected = exact(model.resolve(sequences), params, sequences)[1].totals
    value = expected.log_likelihood
    errors = {
        "log_likelihood": abs(likelihood - value) / abs(value),
        "transitions": relative(transitions, expected.transitions),
        "first": relative(first, expected.first),
        **{name: relative(emission[name], slope) for name, slope in expected.natural.items()},
    }
    return {"exact": True, "relative_errors": {name: float(each) for name, each in errors.items()}}


@contextmanager
def without_kernel() -> Iterator[None]:
    """Run as if there were no fused kernel, neither on the GPU nor on the CPU."""
    usable, pallas.usable = pallas.usable, lambda: False
    try:
        with patch.object(native, "available", lambda: False):
            yield
    finally:
        pallas.usable = usable


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest error against the largest entry."""
    return float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))


def jax_full(model: lh.HMM, params: Mapping[str, np.ndarray], sequences: Sequences, repeats: int) -> dict[str, Any]:
    """The same with JAX alone, in double precision."""
    with without_kernel():
        posterior = ExactPosterior.of(model, sequences)
    u = lh.unconstrain(model, params)
    return {"ms": 1e3 * timed(lambda: posterior.log_density_and_gradient(u), repeats)}


def public(model: lh.HMM, params: Mapping[str, np.ndarray], sequences: Sequences, repeats: int) -> dict[str, Any]:
    """`lh.gradient` itself, on data that are opened already."""
    return {"ms": 1e3 * timed(lambda: lh.gradient(model, params, sequences), repeats)}


def whole_fit(n: int, length: int, sampler: Any, draws: int, time_limit: float | None = None) -> dict[str, Any]:
    """`lh.sample` from data in memory, compilation included, and a second time without; draws of a chain, where a time
    limit ended it."""
    model, _, y = make(n, length)
    seconds = []
    for seed in (1, 2):
        began = time.perf_counter()
        how: Any = dict(sampler=sampler, draws=draws, time_limit=time_limit, progress=False)
        posterior = lh.sample(model, y, seed=seed, **how)
        seconds.append(time.perf_counter() - began)
    return {"seconds": seconds, "draws": posterior.n_draws}


def minibatch(n: int, count: int, repeats: int, *, fused: bool) -> dict[str, Any]:
    """Statistics of `count` windows of 41 drawn inside the program, summed; many steps in one program."""
    model, params, y = make(n, 1_000_000)
    source = MinibatchSource(open_data(y), lh.Windows(10, count), 10, 1.0, model)
    narrow = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    start, steps = jnp.full(n, 1.0 / n, jnp.float32), 50

    def one(total: Any, key: Any) -> Any:
        drawn = source.draw(key)
        where = (drawn.rows, drawn.numbers, drawn.layout, start, drawn.weights)
        with patch.object(evaluate, "choose", lambda *_: pallas if fused else reference):
            found = evaluate.window_statistics(model, narrow, *where)
        return total + found.transitions, None

    run = jax.jit(lambda key: jax.lax.scan(one, jnp.zeros((n, n), jnp.float32), jax.random.split(key, steps))[0])
    return {"us_per_step": 1e6 * timed(lambda: run(jax.random.key(0)), repeats) / steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where the JSON goes")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--states", type=int, nargs="*", default=[8, 2, 4, 16, 32])
    parser.add_argument("--windows", type=int, nargs="*", default=[100, 1000, 10000])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--kernel-only", action="store_true", help="leave the times of the JAX reference out")
    parser.add_argument("--layouts", action="store_true", help="try other layouts of the kernel as well")
    parser.add_argument("--fits", action="store_true", help="also whole fits, by the default and by NUTS")
    parser.add_argument("--seconds", type=float, default=300.0, help="no new measurement begins after so long")
    options = parser.parse_args()
    began = time.perf_counter()
    report: dict[str, Any] = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "rows": options.rows}
    results: list[dict[str, Any]] = []

    def measure(name: str, work: Callable[[], dict[str, Any]]) -> None:
        if time.perf_counter() - began < options.seconds:
            results.append(tried(name, work))
            options.out.write_text(json.dumps({**report, "results": results}, indent=1))

    def layout(made: tuple[Any, Any, Sequences], chunk: int, config: Config) -> dict[str, Any]:
        model, params, sequences = made
        laid = Laid(Reader(model, sequences), 32, chunk=chunk, config=config)
        return full_gradient(model, params, laid, options.repeats)

    for n in options.states:
        model, params, y = make(n, options.rows)
        sequences = open_data(y)
        used = pallas.config_for(n)
        for chunk in CHUNKS if n == 8 else CHUNKS[:1]:
            name = f"pallas full gradient K={n} chunk={chunk}"
            measure(name, partial(layout, (model, params, sequences), chunk, used))
        if not options.kernel_only:
            measure(f"jax full gradient K={n}", partial(jax_full, model, params, sequences, 3))
        measure(f"public gradient K={n}", partial(public, model, params, sequences, options.repeats))
        for count in options.windows if n == 8 else options.windows[1:2]:
            for fused in (True,) if options.kernel_only else (True, False):
                name = f"{'pallas' if fused else 'jax'} minibatch K={n} windows={count}"
                measure(name, partial(minibatch, n, count, 5, fused=fused))
    for n in options.states:
        measure(f"accuracy K={n}", partial(accuracy, n, 100_000))
    for sampler, length, limit in ((None, 20_000_000, None), (lh.NUTS(), 100_000, 100.0)) if options.fits else ():
        name = f"lh.sample K=4 rows={length} {'default' if sampler is None else 'NUTS'}"
        measure(name, partial(whole_fit, 4, length, sampler, 250, limit))
    for n in options.states if options.layouts else []:
        model, params, y = make(n, options.rows)
        sequences = open_data(y)
        for config in OTHERS:
            name = f"pallas full gradient K={n} chunk={CHUNKS[0]} {config}"
            measure(name, partial(layout, (model, params, sequences), CHUNKS[0], config))
    print(f"{time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
