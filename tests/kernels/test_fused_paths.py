"""Paths of states by the C++ kernel: the same as by JAX, state for state, with the same random numbers."""

from __future__ import annotations

import numpy as np
import pytest

import longhmm as lh
from kernels.references import given_model, given_params, path_score, random_chain, reference
from longhmm.errors import ImpossibleObservationError
from longhmm.kernels import blocks, native, path_blocks, proofs
from longhmm.backends.answers import decode, sample_states

pytestmark = pytest.mark.skipif(not native.available(), reason="the fused kernel was not built")


def both(model: lh.HMM, params: dict, data: object) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The best path and two draws, by the kernel and by JAX."""

    def paths() -> list[np.ndarray]:
        return [decode(model, params, data), *sample_states(model, params, data, draws=2, seed=3)]

    fast = paths()
    with native.switched_off():
        return fast, paths()


def ragged(values: np.ndarray) -> list[np.ndarray]:
    """Sequences of 1, 2, 700 and more rows, some rows of which are missing."""
    values = np.array(values, np.float64)
    values[::17] = values[100:140] = np.nan
    return np.split(values, [1, 3, 703])


@pytest.mark.parametrize("n_states", [1, 2, pytest.param(5, marks=pytest.mark.slow), 8])
def test_gaussians_with_missing_rows(n_states: int) -> None:
    """States that overlap, in two dimensions, single precision; common numbers of states and others."""
    rng = np.random.default_rng(n_states)
    model = lh.HMM(n_states, lh.Gaussian(dim=2))
    params = {
        "transition": rng.dirichlet(np.full(n_states, 0.7), n_states) * 0.5 + 0.5 * np.eye(n_states),
        "mean": rng.normal(size=(n_states, 2)) * 2,
        "covariance": np.tile([[1.0, 0.3], [0.3, 0.8]], (n_states, 1, 1)),
    }
    data = [each.astype(np.float32) for each in ragged(lh.simulate(model, params, 2000, seed=1)[1])]
    for one, other in zip(*both(model, params, data), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_sixty_four_states() -> None:
    initial, transition, logs = random_chain(9, 64, 1500)
    for one, other in zip(*both(given_model(64), given_params(initial, transition), logs), strict=True):
        np.testing.assert_array_equal(one, other)


def test_forbidden_transitions_known_states_and_impossible_categories() -> None:
    transition = np.array([[0.9, 0.1, 0.0], [0.0, 0.8, 0.2], [0.3, 0.0, 0.7]])
    model = lh.HMM(3, lh.Categorical(4), transition_prior=(transition > 0).astype(float))
    probs = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.4, 0.6, 0.0], [0.2, 0.0, 0.3, 0.5]])
    params = {"transition": transition, "probs": probs}
    states, y = lh.simulate(model, params, 1500, seed=2)
    known = lh.open_data(np.asarray(y), states=np.where(np.arange(1500) % 40 == 0, states, -1))
    with np.errstate(divide="ignore"):
        logs = np.log(probs[:, np.asarray(y).ravel()].T)
    for data in (np.asarray(y), known):
        fast, slow = both(model, params, data)
        # Few numbers make many paths equally probable, and rounding decides between the best of them.
        scores = [path_score(np.full(3, 1 / 3), transition, logs, each[0]) for each in (fast, slow)]
        np.testing.assert_allclose(*scores, rtol=1e-13)
        for one, other in zip(fast[1:], slow[1:], strict=True):
            np.testing.assert_array_equal(one, other)
            assert (transition[one[:-1], one[1:]] > 0).all() and (probs[one, np.asarray(y).ravel()] > 0).all()


def test_ties_are_broken_alike() -> None:
    """Nothing tells the states apart: every path is as probable as any other."""
    params = given_params(np.full(3, 1 / 3), np.full((3, 3), 1 / 3))
    fast, slow = both(given_model(3), params, np.zeros((300, 3)))
    np.testing.assert_array_equal(fast[0], slow[0])
    np.testing.assert_array_equal(fast[1], slow[1])
    assert not fast[0].any() and len(np.unique(fast[1])) == 3


def test_evidence_that_plain_numbers_cannot_hold() -> None:
    """A state that never changes, and data that speak for another one by two thousand nats from the middle on."""
    transition = np.array([[1 - 1e-12, 1e-12, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    logs = np.zeros((900, 3))
    logs[:450, 0] = 20.0
    logs[450:, 2] = 40.0
    initial = np.array([0.4, 0.3, 0.3])
    params = given_params(initial, transition)
    best = reference(initial, transition, [logs]).best_score
    fast, slow = both(given_model(3), params, logs)
    np.testing.assert_allclose(path_score(initial, transition, logs, fast[0]), best, rtol=1e-13)
    for one, other in zip(fast, slow, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (fast[1] == 2).all()


def test_draws_do_not_depend_on_how_the_data_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    initial, transition, logs = random_chain(4, 3, 600)
    model, params = given_model(3), given_params(initial, transition)
    whole = sample_states(model, params, logs, draws=2, seed=5)
    monkeypatch.setattr(blocks, "CHUNK_LENGTHS", (8,))
    monkeypatch.setattr(blocks, "MESSAGE_ENTRIES", 4 * 3 * 8)
    monkeypatch.setattr(proofs, "REACHES", (40,))
    monkeypatch.setenv("LONGHMM_THREADS", "3")
    np.testing.assert_array_equal(sample_states(model, params, logs, draws=2, seed=5), whole)


def test_impossible_data_are_named() -> None:
    """State 0 is never left, but known to be left at row 20."""
    data = lh.open_data(np.zeros((50, 2)), states=np.where(np.arange(50) < 20, 0, 1))
    params = given_params(np.array([0.5, 0.5]), np.array([[1.0, 0.0], [0.1, 0.9]]))
    for find in (decode, sample_states):
        with pytest.raises(ImpossibleObservationError, match="row 20"):
            find(given_model(2), params, data)


def test_random_numbers_are_uniform_and_need_only_the_row() -> None:
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        key = jax.random.key_data(jax.random.key(7))
        rows = jnp.arange(2**33 - 5000, 2**33 + 5000)
        found = np.asarray(path_blocks.row_uniforms(key, rows))
        np.testing.assert_array_equal(found[10:20], path_blocks.row_uniforms(key, rows[10:20]))
    assert found.min() >= 0 and found.max() < 1
    counts = np.histogram(found, 20, (0, 1))[0]
    assert ((counts - 500) ** 2 / 500).sum() < 50  # 19 degrees of freedom
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 0.04
