"""The fused GPU kernel, run without a GPU, against the reference in double precision on the same windows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from backends.pallas.problems import (
    CORE,
    PER_CHUNK,
    Problem,
    check,
    lowered_problem,
    matrix,
    quickly,
    statistics_by,
    windows,
)
from longhmm import Gaussian
from longhmm.backends.pallas import windows as pallas
from longhmm.backends.protocol import PRECOMPUTED, ChunkStatistics, Potentials, Wanted


def jumping() -> Problem:
    """A jump of probability 1e-30 there and back: single precision cannot hold the messages of that window."""
    y = np.random.default_rng(0).normal(size=(40, 1)).astype(np.float32)
    y[8:10] += 60.0
    params = {"mean": np.array([0.0, 8.0]), "sd": np.ones(2)}
    found = lowered_problem(Gaussian(), params, y.astype(np.float64), missing=False)
    transition = np.array([[1 - 1e-30, 1e-30], [1e-30, 1 - 1e-30]])
    return found._replace(potentials=replace(found.potentials, transition=transition))


def test_chains_share_a_call_and_lost_windows_are_redone() -> None:
    """Through the protocol, and with the stationary distribution, found by the backend, before windows."""
    problem, layout = jumping(), windows()
    expected = problem.expected(layout, PER_CHUNK)
    assert expected.log_likelihood.min() < -100
    chains = np.array([[0, 1, 4], [3, 2, 1]])
    weights = np.array([[1.0, 2.0, 0.5], [3.0, 0.25, 7.0]], np.float32)
    own = jax.tree.map(lambda *parts: np.stack(parts), *(windows(cells) for cells in chains))

    @quickly
    def run(narrow: Problem) -> ChunkStatistics:
        by_chain = partial(statistics_by, pallas, narrow._replace(start=None))
        return jax.vmap(lambda layout, weights: by_chain(layout, Wanted(), weights))(own, weights)

    found = run(problem.narrow())
    for chain, cells in enumerate(chains):
        part = jax.tree.map(lambda each: np.tensordot(weights[chain], each[cells], 1), expected[:5])  # noqa: B023
        check(ChunkStatistics(*(each[chain] for each in found[:5]), *[None] * 4), ChunkStatistics(*part, *[None] * 4))


def precomputed() -> Problem:
    rng = np.random.default_rng(3)
    logs = 2.0 * rng.normal(size=(40, 2))
    logs[7] = np.nan
    return Problem(Potentials(logs, None, matrix(2, rng), np.array([0.4, 0.6]), PRECOMPUTED, 2), np.array([0.3, 0.7]))


def test_precomputed_log_likelihoods_and_posteriors_of_their_rows() -> None:
    problem, layout = precomputed(), windows()
    wanted = PER_CHUNK._replace(gamma=40)
    found = quickly(lambda narrow: statistics_by(pallas, narrow, layout, wanted))(problem.narrow())
    expected = problem.expected(layout, wanted)
    check(found, expected)
    np.testing.assert_allclose(found.gamma, expected.gamma, atol=1e-5)
    # Rows that belong to no core have none.
    inner = windows(np.array([1]))
    alone = np.asarray(quickly(lambda narrow: statistics_by(pallas, narrow, inner, wanted))(problem.narrow()).gamma)
    np.testing.assert_allclose(alone.sum(axis=1), (np.arange(40) // CORE == 1), atol=1e-5)


def test_what_the_kernel_does_not_give_the_reference_does() -> None:
    problem, layout = precomputed(), windows()
    wanted = Wanted(forward_only=True, gamma=40, messages=True)
    found = quickly(lambda narrow: statistics_by(pallas, narrow, layout, wanted))(problem.narrow())
    expected = problem.expected(layout, wanted)
    np.testing.assert_allclose(found.log_likelihood, expected.log_likelihood, rtol=1e-5)
    np.testing.assert_allclose(found.gamma, expected.gamma, atol=1e-5)
    np.testing.assert_allclose(np.exp(found.messages.forward_out), np.exp(expected.messages.forward_out), atol=1e-5)


def test_who_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    single, double = np.dtype(np.float32), np.dtype(np.float64)
    monkeypatch.setattr(pallas, "usable", lambda: False)  # whether or not there is a GPU here
    assert not pallas.supports(PRECOMPUTED, 2, False, single)
    monkeypatch.setattr(pallas, "usable", lambda: True)
    assert pallas.supports(PRECOMPUTED, 2, False, single) and pallas.supports(PRECOMPUTED, 32, False, single)
    refused = [(PRECOMPUTED, 2, False, double), (PRECOMPUTED, 33, False, single), (PRECOMPUTED, 2, True, single)]
    assert not any(pallas.supports(*each) for each in (*refused, (PRECOMPUTED + 1, 2, False, single)))
