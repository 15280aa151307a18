"""Schemes whose rates and steps differ by row, against the matrix exponential row by row, and against simulation."""

import json
from functools import partial
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.linalg import expm

import longhmm as lh
from longhmm.backends.varying import distinct_rows
from longhmm.errors import ModelError
from longhmm.model.serialise import model_from_config, model_to_config

RNG = np.random.default_rng(1)
N = 40
COVARIATES = {
    "step": RNG.choice([0.05, 0.1, 2.0], N),
    "conc": RNG.choice([0.5, 3.0], N),
    "volt": RNG.uniform(-1.0, 1.0, N),
}
VALUES = RNG.normal(0.5, 0.7, N)
DATA = lh.open_data(VALUES, covariates=COVARIATES)
MOVES = lh.Rates("C <-> O", dt="step", scaled={"C -> O": "conc"}, sloped={"O -> C": "volt"})
MODEL = lh.HMM(2, lh.Gaussian(), transitions=MOVES)
PARAMS = {"rates": np.array([1.5, 2.0, 0.7]), "mean": [0.0, 1.0], "sd": [0.4, 0.3]}


def matrix(row, rates=PARAMS["rates"]):
    up, down = rates[0] * COVARIATES["conc"][row], rates[1] * np.exp(rates[2] * COVARIATES["volt"][row])
    return expm(np.array([[-up, up], [down, -down]]) * COVARIATES["step"][row])


def log_likelihood(rates):
    message, total = np.array([0.5, 0.5]), 0.0
    for t, value in enumerate(VALUES):
        message = message @ matrix(t, rates) if t else message
        message = message * stats.norm.pdf(value, PARAMS["mean"], PARAMS["sd"])
        total, message = total + np.log(message.sum()), message / message.sum()
    return total


def test_every_row_has_the_matrix_of_its_covariates():
    found, data = MODEL.meet(DATA)
    with jax.enable_x64(True):
        seen = found.transitions.matrices(jnp.asarray(PARAMS["rates"]), jnp.asarray(data.rows(0, N).covariates))
    np.testing.assert_allclose(seen, [matrix(row) for row in range(N)], rtol=1e-9)
    assert lh.log_likelihood(MODEL, PARAMS, DATA) == pytest.approx(log_likelihood(PARAMS["rates"]), rel=1e-10)


def test_gradients_are_those_of_differences():
    slope = lh.gradient(MODEL.resolve(DATA), PARAMS, DATA, prior=False)["transition"]
    spread = COVARIATES["volt"].std()
    scale = np.array([PARAMS["rates"][0], PARAMS["rates"][1], 1.0 / spread])  # of the parameter by its coordinates
    for index, unit in enumerate(np.eye(3)):
        high, low = (log_likelihood(PARAMS["rates"] + sign * 1e-5 * scale * unit) for sign in (1, -1))
        assert slope[index] == pytest.approx((high - low) / 2e-5, rel=1e-5)


def test_rows_with_the_same_covariates_share_a_matrix():
    """Which changes no answer. Steps that are differences of times are equal but for rounding, and count as equal."""
    n, rng = 300, np.random.default_rng(5)
    values, conc = rng.normal(0.5, 0.7, n), rng.choice([0.5, 3.0], n)
    times = np.cumsum(rng.choice([0.05, 0.1, 2.0], n))
    steps = np.diff(times, prepend=0.0)
    given = [np.round(steps, 2), steps, steps * (1.0 + 1e-7 * rng.normal(size=n))]
    equal, rounded, differ = (
        lh.open_data(values, covariates={"step": step, "conc": conc}, lengths=[200, 100]) for step in given
    )
    moves = lh.Rates("C <-> O", dt="step", scaled={"C -> O": "conc"})
    model = lh.HMM(2, lh.Gaussian(), transitions=moves).resolve(equal)
    params = {"rates": np.array([1.5, 2.0]), "mean": [0.0, 1.0], "sd": [0.4, 0.3]}
    assert len(np.unique(steps)) > 6
    tables = [distinct_rows(model.transitions, model.opened(each)) for each in (equal, rounded, differ)]
    assert [None if each is None else each[1].max() + 1 for each in tables] == [6, 6, None]
    asked = (lh.log_likelihood, partial(lh.gradient, prior=False), lh.state_probabilities)

    def answers(data):
        return jax.tree.leaves([each(model, params, data) for each in asked])

    with patch("longhmm.backends.read.distinct_rows", lambda moves, sequences: None):
        expected = answers(equal)
    for data, tolerance in ((equal, 1e-12), (rounded, 1e-9), (differ, 1e-5)):
        for found, known in zip(answers(data)[:-1], expected[:-1], strict=True):
            np.testing.assert_allclose(found, known, rtol=tolerance)
        np.testing.assert_allclose(answers(data)[-1], expected[-1], atol=1e-6)  # in single precision


@pytest.mark.parametrize("steps", [[0.1, 0.2], None])
def test_time_does_not_run_backwards(steps):
    """In data that the model has not met, few steps or many."""
    model, rng = MODEL.resolve(DATA), np.random.default_rng(3)
    given = rng.uniform(0.1, 0.2, 400) if steps is None else rng.choice(steps, 400)
    beside = {"step": given, "conc": np.ones(400), "volt": np.zeros(400)}
    given[77] = -0.1
    with pytest.warns(RuntimeWarning, match="No reachable state can have produced row 77"):
        assert lh.log_likelihood(model, PARAMS, lh.open_data(np.zeros(400), covariates=beside)) == -np.inf


@pytest.mark.parametrize("gap", [1e-4, 1.0, 1e3, 3e4])
def test_long_gaps_are_exponentials_too(gap):
    moves = lh.Rates("1 <-> 2 <-> 3", dt="step")
    rates, data = np.array([1.0, 0.5, 0.02, 0.01]), lh.open_data(np.zeros(3), covariates={"step": np.ones(3)})
    found, _ = lh.HMM(3, lh.Gaussian(), transitions=moves).meet(data)
    with jax.enable_x64(True):
        seen = found.transitions.matrices(jnp.asarray(rates), jnp.full((1, 1), gap))[0]
        generator = np.asarray(moves.one.generator(jnp.asarray(rates)))
    np.testing.assert_allclose(seen, expm(generator * gap), rtol=1e-6)


def test_equal_steps_are_those_of_plain_rates():
    plain = lh.HMM(2, lh.Gaussian(), transitions=lh.Rates("C <-> O", dt=0.1))
    by_row = lh.HMM(2, lh.Gaussian(), transitions=lh.Rates("C <-> O", dt="step"))
    data, params = lh.open_data(VALUES, covariates={"step": np.full(N, 0.1)}), {**PARAMS, "rates": [1.5, 2.0]}
    assert lh.log_likelihood(by_row, params, data) == pytest.approx(lh.log_likelihood(plain, params, VALUES), rel=1e-10)
    moves, known = by_row.resolve(data).transitions, plain.transitions
    with jax.enable_x64(True):
        rates = jnp.asarray([1.5, 2.0])
        assert float(moves.log_prior(rates)) == pytest.approx(float(known.log_prior(rates)))
        np.testing.assert_allclose(moves.unconstrain(rates), known.unconstrain(rates))


def test_coordinates_have_their_volume():
    moves = MODEL.resolve(DATA).transitions
    with jax.enable_x64(True):
        rates = jnp.asarray(PARAMS["rates"])
        u = moves.unconstrain(rates)
        np.testing.assert_allclose(moves.constrain(u), rates, rtol=1e-12)
        volume = np.linalg.slogdet(jax.jacobian(moves.constrain)(u))[1]
        assert float(moves.log_jacobian(rates)) == pytest.approx(volume, abs=1e-9)


def test_it_is_stored():
    for model in (MODEL, MODEL.resolve(DATA)):
        config = json.loads(json.dumps(model_to_config(model)))
        again = model_from_config(config)
        assert model_to_config(again) == config and again.transitions.terms == MOVES.terms
    assert lh.log_likelihood(again, PARAMS, DATA) == pytest.approx(log_likelihood(PARAMS["rates"]), rel=1e-10)
    assert repr(again.transitions) == "Rates('C <-> O', dt='step', C -> O by conc, O -> C by volt)"


def test_refusals():
    with pytest.raises(ModelError, match="sloped must not be given with detailed_balance"):
        lh.Rates("A <-> B", dt=1.0, detailed_balance=True, sloped={"A -> B": "volt"})
    with pytest.raises(ModelError, match="'step' of rates must not be negative"):
        MODEL.resolve(lh.open_data(VALUES, covariates={**COVARIATES, "step": -COVARIATES["step"]}))
    with pytest.raises(ModelError, match="'step' must hold seconds since the row before"):
        MODEL.resolve(lh.open_data(VALUES, covariates={**COVARIATES, "step": np.zeros(N)}))
    with pytest.raises(ModelError, match="needs the covariate 'conc'"):
        MODEL.resolve(lh.open_data(VALUES, covariates={"step": COVARIATES["step"], "volt": COVARIATES["volt"]}))


@pytest.mark.slow
def test_rates_by_row_are_found():
    n = 6000
    rng = np.random.default_rng(2)
    given = {"step": rng.choice([0.05, 0.1, 0.5], n), "conc": np.repeat(rng.choice([0.5, 1.0, 3.0], n // 100), 100)}
    model = lh.HMM(2, lh.Gaussian(), transitions=lh.Rates("C <-> O", dt="step", scaled={"C -> O": "conc"}))
    truth = {"rates": [1.5, 2.0], "mean": [0.0, 1.0], "sd": [0.3, 0.3]}
    met = model.resolve(lh.open_data(rng.normal(size=n), covariates=given))
    _, values = lh.simulate(met, truth, n, seed=1, covariates=given)
    posterior = lh.sample(model, lh.open_data(values, covariates=given), draws=200, seed=1, progress=False)
    table = posterior.rates()
    assert table.columns.tolist() == ["from", "to", "mean", "sd", "low", "high"]
    assert np.all(np.abs(table["mean"] - truth["rates"]) < 4 * table["sd"]) and np.all(
        table["sd"] < 0.1 * table["mean"]
    )
    kinetics = posterior.kinetics().set_index(["quantity", "of"])["mean"]
    assert kinetics["dwell time", "C"] == pytest.approx(1 / (1.5 * given["conc"].mean()), rel=0.15)
