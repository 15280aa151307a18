"""Identical channels, against the product of their chains, and levels with one distance."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.linalg import expm

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.model.initialise import permute
from longhmm.model.serialise import model_from_config, model_to_config

RATES = np.array([3.0, 5.0])
LOOP = lh.Rates("C1 <-> C2 <-> O, O -> C1", dt=0.02)
CASES = [
    (lh.Channels(1, "C <-> O", dt=0.05), RATES),
    (lh.Channels(3, "C <-> O", dt=0.05), RATES),
    (lh.Channels(3, lh.Rates("C1 <-> C2 <-> O", dt=0.05)), np.array([3.0, 5.0, 2.0, 7.0])),
    (lh.Channels(2, LOOP, open_states=("C2", "O")), np.array([3.0, 5.0, 2.0, 7.0, 1.0])),
]
PAIR = lh.Channels(2, "C <-> O", dt=0.05)
CONC = {"C -> O": "conc"}
PARAMS = {"rates": RATES, "base": [0.5], "step": [1.0], "sd": [0.2, 0.25, 0.3]}


@pytest.mark.parametrize(("moves", "rates"), CASES, ids=[str(moves) for moves, _ in CASES])
def test_transitions_are_those_of_the_product_of_chains(moves, rates):
    size, n = moves.one.n_states, moves.n
    with jax.enable_x64(True):
        both = jax.jit(lambda rates: (moves.typical(rates), moves.one.generator(rates)))
        found, one = map(np.asarray, both(jnp.asarray(rates)))
    whole = np.eye(1)
    for _ in range(n):
        whole = np.kron(whole, expm(one * float(moves.dt[0])))
    paths = np.array(list(itertools.product(range(size), repeat=n)))
    counts = np.stack([(paths == state).sum(axis=1) for state in range(size)], axis=1)
    member = (counts[:, None, :] == moves.occupancies).all(axis=2).astype(float)
    assert np.all(member.sum(axis=1) == 1) and moves.n_states == member.shape[1]
    np.testing.assert_allclose(member @ found, whole @ member, atol=1e-13)
    np.testing.assert_array_equal(found > 0, moves.allowed)


def test_states_are_named_and_have_levels():
    moves = lh.Channels(2, lh.Rates("C1 <-> C2 <-> O", dt=1.0))
    assert moves.states == ("2 C1", "1 C1 + 1 C2", "2 C2", "1 C1 + 1 O", "1 C2 + 1 O", "2 O")
    assert moves.levels == (0, 0, 0, 1, 1, 2)
    assert lh.Channels(2, LOOP, open_states=("C2", "O")).levels == (0, 1, 1, 2, 2, 2)


def test_likelihoods_are_those_of_the_product_of_chains():
    """Three channels of two states: eight states, of which those with as many open channels share a level."""
    moves, rng = lh.Channels(3, "C <-> O", dt=0.05), np.random.default_rng(2)
    values, params = rng.normal(1.0, 1.0, 40), {"base": [0.5], "step": [1.0], "sd": [0.2, 0.25, 0.3, 0.4]}
    spaced = lh.HMM(4, lh.EquallySpaced(moves.levels), transitions=moves, initial="stationary")
    found = lh.log_likelihood(spaced, {"rates": RATES, **params}, values)
    single = expm(np.array([[-3.0, 3.0], [5.0, -5.0]]) * 0.05)
    paths = np.array(list(itertools.product(range(2), repeat=3)))
    open_channels = paths.sum(axis=1)
    whole = lh.HMM(8, lh.Tied(lh.Gaussian(), open_channels), initial="stationary")
    levels = {"mean": 0.5 + np.arange(4.0), "sd": params["sd"]}
    product = np.kron(np.kron(single, single), single)
    assert found == pytest.approx(lh.log_likelihood(whole, {"transition": product, **levels}, values), rel=1e-10)
    free = lh.HMM(4, lh.Tied(lh.Gaussian(), moves.levels), transitions=moves, initial="stationary")
    assert found == pytest.approx(lh.log_likelihood(free, {"rates": RATES, **levels}, values), rel=1e-10)


def test_rates_and_steps_may_differ_by_row():
    """Against the product of three chains whose matrices follow the covariates of rows, and differences of that."""
    rng, n = np.random.default_rng(1), 30
    beside = {"wait": rng.choice([0.05, 0.1, 0.4], n), "conc": rng.choice([0.5, 3.0], n), "volt": rng.uniform(-1, 1, n)}
    values, rates = rng.normal(1.0, 1.0, n), np.array([3.0, 5.0, 0.7])
    params = {"base": [0.5], "step": [1.0], "sd": np.array([0.2, 0.25, 0.3, 0.4])}
    moves = lh.Channels(3, lh.Rates("C <-> O", dt="wait", scaled={"C -> O": "conc"}, sloped={"O -> C": "volt"}))
    open_channels = np.array(list(itertools.product(range(2), repeat=3))).sum(axis=1)

    def log_likelihood(rates):
        message, total = np.array([1, 1 / 3, 1 / 3, 1])[open_channels] / 4, 0.0
        for t, value in enumerate(values):
            up, down = rates[0] * beside["conc"][t], rates[1] * np.exp(rates[2] * beside["volt"][t])
            one = expm(np.array([[-up, up], [down, -down]]) * beside["wait"][t])
            message = message @ np.kron(np.kron(one, one), one) if t else message
            message = message * stats.norm.pdf(value, 0.5 + open_channels, params["sd"][open_channels])
            total, message = total + np.log(message.sum()), message / message.sum()
        return total

    data = lh.open_data(values, covariates=beside)
    model = lh.HMM(4, lh.EquallySpaced(moves.levels), transitions=moves)
    again = model_from_config(json.loads(json.dumps(model_to_config(model.resolve(data)))))
    for each in (model, again):
        found = lh.log_likelihood(each, {"rates": rates, **params}, data)
        assert found == pytest.approx(log_likelihood(rates), rel=1e-10)
    slope = lh.gradient(again, {"rates": rates, **params}, data, prior=False)["transition"]
    scale = np.array([rates[0], rates[1], 1.0 / beside["volt"].std()])  # of the parameter by its coordinates
    for index, unit in enumerate(np.eye(3)):
        high, low = (log_likelihood(rates + sign * 1e-5 * scale * unit) for sign in (1, -1))
        assert slope[index] == pytest.approx((high - low) / 2e-5, rel=1e-5)


def test_channels_of_one_state_more_are_a_line_of_python():
    for moves in (
        PAIR,
        lh.Channels(2, "C <-> O", dt="wait"),
        lh.Channels(2, lh.Rates("C <-> O", dt=1e-4, scaled=CONC)),
    ):
        for n_open, states in ((0, ("C", "O", "C2")), (1, ("C", "O", "O2"))):
            richer = eval(moves.richer(n_open), {"lh": lh})
            assert richer.one.states == states and richer.levels[-1] == 2
            assert richer.varies == moves.varies and repr(richer.dt) == repr(moves.dt)


@pytest.mark.slow
def test_everything_agrees_with_all_paths():
    one = lh.HMM(3, lh.EquallySpaced(PAIR.levels), transitions=PAIR)
    values = np.array([0.6, 1.4, np.nan, 2.3, 2.6, 1.1])
    lh.testing.check_coherence(one, PARAMS, lh.open_data([values[:4], values[4:]]))


def test_it_is_stored():
    moves = lh.Channels(2, lh.Rates("C1 <-> C2 <-> O", dt=1e-3, fixed={"C1 -> C2": 4.0}), open_states="O")
    for emission in (lh.EquallySpaced(moves.levels), lh.Tied(lh.Gaussian(), moves.levels)):
        model = lh.HMM(moves.n_states, emission, transitions=moves, initial="stationary").resolve(np.linspace(0, 5, 50))
        config = json.loads(json.dumps(model_to_config(model)))
        again = model_from_config(config)
        assert model_to_config(again) == config and jax.tree.structure(again) == jax.tree.structure(model)


@pytest.mark.slow
def test_rates_of_one_channel_are_found(tmp_path):
    moves = lh.Channels(3, "C <-> O", dt=0.02)
    model = lh.HMM(4, lh.EquallySpaced(moves.levels), transitions=moves)
    truth = {"rates": RATES, "base": [0.5], "step": [1.0], "sd": [0.3, 0.3, 0.3, 0.3]}
    _, values = lh.simulate(model, truth, 5000, seed=1)
    posterior = lh.sample(model, values, draws=250, chains=2, seed=1, progress=False)
    table = posterior.rates()
    assert table["from"].tolist() == ["C", "O"] and table["to"].tolist() == ["O", "C"]
    assert np.all(np.abs(table["mean"] - RATES) < 4 * table["sd"]) and np.all(table["sd"] < 0.15 * RATES)
    assert abs(float(posterior.draws["step"].mean()) - 1.0) < 0.05
    assert posterior.diagnose(values).kind in ("trust", "run longer")
    posterior.save(tmp_path / "run")
    np.testing.assert_array_equal(lh.load(tmp_path / "run").draws["step"], posterior.draws["step"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lh.Channels(0, "C <-> O", dt=1.0), "n must be"),
        (lambda: lh.Channels(2, "C <-> O"), "dt must be given once"),
        (lambda: lh.Channels(2, LOOP, dt=1.0), "dt must be given once"),
        (lambda: lh.Channels(2, "C <-> O", dt=1.0, open_states="X"), "open_states must be names among C, O, got 'X'."),
        (lambda: lh.EquallySpaced((0, 2)), "levels must be one integer per state, from 0 without gaps"),
        (lambda: lh.HMM(4, lh.EquallySpaced((0, 1))), "levels must be one for each of 4 states"),
        (lambda: lh.HMM(4, lh.Poisson(), transitions=PAIR), "transitions must be between 4 states"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ModelError, match=message):
        make()


def test_states_keep_their_numbers():
    model = lh.HMM(PAIR.n_states, lh.EquallySpaced(PAIR.levels), transitions=PAIR).resolve(np.linspace(0, 3, 20))
    params = model.validate({**PARAMS, PAIR.parameter: RATES})
    for name, value in permute(model, params, np.arange(PAIR.n_states)).items():
        np.testing.assert_array_equal(value, params[name])
