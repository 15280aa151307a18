"""Held-out log probability, exact draws and their correlations, against other ways of computing them."""

import numpy as np
import pytest

import longhmm as lh
from longhmm_reproduction import correlations, variational
from longhmm_reproduction.exact import gibbs, natural_draws
from longhmm_reproduction.held_out import held_out_log_probs, in_blocks


@pytest.fixture(scope="module")
def poisson():
    params = {"transition": np.array([[0.9, 0.1], [0.2, 0.8]]), "rate": np.array([1.0, 8.0])}
    model = lh.HMM(n_states=2, emission=lh.Poisson())
    _, values = lh.simulate(model, params, 600, seed=0)
    return model.resolve(values), params, values


def test_held_out_log_probabilities_add_up_to_a_difference_of_likelihoods(poisson):
    model, params, values = poisson
    train, test = values[:400], values[400:]
    found = held_out_log_probs(model, params, train, test)
    assert found.shape == (200,)
    expected = lh.log_likelihood(model, params, values) - lh.log_likelihood(model, params, train)
    assert found.sum() == pytest.approx(expected, rel=1e-9)


def test_blocks_are_means_of_neighbours():
    np.testing.assert_array_equal(in_blocks(np.arange(7.0), 3), [1.0, 4.0])
    np.testing.assert_array_equal(in_blocks(np.arange(4.0), 10), [1.5])


def test_gibbs_chains_from_different_starts_agree_with_the_truth(poisson):
    model, params, values = poisson
    other = {"transition": np.full((2, 2), 0.5), "rate": np.array([2.0, 5.0])}
    found = gibbs(model, lh.open_data(values), [params, other], warmup=20, sweeps=80, seed=0)
    rates = found.draws["rate"]
    assert rates.shape == (2, 80, 2) and found.touched == 60_000 and found.log_likelihood.shape == (2, 80)
    # Some 400 and 200 counts: standard errors of a twentieth and a fifth.
    np.testing.assert_allclose(rates.mean(axis=(0, 1)), params["rate"], atol=0.8)
    assert np.all(correlations.mixing(rates) < 1.2)
    np.testing.assert_allclose(found.draws["transition"].sum(axis=-1), 1.0)
    kept = found._replace(log_likelihood=found.log_likelihood - np.array([[0.0], [1e3]])).best()
    np.testing.assert_array_equal(kept["rate"], rates[:1])


def test_many_draws_are_constrained_as_single_ones_are(poisson):
    model, params, _ = poisson
    at = lh.unconstrain(model, params)
    found = natural_draws(model, {name: np.tile(value, (2, 3, *[1] * value.ndim)) for name, value in at.items()})
    np.testing.assert_allclose(found["rate"], np.tile(params["rate"], (2, 3, 1)), rtol=1e-6)


def draws(rng, correlation, count=4000, first=0.94):
    """Two chains of a model with two states, the first means of which are correlated."""
    one = rng.normal(size=(2, count))
    two = correlation * one + np.sqrt(1 - correlation**2) * rng.normal(size=(2, count))
    away = rng.normal(scale=1e-3, size=(2, count, 2))
    rows = np.array([[first, 1 - first], [0.5, 0.5]]) + np.stack([away, -away], axis=-1)
    covariance = rng.uniform(1.0, 2.0, size=(2, count, 2, 1, 1))
    return {"mean": np.stack([one, two], axis=-1)[..., None], "covariance": covariance, "transition": rows}


def test_squared_correlations_are_not_inflated_by_noise():
    rng = np.random.default_rng(0)
    columns = correlations.columns_of({"exact": draws(rng, 0.6), "other": draws(rng, 0.0, first=0.96)})
    exact, other = (correlations.squared_correlations(each) for each in columns.values())
    # Both are compared in the transitions that the first one has; pairs of one row are left out.
    assert columns["exact"].values.shape == columns["other"].values.shape == (2, 4000, 8)
    assert exact.products.shape == (8 * 7 // 2 - 2,)
    assert exact.products[0] == pytest.approx(0.36, abs=0.05) and exact.correlations[0] == pytest.approx(0.6, abs=0.03)
    assert other.correlations[0] == pytest.approx(0.0, abs=0.05)
    # Squares of correlations that are zero have a mean of 1 / 200 where there are 200 draws; the products have zero.
    few = [correlations.columns_of({"few": draws(rng, 0.0, count=100)})["few"] for _ in range(100)]
    squares = [correlations.squared_correlations(each) for each in few]
    assert np.mean([each.correlations**2 for each in squares]) == pytest.approx(1 / 200, rel=0.1)
    assert abs(np.mean([each.products for each in squares])) < 1 / 2000


def test_effective_sizes_fall_where_draws_depend_on_those_before():
    rng = np.random.default_rng(1)
    free = draws(rng, 0.6, count=1000)
    slow = {name: np.repeat(value[:, :100], 10, axis=1) for name, value in free.items()}
    sizes = []
    for each in (free, slow):
        columns = correlations.columns_of({"one": each})["one"]
        sizes.append(np.median(correlations.effective_sizes(columns, correlations.squared_correlations(columns))))
    assert sizes[0] > 1400 and 100 < sizes[1] < 400  # of 2000, and of 200 that were each repeated ten times


def test_chains_that_disagree_do_not_mix():
    values = np.random.default_rng(2).normal(size=(2, 200, 2))
    values[1, :, 1] += 2.0
    found = correlations.mixing(values)
    assert found[0] < 1.05 and found[1] > 1.3


def test_other_starts_are_near_the_truth_and_not_at_it():
    truth = variational.overlapping()[1]
    first, second = variational.starts_near(truth, 2, seed=0)
    np.testing.assert_array_equal(first["mean"], truth["mean"])
    assert 5.0 < np.abs(second["mean"] - truth["mean"]).mean() < 30.0  # half of 40, times sqrt(2 / pi)
    for start in (first, second):
        np.testing.assert_allclose(start["transition"].sum(axis=1), 1.0)
        assert start["transition"].min() > 0
