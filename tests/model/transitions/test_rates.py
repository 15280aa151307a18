"""Transitions in continuous time, against the matrix exponential, differences, and simulated and published rates."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy.linalg import expm

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.model.serialise import model_from_config, model_to_config
from longhmm.model.transitions.rates import Rates
from recordings import RECORDINGS

KINSOFT = RECORDINGS / "kinsoft"
CHAIN = Rates("1 <-> 2 <-> 3", dt=0.1)
RATES = np.array([1.0, 0.5, 2.0, 1.0])
EMISSION = {"mean": [0.0, 1.0, 2.5], "sd": [0.5, 0.4, 0.5]}
MODEL = lh.HMM(3, lh.Gaussian(), transitions=CHAIN)
LOOP = "C1 <-> C2 <-> O, O <-> C1"


def generator(rates):
    a, b, c, d = rates
    return np.array([[-a, a, 0.0], [b, -b - c, c], [0.0, d, -d]])


def test_schemes_are_read():
    assert CHAIN.states == ("1", "2", "3") and CHAIN.steps == ((0, 1), (1, 0), (1, 2), (2, 1))
    assert Rates("10 <-> 2", dt=1).states == ("2", "10")
    one_way = Rates("A -> B <- C; C -> A", dt=1)
    assert one_way.states == ("A", "B", "C") and one_way.steps == ((0, 1), (2, 0), (2, 1))
    assert Rates([("A", "B"), ("C", "B"), ("C", "A")], dt=1).steps == one_way.steps
    assert one_way.terms == ("A -> B", "C -> A", "C -> B")
    np.testing.assert_array_equal(one_way.allowed, [[1, 1, 0], [0, 1, 0], [1, 1, 1]])


def test_a_matrix_of_names_is_a_scheme():
    """Rates with one name are one rate; states keep the order of the rows."""
    moves = Rates([["", "k_on"], ["k_off", None]], dt=1.0)
    assert moves.states == ("1", "2") and moves.terms == ("1 -> 2", "2 -> 1") and moves.tied == ()
    table = pd.DataFrame([[None, None, "a"], ["a", None, "b"], ["b", "c", None]], index=list("ABC"))
    moves = Rates(table, dt=1.0, fixed={"C -> B": 3.0})
    assert moves.states == ("A", "B", "C") and moves.n_free == 2
    assert [[moves.terms[step] for step in group] for group in moves.tied] == [
        ["A -> C", "B -> A"],
        ["B -> C", "C -> A"],
    ]


@pytest.mark.parametrize("speed", [1e-6, 1e-2, 1.0, 30.0, 300.0])
def test_matrices_are_exponentials_entry_by_entry(speed):
    with jax.enable_x64(True):
        found = CHAIN.typical(jnp.asarray(RATES * speed))
        np.testing.assert_allclose(found, expm(generator(RATES * speed) * 0.1), rtol=1e-9)
    narrow = CHAIN.typical(jnp.asarray(RATES * speed, jnp.float32))
    np.testing.assert_allclose(narrow, expm(generator(RATES * speed) * 0.1), rtol=2e-5)


def test_derivatives_are_those_of_differences():
    with jax.enable_x64(True):
        found = jax.jacobian(CHAIN.typical)(jnp.asarray(RATES))
        for index, unit in enumerate(np.eye(4)):
            ends = [expm(generator(RATES + sign * 1e-5 * unit) * 0.1) for sign in (1, -1)]
            np.testing.assert_allclose(found[..., index], (ends[0] - ends[1]) / 2e-5, atol=1e-9)


def test_equal_rates_need_no_eigenvectors():
    """One way, all rates equal: the generator has one eigenvector for three eigenvalues."""
    moves = Rates("A -> B -> C -> D", dt=1.0)
    with jax.enable_x64(True):
        found = moves.typical(jnp.full(3, 0.7))
        slopes = jax.jacobian(moves.typical)(jnp.full(3, 0.7))
    np.testing.assert_allclose(found[0, :3], np.exp(-0.7) * np.array([1.0, 0.7, 0.245]), rtol=1e-12)
    assert np.isfinite(slopes).all() and slopes[0, 0, 0] == pytest.approx(-np.exp(-0.7))


def test_everything_agrees_with_all_paths():
    values = np.array([0.1, 0.9, np.nan, 2.3, 2.6, 1.1, 0.0])
    lh.testing.check_coherence(MODEL, {"rates": RATES, **EMISSION}, lh.open_data([values[:4], values[4:]]))
    plain = lh.HMM(3, lh.Gaussian())
    same = {"transition": expm(generator(RATES) * 0.1), **EMISSION}
    found = lh.log_likelihood(MODEL, {"rates": RATES, **EMISSION}, values)
    assert found == pytest.approx(lh.log_likelihood(plain, same, values), rel=1e-12)


def test_gradients_are_those_of_differences():
    _, values = lh.simulate(MODEL, {"rates": RATES, **EMISSION}, 500, seed=3)
    slope = lh.gradient(MODEL, {"rates": RATES, **EMISSION}, values, prior=False)["transition"]
    for index, unit in enumerate(np.eye(4)):
        ends = [{"rates": RATES * np.exp(sign * 1e-5 * unit), **EMISSION} for sign in (1, -1)]
        high, low = (lh.log_likelihood(MODEL, each, values) for each in ends)
        assert slope[index] == pytest.approx((high - low) / 2e-5, rel=1e-6)


def test_known_and_tied_rates_and_detailed_balance():
    moves = Rates(LOOP, dt=1e-3, fixed={"C1 -> C2": 30.0}, tied=[("C2 -> O", "O -> C2")], detailed_balance=True)
    assert moves.n_free == 3  # of five (one cycle among six), one known and one tied
    with jax.enable_x64(True):
        u = jnp.asarray([0.3, -0.7, 1.1])
        rates = np.asarray(moves.constrain(u))
        np.testing.assert_allclose(moves.unconstrain(jnp.asarray(rates)), u, atol=1e-12)
        named = dict(zip(moves.terms, rates, strict=True))
        q = np.asarray(moves.generator(jnp.asarray(rates)))
    assert named["C1 -> C2"] == pytest.approx(30.0) and named["C2 -> O"] == pytest.approx(named["O -> C2"])
    assert q[0, 1] * q[1, 2] * q[2, 0] == pytest.approx(q[0, 2] * q[2, 1] * q[1, 0])
    free = Rates(LOOP, dt=1e-3)
    assert free.n_free == 6


def test_priors_are_of_rates_per_second():
    moves = Rates("C <-> O", dt=0.01, prior={"C -> O": dist.Gamma(2.0, 0.1)})
    with jax.enable_x64(True):
        rates = jnp.asarray([12.0, 40.0])
        usual = dist.LogNormal(np.log(5.0), 2.0).log_prob(40.0)
        assert float(moves.log_prior(rates)) == pytest.approx(float(dist.Gamma(2.0, 0.1).log_prob(12.0) + usual))
        u = moves.unconstrain(rates)
        volume = np.linalg.slogdet(jax.jacobian(moves.constrain)(u))[1]
        assert float(moves.log_jacobian(rates)) - volume == pytest.approx(0.0, abs=1e-9)


def test_it_is_stored():
    moves = Rates(
        LOOP, dt=1e-3, prior={"O -> C1": dist.Gamma(2.0, 1.0)}, fixed={"C1 -> C2": 3.0}, tied=[("C2 -> O", "O -> C2")]
    )
    model = lh.HMM(3, lh.Gaussian(), transitions=moves, initial="stationary")
    config = json.loads(json.dumps(model_to_config(model)))
    again = model_from_config(config)
    assert model_to_config(again) == config and jax.tree.structure(again) == jax.tree.structure(model)
    assert again.transitions.terms == moves.terms


def test_other_numbers_need_no_other_program():
    other = lh.HMM(3, lh.Gaussian(), transitions=Rates("1 <-> 2 <-> 3", dt=7.0))
    assert jax.tree.structure(other) == jax.tree.structure(MODEL)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(scheme="C <-> O", dt=0.0), "dt must be a positive number of seconds between observations, got 0.0."),
        (dict(scheme="C", dt=1.0), "scheme must be steps between named states"),
        (dict(scheme="C <-> C", dt=1.0), "scheme must have steps between different states"),
        (dict(scheme=7, dt=1.0), "scheme must be text such as 'C <-> O'"),
        (dict(scheme="C <-> O", dt=1.0, fixed={"C -> X": 1.0}), "Rates must be named by steps of the scheme, C -> O"),
        (dict(scheme="C <-> O", dt=1.0, fixed={"C -> O": -1.0}), "fixed must hold positive rates"),
        (dict(scheme="C -> O", dt=1.0, detailed_balance=True), "detailed_balance needs every step in both directions"),
        (
            dict(scheme="C <-> O", dt=1.0, fixed={"C -> O": 1.0, "O -> C": 2.0}, tied=[("C -> O", "O -> C")]),
            "must not contradict each other",
        ),
    ],
)
def test_refusals(given, message):
    with pytest.raises(ModelError, match=message):
        Rates(**given)


def test_a_scheme_of_another_size_is_refused():
    with pytest.raises(ModelError, match=r"transitions must be between 2 states, got Rates\('1 <-> 2, 2 <-> 3'"):
        lh.HMM(2, lh.Gaussian(), transitions=CHAIN)
    with pytest.raises(ModelError, match=r"Gibbs needs one transition matrix with Dirichlet rows, got Rates"):
        lh.sample(MODEL, np.zeros(100), sampler=lh.samplers.Gibbs())


@pytest.mark.slow
def test_rates_are_found_and_told(tmp_path):
    _, values = lh.simulate(MODEL, {"rates": RATES, **EMISSION}, 20_000, seed=1)
    posterior = lh.sample(MODEL, values, draws=300, seed=1, progress=False)
    table = posterior.rates()
    assert table["from"].tolist() == ["1", "2", "2", "3"] and table["to"].tolist() == ["2", "1", "3", "2"]
    assert np.all(np.abs(table["mean"] - RATES) < 4 * table["sd"]) and np.all(table["sd"] < 0.1 * RATES)
    assert np.all((table["low"] < table["mean"]) & (table["mean"] < table["high"]))
    assert "rates[2 -> 3]" in posterior.summary().index
    posterior.save(tmp_path / "run")
    np.testing.assert_array_equal(lh.load(tmp_path / "run").draws["rates"], posterior.draws["rates"])


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [None, lh.NUTS(), lh.SGLD(step_size=1e-6)], ids=["default", "NUTS", "SGLD"])
def test_detailed_balance_holds_in_every_draw(sampler):
    moves = Rates(LOOP, dt=0.1, detailed_balance=True, fixed={"C1 -> C2": 1.0}, tied=[("C2 -> O", "O -> C2")])
    model = lh.HMM(3, lh.Gaussian(), transitions=moves)
    truth = {"rates": np.ones(6), **EMISSION}
    _, values = lh.simulate(model, truth, 2000, seed=4)
    options = {"init": truth, "chains": 2, "draws": 30, "seed": 1, "progress": False, "verdict": False}
    draws = lh.sample(model, values, sampler=sampler, **options).draws["rates"].values
    q = dict(zip(moves.terms, np.moveaxis(draws, -1, 0), strict=True))
    around = q["C1 -> C2"] * q["C2 -> O"] * q["O -> C1"] / (q["C1 -> O"] * q["O -> C2"] * q["C2 -> C1"])
    np.testing.assert_allclose(around, 1.0, rtol=1e-4)
    np.testing.assert_allclose(q["C1 -> C2"], 1.0, rtol=1e-5)
    np.testing.assert_allclose(q["C2 -> O"], q["O -> C2"], rtol=1e-5)
    assert np.std(q["C1 -> O"]) > 0


@pytest.mark.slow
def test_equal_rates_of_both_samplers():
    """Means and standard deviations of the default, from windows, are those of the exact sampler."""
    _, values = lh.simulate(MODEL, {"rates": RATES, **EMISSION}, 20_000, seed=1)
    start = {"rates": RATES, **EMISSION}
    runs = [lh.sample(MODEL, values, sampler=each, init=start, seed=2, progress=False) for each in (None, lh.NUTS())]
    found = [run.draws["rates"] for run in runs]
    means, sds = ([np.asarray(f(each, axis=(0, 1))) for each in found] for f in (np.mean, np.std))
    assert np.all(np.abs(means[0] - means[1]) < 0.15 * sds[1])
    np.testing.assert_allclose(sds[0], sds[1], rtol=0.1)


@pytest.mark.slow
@pytest.mark.skipif(not KINSOFT.exists(), reason="the traces of the kinSoft challenge are not at hand")
def test_two_states_of_the_kinsoft_challenge():
    """Simulated traces with rates .15 and .22 per second, which 14 analyses found within 5 % on average (Goetz et al.,
    Nat. Commun. 13:5402, 2022)."""
    with np.load(KINSOFT / "level1.npz") as stored:
        traces = np.split(stored["efficiency"], np.cumsum(stored["lengths"])[:-1])
        model = lh.HMM(2, lh.Gaussian(), transitions=Rates("1 <-> 2", dt=float(stored["dt"])))
    posterior = lh.sample(model, traces, seed=1, progress=False)
    np.testing.assert_allclose(posterior.rates()["mean"], [0.15, 0.22], rtol=0.05)
    # Frames that average over a jump lie between the levels: tails are heavier than those of a plain model.
    assert posterior.diagnose(traces).kind in ("trust", "the model does not fit")
