"""Differences of window scores: the fused kernel and the reference say the same."""

import jax
import numpy as np
import pytest

import longhmm as lh
from longhmm.backends import evaluate, native
from longhmm.backends import reference as in_jax
from longhmm.target import information
from longhmm.target.coordinates import Flat, constrain, unconstrain
from longhmm.target.systematic import Windows
from longhmm.target.target import exact
from target.references import Coordinates, differences, forward_log_likelihood, normal_logs, normal_model


@pytest.mark.skipif(not native.usable(), reason="the fused kernel was not built")
@pytest.mark.parametrize("missing", [False, True])
def test_kernel_and_reference_find_the_same_differences(monkeypatch, missing):
    model = lh.HMM(n_states=3, emission=lh.Gaussian())
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(scale=3.0, size=60), 10) + rng.normal(size=600)
    if missing:
        rows[50:70] = np.nan
    sequences = lh.open_data([rows[:400], rows[400:]])
    model = model.resolve(sequences)
    start = {
        "mean": np.array([-2.0, 0.0, 2.0]),
        "sd": np.ones(3),
        "transition": np.full((3, 3), 0.1) + 0.7 * np.eye(3),
    }
    centre = unconstrain(model, start)
    flat = Flat.like(centre)
    points = flat.unravel(flat.ravel_numpy(centre) + 0.1 * rng.normal(size=(4, flat.size)))
    share = np.full((3, 3), 0.5)

    def look():
        return information.score_differences(model, centre, points, sequences, Windows(4, 5), 6, share, None, seed=1)

    ours, weights = look()
    monkeypatch.setattr(evaluate, "BACKENDS", (in_jax,))
    jax.clear_caches()
    reference, _ = look()
    assert ours.shape == (4 * information.BLOCKS_PER_POINT, flat.size) and np.all(weights == 1.0)
    # The kernel reads observations in single precision, as the chains do.
    np.testing.assert_allclose(ours, reference, rtol=0, atol=5e-6)
    assert np.abs(reference).max() > 0.1


def test_differences_are_those_of_scores_less_what_is_foreseen():
    # One cell holds all data: its score is the slope of the log likelihood, found here by differences of plain NumPy.
    model = normal_model(3, initial=np.full(3, 1 / 3))
    params = {
        "initial": np.full(3, 1 / 3),
        "transition": np.array([[0.9, 0.09, 0.01], [0.2, 0.79, 0.01], [0.15, 0.15, 0.7]]),
        "loc": np.array([-1.0, 0.0, 2.0]),
    }
    rng = np.random.default_rng(2)
    rows = np.round(64 * rng.normal(np.repeat([-1.0, 2.0, 0.5], 7))) / 64  # single precision holds them
    share = np.array([[0.0, 0.3, 1.0], [0.0, 0.0, 0.8], [0.5, 0.0, 0.0]])
    space = Coordinates(model, params)

    def log_likelihood(natural):
        return forward_log_likelihood(params["initial"], natural["transition"], normal_logs(natural["loc"], rows), [21])

    def slope(function, vector):
        return differences(lambda at: function(space.to_natural(at)), vector)

    home = space.to_natural(space.vector)["transition"]
    counts = home * differences(
        lambda entries: log_likelihood({**params, "transition": entries.reshape(3, 3)}), home.ravel(), step=1e-4
    ).reshape(3, 3)
    np.testing.assert_allclose(counts.sum(), 20, rtol=1e-6)  # one transition between neighbours
    vectors = space.vector + 0.5 * rng.normal(size=(3, len(space.vector)))
    expected, foreseen = [], []
    for vector in vectors:
        weights = (space.to_natural(vector)["transition"] / home - 1.0) * share * counts
        foreseen.append(slope(lambda natural, w=weights: np.sum(w * np.log(natural["transition"])), vector))
        expected.append(slope(log_likelihood, vector) - slope(log_likelihood, space.vector) - foreseen[-1])
    assert np.abs(foreseen).max() > 0.1

    centre = unconstrain(model, params)
    sequences = lh.open_data(rows)
    points = Flat.like(centre).unravel(vectors)
    found, weights = information.score_differences(
        model, centre, points, sequences, Windows(10, 1), 0, share, None, seed=0
    )
    np.testing.assert_array_equal(weights, 1.0)
    np.testing.assert_allclose(found, np.repeat(expected, information.BLOCKS_PER_POINT, axis=0), rtol=0, atol=1e-5)


# Scaled up from a part of the data -----------------------------------------------------------------------------------


def test_the_slope_of_a_part_does_not_pass_for_curvature(monkeypatch):
    """Two states look so much alike that the data hardly tell some transitions from none."""
    params = {
        "transition": np.array([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.1, 0.0, 0.9]]),
        "mean": np.array([-1.0, 0.0, 1.0]),
        "sd": np.ones(3),
    }
    model = lh.HMM(3, lh.Gaussian())
    y = np.asarray(lh.simulate(model, params, 200_000, seed=4)[1])
    sequences = lh.open_data(y)
    model = model.resolve(sequences)
    near = 0.998 * params["transition"] + 0.002 / 3
    coordinates = lh.unconstrain(model, {**params, "transition": near})
    size, totals = Flat.like(coordinates).size, exact(model, constrain(model, coordinates), sequences)[1].totals
    whole = information.information_by_differences(model, coordinates, sequences, totals)
    monkeypatch.setattr(information, "WORK", 2 * size * 20_000.0)
    found = information.information_by_differences(model, coordinates, sequences, totals)
    monkeypatch.setattr(information, "_reparametrisation", lambda *given: 0.0)
    plain = information.information_by_differences(model, coordinates, sequences, totals)
    scale = np.sqrt(np.diag(whole))
    error, without = (np.abs(each - whole) / np.outer(scale, scale) for each in (found, plain))
    assert error.max() < 0.2, error.max()
    assert without.max() > 2 * error.max(), (without.max(), error.max())


def test_a_part_of_the_data_keeps_what_runs_alongside():
    rng = np.random.default_rng(0)
    values, states = rng.normal(size=30_000), rng.integers(-1, 3, 30_000)
    covariates = np.column_stack([np.arange(30_000.0), rng.normal(size=30_000)])
    values[::97] = np.nan
    cuts = [9_000, 9_100]
    whole = lh.open_data(np.split(values, cuts), states=np.split(states, cuts), covariates=np.split(covariates, cuts))
    part = information.part_of(whole, 10_000)
    assert 8_000 < part.length < 12_000 and part.has_states and part.n_covariates == 2
    block = part.rows(0, part.length)
    rows = block.covariates[:, 0].astype(int)  # the first covariate tells where a row comes from
    np.testing.assert_array_equal(block.values[:, 0], values[rows])
    np.testing.assert_array_equal(block.states, states[rows])
    np.testing.assert_array_equal(block.covariates, covariates[rows])
    for first, last in zip(part.offsets[:-1], part.offsets[1:] - 1, strict=True):
        assert rows[last] - rows[first] == last - first
        assert np.searchsorted(cuts, rows[first], side="right") == np.searchsorted(cuts, rows[last], side="right")
