"""Whole paths over data in blocks, read again in every sweep: against one NumPy recursion, and against one program."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from backends.path_cases import counts, draw, hard, hard_pair, layout_of, make
from backends.references import Given, given_model, given_params, path_score, random_chain
from backends.references import reference as recursion
from longhmm.backends import evaluate, native, paths, read, reference, resident, stitch
from longhmm.backends.block import Blocks
from longhmm.backends.paths import draw_path
from longhmm.backends.protocol import GAUSSIAN
from longhmm.data.rows import Rows
from longhmm.data.sequences import open_data
from longhmm.errors import ImpossibleObservationError

K = 3
SERVED = [each for each in (native, reference) if each.supports(GAUSSIAN, K, False, np.float64)]
GIVEN, NORMAL = given_model(K), lh.HMM(K, lh.Gaussian())


@pytest.fixture(autouse=True, params=SERVED, ids=lambda each: each.name)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Chunks of 8 rows, ten to a block."""
    monkeypatch.setattr(evaluate, "BACKENDS", (request.param, reference))
    for name, rows in (("CHUNK", 8), ("LEAST_CHUNK", 8), ("COPIED_ROWS", 80), ("IN_PLACE_ROWS", 80)):
        monkeypatch.setattr(read, name, rows)
    return request.param


@pytest.fixture
def transfers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one whenever transfer operators of a block are asked for."""
    calls: list[int] = []
    run = Blocks.run
    monkeypatch.setattr(Blocks, "run", lambda self, asked: calls.extend(asked.operators * [1]) or run(self, asked))
    return calls


def drawn_path(model: lh.HMM, given: Any, data: Any, key: jax.Array) -> np.ndarray:
    return next(paths.sampled_paths(model, given, data, [key]))


def test_the_best_path_of_a_forgetful_chain_needs_no_operators(transfers: list[int]) -> None:
    initial, transition, logs = random_chain(1, K, 400, spread=2.0)
    path = paths.best_path(GIVEN, given_params(initial, transition), open_data(logs))
    best = recursion(initial, transition, [logs]).best_score
    np.testing.assert_allclose(path_score(initial, transition, logs, path), best, rtol=1e-13)
    assert not transfers and path.dtype == np.int8


@pytest.mark.parametrize("name", hard())
@pytest.mark.slow
def test_reducible_and_slow_chains(name: str, transfers: list[int]) -> None:
    """The best path has the best score; a drawn one is what one chunk without joints gives."""
    case = hard()[name]
    given, data = given_params(case.initial, case.matrices[0]), open_data(case.logs)
    path = paths.best_path(GIVEN, given, data)
    best = recursion(case.initial, case.matrices[0], [case.logs]).best_score
    score = path_score(case.initial, case.matrices[0], case.logs, path)
    np.testing.assert_allclose(score, best, rtol=1e-13, atol=1e-12)
    assert transfers
    key = jax.random.key(2)
    with jax.enable_x64(True):
        whole = draw(reference, case, layout_of([1400], 1400, reference), key[None]).states[0]
    np.testing.assert_array_equal(drawn_path(GIVEN, given, data, key), whole)


def test_without_the_comparison_of_scores_the_best_path_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a single chunk in each block, all comparisons are between blocks."""
    monkeypatch.setattr(read, "COPIED_ROWS", 8)
    initial, logs = np.full(K, 1 / K), np.zeros((400, K))
    logs[:200, 0], logs[200:, 1] = 5.0, 4.0
    best = recursion(initial, np.eye(K), [logs]).best_score
    for blind in (False, True):
        if blind:
            monkeypatch.setattr(stitch, "block_gap", lambda *given: 0.0)
        path = paths.best_path(GIVEN, given_params(initial, np.eye(K)), open_data(logs))
        assert (path_score(initial, np.eye(K), logs, path) < best - 100) == blind


def test_ragged_sequences_with_missing_rows_and_known_states() -> None:
    initial, transition, logs = random_chain(3, K, 400)
    logs[50:75] = logs[200] = 0.0
    values = np.where(np.all(logs == 0, axis=1)[:, None], np.nan, logs)
    states = np.full(400, -1)
    states[[0, 30, 60, 220, 398]] = [1, 2, 0, 1, 2]
    logs = np.where((states >= 0)[:, None] & (np.arange(K) != states[:, None]), -np.inf, logs)
    lengths = [1, 2, 8, 9, 33, 200, 147]
    data = open_data(values, lengths=lengths, states=states)
    parts = np.split(logs, np.cumsum(lengths)[:-1])
    path = paths.best_path(GIVEN, given_params(initial, transition), data)
    split = np.split(path, np.cumsum(lengths)[:-1])
    scores = [path_score(initial, transition, *pair) for pair in zip(parts, split, strict=True)]
    np.testing.assert_allclose(sum(scores), recursion(initial, transition, parts).best_score, rtol=1e-13)
    drawn = drawn_path(GIVEN, given_params(initial, transition), data, jax.random.key(1))
    for each in (path, drawn):
        assert (each[states >= 0] == states[states >= 0]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.slow
def test_many_draws_share_their_messages(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in place; the same paths inside one program, however the data are cut."""
    rng = np.random.default_rng(6)
    case = make("constant", K, 1, 9)
    values = rng.normal(2.0, 2.0, 500).astype(dtype)
    values[::17] = np.nan
    mean = np.array([0.0, 2.0, 4.0])
    given = {"initial": case.initial, "transition": case.matrices[0]}
    given.update(mean=mean, sd=np.ones(K))
    data = open_data([values[:300], values[300:]])
    keys = jax.random.split(jax.random.key(3), 3)
    found = list(paths.sampled_paths(NORMAL, given, data, keys))
    np.testing.assert_array_equal(found[1], drawn_path(NORMAL, given, data, keys[1]))
    assert (found[0] != found[1]).any()
    logs = -0.5 * (values[:, None].astype(np.float64) - mean) ** 2 - 0.5 * np.log(2 * np.pi)
    one = case._replace(logs=np.nan_to_num(logs), index=np.zeros(500, int))
    with jax.enable_x64(True):
        expected = draw(reference, one, layout_of([300, 200], 300, reference), keys)
    np.testing.assert_array_equal(found, expected.states)
    monkeypatch.setattr(resident, "BLOCK_ENTRIES", 40 * K)
    for model, rows in ((NORMAL, values), (GIVEN, logs)):
        with jax.enable_x64(True):
            program, laid = resident.lay_out(model, open_data(rows, lengths=[300, 200]))
            assert program.n_blocks > 2 and (laid.numbers is None) == (model is GIVEN)
            draws = jax.vmap(partial(draw_path, program), in_axes=(None, None, 0))
            arrays = {**given, **given_params(case.initial, case.matrices[0])}
            inside = jax.jit(draws)(laid, jax.tree.map(jnp.asarray, arrays), keys)
        np.testing.assert_array_equal(inside.states, found)
        np.testing.assert_array_equal(inside.transitions, [counts(path, [300, 200], K)[1] for path in found])
        np.testing.assert_allclose(inside.log_likelihood, expected.log_likelihood, rtol=1e-12)


def test_impossible_data_are_refused() -> None:
    """State 0 is never left, but known to be left at row 20."""
    given = given_params(np.full(K, 1 / K), np.array([[1.0, 0.0, 0.0], [0.1, 0.9, 0.0], [0.0, 0.5, 0.5]]))
    for known in (1, 0):
        data = open_data(np.zeros((50, K)), states=np.where(np.arange(50) < 20, 0, known))
        for find in (paths.best_path, lambda *each: drawn_path(*each, jax.random.key(0))):
            if known == 0:
                assert not find(GIVEN, given, data).any()
            else:
                with pytest.raises(ImpossibleObservationError, match="row 20"):
                    find(GIVEN, given, data)


def test_forbidden_transitions_and_impossible_categories() -> None:
    transition = np.array([[0.9, 0.1, 0.0], [0.0, 0.8, 0.2], [0.3, 0.0, 0.7]])
    model = lh.HMM(3, lh.Categorical(4), transition_prior=(transition > 0).astype(float))
    probs = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.4, 0.6, 0.0], [0.2, 0.0, 0.3, 0.5]])
    given = {"transition": transition, "probs": probs}
    y = np.asarray(lh.simulate(model, given, 700, seed=2)[1]).ravel()
    with np.errstate(divide="ignore"):
        logs = np.log(probs[:, y].T)
    path = paths.best_path(model, given, open_data(y))
    best = recursion(np.full(3, 1 / 3), transition, [logs]).best_score
    np.testing.assert_allclose(path_score(np.full(3, 1 / 3), transition, logs, path), best, rtol=1e-13)
    drawn = drawn_path(model, given, open_data(y), jax.random.key(3))
    assert np.isfinite(path_score(np.full(3, 1 / 3), transition, logs, drawn))


class Coupled(Given):
    """Observations that are log likelihoods given the states before and at a row."""

    couples = True

    def log_likelihoods(self, params: Any, rows: Rows) -> jax.Array:
        values = jnp.asarray(rows.values)
        return values.reshape(*values.shape[:-1], K, K) + params["shift"][0]


@pytest.mark.slow
def test_likelihoods_of_pairs_that_hardly_forget() -> None:
    """The matrix alone would forget at once: boundaries have to be compared through both."""
    case, model = hard_pair(), lh.HMM(K, Coupled(K * K))
    given = given_params(case.initial, case.matrices[0])
    data = open_data(case.logs.reshape(-1, K * K))
    filtered, scores = np.log(case.initial), np.log(case.initial)
    for step in np.log(case.matrices[0]) + case.logs:
        filtered = np.logaddexp.reduce(filtered[:, None] + step, axis=0)
        scores = np.max(scores[:, None] + step, axis=0)
    np.testing.assert_allclose(lh.log_likelihood(model, given, data), np.logaddexp.reduce(filtered), rtol=1e-12)
    path = paths.best_path(model, given, data).astype(int)
    steps = case.logs[np.arange(1, len(path)), path[:-1], path[1:]].sum() - len(path) * np.log(K)
    first = np.max(np.log(case.initial) + case.logs[0, :, path[0]])
    np.testing.assert_allclose(first + steps, scores.max(), rtol=1e-13)
    key = jax.random.key(5)
    with jax.enable_x64(True):
        whole = draw(reference, case, layout_of([1400], 1400, reference), key[None]).states[0]
    np.testing.assert_array_equal(drawn_path(model, given, data, key), whole)


@pytest.mark.parametrize("backend", SERVED[:1], indirect=True)
def test_three_hundred_states_do_not_fit_into_a_byte() -> None:
    initial, transition, logs = random_chain(9, 300, 20, spread=3.0)
    path = paths.best_path(given_model(300), given_params(initial, transition), open_data(logs))
    best = recursion(initial, transition, [logs]).best_score
    np.testing.assert_allclose(path_score(initial, transition, logs, path), best, rtol=1e-13)
    drawn = drawn_path(given_model(300), given_params(initial, transition), open_data(logs), jax.random.key(0))
    assert path.dtype == drawn.dtype == np.int16 and max(path.max(), drawn.max()) > 255
