"""Streamed passes cut into many tiny blocks against one NumPy recursion, where models forget and where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.references import Reference, given_model, given_params, random_chain, reference
from longhmm.kernels.full_pass import collect_weights, filter_pass, posterior_pass

from longhmm.data.sequences import open_data
from longhmm.kernels import block_messages, blocks, full_pass, proofs

K, T, CHUNK = 3, 400, 8
MODEL = given_model(K)


@pytest.fixture
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 8 times, four to a block, guessed from 8 and then from 40 neighbours."""
    monkeypatch.setattr(blocks, "CHUNK_LENGTHS", (CHUNK,))
    monkeypatch.setattr(blocks, "MESSAGE_ENTRIES", 4 * K * CHUNK)
    monkeypatch.setattr(proofs, "REACHES", (8, 40))


class Routes:
    """Which routes a pass took."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.carried_right = self.carried_left = 0
        self.reaches: list[int] = []
        right, left, read = full_pass.carried_before, full_pass.carried_after, block_messages.read_block

        def carry_right(*arguments: Any) -> Any:
            self.carried_right += 1
            return right(*arguments)

        def carry_left(*arguments: Any) -> Any:
            self.carried_left += 1
            return left(*arguments)

        def read_block(*arguments: Any) -> Any:
            self.reaches.append(arguments[-1])
            return read(*arguments)

        monkeypatch.setattr(full_pass, "carried_before", carry_right)
        monkeypatch.setattr(full_pass, "carried_after", carry_left)
        monkeypatch.setattr(block_messages, "read_block", read_block)


@pytest.fixture
def routes(monkeypatch: pytest.MonkeyPatch) -> Routes:
    return Routes(monkeypatch)


def gathered(results: Any) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Log likelihood, first, transitions and probabilities of a whole pass; blocks must come in order."""
    total, first, transitions, rows, position = 0.0, np.float64(0), np.float64(0), [], 0
    for result in results:
        assert result.start == position
        position = result.stop
        total, first, transitions = (
            total + result.log_likelihood,
            first + result.first,
            transitions + result.transitions,
        )
        rows.append(result.collected[result.own])
    return total, np.asarray(first), np.asarray(transitions), np.concatenate(rows)


def check_passes(model: Any, params: Any, data: Any, exact: Reference, *, atol: float = 1e-11) -> None:
    total, first, transitions, gamma = gathered(posterior_pass(model, params, data, collect_weights))
    np.testing.assert_allclose(total, exact.log_likelihood, rtol=1e-13, atol=1e-10)
    np.testing.assert_allclose(gamma, exact.gamma, atol=atol)
    np.testing.assert_allclose(transitions, exact.transitions, atol=50 * atol)
    np.testing.assert_allclose(first, exact.first, atol=atol)
    total, first, _, filtered = gathered(filter_pass(model, params, data, collect_weights))
    np.testing.assert_allclose(total, exact.log_likelihood, rtol=1e-13, atol=1e-10)
    np.testing.assert_allclose(filtered, exact.filtered, atol=atol)


def check_one_sequence(initial: np.ndarray, transition: np.ndarray, logs: np.ndarray) -> None:
    exact = reference(initial, transition, [logs])
    check_passes(MODEL, given_params(initial, transition), open_data(logs), exact)


# Models that forget ---------------------------------------------------------------------------------------------------


def test_a_forgetful_model_is_proved_from_short_neighbourhoods(tiny_blocks: None, routes: Routes) -> None:
    initial, transition, logs = random_chain(1, K, T, spread=3.0)
    check_one_sequence(initial, transition, logs)
    assert routes.carried_right == routes.carried_left == 0
    assert set(routes.reaches) == {8, 40}


def test_one_chunk_to_a_block_gives_the_same(tiny_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MESSAGE_ENTRIES", K * CHUNK)
    monkeypatch.setattr(proofs, "REACHES", (40,))
    initial, transition, logs = random_chain(2, K, T, stay=0.1)
    check_one_sequence(initial, transition, logs)


def test_ragged_sequences_with_missing_rows_and_known_states(tiny_blocks: None) -> None:
    initial, transition, logs = random_chain(3, K, T)
    logs[50:75] = logs[200] = logs[399] = 0.0
    values = np.where(np.all(logs == 0, axis=1)[:, None], np.nan, logs)
    states = np.full(T, -1)
    states[[0, 30, 60, 220, 398]] = [1, 2, 0, 1, 2]
    known = states >= 0
    logs = np.where(known[:, None] & (np.arange(K) != states[:, None]), -np.inf, logs)
    lengths = [1, 2, 8, 9, 33, 200, 147]
    exact = reference(initial, transition, np.split(logs, np.cumsum(lengths)[:-1]))
    data = open_data(values, lengths=lengths, states=states)
    check_passes(MODEL, given_params(initial, transition), data, exact)


def test_strong_evidence_with_forbidden_transitions_is_proved_without_carrying(
    tiny_blocks: None, monkeypatch: pytest.MonkeyPatch, routes: Routes
) -> None:
    """Messages of 1e-500 and less at joints, lost to the fast recursion, must not force the slow route."""
    monkeypatch.setattr(proofs, "REACHES", (40,))
    rng = np.random.default_rng(4)
    transition = np.array([[0.6, 0.4, 0.0], [0.0, 0.7, 0.3], [0.5, 0.0, 0.5]])
    states = [0]
    for _ in range(T - 1):
        states.append(rng.choice(K, p=transition[states[-1]]))
    y = rng.normal(size=T) + 40.0 * np.array(states)
    check_one_sequence(np.full(K, 1 / 3), transition, -0.5 * (y[:, None] - 40.0 * np.arange(K)) ** 2)
    assert routes.carried_right == routes.carried_left == 0


# Models that do not ---------------------------------------------------------------------------------------------------

IDENTITY = np.eye(K)
CYCLE = np.roll(np.eye(K), 1, axis=1)
LEFT_TO_RIGHT = np.array([[0.99, 0.01, 0.0], [0.0, 0.99, 0.01], [0.0, 0.0, 1.0]])
SLOW = 0.9997 * np.eye(K) + 0.0001
HARDLY_EVER = (1 - 3e-12) * np.eye(K) + 1e-12


def weak(seed: int, size: float) -> np.ndarray:
    return size * np.random.default_rng(seed).normal(size=(T, K))


def evidence(*pieces: tuple[int, int, float]) -> np.ndarray:
    """Log likelihoods in favour of one state: (how many times, which state, how many nats each time)."""
    logs = np.zeros((sum(piece[0] for piece in pieces), K))
    position = 0
    for times, state, nats in pieces:
        logs[position : position + times, state] = nats
        position += times
    return logs


def late_evidence() -> np.ndarray:
    """Nothing for several blocks, then a clear sign of state 2: whoever forgets it is wrong from the first time on."""
    return evidence((360, 0, 0.0), (40, 2, 3.0))


def mid_evidence() -> np.ndarray:
    return evidence((150, 0, 0.0), (100, 1, 2.0), (150, 0, 0.0))


def three_turns() -> np.ndarray:
    """Evidence that is overturned again and again, always by pieces longer than a chunk and its neighbourhood."""
    turns = [(96, 0, 5.0), (96, 1, 4.0), (96, 0, 6.0), (96, 1, 5.1), (16, 2, 1.0)]
    return evidence(*turns)


def deceptive_joints() -> np.ndarray:
    """The times around some joints say the opposite of what their surroundings say, by hundreds of nats."""
    logs = np.zeros((T, K))
    pieces = [(0, 112, 9.7), (112, 120, -125.0), (120, 216, 118.75 / 12), (216, 224, -118.75), (224, 232, -0.625)]
    for start, stop, nats in pieces:
        logs[start:stop, 1] = nats
    logs[232:, 1] = 905.0 / (T - 232)
    return logs


HARD = {
    "identity": (IDENTITY, weak(1, 0.1)),
    "identity, strong": (IDENTITY, weak(2, 30.0)),
    "identity, nothing seen": (IDENTITY, np.zeros((T, K))),
    "identity, late": (IDENTITY, late_evidence()),
    "identity, middle": (IDENTITY, mid_evidence()),
    "identity, halves": (IDENTITY, evidence((200, 0, 5.0), (200, 1, 5.0001))),
    "identity, three turns": (IDENTITY, three_turns()),
    "identity, deceptive joints": (IDENTITY, deceptive_joints()),
    "cycle": (CYCLE, weak(3, 1.0)),
    "cycle, halves": (CYCLE, evidence((200, 0, 5.0), (200, 1, 5.1))),
    "left to right": (LEFT_TO_RIGHT, weak(4, 0.5)),
    "left to right, turns": (LEFT_TO_RIGHT, evidence((150, 0, 4.0), (150, 1, 8.0), (100, 0, 20.0))),
    "slow": (SLOW, weak(5, 1e-3)),
    "slow, halves": (SLOW, evidence((200, 0, 5.0), (200, 1, 5.0))),
    "slow, late": (SLOW, late_evidence()),
    "hardly ever": (HARDLY_EVER, weak(6, 0.3)),
    "hardly ever, halves": (HARDLY_EVER, evidence((200, 0, 5.0), (200, 1, 5.0001))),
    "hardly ever, three turns": (HARDLY_EVER, three_turns()),
}
FORGETS_BY_SEEING = {"slow, halves", "hardly ever, halves", "hardly ever, three turns"}


@pytest.mark.parametrize("case", HARD)
def test_models_that_do_not_forget_are_exact(case: str, tiny_blocks: None, routes: Routes) -> None:
    transition, logs = HARD[case]
    check_one_sequence(np.array([0.2, 0.5, 0.3]), transition, logs)
    if case not in FORGETS_BY_SEEING:
        assert routes.carried_right > 0 and routes.carried_left > 0


@pytest.mark.parametrize("most_kept", [0, 1 << 24])
def test_carrying_starts_where_the_proof_failed_first(
    most_kept: int, tiny_blocks: None, routes: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap in the second half, too long for any neighbourhood: the blocks before it are not run again."""
    monkeypatch.setattr(full_pass, "MOST_KEPT", most_kept)
    initial, transition, logs = random_chain(7, K, T, spread=3.0, stay=0.9)
    logs[250:350] = 0.0
    exact = reference(initial, transition, [logs])
    params = given_params(initial, transition)
    total, _, _, gamma = gathered(posterior_pass(MODEL, params, open_data(logs), collect_weights))
    np.testing.assert_allclose(gamma, exact.gamma, atol=1e-11)
    np.testing.assert_allclose(total, exact.log_likelihood, rtol=1e-13)
    n_blocks = -(-T // (4 * CHUNK))
    assert 0 < routes.carried_right == routes.carried_left < n_blocks - 4


def quiet_beginnings() -> np.ndarray:
    """A clear sign of a state in the middle of every chunk; at the beginning, too, but for one chunk of each block.

    Messages from the left are soon right. Those from the right are wrong within the block, and right at its ends.
    """
    logs = np.zeros((T, K))
    times = np.arange(T)
    chunk, offset = times // CHUNK, times % CHUNK
    logs[times, chunk % 3] = 60.0
    logs[(offset > 5) | ((chunk % 4 == 2) & (offset < 4))] = 0.0
    return logs


@pytest.mark.parametrize(
    "broken, cases",
    [
        ("filtered_gap", list(HARD.values())),
        ("smoothed_gap", [(0.97 * np.eye(K) + 0.01, quiet_beginnings())]),
        ("unsettled_gap", [(IDENTITY, late_evidence())]),
    ],
)
def test_every_part_of_the_proof_is_needed(
    broken: str, cases: list[tuple[np.ndarray, np.ndarray]], tiny_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is well with it and not without it, so these tests can fail."""
    if broken == "smoothed_gap":
        monkeypatch.setattr(proofs, "REACHES", (4,))

    def wrong() -> int:
        count = 0
        for transition, logs in cases:
            initial = np.array([0.2, 0.5, 0.3])
            exact = reference(initial, transition, [logs])
            smooth = broken != "filtered_gap"  # what that alone sees is the likelihood
            run, weights = (posterior_pass, exact.gamma) if smooth else (filter_pass, exact.filtered)
            results = run(MODEL, given_params(initial, transition), open_data(logs), collect_weights)
            total, _, _, found = gathered(results)
            close = np.allclose(found, weights, atol=1e-11) and np.isclose(total, exact.log_likelihood, rtol=1e-12)
            count += not close
        return count

    assert wrong() == 0
    chunks = () if broken == "unsettled_gap" else 4
    monkeypatch.setattr(full_pass, broken, lambda *arguments: np.zeros(chunks))
    assert wrong() > 0


# All sorts ------------------------------------------------------------------------------------------------------------

MODELS = {n_states: given_model(n_states) for n_states in (1, 2, 5)}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    n_states=st.sampled_from(sorted(MODELS)),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    seed=st.integers(0, 10_000),
    missing=st.floats(0, 1),
    spread=st.sampled_from([0.01, 1.0, 20.0, 500.0]),
    stay=st.sampled_from([0.0, 0.9, 1.0]),
)
def test_any_shape(n_states: int, lengths: list[int], seed: int, missing: float, spread: float, stay: float) -> None:
    rng = np.random.default_rng(seed)
    lengths = [*lengths, 13]  # at least four chunks, so that one compiled program serves all examples
    initial, transition, logs = random_chain(seed, n_states, sum(lengths), spread=spread, stay=stay)
    logs[rng.random(len(logs)) < missing] = 0.0
    values = np.where(np.all(logs == 0, axis=1)[:, None], np.nan, logs)
    exact = reference(initial, transition, np.split(logs, np.cumsum(lengths)[:-1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "CHUNK_LENGTHS", (4,))
        patch.setattr(blocks, "MESSAGE_ENTRIES", 4 * n_states * 4)
        patch.setattr(proofs, "REACHES", (12,))
        check_passes(MODELS[n_states], given_params(initial, transition), open_data(values, lengths=lengths), exact)
