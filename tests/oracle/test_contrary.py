"""States that cannot be entered again, and evidence that comes back to them: every backend, every answer.

A state whose message underflows to zero and that no transition leads back to would be lost for good. The truth is a
plain recursion on logarithms (`references.reference`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from backends.contrary import TRANSITIONS, TURNS, Chain, cases, contrary, random_structure, random_turns
from backends.references import given_model, given_params, path_score, reference
from longhmm.backends import native
from longhmm.backends.evaluate import Statistics
from longhmm.backends.paths import draw_path
from longhmm.backends.resident import exact_statistics, lay_out
from longhmm.data.sequences import open_data
from longhmm.target.target import exact as exact_pass
from longhmm.testing import enumerate_paths

# The reference takes ten times as long; where there is no kernel it is all there is.
BACKENDS = ("cpp", pytest.param("reference", marks=[pytest.mark.slow] if native.available() else []))
COPIES = 48  # of a sequence, so that one draw of paths is many


@contextmanager
def backend(name: str) -> Iterator[None]:
    if name == "cpp" and not native.available():
        pytest.skip("the C++ kernel was not built here")
    with patch.object(native, "available", lambda: False) if name == "reference" else nullcontext():
        yield


MODELS = {n_states: given_model(n_states) for n_states in (2, 3, 4)}  # compiled once, whatever the chain forbids


exact, drawn = (jax.jit(each, static_argnums=0) for each in (exact_statistics, draw_path))


def params_of(chain: Chain) -> dict[str, np.ndarray]:
    return given_params(chain.initial, chain.transition)


def check_answers(chain: Chain) -> None:
    exact = chain.answers()
    model, params = MODELS[len(chain.initial)], params_of(chain)
    data = open_data([chain.logs])
    assert lh.log_likelihood(model, params, data) == pytest.approx(exact.log_likelihood, rel=1e-11)
    np.testing.assert_allclose(lh.state_probabilities(model, params, data, causal=True), exact.filtered, atol=3e-7)
    np.testing.assert_allclose(lh.state_probabilities(model, params, data), exact.gamma, atol=3e-7)
    path = lh.decode(model, params, data)
    assert path_score(chain.initial, chain.transition, chain.logs, path) == pytest.approx(exact.best_score, rel=1e-11)
    check_statistics(exact_pass(model, model.validate(params), data)[1].totals, chain)


def check_statistics(found: Statistics, chain: Chain) -> None:
    exact = chain.answers()
    assert float(found.log_likelihood) == pytest.approx(exact.log_likelihood, rel=1e-11)
    np.testing.assert_allclose(found.transitions, exact.transitions, atol=1e-8)
    np.testing.assert_allclose(found.first, exact.first, atol=1e-9)
    np.testing.assert_allclose(found.natural["shift"], exact.gamma.sum(0), atol=1e-7)


def check_draws(paths: np.ndarray, chain: Chain) -> None:
    """Draws `(n, T)` have the frequencies of the posterior, to five standard errors, and are possible."""
    exact = chain.answers()
    for path in paths[:3]:
        assert path_score(chain.initial, chain.transition, chain.logs, path) > -np.inf
    share = np.stack([(paths == k).mean(0) for k in range(len(chain.initial))], axis=1)
    spread = np.sqrt(exact.gamma * (1 - exact.gamma) / len(paths))
    assert np.all(np.abs(share - exact.gamma) <= 5 * spread + 3 / len(paths) * (exact.gamma > 1e-9) + 1e-12)


@pytest.mark.parametrize("name", BACKENDS)
def test_the_state_of_the_first_hundred_rows_comes_back(name: str) -> None:
    """Two Gaussians, 18 nats a row: the first state is down by 1,800 nats before the rest speaks for it."""
    y = np.array([6.0] * 100 + [0.0] * 200)
    model = lh.HMM(2, lh.Gaussian())
    params = {
        "initial": np.array([0.5, 0.5]),
        "transition": np.array([[0.99, 0.01], [0.0, 1.0]]),
        "mean": np.array([0.0, 6.0]),
        "sd": np.ones(2),
    }
    logs = -0.5 * (y[:, None] - np.array([0.0, 6.0])) ** 2 - 0.5 * np.log(2 * np.pi)
    exact = reference(params["initial"], params["transition"], [logs])
    assert exact.log_likelihood == pytest.approx(-2079.38, abs=0.01)
    with backend(name):
        assert lh.log_likelihood(model, params, y) == pytest.approx(exact.log_likelihood, rel=1e-12)
        np.testing.assert_allclose(lh.state_probabilities(model, params, y, causal=True)[-1], [1.0, 0.0], atol=1e-7)
        np.testing.assert_allclose(lh.state_probabilities(model, params, y), exact.gamma, atol=1e-7)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("chain", list(TRANSITIONS))
def test_all_paths_of_a_few_rows(chain: str, name: str) -> None:
    """Rows that differ by hundreds of nats, against the enumeration of all paths."""
    matrix = TRANSITIONS[chain]
    made = contrary(matrix, ((2, 500.0), (2, 700.0), (2, 400.0)))
    truth = enumerate_paths(made.initial, matrix, made.logs)
    model, params = MODELS[len(matrix)], params_of(made)
    with backend(name):
        found = exact_pass(model, model.validate(params), open_data([made.logs]))[1].totals
        np.testing.assert_allclose(found.log_likelihood, truth.log_likelihood, rtol=1e-12)
        np.testing.assert_allclose(found.transitions, truth.xi.sum(0), atol=1e-11)
        for causal, expected in ((True, truth.filtered), (False, truth.gamma)):
            probabilities = lh.state_probabilities(model, params, made.logs, causal=causal)
            np.testing.assert_allclose(probabilities, expected, atol=3e-7)
        np.testing.assert_array_equal(lh.decode(model, params, made.logs), truth.best_path)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(("chain", "turns"), cases(TURNS))
def test_answers_of_every_chain(chain: str, turns: str, name: str) -> None:
    with backend(name):
        check_answers(contrary(TRANSITIONS[chain], TURNS[turns]))


@pytest.mark.parametrize("count", [20, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.slow
def test_answers_of_random_chains(name: str, count: int) -> None:
    rng = np.random.default_rng(18)
    with backend(name):
        for seed in range(count):
            check_answers(contrary(random_structure(rng), random_turns(rng, 300), seed))


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(("chain", "turns"), cases(["hidden turn", "slow"]))
def test_drawn_paths(chain: str, turns: str, name: str) -> None:
    made = contrary(TRANSITIONS[chain], TURNS[turns])
    with backend(name):
        data = open_data([made.logs] * COPIES)
        drawn = lh.sample_states(MODELS[len(made.initial)], params_of(made), data, seed=4)
    check_draws(drawn.reshape(COPIES, -1), made)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(("chain", "turns"), cases(["there and back", "hidden turn", "steep"]))
def test_the_posterior_in_one_program(chain: str, turns: str, name: str) -> None:
    made = contrary(TRANSITIONS[chain], TURNS[turns])
    truth, sequences = made.answers(), open_data([made.logs])
    with backend(name), jax.enable_x64(True):
        program, data = lay_out(MODELS[len(made.initial)], sequences)
        params = jax.tree.map(jnp.asarray, params_of(made))
        check_statistics(exact(program, data, params, jnp.zeros((), jnp.int32))[0], made)
        path = jax.tree.map(np.asarray, drawn(program, data, params, jax.random.key(3)))
    assert float(path.log_likelihood) == pytest.approx(truth.log_likelihood, rel=1e-11)
    chance = truth.gamma[np.arange(len(made.logs)), path.states]
    assert chance.min() > 1e-6  # a state of one in a million, in one draw of three hundred rows
