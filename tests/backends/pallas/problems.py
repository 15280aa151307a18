"""Small models and data for the GPU kernel, which is interpreted here, and slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import longhmm as lh
from longhmm.backends import reference
from longhmm.backends.protocol import Boundary, ChunkStatistics, Potentials, Wanted
from longhmm.data.layout import Layout, Partition

CORE, BUFFER = 6, 3
OFFSETS = np.array([0, 18, 21, 40])  # one sequence is shorter than a core, one ends with a short core
QUICK = {"xla_backend_optimization_level": 0}  # these programs run once: compiling them is all that takes time


class Problem(NamedTuple):
    """Potentials in double precision, and the distribution before windows."""

    potentials: Potentials
    start: np.ndarray

    def narrow(self) -> Problem:
        """The same in single precision."""
        return jax.tree.map(lambda each: jnp.asarray(each, jnp.float32), self)

    def expected(self, layout: Layout, wanted: Wanted) -> ChunkStatistics:
        """What the reference finds."""

        @quickly
        def run(problem: Problem, layout: Layout) -> ChunkStatistics:
            return statistics_by(reference, problem, layout, wanted)

        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, run(jax.tree.map(jnp.asarray, self), layout))


def quickly(run: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled, and not optimised."""
    return jax.jit(run, compiler_options=QUICK)


def statistics_by(
    backend: Any, problem: Problem, layout: Layout, wanted: Wanted, weights: Any = None
) -> ChunkStatistics:
    return backend.statistics(problem.potentials, layout, Boundary(start=problem.start), weights, wanted)


def windows(cells: np.ndarray | None = None) -> Layout:
    """All windows of the three sequences, or some."""
    cut = Partition(OFFSETS, CORE)
    found = cut.locate(np.arange(cut.n_blocks) if cells is None else cells, BUFFER)
    return replace(found, spans=(BUFFER, CORE, BUFFER)).padded(found.size)


def matrix(n: int, rng: np.random.Generator) -> np.ndarray:
    return 0.6 * np.eye(n) + 0.4 * rng.dirichlet(np.ones(n), size=n)


def lowered_problem(emission: lh.Emission, params: dict[str, np.ndarray], y: np.ndarray, *, missing: bool) -> Problem:
    lowering, n = emission.lowering, len(next(iter(params.values())))
    observed = np.ones(y.shape, bool)
    if missing:
        observed[[0, 5, 6, 7, 21, 39]] = False
    with jax.enable_x64(True):
        natural = np.asarray(lowering.natural({name: jnp.asarray(value) for name, value in params.items()}))
    rows = np.asarray(lowering.rows(y, observed), np.float64)
    uniform, kind = np.full(n, 1 / n), (lowering.kind, lowering.width, lowering.sums)
    return Problem(Potentials(rows, natural, matrix(n, np.random.default_rng(n)), uniform, *kind), uniform)


def gaussian(n: int, dim: int, *, kind: str = "full", missing: bool = True) -> Problem:
    rng = np.random.default_rng(n + dim)
    shape = rng.normal(size=(n, dim, dim)) * 0.4 + np.eye(dim)
    mean = rng.normal(size=(n, dim)) * 2 + 40
    y = mean[rng.integers(n, size=40)] + rng.normal(size=(40, dim))
    if dim == 1:
        params = {"mean": mean[:, 0], "sd": np.abs(shape[:, 0, 0])}
    elif kind == "full":
        params = {"mean": mean, "covariance": shape @ shape.swapaxes(1, 2)}
    else:
        params = {"mean": mean, "variance": rng.uniform(1, 2, (n, dim))}
    return lowered_problem(lh.Gaussian(dim=dim, covariance=kind), params, y, missing=missing)


def counts(n: int) -> Problem:
    rng = np.random.default_rng(n)
    rate = rng.uniform(1, 9, n)
    y = rng.poisson(rate[rng.integers(n, size=40)])[:, None]
    return lowered_problem(lh.Poisson(), {"rate": rate}, y, missing=True)


def categories(n: int) -> Problem:
    rng = np.random.default_rng(n)
    probs = rng.dirichlet(np.ones(5), size=n)
    probs[0] = [0.5, 0.5, 0.0, 0.0, 0.0]  # impossible in that state, not everywhere
    return lowered_problem(lh.Categorical(5), {"probs": probs}, rng.integers(5, size=(40, 1)), missing=True)


# Float32 recursions over a dozen rows, and sums of at most that many terms.
TOLERANCE = {"rtol": 2e-4, "atol": 2e-4}


PER_CHUNK = Wanted(per_chunk=True)


def check(found: ChunkStatistics, expected: ChunkStatistics) -> None:
    np.testing.assert_allclose(found.log_likelihood, expected.log_likelihood, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.first, expected.first, atol=1e-5)
    for name in ("transitions", "centred", "sums"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), err_msg=name, **TOLERANCE)
