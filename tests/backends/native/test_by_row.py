"""Matrices that are looked up, and those of logits, in every way the C++ kernel multiplies and sums them: against the
same matrices given row by row, which `test_varying.py` compares with the reference."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backends.native.problems import LENGTHS, close
from longhmm.backends import native
from longhmm.backends.protocol import PRECOMPUTED, Boundary, Potentials, Varying, Wanted
from longhmm.backends.varying import Logits, matrices_at
from longhmm.data.layout import Layout, Partition

pytestmark = pytest.mark.skipif(not native.available(), reason="the C++ kernel was not built here")
N_ROWS, TERMS = sum(LENGTHS), 2


def windows(core: int, buffer: int) -> Layout:
    cells = Partition(np.cumsum([0, *LENGTHS]), core)
    return replace(cells.locate(np.arange(cells.n_blocks), buffer), spans=(buffer, core, buffer))


@partial(jax.jit, static_argnums=0)
def _run(wanted: Wanted, potentials: Potentials, layout: Any, start: Any, weights: Any) -> Any:
    return native.statistics(potentials, layout, Boundary(start=start), weights, wanted)


def run(transition: Any, k: int, layout: Layout, wanted: Wanted, kind: Any, evidence: float = 2.0) -> Any:
    rng = np.random.default_rng(k)
    logs = evidence * rng.normal(size=(N_ROWS, k))
    logs[60:70] = logs[::17] = np.nan
    start = jnp.full(k, 1.0 / k, kind)
    weights = None if wanted.per_chunk else rng.uniform(0.1, 9.0, layout.size)
    potentials = Potentials(jnp.asarray(logs, kind), None, transition, start, PRECOMPUTED, k)
    return jax.tree.map(np.asarray, _run(wanted, potentials, layout, start, weights))


def looked_up(k: int, count: int, kind: Any) -> tuple[Varying, np.ndarray]:
    rng = np.random.default_rng(count)
    matrices = rng.dirichlet(np.ones(k), size=(count, k))
    matrices[1] = np.triu(matrices[1]) + 1e-3 * np.eye(k)
    matrices /= matrices.sum(axis=-1, keepdims=True)
    return Varying(jnp.asarray(matrices, kind), jnp.asarray(rng.integers(count, size=N_ROWS))), matrices


# As many matrices as two registers hold, or four, or more, in either precision; states known beforehand, or not.
@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("k", "count", "core"),
    [
        *((2, 16, 20), (2, 40, 7), (3, 20, 40), (3, 80, 7), (4, 33, 7), (4, 70, 20), (5, 32, 20), (6, 70, 7)),
        *((7, 10, 20), (8, 12, 20), (8, 33, 7), (11, 5, 20)),
    ],
)
def test_looked_up_is_the_same_as_row_by_row(k: int, count: int, core: int, kind: Any) -> None:
    layout, tolerance = windows(core, 4), 1e-12 if kind == np.float64 else 3e-5
    with jax.enable_x64(True):
        table, matrices = looked_up(k, count, kind)
        rows = Varying(table.matrices[table.index])
        for wanted in (Wanted(per_chunk=True), Wanted(gamma=N_ROWS, messages=True)):
            found, expected = (run(each, k, layout, wanted, kind) for each in (table, rows))
            close(found[:5], expected[:5], tolerance)
            pairs = found.pairs.reshape(-1, *matrices.shape).sum(axis=0) if wanted.per_chunk else found.pairs
            if wanted.per_chunk:
                close(found.pairs.sum(axis=1), expected.transitions, tolerance)
                summed = np.zeros(matrices.shape)
                np.add.at(summed, np.asarray(table.index), expected.pairs.astype(np.float64))
                close(pairs, summed, tolerance)
            else:
                close(pairs.sum(axis=0), expected.transitions, tolerance)
                close([found.gamma, found.messages], [expected.gamma, expected.messages], tolerance)


# Where matrices are looked up, in states known beforehand or not; of logits, of a whole window or of a block.
@pytest.mark.parametrize(("k", "core"), [(4, 20), (11, 20), (24, 164)])
@pytest.mark.parametrize("logits", [False, True])
def test_probabilities_need_no_transitions(k: int, core: int, logits: bool) -> None:
    layout, rng = windows(core, 4), np.random.default_rng(k)
    with jax.enable_x64(True):
        given = rng.normal(size=(k, k, 1 + TERMS)), rng.normal(size=(N_ROWS, TERMS))
        transition = Logits(*map(jnp.asarray, given)) if logits else looked_up(k, 33, np.float64)[0]
        full, found = (
            run(transition, k, layout, Wanted(gamma=N_ROWS, transitions=each), np.float64) for each in (True, False)
        )
    assert found.pairs is None
    np.testing.assert_array_equal(found.gamma, full.gamma)
    np.testing.assert_array_equal(found.log_likelihood, full.log_likelihood)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("k", [2, 8])  # sums are added for themselves, or on the way back
def test_windows_that_underflow_do_not_spoil_the_sums_of_others(k: int, kind: Any) -> None:
    """They are done again in log space; whatever was in their lanes counts for nothing."""
    layout, (evidence, tolerance) = windows(7, 4), (900.0, 1e-10) if kind == np.float64 else (60.0, 3e-4)
    with jax.enable_x64(True):
        table, _ = looked_up(k, 16, kind)
        rows = Varying(table.matrices[table.index])
        for wanted in (Wanted(per_chunk=True), Wanted()):
            found, expected = (run(each, k, layout, wanted, kind, evidence) for each in (table, rows))
            assert np.isfinite(found.pairs).all()
            close(found[:5], expected[:5], tolerance)
            close(found.pairs.sum(axis=-3), expected.transitions, tolerance)


# All matrices of a window are kept, those of a block, or one at a time.
@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize(("k", "core"), [(2, 20), (4, 33), (8, 164), (24, 164), (40, 164)])
def test_logits_are_the_same_as_row_by_row(k: int, core: int, kind: Any) -> None:
    layout, tolerance = windows(core, 4), 1e-12 if kind == np.float64 else 3e-5
    rng, off = np.random.default_rng(k), ~np.eye(k, dtype=bool)
    given = [rng.normal(size=shape).astype(np.float32) for shape in ((k, k, 1 + TERMS), (N_ROWS, TERMS))]
    with jax.enable_x64(True):
        logits = Logits(*(jnp.asarray(each, kind) for each in (given[0] * off[..., None], given[1])))
        exact = Logits(*(jnp.asarray(each, np.float64) for each in logits))
        matrices = np.asarray(matrices_at(exact, jnp.arange(N_ROWS)))
        wanted = Wanted(gamma=N_ROWS)
        found, expected = (
            run(each, k, layout, wanted, kind) for each in (logits, Varying(jnp.asarray(matrices, kind)))
        )
    close(found[:5], expected[:5], tolerance)
    close(found.gamma, expected.gamma, tolerance)
    once = run_each(k, layout, matrices)
    slopes = once - matrices * once.sum(axis=-1, keepdims=True)
    columns = np.concatenate([np.ones((N_ROWS, 1)), given[1]], axis=1)
    close(found.pairs, np.einsum("tij,tc->ijc", slopes, columns) * off[..., None], tolerance * 30)


def run_each(k: int, layout: Layout, matrices: np.ndarray) -> np.ndarray:
    """Expected transitions into every row, with the weight of its window."""
    with jax.enable_x64(True):
        given = Varying(jnp.asarray(matrices))
        once = run(given, k, layout, Wanted(per_chunk=True), np.float64).pairs
    rng = np.random.default_rng(k)
    rng.normal(size=(N_ROWS, k))
    weights = np.repeat(rng.uniform(0.1, 9.0, layout.size), np.asarray(layout.core))
    return once * weights[:, None, None]
