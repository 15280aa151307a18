"""Sequences of unlike brightness: sums over all paths, differences, known densities, storage, and what is found."""

import itertools
import pickle
from typing import Any

import jax
import numpy as np
import pytest
from numpyro.distributions import biject_to
from scipy import stats

import longhmm as lh
from longhmm.errors import DataError, ModelError
from longhmm.model.emissions.brightness import AboutZero, CommonSpread, spreads
from longhmm.model.serialise import model_from_config, model_to_config

MOVES = np.array([[0.9, 0.1], [0.2, 0.8]])
LENGTHS = [7, 1, 4, 5]
LOGS = np.array([0.5, -0.2, 0.1, -0.4])
PARAMS: dict[str, Any] = {"transition": MOVES, "mean": np.array([3.0, 7.0]), "sd": np.array([1.0, 0.6])}
PARAMS["log_brightness"] = LOGS
MODEL = lh.HMM(2, lh.Brightness(lh.Gaussian(), lengths=LENGTHS))


def traces() -> list[np.ndarray]:
    found = [np.array(each, np.float64) for each in lh.simulate(MODEL, PARAMS, LENGTHS, seed=1)[1]]
    for each in found:
        each[len(each) // 2] = np.nan
    return found


def by_enumeration(y: np.ndarray, factor: float) -> tuple[float, np.ndarray]:
    """Log likelihood and state probabilities from all paths, straight from the definition."""
    paths = np.array(list(itertools.product(range(2), repeat=len(y))))
    logs = np.log(0.5) + np.log(MOVES)[paths[:, :-1], paths[:, 1:]].sum(axis=1)
    for t in np.flatnonzero(~np.isnan(y)):
        own = paths[:, t]
        logs = logs + stats.norm.logpdf(y[t], factor * PARAMS["mean"][own], factor * PARAMS["sd"][own])
    total = np.logaddexp.reduce(logs)
    return float(total), np.stack([np.exp(logs - total) @ (paths == state) for state in range(2)], axis=1)


def test_likelihood_and_probabilities_are_sums_over_all_paths() -> None:
    data = traces()
    found = [by_enumeration(y[:, 0], factor) for y, factor in zip(data, np.exp(LOGS), strict=True)]
    assert lh.log_likelihood(MODEL, PARAMS, data) == pytest.approx(sum(one for one, _ in found), rel=1e-7)
    expected = np.concatenate([probabilities for _, probabilities in found])
    np.testing.assert_allclose(lh.state_probabilities(MODEL, PARAMS, data), expected, atol=2e-6)


def test_the_gradient_is_that_of_differences() -> None:
    data = traces()
    model = MODEL.resolve(data)
    u = lh.unconstrain(model, PARAMS)
    assert u["log_brightness"].shape == (3,)
    np.testing.assert_allclose(lh.constrain(model, u)["log_brightness"], LOGS, atol=1e-12)

    def density(at: dict[str, Any]) -> float:
        with jax.enable_x64(True):
            prior = float(model.log_prior_unconstrained({name: np.asarray(each) for name, each in at.items()}))
        return lh.log_likelihood(model, lh.constrain(model, at), data) + prior

    slope = lh.gradient(model, PARAMS, data)
    for name, index in [("log_brightness", 0), ("log_brightness", 2), ("mean", 1), ("sd", 0)]:
        step = np.zeros_like(u[name])
        step[index] = 1e-4
        ends = [density({**u, name: u[name] + sign * step}) for sign in (1, -1)]
        assert slope[name][index] == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-5, abs=1e-6)


def test_the_prior_is_that_of_normal_logarithms_with_their_variance_integrated_out() -> None:
    """Of u, coordinates of one fewer: against a sum over a fine grid of tau."""
    u = np.array([0.3, -0.1, 0.5])
    with jax.enable_x64(True):
        turn = biject_to(AboutZero())
        logs = np.asarray(turn(u))
        found = float(CommonSpread(0.1, 4).log_prob(logs) + turn.log_abs_det_jacobian(u, logs))
    assert logs.sum() == pytest.approx(0.0, abs=1e-12)
    assert np.sum(logs**2) == pytest.approx(np.sum(u**2))  # a rotation, so that volumes stay as they are
    square = np.geomspace(1e-7, 1e5, 200_001)
    mixed = stats.invgamma(0.5, scale=0.005).pdf(square) * np.exp(
        stats.norm.logpdf(u[:, None], 0, np.sqrt(square)).sum(0)
    )
    assert found == pytest.approx(np.log(np.trapezoid(mixed, square)), abs=1e-5)
    taus = spreads(np.broadcast_to(logs, (200_000, 4)), 0.1)
    posterior = stats.invgamma(2.0, scale=0.5 * (0.01 + np.sum(u**2)))  # of tau^2
    np.testing.assert_allclose(np.quantile(taus**2, [0.1, 0.5, 0.9]), posterior.ppf([0.1, 0.5, 0.9]), rtol=0.02)


def test_draws_from_the_prior_have_its_spread() -> None:
    drawn = np.asarray(CommonSpread(0.1, 4).sample(jax.random.key(0), (20_000,)))
    np.testing.assert_allclose(drawn.mean(axis=1), 0.0, atol=1e-4)
    share = np.mean(np.sqrt(np.sum(drawn**2, axis=1)) < 0.3)  # |u| / 0.1 = |normal| / |normal|: F with 3 and 1
    assert share == pytest.approx(stats.f(3, 1).cdf(9.0 / 3.0), abs=0.015)  # four standard errors


def test_simulated_sequences_are_as_bright_as_asked_for() -> None:
    model = lh.HMM(2, lh.Brightness(lh.Gaussian(), lengths=[4000, 4000]))
    params = {**PARAMS, "log_brightness": np.array([0.7, -0.7])}
    one, other = lh.simulate(model, params, [4000, 4000], seed=3)[1]
    assert np.mean(one) / np.mean(other) == pytest.approx(np.exp(1.4), rel=0.05)
    assert np.std(one) / np.std(other) == pytest.approx(np.exp(1.4), rel=0.05)


def test_storage_keeps_the_sequences() -> None:
    for model in (lh.HMM(2, lh.Brightness(lh.Gaussian(), scale=0.3)), MODEL.resolve(traces())):
        again = model_from_config(model_to_config(model))
        assert model_to_config(again) == model_to_config(model)
    assert lh.log_likelihood(again, PARAMS, traces()) == lh.log_likelihood(MODEL, PARAMS, traces())


def test_it_travels_to_workers() -> None:
    again = pickle.loads(pickle.dumps(MODEL.resolve(traces())))
    assert lh.log_likelihood(again, PARAMS, traces()) == lh.log_likelihood(MODEL, PARAMS, traces())


def test_states_that_share_levels_and_other_families_are_bright_too() -> None:
    tied = lh.HMM(3, lh.Brightness(lh.Tied(lh.Gaussian(), (0, 0, 1)), lengths=LENGTHS))
    alone = lh.HMM(3, lh.Tied(lh.Gaussian(), (0, 0, 1)))
    own = {**PARAMS, "transition": np.full((3, 3), 1 / 3)}
    scaled = [y / np.exp(log) for y, log in zip(traces(), LOGS, strict=True)]
    plain = {name: each for name, each in own.items() if name != "log_brightness"}
    seen = [np.sum(~np.isnan(y)) for y in scaled]
    expected = lh.log_likelihood(alone, plain, scaled) - np.dot(seen, LOGS)
    assert lh.log_likelihood(tied, own, traces()) == pytest.approx(expected, rel=1e-7)
    assert lh.Brightness(lh.StudentT()).names == ["df", "loc", "scale", "log_brightness"]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ModelError, match="emission must be of any real numbers, without formulas or drift"):
        lh.Brightness(lh.Poisson())
    with pytest.raises(ModelError, match="emission must be one without a brightness of its own"):
        lh.Brightness(lh.Brightness(lh.Gaussian()))
    with pytest.raises(ModelError, match=r"Brightness\(Gaussian\(\)\) must be around Tied"):
        lh.Tied(lh.Brightness(lh.Gaussian()), (0, 0, 1))
    with pytest.raises(ModelError, match=r"without formulas or drift, got Gaussian\(drift"):
        lh.Brightness(lh.Gaussian(drift=3))
    with pytest.raises(ModelError, match="scale must be a positive number, got 0"):
        lh.Brightness(lh.Gaussian(), scale=0)
    with pytest.raises(ModelError, match="lengths must be the numbers of rows of two or more sequences"):
        lh.Brightness(lh.Gaussian(), lengths=[10])
    with pytest.raises(ModelError, match="Brightness needs two or more sequences"):
        lh.HMM(2, lh.Brightness(lh.Gaussian())).meet(np.random.default_rng(0).normal(size=50))
    with pytest.raises(DataError, match=r"^data must be the 4 sequences .* nothing says how bright"):
        lh.log_likelihood(MODEL, PARAMS, [*traces(), traces()[0]])
    with pytest.raises(DataError, match="nothing says how bright other sequences are"):
        lh.log_likelihood(MODEL, PARAMS, traces()[:2])  # which might be any two


@pytest.mark.slow
def test_brightness_levels_and_spread_are_found() -> None:
    rng = np.random.default_rng(0)
    logs = 0.3 * rng.normal(size=12)
    truth = {"transition": MOVES, "mean": [3.0, 7.0], "sd": [0.6, 0.8]}
    own = lh.HMM(2, lh.Gaussian(), initial="stationary")
    data = [np.exp(log) * lh.simulate(own, truth, 60, seed=seed)[1] for seed, log in enumerate(logs)]
    model = lh.HMM(2, lh.Brightness(lh.Gaussian()), initial="stationary")
    posterior = lh.sample(model, data, chains=2, draws=150, progress=False)
    table = posterior.brightness()
    typical = np.exp(logs.mean())
    np.testing.assert_allclose(table["mean"].to_numpy()[:-1], np.exp(logs) / typical, rtol=0.1)  # four standard errors
    assert table.loc["spread", "lower"] < 0.3 < table.loc["spread", "upper"]
    np.testing.assert_allclose(posterior.mean_params()["mean"], typical * np.array([3.0, 7.0]), rtol=0.06)
    with pytest.raises(ModelError, match=r"brightness\(\) needs a model with one"):
        lh.Posterior.brightness(lh.sample(own, data[:2], sampler="gibbs", chains=1, draws=2, progress=False))
