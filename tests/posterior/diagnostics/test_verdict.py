"""Checks on draws: silent on exact ones, loud on draws that are off and on models that do not fit."""

import re

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from longhmm import Gaussian, GaussianMixture, Poisson, StudentT, Tied, VonMises
from longhmm.data.sequences import open_data
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.posterior.diagnostics import model_fit
from longhmm.posterior.diagnostics.bias import by_passes, errors_allowed, exact_gradients, sandwich, scored
from longhmm.posterior.diagnostics.observations import residuals
from longhmm.posterior.posterior import Posterior
from longhmm.target.buffer_report import block_scores
from longhmm.target.target import exact
from posterior.fakes import chains_of, distorted, gaussian_model, known_states, unconstrained


@pytest.fixture(scope="module")
def known():
    return known_states()


def test_cell_scores_add_up_to_the_gradient():
    model = gaussian_model()
    params = {"transition": np.array([[0.9, 0.1], [0.2, 0.8]]), "mean": np.array([-1.0, 1.5])}
    data = open_data(simulate(model, params, 900, seed=2)[1])
    away = {**params, "mean": params["mean"] + 0.2}
    some, scores = block_scores(model, away, data, 50)
    assert scores.shape == (18, 4) and some.cut.n_blocks == 18
    slope = exact(model, model.validate(away), data)[1].likelihood
    np.testing.assert_allclose(
        scores.sum(axis=0), np.concatenate([slope["mean"].ravel(), slope["transition"]]), rtol=1e-7
    )


def one_state(values):
    """One Gaussian state of unit variance: the posterior of its mean has variance 1 / T."""
    model = gaussian_model(1)
    params = {"transition": np.ones((1, 1)), "mean": np.array([values.mean()])}
    return model, params, np.array([[1 / len(values)]]), np.array([len(values) ** -0.5]), open_data(values)


def ratios(model, params, covariance, sd, data, blocks=400):
    return sandwich(*scored(model, params, data, blocks), covariance, sd)


def coloured(length, correlation, seed=0):
    """Unit variance, neighbouring values correlated."""
    noise = np.random.default_rng(seed).normal(size=length)
    values = noise.copy()
    for t in range(1, length):
        values[t] = correlation * values[t - 1] + np.sqrt(1 - correlation**2) * noise[t]
    return values


def test_sandwich_is_one_for_a_model_that_fits():
    ratio, error = ratios(*one_state(np.random.default_rng(1).normal(size=40_000)))
    assert ratio[0] == pytest.approx(1.0, abs=4 * error[0])
    assert error[0] < 0.08


def test_sandwich_measures_coloured_noise():
    """The mean of autoregressive noise has (1 + r) / (1 - r) times the variance of white noise."""
    ratio, error = ratios(*one_state(coloured(60_000, 0.6)))
    assert ratio[0] == pytest.approx(2.0, rel=0.15)
    assert ratio[0] - 3 * error[0] > 1.5


def test_sandwich_of_a_hidden_chain_that_fits(known):
    """States hidden this time, two per cell apart, the covariance from the curvature of the log posterior."""
    model = gaussian_model()
    params = {"transition": np.array([[0.9, 0.1], [0.2, 0.8]]), "mean": np.array([-1.0, 2.0])}
    data = open_data(simulate(model, params, 30_000, seed=5)[1])
    point = np.array(
        [-1.0, 2.0, *unconstrained(model, {k: v[None, None] for k, v in params.items()})["transition"][0, 0]]
    )
    rows = []
    for index in range(4):
        step = np.eye(4)[index] * 1e-4
        ends = []
        for at in (point + step, point - step):
            coordinates = {"mean": at[None, None, :2], "transition": at[None, None, 2:]}
            ends.append(exact_gradients(coordinates, by_passes(model, data), 1)[1][0])
        rows.append((ends[1] - ends[0]) / 2e-4)
    information = np.array(rows)
    covariance = np.linalg.inv(0.5 * (information + information.T))
    ratio, error = ratios(model, params, covariance, np.sqrt(np.diag(covariance)), data, 300)
    assert np.all(np.abs(ratio - 1) < 4 * error)


def test_residuals_of_a_model_that_fits(known):
    model = gaussian_model()
    params = {"transition": np.array([[0.9, 0.1], [0.2, 0.8]]), "mean": np.array([-1.0, 2.0])}
    values = simulate(model, params, 30_000, seed=6)[1]
    found = residuals(model, params, open_data(values))
    assert abs(found.autocorrelation[0]) < 4 * found.autocorrelation_error[0] < 0.03
    assert found.distance[0] < 1.63 / np.sqrt(30_000)  # the 1 % point of Kolmogorov's statistic
    part = residuals(model, params, open_data(values), most=20_000)
    assert np.isfinite(part.values).sum() == 20_000 - 10 * 100
    np.testing.assert_allclose(part.values[200:2000], found.values[700:2500], atol=1e-8)
    wrong = residuals(model, {**params, "mean": params["mean"] + 0.3}, open_data(values))
    assert wrong.distance[0] > 0.05


def test_residuals_see_colour():
    model, params, *_, data = one_state(coloured(20_000, 0.3))
    found = residuals(model, params, data)
    assert found.autocorrelation[0] == pytest.approx(0.3, abs=0.03)


def test_residuals_skip_what_is_missing():
    values = np.random.default_rng(0).normal(size=2000)
    values[::7] = np.nan
    model, params, *_ = one_state(values[np.isfinite(values)])
    found = residuals(model, params, open_data(values))
    assert np.array_equal(np.isnan(found.values[:, 0]), np.isnan(values))
    np.testing.assert_allclose(found.values[1:6, 0], values[1:6] - params["mean"][0], atol=1e-8)


@pytest.mark.parametrize(
    ("emission", "params", "dim"),
    [
        (Poisson(rate=dist.Gamma(1.0, 1.0)), {"rate": [1.0, 6.0]}, 1),
        (
            StudentT(df=dist.Gamma(2.0, 0.1), loc=dist.Normal(0, 1), scale=dist.HalfNormal(1.0)),
            {"df": [4.0, 9.0], "loc": [-1.0, 1.0], "scale": [0.5, 1.0]},
            1,
        ),
        (
            GaussianMixture(2),
            {
                "weights": [[0.3, 0.7], [0.5, 0.5]],
                "means": [[-2.0, 0.0], [1.0, 4.0]],
                "scales": [[1.0, 0.5], [1.0, 2.0]],
            },
            1,
        ),
        (
            Gaussian(dim=2),
            {"mean": [[0.0, 1.0], [2.0, -1.0]], "covariance": [[[1.0, 0.5], [0.5, 2.0]], [[1.0, 0.0], [0.0, 0.5]]]},
            2,
        ),
        (Tied(Poisson(dim=2), levels=(1, 0)), {"rate": [[1.0, 9.0], [4.0, 2.0]]}, 2),
    ],
)
def test_residuals_are_normal_for_every_kind_of_emission(emission, params, dim):
    model = HMM(2, emission)
    params = {"transition": np.array([[0.8, 0.2], [0.3, 0.7]]), **{k: np.array(v) for k, v in params.items()}}
    found = residuals(model, params, open_data(simulate(model, params, 4000, seed=8)[1]))
    assert found.values.shape == (4000, dim)
    for feature in range(dim):
        assert stats.kstest(found.values[:, feature], "norm").pvalue > 1e-3
        assert abs(found.autocorrelation[feature]) < 4 * found.autocorrelation_error[feature]


def test_no_distribution_function_no_residuals():
    model = HMM(1, VonMises(loc=0.0, concentration=1.0))
    params = {"transition": np.ones((1, 1)), "loc": [0.0], "concentration": [1.0]}
    assert residuals(model, params, open_data(np.zeros(30))) is None


# Verdicts -------------------------------------------------------------------------------------------------------


def test_exact_draws_of_a_model_that_fits_are_trusted(known):
    posterior = known.posterior(known.draw(4, 1000))
    found = posterior.diagnose(known.sequences)
    assert found.kind == "trust", found
    assert posterior.verdict is found
    assert found.details["r_hat"] < 1.01
    assert "trust" in repr(posterior)


def test_what_was_not_checked_is_not_said_to_fit(known, monkeypatch):
    monkeypatch.setattr(model_fit, "residuals", lambda *_, **__: None)  # as of an emission without a function
    found = known.posterior(known.draw(4, 1000)).diagnose(known.sequences, gradients=8)
    assert found.kind == "trust" and "the model fits" not in found.reason
    assert "was not checked, since Gaussian has no distribution function" in found.reason
    assert "score" in found.details and "drift" not in found.details


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"shift": 0.4}, r"mean of mean\[1\], and its interval, are off by \+0\.[34]"),
        ({"width": 1.15}, r"interval of mean\[1\] is 1\.1\d times as wide"),
    ],
)
def test_biased_draws_are_called_biased(known, options, reason):
    found = known.posterior(distorted(known, **options)).diagnose(known.sequences, gradients=24)
    assert found.kind == "biased"
    assert re.search(reason, found.reason), found.reason
    assert "NUTS()" in found.reason


def test_short_chains_must_run_longer(known):
    found = known.posterior(known.draw(4, 80, seed=2)).diagnose()
    assert found.kind == "run longer"
    assert "ESS" in found.reason and "2 times the draws" in found.reason
    few = known.posterior(known.draw(2, 2)).diagnose()
    assert few.kind == "run longer"


def test_chains_that_disagree_must_run_longer(known):
    natural = known.draw(4, 1000)
    natural["mean"][2, :, 1] += 0.5 * known.sd[1]
    found = known.posterior(natural).diagnose()
    assert found.kind == "run longer"
    assert "R-hat of mean[1]" in found.reason


def test_states_to_spare_are_the_reason_where_chains_disagree(known):
    """And not where they agree: a weakly supported state, well sampled, is no reason for distrust."""
    notes = ("too many states: states 0 and 1 cannot be told apart: fit lh.HMM(1, ...)",)
    natural = known.draw(4, 1000)
    assert known.posterior(natural, notes=notes).diagnose().kind == "chains agree, rest unchecked"
    for apart in (0.5, 20.0):
        natural = known.draw(4, 1000)
        natural["mean"][2, :, 1] += apart * known.sd[1]
        found = known.posterior(natural, notes=notes).diagnose()
        assert found.kind == "too many states" and str(found).count("too many states") == 1
        assert "lh.HMM(1, ...)" in found.reason and "mean[1]" in found.reason and "R-hat" in found.reason


def test_chains_in_separate_places_mean_another_mode(known):
    natural = known.draw(4, 500)
    natural["mean"][2, :, 1] += 20 * known.sd[1]
    assert known.posterior(natural).diagnose().kind == "another mode is as good"
    noted = known.posterior(notes=("another mode is as good: log density -12.3 against -12.4",))
    assert noted.diagnose().kind == "another mode is as good"
    assert "-12.3" in noted.diagnose().reason
    assert str(noted.diagnose()).count("another mode is as good") == 1
    assert noted.diagnose().reason.endswith(".")


def test_without_data_there_is_no_trust(known):
    found = known.posterior(known.draw(4, 1000)).diagnose()
    assert found.kind == "chains agree, rest unchecked"
    assert "pass the data" in found.reason


def test_coloured_noise_does_not_fit():
    values = coloured(20_000, 0.5)
    model, *_, data = one_state(values)
    draws = values.mean() + np.random.default_rng(3).normal(size=(4, 600, 1)) / np.sqrt(len(values))
    natural = {"transition": np.ones((4, 600, 1, 1)), "mean": draws}
    found = Posterior.from_chains(model, chains_of(model, natural), data).diagnose(data, gradients=8)
    assert found.kind == "the model does not fit", found
    assert found.details["sandwich"] == pytest.approx(np.sqrt(3), rel=0.2)
    assert found.details["autocorrelation"] == pytest.approx(0.5, abs=0.05)
    # The corrected interval is that of the mean, as wide as correlated noise makes it.
    low, high = found.details["corrected"]["mean[0]"]
    assert f"{low:.4g} to {high:.4g} (90 %)" in found.reason
    assert 0.5 * (low + high) == pytest.approx(values.mean(), abs=0.1 * (high - low))
    assert high - low == pytest.approx(2 * 1.645 * np.sqrt(3 / len(values)), rel=0.2)


def test_draws_that_are_not_finite_are_reported(known):
    posterior = known.posterior(known.draw(4, 200))
    posterior.unconstrained["mean"][1, 3] = np.nan
    found = posterior.diagnose()
    assert found.kind == "run longer" and "1 draws are not finite" in found.reason


def test_many_numbers_are_allowed_more():
    """One kind of check raises a false alarm in 1 of 1,000 right results, over all parameters at once."""
    assert errors_allowed(1) == pytest.approx(stats.norm.isf(0.0005))
    assert errors_allowed(100) == pytest.approx(stats.norm.isf(0.0005 / 100))
    assert errors_allowed(100, 30) == pytest.approx(stats.t.isf(0.0005 / 100, 30))
