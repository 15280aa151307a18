"""The fused GPU kernel, run without a GPU, against the reference in double precision on the same windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backends.pallas.problems import (
    CORE,
    Problem,
    categories,
    counts,
    gaussian,
    lowered_problem,
    matrix,
    quickly,
    statistics_by,
    windows,
)
from longhmm import Gaussian, Poisson
from longhmm.backends.pallas import windows as pallas
from longhmm.backends.pallas.plan import Config
from longhmm.backends.protocol import PRECOMPUTED, Boundary, ChunkStatistics, Potentials, Wanted
from longhmm.data.layout import Layout

# Float32 recursions over a dozen rows, and sums of at most that many terms.
TOLERANCE = {"rtol": 2e-4, "atol": 2e-4}
PER_CHUNK = Wanted(per_chunk=True)
SPLIT, LOOPED = Config(splits=4, tile=2), Config(held=False, splits=4, tile=2)


def check(found: ChunkStatistics, expected: ChunkStatistics) -> None:
    np.testing.assert_allclose(found.log_likelihood, expected.log_likelihood, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.first, expected.first, atol=1e-5)
    for name in ("transitions", "centred", "sums"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), err_msg=name, **TOLERANCE)


@pytest.mark.parametrize(
    ("made", "config"),
    [
        (partial(gaussian, 1, 1, missing=False), None),
        pytest.param(partial(gaussian, 2, 2, kind="diagonal"), None, marks=pytest.mark.slow),
        (partial(gaussian, 3, 3), SPLIT),
        pytest.param(partial(gaussian, 4, 2), None, marks=pytest.mark.slow),
        pytest.param(partial(gaussian, 8, 2), None, marks=pytest.mark.slow),
        pytest.param(partial(gaussian, 17, 1, missing=False), None, marks=pytest.mark.slow),
        (partial(counts, 3), LOOPED),
        (partial(categories, 3), None),
    ],
    ids=["one state", "diagonal", "split", "four states", "eight states", "many states", "poisson", "categories"],
)
def test_every_window_equals_the_reference(made: Callable[[], Problem], config: Config | None) -> None:
    problem, layout = made(), windows()

    @quickly
    def run(narrow: Problem, layout: Layout) -> ChunkStatistics:
        return pallas.statistics(
            narrow.potentials, layout, Boundary(start=narrow.start), None, PER_CHUNK, config=config
        )

    check(run(problem.narrow(), layout), problem.expected(layout, PER_CHUNK))


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


def test_common_transitions_leave_no_rounding_for_those_that_are_never_seen() -> None:
    """Counts of a hundred thousand cancel in the excess of a transition that is expected a tenth of a time."""
    rate, weight = np.array([2.0, 30.0, 200.0, 900.0]), 1e4
    y = np.random.default_rng(1).poisson(rate[np.repeat([0, 1, 0], [14, 15, 11])])[:, None]
    rows = np.array([[0.99 - 6e-7, 0.01, 3e-7, 3e-7], [0.01, 0.99 - 6e-7, 3e-7, 3e-7], [0.25] * 4, [0.25] * 4])
    problem = lowered_problem(Poisson(), {"rate": rate}, y, missing=False)
    # Numbers that both precisions hold alike.
    potentials = replace(problem.potentials, transition=rows)
    problem = problem._replace(potentials=potentials, start=np.array([0.5, 0.5, 0.0, 0.0]))
    problem = jax.tree.map(lambda each: np.float32(each).astype(np.float64), problem)
    layout = windows()
    exact = weight * problem.expected(layout, PER_CHUNK).transitions.sum(0)
    wide = problem.potentials.transition / problem.potentials.transition.sum(1, keepdims=True)
    expected = exact - wide * exact.sum(1, keepdims=True)
    weights = jnp.full(layout.size, weight, jnp.float32)
    found = quickly(lambda narrow: statistics_by(pallas, narrow, layout, Wanted(), weights))(problem.narrow()).centred
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found[:2, 2:], expected[:2, 2:], rtol=1e-4)
    np.testing.assert_allclose(found.sum(1), 0.0, atol=1e-3)
    assert np.abs(expected[:2, 2:]).max() < 0.1 and exact.max() > 1e5


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
