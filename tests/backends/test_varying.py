"""Transitions that vary by row, and likelihoods of pairs, in the C++ kernel: against the reference, in every form."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from backends.native.problems import LENGTHS, close, comparable, windows
from longhmm.backends import native, reference
from longhmm.backends.protocol import PAIR, PRECOMPUTED, Boundary, Potentials, Varying, Wanted
from longhmm.backends.varying import MOST_DISTINCT, Logits, RowMoves, distinct_rows, matrices_at
from longhmm.errors import DataError

pytestmark = pytest.mark.skipif(not native.available(), reason="the C++ kernel was not built here")
N_ROWS, TERMS = sum(LENGTHS), 2
FORMS = ("looked up", "by row", "logits", "pairs", "pairs looked up")
# With as many states as are taken for granted, where lanes share their sums, and with other numbers of them.
MORE = (("looked up", 8), ("looked up", 11), ("logits", 8), ("logits", 5))


def rows_of(form: str, k: int, *, evidence: float = 2.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log likelihoods of rows or of pairs, some missing; matrices, some entries 0; and which row has which."""
    rng = np.random.default_rng(k)
    logs = evidence * rng.normal(size=(N_ROWS, k, k) if form.startswith("pairs") else (N_ROWS, k))
    logs[60:70] = logs[::17] = np.nan
    logs[80:84, ..., k - 1] = -np.inf
    matrices = rng.dirichlet(np.ones(k), size=(5, k))
    matrices[2] = np.triu(matrices[2]) + 1e-3 * np.eye(k)
    matrices /= matrices.sum(axis=-1, keepdims=True)
    return logs, matrices, rng.integers(5, size=N_ROWS)


def transition_of(form: str, k: int, kind: Any) -> tuple[Any, np.ndarray]:
    """As a backend is given it, and by row."""
    _, matrices, index = rows_of(form, k)
    if form == "logits":
        rng = np.random.default_rng(10 + k)
        # Numbers that single precision holds, so that both precisions see the same ones.
        given = [rng.normal(size=shape).astype(np.float32) for shape in ((k, k, 1 + TERMS), (N_ROWS, TERMS))]
        given[0] *= ~np.eye(k, dtype=bool)[..., None]
        logits = Logits(*(jnp.asarray(each, kind) for each in given))
        return logits, np.asarray(matrices_at(logits, jnp.arange(N_ROWS)), np.float64)
    if form == "pairs":
        return jnp.asarray(matrices[0], kind), np.broadcast_to(matrices[0], (N_ROWS, k, k))
    given_index = None if form == "by row" else jnp.asarray(index)
    table = jnp.asarray(matrices[index] if form == "by row" else matrices, kind)
    return Varying(table, given_index), matrices[index]


@partial(jax.jit, static_argnums=(0, 1))
def _run(backend: Any, wanted: Wanted, potentials: Potentials, layout: Any, boundary: Any, weights: Any) -> Any:
    return backend.statistics(potentials, layout, boundary, weights, wanted)


def run(form: str, k: int, backend: Any, wanted: Wanted, kind: Any = np.float64, **given: Any) -> Any:
    logs, _, _ = rows_of(form, k, evidence=given.pop("evidence", 2.0))
    with jax.enable_x64(True):
        transition, by_row = transition_of(form, k, kind)
        if backend is reference and form == "logits":
            transition = Varying(jnp.asarray(by_row))
        initial = jnp.asarray(np.linspace(1.0, 2.0, k) / np.linspace(1.0, 2.0, k).sum(), kind)
        of = PAIR if form.startswith("pairs") else PRECOMPUTED
        potentials = Potentials(jnp.asarray(logs, kind), None, transition, initial, of, k)
        boundary = given.get("boundary", Boundary(start=jnp.full(k, 1.0 / k, kind)))
        layout = given.get("layout", windows())
        return jax.tree.map(np.asarray, _run(backend, wanted, potentials, layout, boundary, given.get("weights")))


def expected_pairs(form: str, k: int, found: Any) -> np.ndarray | None:
    """What a backend sums for transitions, from the reference's expected transitions of each row or matrix."""
    if form != "logits":
        return found.pairs
    with jax.enable_x64(True):
        logits, by_row = transition_of(form, k, np.float64)
    slopes = found.pairs - by_row * found.pairs.sum(axis=-1, keepdims=True)
    columns = np.concatenate([np.ones((N_ROWS, 1)), logits.covariates], axis=1)
    return np.einsum("tij,tc->ijc", slopes, columns) * ~np.eye(k, dtype=bool)[..., None]


@pytest.mark.parametrize("precision", [np.float64, np.float32])
@pytest.mark.parametrize(("form", "k"), [*zip(FORMS, (2, 5, 3, 3, 4), strict=True), *MORE])
def test_every_form_equals_the_reference(form: str, k: int, precision: Any) -> None:
    """Of each window; summed with weights; and with all that can be asked for beside sums."""
    layout, tolerance = windows(), 1e-11 if precision == np.float64 else 3e-5
    weights = np.random.default_rng(1).uniform(0.1, 9.0, layout.size)
    each = run(form, k, reference, Wanted(per_chunk=True))
    close(run(form, k, native, Wanted(per_chunk=True), precision)[:5], each[:5], tolerance)
    total = jax.tree.map(lambda part: np.tensordot(weights, part, 1), each[:5])
    close(run(form, k, native, Wanted(), precision, weights=weights)[:5], total, tolerance)
    for forward_only in (False, True):
        wanted = Wanted(forward_only=forward_only, gamma=N_ROWS, messages=True)
        found, expected = (run(form, k, *how) for how in ((native, wanted, precision), (reference, wanted)))
        close(found.log_likelihood, expected.log_likelihood, tolerance)
        np.testing.assert_allclose(found.gamma, expected.gamma, atol=tolerance)
        close(*(comparable(one.messages, layout, forward_only) for one in (found, expected)), tolerance)
        if not forward_only and form != "pairs":
            close(found.pairs, expected_pairs(form, k, expected), tolerance)


@pytest.mark.parametrize("form", ["looked up", "logits"])
def test_sums_of_every_window_and_with_weights(form: str) -> None:
    layout = windows()
    weights = np.random.default_rng(1).uniform(0.1, 9.0, layout.size)
    each = run(form, 3, native, Wanted(per_chunk=True)).pairs
    assert each.shape[0] == layout.size
    close(run(form, 3, native, Wanted(), weights=weights).pairs, np.tensordot(weights, each, 1), 1e-12)
    close(run(form, 3, native, Wanted()).pairs, each.sum(axis=0), 1e-12)


@pytest.mark.parametrize("precision", [np.float64, np.float32])
@pytest.mark.parametrize("form", FORMS)
def test_evidence_beyond_the_numbers_is_done_again_in_log_space(form: str, precision: Any) -> None:
    """So strong that linear numbers underflow in many rows."""
    tolerance, evidence = (1e-10, 900.0) if precision == np.float64 else (3e-4, 90.0)
    wanted = Wanted(gamma=N_ROWS, messages=True)
    found, expected = (
        run(form, 3, *how, evidence=evidence) for how in ((native, wanted, precision), (reference, wanted))
    )
    close(found[:5], expected[:5], tolerance)
    np.testing.assert_allclose(found.gamma, expected.gamma, atol=tolerance)
    if form != "pairs":
        close(found.pairs, expected_pairs(form, 3, expected), tolerance)


@pytest.mark.parametrize("form", FORMS)
def test_chunks_begin_and_end_with_given_messages(form: str) -> None:
    layout, rng = windows(buffer=0), np.random.default_rng(2)
    for forward_only in (False, True):
        ends = [np.log(rng.dirichlet(np.ones(3), size=layout.size)) for _ in range(2)]
        boundary = Boundary(ends[0], None if forward_only else ends[1])
        wanted = Wanted(per_chunk=True, forward_only=forward_only, gamma=N_ROWS, messages=True)
        both = [run(form, 3, each, wanted, layout=layout, boundary=boundary) for each in (native, reference)]
        close(both[0].log_likelihood, both[1].log_likelihood, 1e-11)
        whole = np.asarray(layout.core) == np.max(layout.core)  # others end their sequence: nothing lies behind them
        close(both[0].transitions[whole], both[1].transitions[whole], 1e-11)
        close(*(jax.nn.softmax(each.messages.forward_out[whole]) for each in both), 1e-11)


def covariate_model(values: int) -> tuple[lh.HMM, dict[str, np.ndarray], list[Any]]:
    """Three states, two covariates with so many values (0: all differ), sequences of unequal length, some missing."""
    rng, lengths = np.random.default_rng(values), (900, 1, 340, 70)
    covariates = [rng.normal(size=(n, 2)) if not values else rng.integers(values, size=(n, 2)) - 1.0 for n in lengths]
    rows = [rng.normal(size=n) + np.repeat(rng.integers(3, size=n // 10 + 1), 10)[:n] for n in lengths]
    rows[0][20:50] = rows[2][::13] = np.nan
    coefficients = rng.normal(size=(3, 3, 3)) * ~np.eye(3, dtype=bool)[..., None]
    coefficients[..., 0] -= 2.0 * ~np.eye(3, dtype=bool)
    params = {"coefficients": coefficients, "mean": np.array([0.0, 1.0, 2.0]), "sd": np.array([0.7, 1.0, 0.8])}
    return lh.HMM(3, lh.Gaussian(), transitions=lh.Logit(2)), params, [rows, covariates]


@pytest.mark.parametrize("values", [0, 4])
def test_answers_are_those_of_the_reference(values: int, tmp_path: Any) -> None:
    model, params, (rows, covariates) = covariate_model(values)
    data = lh.open_data(rows, covariates=covariates)
    model, met = model.meet(data)
    assert (distinct_rows(model.transitions, met) is not None) == bool(values)

    def answers() -> list[Any]:
        asked = (lh.log_likelihood, partial(lh.gradient, prior=False), lh.state_probabilities, lh.decode)
        return [each(model, params, data) for each in asked] + [lh.sample_states(model, params, data, draws=3, seed=1)]

    found = answers()
    with patch.object(native, "available", lambda: False):
        expected = answers()
    close(found[:2], expected[:2], 1e-10)
    np.testing.assert_allclose(found[2], expected[2], atol=1e-6)  # probabilities are given in single precision
    np.testing.assert_array_equal(found[3], expected[3])
    np.testing.assert_array_equal(found[4], expected[4])


def test_few_covariates_are_found_and_many_are_not() -> None:
    moves = lh.HMM(2, lh.Gaussian(), transitions=lh.Logit(2)).transitions
    rng = np.random.default_rng(0)
    few = rng.integers(3, size=(5000, 2)).astype(float)
    table, index = distinct_rows(moves, lh.open_data(np.zeros(5000), covariates=few))  # type: ignore[misc]
    np.testing.assert_array_equal(table[index], few)
    many = np.arange(5000.0).reshape(-1, 1) // (5000 // (MOST_DISTINCT + 2)) + np.zeros((1, 2))
    assert distinct_rows(moves, lh.open_data(np.zeros(5000), covariates=many)) is None


@pytest.mark.parametrize("values", [0, 4])
def test_what_is_kept_of_all_rows_is_of_these_columns_means_and_rooms(values: int) -> None:
    rng = np.random.default_rng(1)
    covariates = rng.integers(values, size=(600, 2)) - 1.0 if values else rng.normal(size=(600, 2))
    model, data = lh.HMM(2, lh.Gaussian(), transitions=lh.Logit(2)).meet(
        lh.open_data(np.zeros(600), covariates=covariates)
    )

    def told(model: lh.HMM, size: int = 600) -> np.ndarray:
        """Covariates of all rows, counted from the model's means."""
        read = RowMoves(model, data).beside(None, 0, 600, size)
        assert read.moves is RowMoves(model, data).read(0, 600, size)
        moves = np.asarray(read.moves)
        assert moves.shape[0] == size
        assert not moves[600:].any()
        return moves[:600] if read.table is None else model.transitions.shifted(read.table)[moves[:600]]

    other = copy.deepcopy(model)
    other.transitions.linear.centre = model.transitions.linear.centre + np.array([1.0, 0.0])
    for asked, size in ((model, 600), (other, 600), (model, 640)):
        np.testing.assert_array_equal(told(asked, size), covariates - asked.transitions.linear.centre)
    np.testing.assert_array_equal(RowMoves(model, data).read(5, 9), RowMoves(model, data).read(0, 600)[5:9])


def test_a_missing_covariate_of_a_file_is_refused_by_row(tmp_path: Any) -> None:
    covariates = np.zeros((50, 1))
    covariates[7] = np.nan
    np.save(tmp_path / "rows.npy", np.zeros(50))
    np.save(tmp_path / "covariates.npy", covariates)
    data = lh.open_data(tmp_path / "rows.npy", covariates=tmp_path / "covariates.npy")
    model = lh.HMM(2, lh.Gaussian(), transitions=lh.Logit(1))
    with pytest.raises(DataError, match="row 7"):
        RowMoves(model, data).read(0, 50)
