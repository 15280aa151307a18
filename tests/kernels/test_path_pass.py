"""Most probable and sampled paths, joined from many tiny chunks, against one NumPy recursion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.references import given_model, given_params, path_score, random_chain, reference
from longhmm.data.sequences import open_data
from longhmm.kernels import blocks, path_pass, proofs
from longhmm.backends.answers import decode, sample_states

K, T, CHUNK = 3, 400, 8
MODEL = given_model(K)
INITIAL = np.array([0.2, 0.5, 0.3])


@pytest.fixture(autouse=True)
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 8 times, four to a block, guessed from 40 neighbours."""
    monkeypatch.setattr(blocks, "CHUNK_LENGTHS", (CHUNK,))
    monkeypatch.setattr(blocks, "MESSAGE_ENTRIES", 4 * K * CHUNK)
    monkeypatch.setattr(proofs, "REACHES", (40,))


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one whenever scores are carried through a block."""
    calls: list[int] = []
    carry = path_pass.carried_before

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        return carry(*arguments, **options)

    monkeypatch.setattr(path_pass, "carried_before", counted)
    return calls


def halves(nats: float) -> np.ndarray:
    logs = np.zeros((T, K))
    logs[: T // 2, 0], logs[T // 2 :, 1] = 5.0, nats
    return logs


def nearly_nothing(seed: int) -> np.ndarray:
    return 1e-3 * np.random.default_rng(seed).normal(size=(T, K))


LEFT_TO_RIGHT = np.array([[0.99, 0.01, 0.0], [0.0, 0.99, 0.01], [0.0, 0.0, 1.0]])
HARD = {
    "identity": (np.eye(K), nearly_nothing(1)),
    "identity, halves": (np.eye(K), halves(5.0001)),
    "cycle": (np.roll(np.eye(K), 1, axis=1), nearly_nothing(2)),
    "left to right": (LEFT_TO_RIGHT, np.random.default_rng(3).normal(size=(T, K))),
    "slow": (0.9997 * np.eye(K) + 0.0001, nearly_nothing(4)),
}


def test_the_best_path_of_a_forgetful_model(carried: list[int]) -> None:
    initial, transition, logs = random_chain(1, K, T, spread=2.0)
    path = decode(MODEL, given_params(initial, transition), logs)
    np.testing.assert_allclose(
        path_score(initial, transition, logs, path), reference(initial, transition, [logs]).best_score, rtol=1e-13
    )
    assert not carried


@pytest.mark.parametrize("case", HARD)
def test_the_best_path_where_nothing_is_forgotten(case: str, carried: list[int]) -> None:
    transition, logs = HARD[case]
    path = decode(MODEL, given_params(INITIAL, transition), logs)
    best = reference(INITIAL, transition, [logs]).best_score
    np.testing.assert_allclose(path_score(INITIAL, transition, logs, path), best, rtol=1e-13, atol=1e-12)
    assert carried


def test_without_the_proof_the_best_path_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_pass, "scores_gap", lambda *arguments: np.zeros(4))
    transition, logs = np.eye(K), halves(4.0)
    path = decode(MODEL, given_params(INITIAL, transition), logs)
    best = reference(INITIAL, transition, [logs]).best_score
    assert path_score(INITIAL, transition, logs, path) < best - 100


def test_best_paths_of_ragged_sequences_with_missing_rows_and_known_states() -> None:
    initial, transition, logs = random_chain(3, K, T)
    logs[50:75] = logs[200] = 0.0
    values = np.where(np.all(logs == 0, axis=1)[:, None], np.nan, logs)
    states = np.full(T, -1)
    states[[0, 30, 60, 220, 398]] = [1, 2, 0, 1, 2]
    logs = np.where((states >= 0)[:, None] & (np.arange(K) != states[:, None]), -np.inf, logs)
    cuts = np.cumsum([1, 2, 8, 9, 33, 200])
    data = open_data(values, lengths=[1, 2, 8, 9, 33, 200, 147], states=states)
    path = decode(MODEL, given_params(initial, transition), data)
    scores = [
        path_score(initial, transition, *pair) for pair in zip(np.split(logs, cuts), np.split(path, cuts), strict=True)
    ]
    best = reference(initial, transition, np.split(logs, cuts)).best_score
    np.testing.assert_allclose(sum(scores), best, rtol=1e-13)
    assert (path[states >= 0] == states[states >= 0]).all()


def chi_squared(counts: np.ndarray, expected: np.ndarray) -> float:
    """In standard deviations above the mean, over cells with enough expected counts; others are pooled."""
    counts, expected = counts.ravel(), expected.ravel()
    few = expected < 10
    counts = np.append(counts[~few], counts[few].sum())
    expected = np.append(expected[~few], expected[few].sum())
    kept = expected > 1e-6
    freedom = max(kept.sum() - 1, 1)
    return (((counts - expected)[kept] ** 2 / expected[kept]).sum() - freedom) / np.sqrt(2 * freedom)


@pytest.mark.parametrize("case", ["forgetful", "slow", "left to right"])
def test_pairs_of_sampled_states_have_their_posterior_frequencies(case: str) -> None:
    """Within chunks, at the joints of chunks and at the joints of blocks."""
    if case == "forgetful":
        initial, transition, logs = random_chain(5, K, T)
    else:
        initial, (transition, logs) = INITIAL, HARD[case]
    copies, length = 40, 40  # as many short sequences as fit into the compiled shape of a block, ten blocks of them
    logs = logs[:length]
    exact = reference(initial, transition, [logs])
    draws = 25
    data = open_data(np.tile(logs, (copies, 1)), lengths=[length] * copies)
    paths = sample_states(MODEL, given_params(initial, transition), data, draws=draws, seed=3)
    paths = paths.reshape(draws * copies, length).astype(int)
    for t in range(1, length):
        counts = np.bincount(paths[:, t - 1] * K + paths[:, t], minlength=K * K)
        assert chi_squared(counts, exact.xi[t - 1] * len(paths)) < 6, f"at time {t}"
    first = np.bincount(paths[:, 0], minlength=K)
    assert chi_squared(first, exact.gamma[0] * len(paths)) < 6


def test_draws_differ_and_seeds_repeat() -> None:
    initial, transition, logs = random_chain(6, K, T)
    params = given_params(initial, transition)
    one = sample_states(MODEL, params, logs, draws=2, seed=1)
    np.testing.assert_array_equal(one, sample_states(MODEL, params, logs, draws=2, seed=1))
    np.testing.assert_array_equal(one[:1], sample_states(MODEL, params, logs, draws=1, seed=1))
    assert (one[0] != one[1]).any() and (one != sample_states(MODEL, params, logs, draws=2, seed=2)).any()


def test_whole_paths_on_long_data_have_the_right_number_of_jumps() -> None:
    """Over one sequence of fifty chunks: expected counts of every transition, whose sum crosses every joint."""
    initial, transition, logs = random_chain(8, K, T, stay=0.3)
    exact = reference(initial, transition, [logs])
    draws = sample_states(MODEL, given_params(initial, transition), logs, draws=60).astype(int)
    counts = np.stack([np.bincount(path[:-1] * K + path[1:], minlength=K * K).reshape(K, K) for path in draws])
    error = counts.std(0) / np.sqrt(len(draws)) + 1e-9
    assert (np.abs(counts.mean(0) - exact.transitions) < 5 * error).all()
    occupied = np.stack([(draws == k).mean(0) for k in range(K)], axis=1)
    assert np.abs(occupied - exact.gamma).max() < 5.5 * 0.5 / np.sqrt(len(draws))
