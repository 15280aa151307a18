"""Streams cut into many tiny blocks against one NumPy recursion, for chains that forget and for chains that do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from backends.references import Reference, given_model, given_params, random_chain, reference
from longhmm.backends import read, stream
from longhmm.backends.block import Asked, Blocks, Own
from longhmm.backends.stream import totals
from longhmm.data.sequences import Sequences, open_data
from longhmm.kernels import native

K, T, CHUNK, PER_BLOCK = 3, 400, 8, 4
MODEL = given_model(K)


def cut(patch: pytest.MonkeyPatch, *, chunk: int = CHUNK, per_block: int = PER_BLOCK, overlaps: Any = (8, 40)) -> None:
    """Chunks and blocks of a few rows, and how far chunks start early."""
    patch.setattr(stream, "CHUNK", chunk)
    patch.setattr(stream, "LEAST_CHUNK", chunk)
    for module, name in ((read, "COPIED_ROWS"), (stream, "COPIED_ROWS"), (read, "IN_PLACE_ROWS")):
        patch.setattr(module, name, chunk * per_block)
    patch.setattr(stream, "OVERLAPS", overlaps)


@pytest.fixture
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    cut(monkeypatch)


@pytest.fixture(params=["cpp", "reference"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Streams by the C++ kernel and by JAX."""
    if request.param == "cpp" and not native.available():
        pytest.skip("the C++ kernel was not built here")
    monkeypatch.setattr(native, "_switched_off", request.param == "reference")
    return request.param


class Routes:
    """What a pass asked of its blocks: overlaps, and how many blocks had to give transfer operators."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Asked] = []
        self.transfers = 0
        run, transfers = Blocks.run, Blocks.transfers

        def recorded_run(blocks: Blocks, asked: Asked) -> Any:
            self.asked.append(asked)
            return run(blocks, asked)

        def recorded_transfers(blocks: Blocks, index: int) -> Any:
            self.transfers += 1
            return transfers(blocks, index)

        monkeypatch.setattr(Blocks, "run", recorded_run)
        monkeypatch.setattr(Blocks, "transfers", recorded_transfers)

    @property
    def overlaps(self) -> set[int]:
        return {asked.overlap for asked in self.asked}


@pytest.fixture
def routes(monkeypatch: pytest.MonkeyPatch) -> Routes:
    return Routes(monkeypatch)


def rows_of(blocks: Iterator[Own]) -> np.ndarray:
    """The probabilities of all rows; blocks must come in order."""
    rows, position = [], 0
    for own in blocks:
        assert own.start == position and own.probabilities is not None
        position = own.stop
        rows.append(own.probabilities)
    return np.concatenate(rows)


def check(model: Any, params: Any, data: Sequences, exact: Reference, *, atol: float = 1e-11) -> None:
    complete = model.validate(params)
    for forward_only, expected in ((False, exact.gamma), (True, exact.filtered)):
        sums = totals(model, complete, data, forward_only=forward_only)
        np.testing.assert_allclose(sums.log_likelihood, exact.log_likelihood, rtol=1e-13, atol=1e-10)
        found = rows_of(stream.stream(model, complete, data, forward_only=forward_only))
        np.testing.assert_allclose(found, expected, atol=atol)
    sums = totals(model, complete, data)
    np.testing.assert_allclose(sums.transitions, exact.transitions, atol=50 * atol)
    np.testing.assert_allclose(sums.first, exact.first, atol=atol)
    np.testing.assert_allclose(sums.natural["shift"], exact.gamma[~missing_rows(data)].sum(0), atol=50 * atol)


def missing_rows(data: Sequences) -> np.ndarray:
    return ~data.read(0, data.length).observed.any(axis=1)


def check_one_sequence(initial: np.ndarray, transition: np.ndarray, logs: np.ndarray) -> None:
    exact = reference(initial, transition, [logs])
    check(MODEL, given_params(initial, transition), open_data(logs), exact)


# Chains that forget -------------------------------------------------------------------------------------------------


def test_a_chain_that_forgets_is_exact_with_a_longer_overlap(tiny_blocks: None, backend: str, routes: Routes) -> None:
    initial, transition, logs = random_chain(1, K, T, spread=3.0)
    check_one_sequence(initial, transition, logs)
    assert routes.transfers == 0
    assert routes.overlaps == {8, 40}


def test_one_chunk_to_a_block_gives_the_same(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cut(monkeypatch, per_block=1, overlaps=(40,))
    check_one_sequence(*random_chain(2, K, T, stay=0.1))


def test_ragged_sequences_with_missing_rows_and_known_states(tiny_blocks: None, backend: str) -> None:
    initial, transition, logs = random_chain(3, K, T)
    logs[50:75] = logs[200] = logs[399] = 0.0
    values = np.where(np.all(logs == 0, axis=1)[:, None], np.nan, logs)
    states = np.full(T, -1)
    states[[0, 30, 60, 220, 398]] = [1, 2, 0, 1, 2]
    known = states >= 0
    logs = np.where(known[:, None] & (np.arange(K) != states[:, None]), -np.inf, logs)
    lengths = [1, 2, 8, 9, 33, 200, 147]
    exact = reference(initial, transition, np.split(logs, np.cumsum(lengths)[:-1]))
    check(MODEL, given_params(initial, transition), open_data(values, lengths=lengths, states=states), exact)


def test_strong_evidence_with_forbidden_transitions_needs_no_operators(
    backend: str, monkeypatch: pytest.MonkeyPatch, routes: Routes
) -> None:
    """Messages of 1e-500 and less at boundaries, lost to the linear recursion, must not force the slow route."""
    cut(monkeypatch, overlaps=(40,))
    rng = np.random.default_rng(4)
    transition = np.array([[0.6, 0.4, 0.0], [0.0, 0.7, 0.3], [0.5, 0.0, 0.5]])
    states = [0]
    for _ in range(T - 1):
        states.append(rng.choice(K, p=transition[states[-1]]))
    y = rng.normal(size=T) + 40.0 * np.array(states)
    check_one_sequence(np.full(K, 1 / 3), transition, -0.5 * (y[:, None] - 40.0 * np.arange(K)) ** 2)
    assert routes.transfers == 0


def test_the_first_chunks_tell_which_overlap_to_try(
    backend: str, monkeypatch: pytest.MonkeyPatch, routes: Routes
) -> None:
    """Where data are long, no pass over all of them is spent on an overlap that is too short from the start."""
    cut(monkeypatch, overlaps=(1, 40))
    monkeypatch.setattr(stream, "PROBE", 2)
    initial, transition, logs = random_chain(1, K, 1200, spread=3.0)
    params = given_params(initial, transition)
    found = totals(MODEL, MODEL.validate(params), open_data(logs), forward_only=True)
    np.testing.assert_allclose(found.log_likelihood, reference(initial, transition, [logs]).log_likelihood, rtol=1e-13)
    short, long = ([asked for asked in routes.asked if asked.overlap == overlap] for overlap in (1, 40))
    assert len(short) == 1 and len(long) > 30


# Chains that do not -------------------------------------------------------------------------------------------------

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


def three_turns() -> np.ndarray:
    """Evidence that is overturned again and again, always by pieces longer than a chunk and its overlap."""
    return evidence((96, 0, 5.0), (96, 1, 4.0), (96, 0, 6.0), (96, 1, 5.1), (16, 2, 1.0))


def deceptive_boundaries() -> np.ndarray:
    """The rows around some boundaries say the opposite of what their surroundings say, by hundreds of nats."""
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
    "identity, middle": (IDENTITY, evidence((150, 0, 0.0), (100, 1, 2.0), (150, 0, 0.0))),
    "identity, halves": (IDENTITY, evidence((200, 0, 5.0), (200, 1, 5.0001))),
    "identity, three turns": (IDENTITY, three_turns()),
    "identity, deceptive boundaries": (IDENTITY, deceptive_boundaries()),
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
def test_chains_that_do_not_forget_are_exact(case: str, tiny_blocks: None, backend: str, routes: Routes) -> None:
    transition, logs = HARD[case]
    check_one_sequence(np.array([0.2, 0.5, 0.3]), transition, logs)
    if case not in FORGETS_BY_SEEING:
        assert routes.transfers > 0


@pytest.mark.parametrize("most_kept", [0, 1 << 24])
def test_operators_begin_where_boundaries_first_disagree(
    most_kept: int, tiny_blocks: None, backend: str, routes: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap in the second half, too long for any overlap: the blocks before it are not run again."""
    monkeypatch.setattr(stream, "MOST_KEPT", most_kept)
    initial, transition, logs = random_chain(7, K, T, spread=3.0, stay=0.9)
    logs[250:350] = 0.0
    exact = reference(initial, transition, [logs])
    params = MODEL.validate(given_params(initial, transition))
    np.testing.assert_allclose(rows_of(stream.stream(MODEL, params, open_data(logs))), exact.gamma, atol=1e-11)
    n_blocks = -(-T // (PER_BLOCK * CHUNK))
    again = routes.transfers // (1 if most_kept else 2)
    assert 0 < again < n_blocks - 4
