"""Streams cut into many tiny blocks against one NumPy recursion, for chains that forget and for chains that do not."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longhmm as lh
from backends.references import Reference, given_model, given_params, random_chain, reference
from longhmm.backends import block, native, read, stitch, stream
from longhmm.backends.block import Asked, Blocks, Own
from longhmm.backends.stream import Stream, totals
from longhmm.data.executor import Here, Task
from longhmm.data.sequences import Sequences, open_data

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
# Thousands of nats: messages whose smallest entries no linear number can hold.
HARD["identity, vast turn"] = (IDENTITY, evidence((100, 0, 10.0), (200, 1, 10.0), (100, 2, 1.0)))
HARD["identity, vast and deceptive"] = (
    IDENTITY,
    evidence((96, 1, 30.0), (8, 1, -250.0), (32, 1, 30.0), (8, 1, -250.0), (256, 0, 0.0)),
)
FORGETS_BY_SEEING = {"slow, halves", "hardly ever, halves", "hardly ever, three turns"}


@pytest.mark.parametrize("case", HARD)
def test_chains_that_do_not_forget_are_exact(case: str, tiny_blocks: None, backend: str, routes: Routes) -> None:
    transition, logs = HARD[case]
    check_one_sequence(np.array([0.2, 0.5, 0.3]), transition, logs)
    if case not in FORGETS_BY_SEEING:
        assert routes.transfers > 0


@pytest.mark.parametrize("case", [name for name in HARD if "vast" in name])
def test_the_only_way_on_is_never_lost_within_a_chunk(case: str, backend: str) -> None:
    transition, logs = HARD[case]
    check_one_sequence(np.array([0.2, 0.5, 0.3]), transition, logs)


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
    ("broken", "nothing", "per_block", "cases"),
    [
        ("forward_gap", np.zeros(PER_BLOCK - 1), PER_BLOCK, list(HARD.values())),
        ("posterior_gap", np.zeros(PER_BLOCK - 1), PER_BLOCK, [(0.97 * np.eye(K) + 0.01, quiet_beginnings())]),
        ("blocks_agree", True, 1, list(HARD.values())),
        ("open_gap", np.zeros(()), 1, [(IDENTITY, late_evidence())]),
    ],
)
def test_every_comparison_of_boundaries_is_needed(
    broken: str,
    nothing: Any,
    per_block: int,
    cases: list[tuple[np.ndarray, np.ndarray]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All is well with it and not without it, so these tests can fail."""
    monkeypatch.setattr(native, "_switched_off", True)
    cut(monkeypatch, per_block=per_block, overlaps=(4,) if broken == "posterior_gap" else (8, 40))
    forward_only = broken in ("forward_gap", "blocks_agree")  # what these alone see is the likelihood

    def wrong() -> int:
        block._run.clear_cache()
        count = 0
        for transition, logs in cases:
            initial = np.array([0.2, 0.5, 0.3])
            exact = reference(initial, transition, [logs])
            params = MODEL.validate(given_params(initial, transition))
            found = rows_of(stream.stream(MODEL, params, open_data(logs), forward_only=forward_only))
            count += not np.allclose(found, exact.filtered if forward_only else exact.gamma, atol=1e-11)
        return count

    assert wrong() == 0
    at = {"blocks_agree": stream, "open_gap": block}.get(broken, stitch)
    monkeypatch.setattr(at, broken, lambda *arguments: nothing)
    assert wrong() > 0
    block._run.clear_cache()


# All sorts ----------------------------------------------------------------------------------------------------------

MODELS = {n_states: given_model(n_states) for n_states in (1, 2, 5)}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    n_states=st.sampled_from(sorted(MODELS)),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    seed=st.integers(0, 10_000),
    missing=st.floats(0, 1),
    spread=st.sampled_from([0.01, 1.0, 20.0, 500.0]),
    stay=st.sampled_from([0.0, 0.9, 1.0]),
    off=st.booleans(),
)
def test_any_shape(
    n_states: int, lengths: list[int], seed: int, missing: float, spread: float, stay: float, off: bool
) -> None:
    rng = np.random.default_rng(seed)
    lengths = [*lengths, 33]  # more than one block, so that one compiled program serves all examples
    initial, transition, logs = random_chain(seed, n_states, sum(lengths), spread=spread, stay=stay)
    logs[rng.random(len(logs)) < missing] = 0.0
    values = np.where(np.all(logs == 0, axis=1)[:, None], np.nan, logs)
    exact = reference(initial, transition, np.split(logs, np.cumsum(lengths)[:-1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_switched_off", off)
        cut(patch, chunk=4, overlaps=(12,))
        check(MODELS[n_states], given_params(initial, transition), open_data(values, lengths=lengths), exact)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    chunk=st.sampled_from([1, 4, 8]),
    per_block=st.sampled_from([1, 2, 8]),
)
def test_every_row_lies_in_one_block(lengths: list[int], chunk: int, per_block: int) -> None:
    data = open_data(np.zeros((sum(lengths), K)), lengths=lengths)
    with pytest.MonkeyPatch.context() as patch:
        cut(patch, chunk=chunk, per_block=per_block)
        blocks = Stream(MODEL, MODEL.validate(given_params(np.full(K, 1 / K), CYCLE)), data).blocks
    begins = [start for s, e in pairwise(data.offsets) for start in range(s, e, chunk)]
    bounds = [blocks.bounds(index) for index in range(blocks.n_blocks)]
    assert [start for start, _ in bounds] == begins[::per_block]
    assert [stop for _, stop in bounds] == [*begins[per_block::per_block], data.length]
    joined = np.concatenate([blocks.joined(index) for index in range(blocks.n_blocks)])[: len(begins)]
    np.testing.assert_array_equal(joined, ~np.isin(begins, data.offsets))


# What is made of blocks, and where ----------------------------------------------------------------------------------


def collect_rows(model: Any, params: Any, rows: Any, weights: Any) -> Any:
    return rows.values[:, 0], weights


def collect_sums(model: Any, params: Any, rows: Any, weights: Any) -> Any:
    return jnp.einsum("tk,td->kd", weights, jnp.where(rows.observed, rows.values, 0.0))


def six_states() -> tuple[lh.HMM, dict[str, np.ndarray], np.ndarray]:
    """Five rows and six states, so that nothing can be mistaken for something else of the same length."""
    initial, transition, logs = random_chain(5, 6, 5)
    return given_model(6), given_model(6).validate(given_params(initial, transition)), logs


def test_collectors_give_sums_or_rows(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, params, logs = six_states()
    exact = reference(params["initial"], params["transition"], [logs])
    for rows in (1 << 18, 2):
        monkeypatch.setattr(read, "COPIED_ROWS", rows)
        monkeypatch.setattr(stream, "COPIED_ROWS", rows)
        monkeypatch.setattr(stream, "LEAST_CHUNK", 2)
        found = totals(model, params, open_data(logs), collect_sums)
        np.testing.assert_allclose(found.collected, exact.gamma.T @ logs, atol=1e-11)
        owns = list(stream.stream(model, params, open_data(logs), collect_rows))
        np.testing.assert_array_equal(np.concatenate([own.collected[0] for own in owns]), logs[:, 0])
        np.testing.assert_allclose(np.concatenate([own.collected[1] for own in owns]), exact.gamma, atol=1e-11)


def test_a_reducer_is_told_where_sequences_begin_and_what_came_before(tiny_blocks: None, backend: str) -> None:
    initial, transition, logs = random_chain(8, K, T, spread=3.0)
    lengths = [100, 1, 299]
    exact = reference(initial, transition, np.split(logs, np.cumsum(lengths)[:-1]))
    params = MODEL.validate(given_params(initial, transition))
    openings, inside = [], 0
    for own in stream.stream(MODEL, params, open_data(logs, lengths=lengths), reduce=lambda own: own):
        openings += (own.start + own.openings).tolist()
        if own.start not in (0, 100, 101):
            before = np.exp(own.before - own.before.max())
            np.testing.assert_allclose(before / before.sum(), exact.filtered[own.start - 1], atol=1e-11)
            inside += 1
    assert openings == [0, 100, 101] and inside > 5


class Elsewhere(Here):
    """As if in another process: work and what it is given are sent, and blocks behind the next one are run ahead."""

    here = False

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def run(self, work: Any, model: Any, sequences: Sequences, tasks: Any) -> Iterator[Any]:
        asked = list(tasks)
        self.tasks += asked
        one = pickle.loads(pickle.dumps(work))(model, sequences)
        return iter([one(pickle.loads(pickle.dumps(task.argument))) for task in asked])


@pytest.mark.parametrize("case", ["identity, late", "slow, halves"])
def test_another_executor_gives_the_same_bits(case: str, tiny_blocks: None, backend: str) -> None:
    transition, logs = HARD[case]
    params = MODEL.validate(given_params(np.full(K, 1 / K), transition))
    here, there = open_data(logs), open_data(logs)
    there.executor = elsewhere = Elsewhere()
    assert totals(MODEL, params, there).log_likelihood == totals(MODEL, params, here).log_likelihood
    assert not any(task.gives_rows for task in elsewhere.tasks)
    elsewhere.tasks.clear()
    found, expected = (rows_of(stream.stream(MODEL, params, data)) for data in (there, here))
    np.testing.assert_array_equal(found, expected)
    assert any(task.gives_rows for task in elsewhere.tasks)
    own = PER_BLOCK * CHUNK
    for task in elsewhere.tasks:
        assert task.start % own in (0, own - 8, own - 40 % own) and task.stop <= T
