"""Models that do not fit are called so, with the size of the effect and what to try; those that fit are not."""

import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.data.sequences import open_data
from longhmm.model.simulate import simulate
from longhmm.posterior.diagnostics.model_fit import judge_fit
from longhmm.posterior.diagnostics.observations import judge_residuals, residuals
from posterior.fakes import gaussian_model
from recordings import RECORDINGS
from testdata.semi_markov import visits_of_given_lengths

DEEP_CHANNEL = RECORDINGS / "deep_channel" / "3ch_outfinaltest1.npz"
TRANSITION = np.array([[0.9, 0.1], [0.2, 0.8]])


def steps(length, seed=0):
    """Strictly positive, skewed lengths of steps in two states."""
    emission = lh.Gamma(concentration=dist.LogNormal(0.0, 1.0), rate=dist.LogNormal(0.0, 1.0))
    params = {"transition": TRANSITION, "concentration": [1.5, 6.0], "rate": [1.0, 0.5]}
    return simulate(lh.HMM(2, emission), params, length, seed=seed)[1]


def gaussian(means, variances):
    model = lh.HMM(len(means), lh.Gaussian()).resolve(np.random.default_rng(0).normal(size=100))
    transition = TRANSITION if len(means) == 2 else np.ones((1, 1))
    return model, {"transition": transition, "mean": np.array(means), "sd": np.sqrt(variances)}


def judged(model, params, y):
    details = {}
    return judge_residuals(model, residuals(model, params, open_data(y)), details), details


def test_skewed_positive_values_are_not_gaussian():
    reasons, details = judged(*gaussian([1.5, 12.0], [1.5, 24.0]), steps(6000))
    assert len(reasons) == 1 and "probabilities are off by up to" in reasons[0] and "lh.Gamma()" in reasons[0]
    assert 0.04 < details["residual_distance"] < 0.12


def test_outliers_are_seen_where_the_distance_is_small():
    rng = np.random.default_rng(0)
    y = rng.normal(size=20_000)
    y[:60] = rng.normal(0.0, 20.0, 60)
    reasons, details = judged(*gaussian([0.0], [1.0]), rng.permutation(y))
    assert len(reasons) == 1 and "beyond 4 standard deviations" in reasons[0] and "lh.StudentT()" in reasons[0]
    assert details["residual_distance"] < 0.02 and details["residual_tails"] == pytest.approx(0.0025, abs=0.0005)


def test_counts_that_scatter_too_much():
    y = np.random.default_rng(0).negative_binomial(3, 0.3, size=3000)
    model = lh.HMM(1, lh.Poisson(rate=dist.Gamma(1.0, 1.0)))
    reasons, _ = judged(model, {"transition": np.ones((1, 1)), "rate": [7.0]}, y)
    assert any("lh.NegativeBinomial()" in reason for reason in reasons)


def test_the_feature_is_named():
    rng = np.random.default_rng(0)
    model = lh.HMM(1, lh.Gaussian(dim=2)).resolve(rng.normal(size=(100, 2)))
    y = np.stack([rng.normal(size=5000), rng.exponential(size=5000) - 1.0], axis=1)
    params = {"transition": np.ones((1, 1)), "mean": np.zeros((1, 2)), "covariance": np.eye(2)[None]}
    reasons, _ = judged(model, params, y)
    assert len(reasons) == 1 and "observations of feature 1" in reasons[0]


def test_small_departures_are_let_pass_however_sure_they_are():
    model, params = gaussian([0.0], [1.0])
    left = residuals(model, params, open_data(np.random.default_rng(0).normal(size=2000)))
    assert judge_residuals(model, left, {}) == []
    sure = left._replace(distance_p_value=np.array([1e-12]), tails_p_value=np.array([1e-12]))
    assert judge_residuals(model, sure._replace(distance=np.array([0.015]), tails=np.array([0.0009])), {}) == []
    assert len(judge_residuals(model, sure._replace(distance=np.array([0.025])), {})) == 1
    assert (
        judge_residuals(model, left._replace(distance=np.array([0.05]), distance_p_value=np.array([0.001])), {}) == []
    )


def test_residuals_at_true_parameters_have_uniform_p_values():
    model, p_values = gaussian_model(), []
    for seed in range(40):
        y = simulate(model, {"transition": TRANSITION, "mean": np.array([0.0, 2.0])}, 800, seed=seed)[1]
        left = residuals(model, {"transition": TRANSITION, "mean": np.array([0.0, 2.0])}, open_data(y))
        p_values.append(left.distance_p_value[0])
    assert np.mean(np.array(p_values) < 0.5) == pytest.approx(0.5, abs=0.25) and min(p_values) > 1e-4


# The whole pipeline, as users run it ------------------------------------------------------------------------------


def verdict(model, y, **options):
    posterior = lh.sample(model, y, seed=0, progress=False, **options)
    return posterior.diagnose(y)


@pytest.mark.slow
def test_negative_binomial_dwell_times_are_not_trusted():
    lengths = lambda rng, state: 1 + rng.negative_binomial(12, 12 / (12 + (29, 59)[state]))  # noqa: E731
    y, _ = visits_of_given_lengths(lengths, (0.0, 3.0), 184_000)
    found = verdict(lh.HMM(2, lh.Gaussian()), y)
    assert found.kind == "the model does not fit" and "do not last as the model says" in found.reason
    assert 0.3 < found.details["dwell_interval"] < 0.5  # 0.29, but for the ends of visits, which data blur


@pytest.mark.slow
def test_the_remedy_for_dwell_times_is_one():
    lengths = lambda rng, state: 1 + rng.negative_binomial(5, 5 / (5 + (11, 7)[state]))  # noqa: E731
    y, _ = visits_of_given_lengths(lengths, (0.0, 4.0), 10_000)
    assert "--durations negative-binomial:30" in verdict(lh.HMM(2, lh.Gaussian()), y).reason
    model = lh.HMM(2, lh.Gaussian(), transitions=lh.Durations("negative-binomial", phases=30))
    details, few = {}, {"chains": 2, "draws": 100, "progress": False, "verdict": False}
    assert judge_fit(lh.sample(model, y, **few), open_data(y), 10, details)[0] == []
    assert details["dwell_p_value"] > 0.01


@pytest.mark.slow
def test_dwell_times_of_exactly_fifty_samples_are_not_trusted():
    y, _ = visits_of_given_lengths(lambda rng, state: 50, (0.0, 3.0), 20_000)
    found = verdict(lh.HMM(2, lh.Gaussian()), y)
    assert found.kind == "the model does not fit" and "do not last as the model says" in found.reason


@pytest.mark.slow
def test_gaussian_steps_are_not_trusted():
    found = verdict(lh.HMM(2, lh.Gaussian()), steps(6000))
    assert found.kind == "the model does not fit" and "not distributed as the model says" in found.reason


@pytest.mark.slow
@pytest.mark.skipif(not DEEP_CHANNEL.exists(), reason="the recordings are not beside this checkout")
def test_three_channels_are_not_trusted():
    """Visits longer than 30 samples: 228 by the labels, 8 by the model."""
    with np.load(DEEP_CHANNEL, allow_pickle=False) as stored:
        y = stored["current"]
    found = verdict(lh.HMM(4, lh.Gaussian()), y)
    assert found.kind == "the model does not fit" and "do not last as the model says" in found.reason
    assert found.details["dwell_interval"] > 2


@pytest.mark.slow
def test_reversed_cycles_are_trusted():
    """Two thirds of the transitions never occur, so that their logarithms are strongly skewed."""
    from longhmm_reproduction.models import rc

    y = simulate(*rc(), 100_000, seed=3)[1]
    for seed in (1, 2):
        posterior = lh.sample(lh.HMM(8, lh.Gaussian(dim=2)), y, seed=seed, progress=False)
        assert posterior.diagnose(y).kind == "trust", posterior.verdict
