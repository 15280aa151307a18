"""Streams cut into many tiny blocks against one NumPy recursion, for chains that forget and for chains that do not."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longhmm as lh
from backends.chains import (
    CHUNK,
    FORGETS_BY_SEEING,
    HARD,
    MODEL,
    PER_BLOCK,
    K,
    T,
    cut,
    rows_of,
)
from backends.references import Reference, given_model, given_params, random_chain, reference
from longhmm.backends import native, stream
from longhmm.backends.block import Asked, Blocks
from longhmm.backends.stream import Stretches, totals
from longhmm.data.sequences import Sequences, open_data


class Routes:
    """What a pass asked of its blocks: overlaps, and how many blocks had to give transfer operators."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Asked] = []
        self.transfers = 0
        run = Blocks.run

        def recorded(blocks: Blocks, asked: Asked) -> Any:
            if asked.operators:
                self.transfers += 1
            else:
                self.asked.append(asked)
            return run(blocks, asked)

        monkeypatch.setattr(Blocks, "run", recorded)

    @property
    def overlaps(self) -> set[int]:
        return {asked.overlap for asked in self.asked}


@pytest.fixture
def routes(monkeypatch: pytest.MonkeyPatch) -> Routes:
    return Routes(monkeypatch)


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
    return ~data.rows(0, data.length).observed.any(axis=1)


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


def test_of_shorter_data_the_first_chunks_tell_once_the_shortest_overlap_has_failed(
    backend: str, monkeypatch: pytest.MonkeyPatch, routes: Routes
) -> None:
    cut(monkeypatch, overlaps=(1, 2, 40))
    monkeypatch.setattr(stream, "PROBE", 20)
    initial, transition, logs = random_chain(1, K, 1200, spread=3.0)
    params = given_params(initial, transition)
    found = totals(MODEL, MODEL.validate(params), open_data(logs), forward_only=True)
    np.testing.assert_allclose(found.log_likelihood, reference(initial, transition, [logs]).log_likelihood, rtol=1e-13)
    tried = {overlap: [asked.inner for asked in routes.asked if asked.overlap == overlap] for overlap in (1, 2, 40)}
    assert not any(tried[1]) and tried[2] == [True]
    assert tried[40][0] and not any(tried[40][1:]) and len(tried[40]) > 30


# Chains that do not -------------------------------------------------------------------------------------------------


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


def test_an_own_density_is_differentiated_in_shares_of_a_block(routes: Routes) -> None:
    """Of the attempt that agrees only; as the fused family has it, whose density is the same."""
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.normal(size=1000)) % 3.0 + rng.normal(size=1000)
    y[[5, 700]] = np.nan
    shape = {"transition": [[0.95, 0.05], [0.1, 0.9]]}
    own = lh.HMM(2, lh.Emission(dist.Normal, loc=dist.Normal(0.0, 5.0), scale=dist.LogNormal(0.0, 1.0)))
    fused = lh.HMM(2, lh.Gaussian())
    found = lh.gradient(own, {**shape, "loc": [0.5, 2.0], "scale": [1.0, 1.5]}, y, prior=False)
    assert [asked.overlap for asked in routes.asked] == [32, 128]
    expected = lh.gradient(fused, {**shape, "mean": [0.5, 2.0], "sd": [1.0, 1.5]}, y, prior=False)
    for name, other in {"transition": "transition", "loc": "mean", "scale": "sd"}.items():
        np.testing.assert_allclose(found[name], expected[other], rtol=1e-10)


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
@pytest.mark.slow
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
        if off:
            patch.setattr(native, "available", lambda: False)
        cut(patch, chunk=4, overlaps=(12,))
        check(MODELS[n_states], given_params(initial, transition), open_data(values, lengths=lengths), exact)


@pytest.mark.parametrize(("overlap", "propagates"), [(8, True), (100, False)])
def test_nothing_is_kept_of_a_block_when_the_next_is_run(
    overlap: int, propagates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory serves the next one: the system takes long to give as much anew."""
    cut(monkeypatch, overlaps=(overlap,))
    seen: list[weakref.ref[Any]] = []
    run, operators = Blocks.run, 0

    def watched(blocks: Blocks, asked: Asked) -> Any:
        nonlocal operators
        operators += asked.operators
        assert not any(each() is not None for each in seen)
        return run(blocks, asked)

    monkeypatch.setattr(Blocks, "run", watched)
    values = np.random.default_rng(0).normal(size=5 * CHUNK * PER_BLOCK)
    for own in stream.stream(STRETCHED, STRETCHED_PARAMS, open_data(values)):
        seen.append(weakref.ref(own.probabilities))
        del own
    assert len(seen) == 5 and (operators > 0) == propagates


# Stretches -----------------------------------------------------------------------------------------------------------

STRETCHED = lh.HMM(2, lh.Gaussian(sd=1.0, mean=dist.Normal(0.0, 5.0)))
STRETCHED_PARAMS = STRETCHED.validate({"transition": [[0.95, 0.05], [0.1, 0.9]], "mean": [-1.0, 1.0]})


@pytest.mark.parametrize(("length", "count"), [(1, 5), (7, 3), (1000, 10), (5000, 7)])
def test_stretches_end_where_the_data_up_to_there_do(length: int, count: int) -> None:
    values = np.random.default_rng(0).normal(size=length)
    stretches = Stretches(STRETCHED, open_data(values), count)
    found = stretches.log_likelihoods(STRETCHED_PARAMS)
    assert len(found) == min(count, length) and stretches.seen == length and np.all(found < 0)
    assert found.sum() == pytest.approx(lh.log_likelihood(STRETCHED, STRETCHED_PARAMS, values), rel=1e-11)
    if length % count == 0:
        first = values[: length // count]
        assert found[0] == pytest.approx(lh.log_likelihood(STRETCHED, STRETCHED_PARAMS, first), rel=1e-11)


def test_stretches_of_many_sequences_with_missing_rows() -> None:
    rng = np.random.default_rng(1)
    values = [rng.normal(size=n) for n in (3, 400, 1, 96)]
    values[1][10:20] = np.nan
    stretches = Stretches(STRETCHED, open_data(values), 5)
    found = stretches.log_likelihoods(STRETCHED_PARAMS)
    assert found.sum() == pytest.approx(lh.log_likelihood(STRETCHED, STRETCHED_PARAMS, values), rel=1e-11)
    assert stretches.seen == 490
