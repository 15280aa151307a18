"""Transitions that follow covariates by a multinomial logit."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from typer.testing import CliRunner

import longhmm as lh
from longhmm.cli import app
from longhmm.errors import ModelError
from longhmm.model.serialise import model_from_config, model_to_config

RNG = np.random.default_rng(5)
FRAME = pd.DataFrame({"temp": RNG.normal(15.0, 4.0, 4000), "slope": RNG.uniform(0.0, 2.0, 4000)})
TEXT = "~ scale(temp) + slope"
BETA = np.zeros((3, 3, 3))
BETA[0, 1], BETA[0, 2], BETA[1, 0], BETA[1, 2], BETA[2, 0], BETA[2, 1] = (
    (-2.0, 1.0, 0.3), (-3.0, -0.5, 0.2), (-2.5, 0.4, -0.6), (-2.0, -0.8, 0.0), (-3.0, 0.0, 0.5), (-1.5, 0.7, -0.4),
)  # fmt: skip
EMISSION = {"mean": [0.0, 3.0, 7.0], "sd": [1.0, 1.0, 1.5]}


def matrix(beta, row):
    """Written out entry by entry."""
    x, found = np.array([1.0, (row.temp - FRAME.temp.mean()) / FRAME.temp.std(ddof=1), row.slope]), np.zeros((3, 3))
    for i in range(3):
        odds = [1.0 if i == j else np.exp(beta[i, j] @ x) for j in range(3)]
        found[i] = np.array(odds) / sum(odds)
    return found


def model_on(frame, **options):
    return lh.HMM(3, lh.Gaussian(**options), transitions=TEXT).meet(lh.open_data(np.zeros(4000), covariates=frame))[0]


MODEL = model_on(FRAME)


def test_matrices_are_the_softmax_of_the_terms():
    covariates = MODEL.opened(lh.open_data(np.zeros(4000), covariates=FRAME)).rows(0, 5).covariates
    with jax.enable_x64(True):
        found = MODEL.transitions.matrices(jnp.asarray(BETA), jnp.asarray(covariates))
    np.testing.assert_allclose(found, [matrix(BETA, row) for row in FRAME[:5].itertuples()], rtol=1e-12)
    typical = MODEL.validate({"coefficients": BETA, **EMISSION})["transition"]
    np.testing.assert_allclose(typical, matrix(BETA, FRAME.mean()), rtol=1e-12)


def test_coordinates_are_standardised_coefficients():
    moves = MODEL.transitions
    with jax.enable_x64(True):
        u = jnp.asarray(RNG.normal(size=moves.n_free))
        beta = moves.constrain(u)
        np.testing.assert_allclose(moves.unconstrain(beta), u, rtol=1e-10)
        slots = u.reshape(6, 3)
        expected = jnp.sum(dist.Normal(0, 5).log_prob(slots[:, 0])) + jnp.sum(
            dist.Normal(0, 2.5).log_prob(slots[:, 1:])
        )
        assert float(moves.log_prior(beta) + moves.log_jacobian(beta)) == pytest.approx(float(expected))
        free = lambda v: moves.constrain(v)[~np.eye(3, dtype=bool)].ravel()  # noqa: E731
        volume = np.linalg.slogdet(jax.jacobian(free)(u))[1]
        assert float(moves.log_jacobian(beta)) == pytest.approx(volume)
        # One standard deviation of a covariate changes the log odds by its coordinate.
        one = FRAME.assign(temp=FRAME.temp.mean() + FRAME.temp.std(ddof=0), slope=FRAME.slope.mean())[:1]
        at = moves.matrices(beta, jnp.asarray(moves.formula.matrix(one)))[0]
        assert float(jnp.log(at[0, 1] / at[0, 0])) == pytest.approx(float(slots[0, 0] + slots[0, 1]))


def test_everything_agrees_with_all_paths():
    values = np.array([0.1, 2.0, np.nan, 7.3, 6.0, 0.4, 3.1, np.nan, 2.2])
    data = lh.open_data([values[:4], values[4:]], covariates=[FRAME[:4], FRAME[4:9]])
    params = {"coefficients": BETA, **EMISSION}
    lh.testing.check_coherence(MODEL, params, data)
    total = 0.0
    for piece in (slice(0, 4), slice(4, 9)):
        message = np.full(3, 1 / 3)
        for t, (y, row) in enumerate(zip(values[piece], FRAME[piece].itertuples(), strict=True)):
            message = message @ matrix(BETA, row) if t else message
            if not np.isnan(y):
                message = message * np.exp(-0.5 * ((y - EMISSION["mean"]) / np.array(EMISSION["sd"])) ** 2)
                message = message / (np.sqrt(2 * np.pi) * np.array(EMISSION["sd"]))
        total += np.log(message.sum())
    assert lh.log_likelihood(MODEL, params, data) == pytest.approx(total, rel=1e-12)


def test_gradients_are_those_of_differences():
    data = lh.open_data(RNG.normal(3, 3, 60), covariates=FRAME[:60])
    slope = lh.gradient(MODEL, {"coefficients": BETA, **EMISSION}, data, prior=False)["transition"]
    with jax.enable_x64(True):
        u = np.asarray(MODEL.transitions.unconstrain(jnp.asarray(BETA)))
        for index in (0, 4, 11, 17):
            step = 1e-5 * (np.arange(18) == index)
            ends = [np.array(MODEL.transitions.constrain(jnp.asarray(u + s * step))) for s in (1, -1)]
            high, low = (lh.log_likelihood(MODEL, {"coefficients": end, **EMISSION}, data) for end in ends)
            assert slope[index] == pytest.approx((high - low) / 2e-5, rel=1e-6, abs=1e-7)


def test_it_is_stored_with_what_its_formula_learned():
    config = json.loads(json.dumps(model_to_config(MODEL)))
    again = model_from_config(config)
    assert model_to_config(again) == config and jax.tree.structure(again) == jax.tree.structure(MODEL)
    new = FRAME[:3] + 100.0
    np.testing.assert_array_equal(again.transitions.formula.matrix(new), MODEL.transitions.formula.matrix(new))
    unmet = lh.HMM(2, lh.Poisson(), transitions=lh.Logit("~ temp", slope=dist.Laplace(0.0, 1.0)))
    assert model_to_config(model_from_config(model_to_config(unmet))) == model_to_config(unmet)
    config["transitions"]["options"]["covariates"] = "~ __import__('os').system('true')"
    with pytest.raises(ModelError, match="The stored transitions 'logit' cannot be rebuilt"):
        model_from_config(config)


def test_other_numbers_need_no_other_program():
    other = model_on(FRAME * 3.0 + 1.0)
    assert jax.tree.structure(other) == jax.tree.structure(MODEL)


def test_an_array_does_as_well():
    x = FRAME.temp.to_numpy()[:300]
    data = lh.open_data(RNG.normal(size=300), covariates=x)
    array = lh.HMM(2, lh.Gaussian(), transitions=lh.Logit(1)).resolve(data)
    formula = lh.HMM(2, lh.Gaussian(), transitions="~ temp").resolve(
        lh.open_data(np.zeros(300), covariates={"temp": x})
    )
    assert array.transitions.terms == ("Intercept", "x0")
    np.testing.assert_array_equal(array.transitions.linear.spread, formula.transitions.linear.spread)
    with pytest.raises(ModelError, match="has 0 covariate"):
        lh.HMM(2, lh.Gaussian(), transitions=lh.Logit(1)).resolve(np.zeros(300))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"transitions": 3}, "transitions must be a formula"),
        ({"transitions": "~ temp", "transition_prior": 2.0}, "transition_prior and fixed_rows go with"),
        ({"transitions": "~ temp", "fixed_rows": {0: [1.0, 0.0]}}, "transition_prior and fixed_rows go with"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, message):
    with pytest.raises(ModelError, match=message):
        lh.HMM(2, lh.Gaussian(), **given)
    for wrong in (
        {"covariates": 0},
        {"covariates": "~ x", "slope": 3.0},
        {"covariates": "~ x", "intercept": dist.Normal},
    ):
        with pytest.raises(ModelError):
            lh.Logit(**wrong)
    with pytest.raises(ModelError, match="must be 0 for staying"):
        MODEL.validate({"coefficients": BETA + 1.0, **EMISSION})


@pytest.fixture(scope="module")
def recording():
    """States, and observations beside their covariates, of which some are missing."""
    states, values = lh.simulate(MODEL, {"coefficients": BETA, **EMISSION}, 4000, seed=2, covariates=FRAME)
    frame = FRAME.assign(y=values[:, 0])
    frame.loc[100:110, "y"] = np.nan
    return states, frame


@pytest.mark.slow
def test_it_goes_through_the_whole_product(recording, tmp_path):
    states, frame = recording
    data = lh.open_data(frame, columns="y", covariates=["temp", "slope"])
    model = lh.HMM(3, lh.Gaussian(), transitions=TEXT)
    posterior = lh.sample(model, data, chains=2, draws=60, seed=1, progress=False)
    draws = posterior.draws["coefficients"]
    assert draws.dims[2:] == ("state", "to_state", "term")
    assert draws.term.values.tolist() == ["Intercept", "scale(temp)", "slope"]
    gap = np.abs(draws.mean(("chain", "draw")) - BETA)
    assert np.all(gap <= 4.5 * draws.std(("chain", "draw")))
    table = posterior.summary()
    assert "coefficients[0, 1, scale(temp)]" in table.index and "coefficients[1, 1, slope]" not in table.index
    assert np.mean(posterior.decode(data) == states) > 0.9
    ahead = posterior.forecast(data, 2, covariates={"temp": [200.0, 15.0], "slope": [1.0, 1.0]})
    assert ahead.state_probabilities.shape == (2, 3) and np.isfinite(posterior.score(data, draws=3).log_density)
    posterior.save(tmp_path / "run")
    again = lh.load(tmp_path / "run")
    assert again.draws.identical(posterior.draws)
    few = lh.open_data(frame[:50], columns="y", covariates=["temp", "slope"])  # means of scale() are those of the fit
    assert again.score(few, draws=3).log_density == posterior.score(few, draws=3).log_density


def test_the_command_line_reads_columns_by_name(recording, tmp_path):
    recording[1][:600].assign(clock=np.arange(600)).to_csv(tmp_path / "data.csv", index=False)
    start = [
        "fit",
        f"{tmp_path}/data.csv",
        "--states",
        "2",
        "--transitions",
        "~ temp",
        "--chains",
        "1",
        "--draws",
        "20",
    ]
    found = CliRunner().invoke(app, [*start, "--column", "y", "--out", f"{tmp_path}/run"])
    assert found.exit_code == 0, found.output
    assert lh.load(tmp_path / "run").model.transitions.formula.variables == ("temp",)
    found = CliRunner().invoke(app, ["decode", f"{tmp_path}/run", "--out", f"{tmp_path}/events.csv"])
    assert found.exit_code == 0, found.output
    found = CliRunner().invoke(app, [*start, "--out", f"{tmp_path}/other"])
    assert found.exit_code == 1 and "columns must name the observations" in found.output
