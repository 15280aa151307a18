"""Estimators: unbiased, exact where they must be, biased where theory says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

import longhmm as lh
from longhmm.data.layout import Partition, gather
from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.target.buffer_report import Blocks
from longhmm.target.buffered import (
    IID,
    FullData,
    only_row,
    stationary_start,
    uniform_start,
    windows_of,
)
from longhmm.target.control_variate import ControlVariate
from longhmm.target.coordinates import score
from longhmm.target.minibatch import Minibatch
from longhmm.target.target import Target
from target.references import (
    Coordinates,
    batch_means,
    differences,
    flat,
    normal_logs,
    normal_model,
    simulate_normal,
    stationary_law,
)

# A stationary initial law and a forbidden transition: everything that the ends of sequences can get wrong.
PRIOR = np.array([[2.0, 1.0, 1.0], [1.0, 3.0, 1.0], [1.0, 1.0, 0.0]])
MODEL = normal_model(3, transition_prior=PRIOR, initial="stationary")
PARAMS = {
    "transition": np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.5, 0.5, 0.0]]),
    "loc": np.array([-1.0, 0.3, 2.0]),
}
LENGTHS = [1, 2, 300, 7, 90, 1]


@cache
def ragged() -> Sequences:
    y = np.random.default_rng(1).normal(size=sum(LENGTHS)) * 1.5
    y[np.random.default_rng(2).random(len(y)) < 0.1] = np.nan
    return open_data(y, lengths=LENGTHS)


def close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Within a tolerance relative to the size of the whole gradient."""
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max(), (found, expected)


# Blocks add up to everything -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("half_width", "buffer", "tolerance"), [(2, 80, 1e-9), (2, 300, 1e-12), (0, 80, 1e-9)])
def test_all_cells_with_long_buffers_give_the_full_gradient(half_width: int, buffer: int, tolerance: float) -> None:
    cells = Partition(ragged().offsets, 2 * half_width + 1)
    complete = MODEL.validate(PARAMS)
    every = np.arange(cells.n_blocks)
    found, _ = Blocks(MODEL, complete, ragged(), cells, every).scores(buffer, stationary_start, width=300)
    close(found.sum(axis=0), flat(lh.gradient(MODEL, PARAMS, ragged(), prior=False)), tolerance)


@pytest.mark.parametrize("given", [None, [0.05, 0.05, 0.9]])
def test_a_minibatch_of_every_cell_is_the_full_gradient(given: list[float] | None) -> None:
    """S = N: first observations, sequences of length 1 and sequences shorter than a window, in single precision."""
    params = PARAMS if given is None else {**PARAMS, "initial": given}
    windows, buffer = lh.Windows(half_width=2, count=10_000), lh.FixedBuffer(60)
    exact = flat(lh.gradient(MODEL, params, ragged()))
    for estimator in (
        lh.Buffered(windows, buffer),
        lh.Buffered(windows, buffer, uniform_start),
        FullData(),
    ):
        close(flat(lh.gradient(MODEL, params, ragged(), estimator=estimator)), exact, 2e-5)
    if given is not None:
        own = flat(lh.gradient(MODEL, PARAMS, ragged()))
        assert np.abs(own - exact).max() > 1e-2 * np.abs(exact).max()  # so that a forgotten law would be seen


def test_windows_that_hold_whole_sequences_need_no_buffer() -> None:
    sequences = open_data(np.random.default_rng(4).normal(size=30), lengths=[1, 5, 4, 2, 5, 5, 3, 1, 4])
    estimator = lh.Buffered(lh.Windows(half_width=2, count=9), lh.FixedBuffer(0), uniform_start)
    found = flat(lh.gradient(MODEL, PARAMS, sequences, estimator=estimator, prior=False))
    close(found, flat(lh.gradient(MODEL, PARAMS, sequences, prior=False)), 1e-5)


# Of one total length, so that one compiled program serves them all.
RAGGED = [each for each in product(range(1, 9), repeat=4) if sum(each) == 20]
COUNTED = {n_states: normal_model(n_states) for n_states in (1, 2, 3)}


@settings(max_examples=25, deadline=None)
@given(
    n_states=st.integers(1, 3),
    lengths=st.sampled_from(RAGGED),
    missing=st.lists(st.booleans(), min_size=20, max_size=20),
    seed=st.integers(0, 10**6),
)
def test_one_window_for_each_sequence_is_exact(
    n_states: int, lengths: tuple[int, ...], missing: list[bool], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    y = np.where(missing, np.nan, rng.normal(size=20) * 2)
    params = {
        "transition": rng.dirichlet(np.ones(n_states), size=n_states),
        "loc": np.sort(rng.normal(size=n_states) * 2),
    }
    sequences = open_data(y, lengths=lengths)
    estimator = lh.Buffered(lh.Windows(half_width=4, count=4), lh.FixedBuffer(1))
    model = COUNTED[n_states]
    found = flat(lh.gradient(model, params, sequences, estimator=estimator))
    exact = flat(lh.gradient(model, params, sequences))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, exact, rtol=2e-4, atol=2e-4)


# Random minibatches -------------------------------------------------------------------------------------------------


def many(bound: Target, model: HMM, params: dict, number: int, seed: int = 0, prior: bool = True) -> np.ndarray:
    """Gradients `(number, P)` of as many minibatches."""
    coordinates = jax.tree.map(jnp.asarray, lh.unconstrain(model, params))

    def one(key: jax.Array) -> jax.Array:
        seen = bound.estimate(coordinates, bound.minibatch(key))
        found = seen.gradient if prior else seen.likelihood
        return jnp.concatenate([jnp.ravel(found[name]) for name in sorted(found)])

    keys = jax.random.split(jax.random.key(seed), number)
    return np.asarray(jax.jit(jax.vmap(one))(keys), np.float64)


WINDOWS, BUFFER = lh.Windows(half_width=2, count=4), lh.FixedBuffer(32)


@cache
def buffered_draws() -> np.ndarray:
    return many(lh.Buffered(WINDOWS, BUFFER).bind(MODEL, ragged(), PARAMS), MODEL, PARAMS, 4000)


def assert_mean(draws: np.ndarray, exact: np.ndarray) -> np.ndarray:
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - exact) < 4 * error).all(), (draws.mean(axis=0) - exact) / error
    return error


def test_the_mean_over_minibatches_is_the_full_gradient() -> None:
    exact = flat(lh.gradient(MODEL, PARAMS, ragged()))
    error = assert_mean(buffered_draws(), exact)
    assert (np.abs(exact) > 20 * error).sum() >= 3  # the test could tell a weight that is off by a fifth


def test_iid_against_finite_differences_of_a_mixture() -> None:
    space = Coordinates(MODEL, PARAMS)
    y = ragged().rows(0, ragged().length).values

    def mixture(vector: np.ndarray) -> float:
        natural = space.to_natural(vector)
        logs = normal_logs(natural["loc"], y)
        with np.errstate(divide="ignore"):
            return float(logsumexp(np.log(natural["transition"].mean(axis=0)) + logs, axis=1).sum())

    def mixture_score(params: dict, minibatch: Minibatch) -> dict:
        found = windows_of(MODEL, params, minibatch, minibatch.weights, only_row)
        return score(MODEL, MODEL.unconstrain(params), found)

    expected = differences(mixture, space.vector)
    cells = Partition(ragged().offsets, 5)
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(value) for name, value in MODEL.validate(PARAMS).items()}
        rows, layout = gather(ragged(), cells.locate(np.arange(cells.n_blocks), 0), 5)
        minibatch = Minibatch(rows, replace(layout, spans=(0, 5, 0)), np.ones(cells.n_blocks))
        found = flat(jax.jit(mixture_score)(arrays, minibatch))
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)

    whole = IID(lh.Windows(half_width=2, count=10_000))
    close(flat(lh.gradient(MODEL, PARAMS, ragged(), estimator=whole, prior=False)), expected, 1e-5)
    assert_mean(many(IID(WINDOWS).bind(MODEL, ragged(), PARAMS), MODEL, PARAMS, 4000, prior=False), expected)


def test_iid_with_a_state_that_nothing_leads_to() -> None:
    prior = np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    model = normal_model(3, transition_prior=prior)
    params = {"transition": [[0, 0.5, 0.5], [0, 0.2, 0.8], [0, 0.6, 0.4]], "loc": [-1.0, 0.0, 1.0]}
    found = lh.gradient(model, params, ragged(), estimator=IID(WINDOWS), prior=False)
    assert np.isfinite(flat(found)).all()
    assert found["loc"][0] == 0.0


# Control variates ---------------------------------------------------------------------------------------------------

NEAR = {"transition": np.array([[0.81, 0.14, 0.05], [0.1, 0.71, 0.19], [0.49, 0.51, 0.0]]), "loc": PARAMS["loc"] + 0.02}


def test_control_variate_is_exact_at_its_centre() -> None:
    """For every minibatch, and with no buffer at all."""
    bound = ControlVariate(WINDOWS, lh.FixedBuffer(0)).bind(MODEL, ragged(), PARAMS)
    draws = many(bound, MODEL, PARAMS, 50)
    exact = flat(lh.gradient(MODEL, PARAMS, ragged()))
    for draw in draws:
        close(draw, exact, 1e-5)


def test_control_variate_is_unbiased_near_its_centre_with_much_less_noise() -> None:
    bound = ControlVariate(WINDOWS, BUFFER, centre=PARAMS).bind(MODEL, ragged(), NEAR)
    draws = many(bound, MODEL, NEAR, 4000)
    assert_mean(draws, flat(lh.gradient(MODEL, NEAR, ragged())))
    plain = many(lh.Buffered(WINDOWS, BUFFER).bind(MODEL, ragged(), NEAR), MODEL, NEAR, 2000)
    ratio = draws.var(axis=0) / plain.var(axis=0)
    assert (ratio < 0.02).all(), ratio  # measured: below 0.01
    assert (ratio > 0).all()


def test_control_variate_keeps_the_initial_law_of_the_parameters() -> None:
    law = [0.05, 0.05, 0.9]
    given, near = {**PARAMS, "initial": law}, {**NEAR, "initial": law}
    every = lh.Windows(half_width=2, count=10_000)
    found = lh.gradient(MODEL, near, ragged(), estimator=ControlVariate(every, lh.FixedBuffer(60), centre=PARAMS))
    close(flat(found), flat(lh.gradient(MODEL, near, ragged())), 2e-5)
    bound = ControlVariate(WINDOWS, BUFFER).bind(MODEL, ragged(), given)
    close(many(bound, MODEL, given, 3)[0], flat(lh.gradient(MODEL, given, ragged())), 1e-5)


# Starts and bias ----------------------------------------------------------------------------------------------------

SLOW = np.array([[0.99, 0.01], [0.04, 0.96]])
MEANS = np.array([-0.5, 0.5])
PAIR = normal_model(2, initial="stationary")
LENGTH = 150_000


@cache
def slow_data() -> Sequences:
    return open_data(simulate_normal(SLOW, MEANS, LENGTH, seed=11))


def cell_scores(params: dict, buffer: int, start: Callable) -> np.ndarray:
    cells = Partition(slow_data().offsets, 5)
    every = np.arange(cells.n_blocks)
    return Blocks(PAIR, PAIR.validate(params), slow_data(), cells, every).scores(buffer, start, width=125)[0]


def test_stationary_starts_have_scores_of_mean_zero_at_the_truth_without_any_buffer() -> None:
    truth = {"transition": SLOW, "loc": MEANS}
    mean, error = batch_means(cell_scores(truth, 0, stationary_start))
    assert (np.abs(mean) < 4 * error).all(), mean / error
    mean, error = batch_means(cell_scores(truth, 0, uniform_start))
    assert np.abs(mean / error).max() > 20, mean / error


def test_without_a_buffer_scores_are_biased_away_from_the_truth() -> None:
    away = {"transition": np.array([[0.9, 0.1], [0.2, 0.8]]), "loc": np.array([-0.8, 0.7])}
    exact = cell_scores(away, 60, stationary_start)
    mean, error = batch_means(cell_scores(away, 0, stationary_start) - exact)
    assert np.abs(mean / error).max() > 20, mean / error
    chosen = lh.LyapunovBuffer(tolerance=1e-3).estimate(PAIR, away, slow_data()).length
    left, _ = batch_means(cell_scores(away, chosen, stationary_start) - exact)
    assert np.abs(left).max() < 1e-3 * np.abs(mean).max()


def test_the_law_before_a_window_is_the_stationary_one() -> None:
    with jax.enable_x64(True):
        found = np.asarray(stationary_start({"transition": jnp.asarray(SLOW)}))
    np.testing.assert_allclose(found, stationary_law(SLOW), rtol=1e-9)
    np.testing.assert_array_equal(uniform_start({"transition": jnp.asarray(SLOW)}), [0.5, 0.5])


# Contract -----------------------------------------------------------------------------------------------------------


def test_equal_seeds_give_equal_estimates() -> None:
    estimator = lh.Buffered(WINDOWS, BUFFER)
    first, again, other = (flat(lh.gradient(MODEL, PARAMS, ragged(), estimator=estimator, seed=s)) for s in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_data_of_another_dimension_are_refused() -> None:
    for estimator in (
        lh.Buffered(WINDOWS, BUFFER),
        lh.Buffered(),
        IID(),
        FullData(),
        ControlVariate(),
    ):
        with pytest.raises(ModelError, match="2 feature"):
            estimator.bind(MODEL, open_data(np.zeros((50, 2))), PARAMS)


def test_values_and_states_that_the_model_cannot_have_are_refused(tmp_path):
    model = lh.HMM(2, lh.Poisson())
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
    counts = np.ones((200, 1), int)
    counts[150] = -3
    with pytest.raises(lh.errors.DataError, match="row 150 of the array is -3, but a Poisson emission needs"):
        lh.gradient(model, params, counts, prior=False, estimator=lh.Buffered(lh.Windows(1, 3), lh.FixedBuffer(2)))
    np.save(tmp_path / "counts.npy", np.full((200, 1), -3))
    with pytest.raises(lh.errors.DataError, match=r"window of .*counts.npy is -3"):
        lh.gradient(
            model, params, tmp_path / "counts.npy", prior=False,
            estimator=lh.Buffered(lh.Windows(1, 3), lh.FixedBuffer(2)),
        )  # fmt: skip
    known = lh.open_data(np.ones((20, 1), int), states=np.full(20, 2))
    with pytest.raises(
        lh.errors.DataError, match="known state at row 0 of the array is 2, but the model has states 0 to 1"
    ):
        lh.log_likelihood(model, params, known)
