"""Starting points: usable for any emission and any data, and close to the truth where the data are clear."""

import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.model import initialise
from longhmm.model.emissions.gaussian_mixture import OrderedNormal
from longhmm.model.initialise import (
    cut_at_quantiles,
    in_rising_order,
    initial_params,
    k_means,
    on_logarithms,
    smoothed,
    standardised,
)
from model import configurations

RNG = np.random.default_rng(3)


def two_levels(n: int = 2000, low: float = -4.0, high: float = 4.0) -> np.ndarray:
    states = np.repeat(np.arange(n // 20) % 2, 20)
    return np.where(states == 1, high, low) + np.random.default_rng(1).normal(size=n)


def test_quantile_groups_have_equal_mass_and_rise():
    column = RNG.normal(size=1000)
    labels = cut_at_quantiles(column, 4)
    assert np.bincount(labels).tolist() == [250] * 4
    assert [column[labels == k].max() for k in range(3)] < [column[labels == k].min() for k in range(1, 4)]


def test_k_means_finds_separated_groups():
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    truth = RNG.integers(3, size=600)
    rows = centres[truth] + RNG.normal(size=(600, 2))
    labels = k_means(rows, 3, np.random.default_rng(0))
    # The same partition, whatever the names of its parts.
    assert all(len(np.unique(labels[truth == k])) == 1 for k in range(3))
    assert len(np.unique(labels)) == 3


def test_moving_averages_keep_to_the_ends():
    table = np.array([[0.0], [3.0], [6.0], [9.0]])
    np.testing.assert_allclose(smoothed(table, 3)[:, 0], [1.5, 3.0, 6.0, 7.5])
    np.testing.assert_allclose(smoothed(table, 9)[:, 0], 4.5)


def test_constant_columns_do_not_divide_by_zero():
    assert np.all(standardised(np.full((5, 1), 1e9)) == 0.0)


def test_every_start_finds_two_clear_levels_in_rising_order():
    model = lh.HMM(n_states=2, emission=lh.Gaussian())
    for start in initial_params(model, two_levels(), restarts=3, seed=5):
        np.testing.assert_allclose(start["mean"], [-4.0, 4.0], atol=0.35)
        np.testing.assert_allclose(start["sd"], [1.0, 1.0], atol=0.35)
        np.testing.assert_allclose(np.diag(start["transition"]), 0.95, atol=0.03)
        np.testing.assert_allclose(start["transition"].sum(axis=1), 1.0, atol=1e-12)


def test_levels_that_are_ratios_apart_are_all_found():
    """As numbers most of the groups would lie among the largest counts, whose spread is largest."""
    rates = 3 * 1.8 ** np.arange(8)
    states = np.repeat(np.random.default_rng(0).integers(8, size=1000), 10)
    y = np.random.default_rng(1).poisson(rates[states])
    model = lh.HMM(n_states=8, emission=lh.Poisson())
    found = min(np.abs(np.log(start["rate"] / rates)).max() for start in initial_params(model, y, restarts=8))
    assert found < 0.2


def test_logarithms_of_counts_and_of_values_with_zeros():
    np.testing.assert_allclose(on_logarithms(np.array([[0.0], [1.0], [8.0]])), np.log([[0.5], [1.0], [8.0]]))
    np.testing.assert_allclose(on_logarithms(np.array([[0.0], [0.01]])), np.log([[0.005], [0.01]]))
    assert np.isfinite(on_logarithms(np.zeros((3, 1)))).all()


def test_seeds_decide():
    model = lh.HMM(n_states=3, emission=lh.Gaussian())
    y = RNG.normal(size=3000)
    one, again, other = (initial_params(model, y, restarts=2, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(one[r][name], again[r][name]) for r in range(2) for name in one[r])
    assert not np.allclose(one[1]["mean"], other[1]["mean"])
    assert not np.allclose(one[0]["mean"], one[1]["mean"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["gamma-2d", "negative-binomial", "von-mises", "fixed-and-per-state", "class-unit-interval", "user-function",
     "class-multivariate-t", "support-differs-by-state", "flat-priors"],
)  # fmt: skip
def test_starts_are_finite_for_any_emission(name):
    configuration = configurations.named(name)
    _, rows = configurations.observations(configuration, n=240)
    model = lh.HMM(n_states=configuration.n_states, emission=configuration.emission)
    (start,) = initial_params(model, rows, restarts=1)
    assert np.isfinite(lh.log_likelihood(model, start, rows))


def test_a_prior_that_orders_the_states_is_kept():
    emission = lh.Emission(dist.Normal, loc=OrderedNormal(0.0, 10.0, 2), scale=1.0)
    (start,) = initial_params(lh.HMM(n_states=2, emission=emission), two_levels(), restarts=1)
    np.testing.assert_allclose(start["loc"], [-4.0, 4.0], atol=0.4)


def test_known_states_name_the_groups():
    y = two_levels()
    known = np.full(len(y), -1)
    known[:3], known[20:23] = 1, 0  # the low level is called 1
    model = lh.HMM(n_states=2, emission=lh.Gaussian())
    for start in initial_params(model, lh.open_data(y, states=known), restarts=2):
        np.testing.assert_allclose(start["mean"], [4.0, -4.0], atol=0.4)


def test_forbidden_and_fixed_transitions_are_respected():
    concentration = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
    levels = np.array([5.0, -5.0, 0.0])  # the cycle runs 5, -5, 0, which is not the rising order
    y = np.repeat(np.tile(levels, 40), 15) + RNG.normal(size=1800)
    model = lh.HMM(n_states=3, emission=lh.Gaussian(), transition_prior=concentration, fixed_rows={2: [0.5, 0.0, 0.5]})
    for start in initial_params(model, y, restarts=3)[1:]:
        assert np.all(start["transition"][concentration == 0] == 0)
        np.testing.assert_allclose(start["transition"][2], [0.5, 0.0, 0.5])
        # States were given levels so that the cycle goes the allowed way round.
        ranks = np.argsort(np.argsort(start["mean"])).tolist()
        assert ranks in ([2, 0, 1], [0, 1, 2], [1, 2, 0])


def test_many_states_of_a_level_leave_it_at_rates_of_one_order():
    """Five channels have up to six states with as many open; powers of five of them would leave nothing of the data."""
    levels, counts = np.repeat([0, 1], [6, 1]), np.array([[900.0, 100.0], [100.0, 900.0]])
    expected = initialise._expected(levels, counts, np.random.default_rng(0))
    leaving = expected[:6, 6]
    assert np.all(leaving <= 100.0 * 5.0 * 1.25) and np.all(leaving >= 100.0 * 0.8)
    assert 5.0 * 0.8 / 1.25 <= leaving[5] / leaving[0] <= 5.0 * 1.25 / 0.8


def test_tied_states_share_levels_and_are_no_twins():
    model = lh.HMM(n_states=3, emission=lh.Tied(lh.Gaussian(), levels=(0, 0, 1)))
    (start,) = initial_params(model, two_levels(), restarts=1)
    np.testing.assert_allclose(np.sort(start["mean"]), [-4.0, 4.0], atol=0.4)
    assert abs(start["transition"][0, 0] - start["transition"][1, 1]) > 0.02


@pytest.mark.parametrize(
    ("data", "emission", "n_states"),
    [
        (np.full(300, 7.0), lh.Gaussian(), 3),
        (np.array([1.0, 2.0] * 20), lh.Gaussian(), 4),
        (np.zeros(50, int), lh.Poisson(), 2),
        (np.array([0, 1] * 10), lh.Categorical(2), 5),
        (np.array([3.0]), lh.Gaussian(), 2),
        (np.full(40, np.nan), lh.StudentT(df=4.0, loc=dist.Normal(0.0, 1.0), scale=dist.HalfNormal(1.0)), 2),
        (np.where(np.arange(400) % 3 == 0, np.nan, two_levels(400)), lh.StudentT(), 2),
        (1e6 + two_levels(400), lh.Gaussian(), 2),
    ],
)  # fmt: skip
def test_poor_data_still_give_a_usable_start(data, emission, n_states):
    model = lh.HMM(n_states=n_states, emission=emission)
    for start in initial_params(model, data, restarts=2):
        assert np.isfinite(lh.log_likelihood(model, start, data))
        means = np.asarray(next(start[name] for name in ("mean", "rate", "probs", "loc") if name in start))
        assert len(np.unique(means.reshape(n_states, -1), axis=0)) == n_states  # no two states are the same


def test_renumbering_leaves_the_likelihood_alone():
    model = lh.HMM(n_states=3, emission=lh.Poisson(rate=dist.Gamma(1.0, 0.1)))
    params = {
        "transition": RNG.dirichlet(np.ones(3), size=3),
        "rate": np.array([9.0, 1.0, 4.0]),
        "initial": np.ones(3) / 3,
    }
    moved = in_rising_order(model, params)
    assert moved["rate"].tolist() == [1.0, 4.0, 9.0]
    y = RNG.poisson(4.0, size=50)
    assert lh.log_likelihood(model, moved, y) == pytest.approx(lh.log_likelihood(model, params, y), abs=1e-10)
    given = lh.HMM(n_states=3, emission=lh.Poisson(rate=dist.Gamma(1.0, 0.1)), initial=[0.5, 0.3, 0.2])
    assert in_rising_order(given, params) is params
