"""Emissions whose parameters follow covariates, against sums over rows written out with SciPy."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy import stats

import longhmm as lh
from longhmm.errors import DataError, ModelError
from longhmm.model.serialise import model_from_config, model_to_config
from longhmm.posterior.posterior import Posterior
from posterior.fakes import chains_of

RNG = np.random.default_rng(3)
FRAME = pd.DataFrame({"hour": RNG.uniform(0.0, 24.0, 300), "temp": RNG.normal(15.0, 4.0, 300)})
MOVES = np.array([[0.9, 0.1], [0.2, 0.8]])
SLOPES = np.array([[0.2, 0.5, 0.03], [1.4, -0.4, -0.02]])
TEXT = "~ cos(2 * pi * hour / 24) + temp"
TERMS = np.stack([np.ones(300), np.cos(2 * np.pi * FRAME.hour / 24), FRAME.temp], axis=1)
ETA = TERMS @ SLOPES.T  # (300, K)
SPREAD = np.array([0.4, 1.1])


def zero_inflated(y: np.ndarray) -> np.ndarray:
    zero = np.array([0.5, 0.1])
    return np.log(np.where(y == 0, zero, 0.0) + (1 - zero) * stats.poisson.pmf(y, np.exp(ETA)))


CASES: dict[str, Any] = {
    "gaussian": (
        lh.Gaussian(mean=TEXT),
        {"mean_coefficients": SLOPES, "sd": SPREAD},
        lambda y: stats.norm.logpdf(y, ETA, SPREAD),
    ),
    "gamma": (
        lh.Gamma(mean=TEXT),
        {"mean_coefficients": SLOPES, "sd": SPREAD},
        lambda y: stats.gamma.logpdf(y, (np.exp(ETA) / SPREAD) ** 2, scale=SPREAD**2 / np.exp(ETA)),
    ),
    "poisson": (
        lh.Poisson(rate=TEXT),
        {"rate_coefficients": SLOPES},
        lambda y: stats.poisson.logpmf(y, np.exp(ETA)),
    ),
    "zeros": (
        lh.ZeroInflated(lh.Poisson(rate=TEXT)),
        {"zero": np.array([0.5, 0.1]), "rate_coefficients": SLOPES},
        zero_inflated,
    ),
    "bernoulli": (
        lh.Bernoulli(probs=TEXT),
        {"probs_coefficients": SLOPES},
        lambda y: stats.bernoulli.logpmf(y, 1 / (1 + np.exp(-ETA))),
    ),
}


def covered(values: Any, n: int = 300) -> Any:
    return lh.open_data(values[:n], covariates=FRAME[:n])


def likelihood(logs: np.ndarray, ends: list[int]) -> float:
    total = 0.0
    for piece in np.split(logs, ends):
        message = np.array([0.5, 0.5])
        for t, row in enumerate(piece):
            message = (message @ MOVES if t else message) * np.exp(row)
        total += np.log(message.sum())
    return total


@pytest.mark.parametrize("name", CASES)
def test_likelihoods_are_those_of_rows_written_out(name: str) -> None:
    """Also of several sequences, and of values that are missing; draws are those of `simulate`."""
    emission, own, logs = CASES[name]
    params = {"transition": MOVES, **own}
    model = lh.HMM(2, emission).meet(covered(np.zeros(300)))[0]
    y = lh.simulate(model, params, 300, seed=1, covariates=FRAME)[1].astype(np.float64)
    whole = lh.open_data([y[:100], y[100:]], covariates=[FRAME[:100], FRAME[100:]])
    assert lh.log_likelihood(model, params, whole) == pytest.approx(likelihood(logs(y), [100]), rel=1e-10)
    y[[5, 150, 151]] = np.nan
    seen = np.where(np.isnan(y), 0.0, logs(np.nan_to_num(y, nan=1.0)))
    gaps = lh.open_data([y[:100], y[100:]], covariates=[FRAME[:100], FRAME[100:]])
    assert lh.log_likelihood(model, params, gaps) == pytest.approx(likelihood(seen, [100]), rel=1e-10)


@pytest.mark.parametrize("name", [pytest.param("gaussian", marks=pytest.mark.slow), "zeros"])
def test_everything_agrees_with_all_paths(name: str) -> None:
    emission, own, _ = CASES[name]
    model = lh.HMM(2, emission).resolve(covered(np.arange(300.0) % 5))
    y = np.array([0.0, 2.0, np.nan, 7.0, 6.0, 0.0, 3.0, np.nan, 2.0])
    data = lh.open_data([y[:4], y[4:]], covariates=[FRAME[:4], FRAME[4:9]])
    lh.testing.check_coherence(model, {"transition": MOVES, **own}, data)


def test_streams_transitions_and_ties_share_covariates() -> None:
    """A model of both: each formula finds its own columns among all."""
    emission = lh.Product(step=lh.Gamma(mean=TEXT), angle=lh.VonMises(loc=0.0))
    assert emission.names == ["step_mean_coefficients", "step_sd", "angle_loc", "angle_concentration"]
    model = lh.HMM(2, emission, transitions="~ temp").meet(covered(np.ones((300, 2))))[0]
    assert model.n_covariates == 2 and model.transitions.linear.own == (0,)
    assert model.emission.regressions["step_mean"].linear.own == (1, 0)
    beta = np.zeros((2, 2, 2))
    beta[0, 1], beta[1, 0] = (-2.0, 0.05), (-1.0, -0.03)
    params = {"coefficients": beta, "step_mean_coefficients": SLOPES, "step_sd": SPREAD}
    params |= {"angle_concentration": np.array([0.5, 3.0])}
    y = lh.simulate(model, params, 300, seed=2, covariates=FRAME)[1]
    step = CASES["gamma"][2](y[:, :1].astype(np.float64))
    logs = step + stats.vonmises.logpdf(y[:, 1:].astype(np.float64), params["angle_concentration"])
    leave = 1 / (1 + np.exp(-(TERMS[:, [0, 2]] @ np.array([beta[0, 1], beta[1, 0]]).T)))
    message, total = np.array([0.5, 0.5]), 0.0
    for t in range(300):
        out = leave[t]
        message = message @ np.array([[1 - out[0], out[0]], [out[1], 1 - out[1]]]) if t else message
        message = message * np.exp(logs[t])
        total, message = total + np.log(message.sum()), message / message.sum()
    assert lh.log_likelihood(model, params, covered(y)) == pytest.approx(total, rel=1e-6)
    tied = lh.HMM(3, lh.Tied(lh.Poisson(rate="~ temp"), (0, 1, 0))).resolve(covered(np.arange(300) % 7))
    assert tied.emission.parameters(3)["rate_coefficients"].shape == (2, 2)
    rows, at = tied.opened(covered(np.arange(300) % 7)).rows(0, 4), {"rate_coefficients": jnp.array(SLOPES[:, ::2])}
    found = np.asarray(tied.emission.log_likelihoods(at, rows))
    expected = stats.poisson.logpmf(np.arange(4)[:, None], np.exp(TERMS[:4, ::2] @ SLOPES[:, ::2].T))
    np.testing.assert_allclose(found, expected[:, [0, 1, 0]], rtol=1e-5)
    assert np.isfinite(float(tied.emission.log_prior(at)))


def test_gradients_are_those_of_differences() -> None:
    emission, own, _ = CASES["gamma"]
    params = {"transition": MOVES, **own}
    model = lh.HMM(2, emission).resolve(covered(RNG.gamma(2.0, 1.0, 300)))
    data = covered(RNG.gamma(2.0, 1.0, 300), 60)
    slope = lh.gradient(model, params, data, prior=False)["mean_coefficients"]
    region = model.emission.parameters(2)["mean_coefficients"].bijection
    with jax.enable_x64(True):
        u = np.asarray(region.inv(jnp.asarray(SLOPES)))
        for index in np.ndindex(2, 3):
            step = np.zeros((2, 3))
            step[index] = 1e-5
            ends = [np.asarray(region(jnp.asarray(u + way * step))) for way in (1, -1)]
            high, low = (lh.log_likelihood(model, {**params, "mean_coefficients": end}, data) for end in ends)
            assert slope[index] == pytest.approx((high - low) / 2e-5, rel=1e-5, abs=1e-7)


def test_the_parameter_has_its_own_prior_where_covariates_have_their_means() -> None:
    data = covered(RNG.gamma(2.0, 1.0, 300))
    model, plain = lh.HMM(2, lh.Gamma(mean=TEXT)).resolve(data), lh.HMM(2, lh.GammaMoments()).resolve(data)
    prior, own = plain.emission.specifications["mean"], model.emission.parameters(2)["mean_coefficients"]
    with jax.enable_x64(True):
        beta = jnp.asarray(SLOPES[0])
        middle = float(SLOPES[0] @ TERMS.mean(axis=0))
        standard = SLOPES[0, 1:] * TERMS[:, 1:].std(axis=0)
        expected = prior.log_prob(np.exp(middle)) + middle + stats.norm.logpdf(standard).sum()
        expected += np.log(TERMS[:, 1:].std(axis=0)).sum()
        assert float(own.prior.log_prob(beta)) == pytest.approx(float(expected))
        drawn = own.prior.expand((4000,)).sample(jax.random.key(0))
        means = np.exp(np.asarray(drawn) @ TERMS.mean(axis=0))
        assert stats.kstest(np.log(means), stats.norm(prior.loc, prior.scale).cdf).pvalue > 1e-3
    # Where there is no link slopes are as wide as the prior of the parameter.
    real = lh.HMM(2, lh.Gaussian(mean="~ temp")).resolve(data).emission
    spread = real.parameters(2)["mean_coefficients"].prior.slope.scale
    np.testing.assert_allclose(spread, real.emission.specifications["mean"].scale, rtol=1e-6)


def test_it_is_stored_and_needs_no_other_program_for_other_numbers() -> None:
    emission = lh.Gamma(mean=lh.Regression(TEXT, slope=dist.Laplace(0.0, 0.5)), sd=2.0)
    model = lh.HMM(2, emission, transitions="~ temp").resolve(covered(RNG.gamma(2.0, 1.0, 300)))
    config = json.loads(json.dumps(model_to_config(model)))
    again = model_from_config(config)
    assert model_to_config(again) == config and jax.tree.structure(again) == jax.tree.structure(model)
    other = lh.open_data(RNG.gamma(3.0, 1.0, 300), covariates=FRAME * 1.1)
    assert jax.tree.structure(lh.HMM(2, emission, transitions="~ temp").resolve(other)) == jax.tree.structure(model)
    unmet = lh.HMM(2, lh.Poisson(rate="~ temp"))
    assert model_to_config(model_from_config(model_to_config(unmet))) == model_to_config(unmet)
    del config["emission"]["options"]["regressions"][0]["resolved"]
    with pytest.raises(ModelError, match="cannot be rebuilt"):
        model_from_config(config)


def test_rows_are_judged_by_their_own_parameters() -> None:
    """Distribution functions, forecasts and answers along a covariate."""
    emission, own, _ = CASES["gaussian"]
    model = lh.HMM(2, emission).resolve(covered(RNG.normal(size=300)))
    y = RNG.normal(size=(300, 1))
    rows = model.opened(covered(y)).rows(0, 20)
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(value) for name, value in own.items()}
        below = np.asarray(model.emission.cdf_of_rows(arrays, rows)[1])[..., 0]
    np.testing.assert_allclose(below, stats.norm.cdf(y[:20], ETA[:20], SPREAD), rtol=1e-9)
    natural = {name: np.tile(value, (1, 3, *[1] * value.ndim)) for name, value in {**own, "transition": MOVES}.items()}
    posterior = Posterior.from_chains(model, chains_of(model, natural))
    found = posterior.along(FRAME[:5], draws=3)
    np.testing.assert_allclose(found["mean"].sel(summary="upper"), ETA[:5], rtol=1e-9)
    assert posterior.draws["mean_coefficients"].coords["mean_term"].values[0] == "Intercept"
    assert "stationary" not in found and len(lh.plots.along(posterior, "temp", FRAME[:5]).axes) == 1
    ahead = posterior.forecast(covered(y), 2, draws=1, paths=4000, covariates=FRAME[7:9])
    expected = (ahead.state_probabilities * ETA[7:9]).sum(axis=1)
    assert np.all(np.abs(ahead.mean[:, 0] - expected) < 4 * ahead.sd[:, 0] / np.sqrt(4000))


def test_what_cannot_be_meant_is_refused() -> None:
    model = lh.HMM(2, lh.Poisson(rate="~ temp"))
    gap = FRAME.assign(temp=FRAME.temp.where(FRAME.index != 17))
    params = {"transition": MOVES, "rate_coefficients": SLOPES[:, :2]}
    known = model.resolve(covered(np.arange(300) % 3))
    with pytest.raises(DataError, match=r"covariate temp is nan .*17"):
        lh.log_likelihood(known, params, lh.open_data(np.ones(300), covariates=gap))
    with pytest.raises(ModelError, match="needs covariates by name"):
        model.resolve(np.ones(300))
    for emission, formulas, message in (
        (lh.Gaussian(2), {"covariance": "~ temp"}, "cannot follow a formula"),
        (lh.Gaussian(sd=1.0), {"sd": "~ temp"}, "cannot follow a formula"),
        (lh.Gaussian(), {"rate": "~ temp"}, "cannot follow a formula"),
        (lh.Gaussian(), {"mean": 3.0}, "must be a text such as"),
        (lh.Gaussian(mean=dist.Cauchy(0.0, 1.0)), {"mean": "~ temp"}, "has no standard deviation"),
        (lh.Gaussian(noise=lh.ARNoise(1)), {"mean": "~ temp"}, "without memory"),
    ):
        with pytest.raises(ModelError, match=message):
            lh.ByFormula(emission, formulas)
    with pytest.raises(ModelError, match="transitions must be a formula, too"):
        lh.HMM(2, lh.Poisson(rate="~ temp"), transitions=lh.Logit(1)).resolve(covered(np.ones(300)))
    with pytest.raises(ModelError, match="covariates must be a table"):
        lh.simulate(known, params, 10)


@pytest.mark.slow
def test_sampling_finds_what_was_simulated() -> None:
    hour = np.arange(6000) % 24.0
    frame = pd.DataFrame({"hour": hour})
    text = "~ cos(2 * pi * hour / 24) + sin(2 * pi * hour / 24)"
    model = lh.HMM(2, lh.Gamma(mean=text))
    truth = np.array([[0.0, 0.5, -0.2], [2.0, -0.3, 0.4]])
    params = {"transition": MOVES, "mean_coefficients": truth, "sd": np.array([0.5, 2.0])}
    known = model.meet(lh.open_data(np.ones(6000), covariates=frame))[0]
    states, y = lh.simulate(known, params, 6000, seed=4, covariates=frame)
    data = lh.open_data(y, covariates=frame)
    for how in ({}, {"sampler": lh.NUTS(), "draws": 200}):
        posterior = lh.sample(model, data, chains=2, progress=False, **how)
        found = posterior.draws["mean_coefficients"]
        z = (found.mean(("chain", "draw")) - truth) / found.std(("chain", "draw"))
        assert np.abs(z).max() < 4.0
        assert np.mean(posterior.decode(data) == states) > 0.97
    fit = lh.fit_em(model, data, progress=False)
    np.testing.assert_allclose(fit.params["mean_coefficients"], truth, atol=0.1)
