"""Dwell times with a distribution of their own, against an explicit semi-Markov forward pass; answers are of states."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import longhmm as lh
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.model.initialise import permute
from longhmm.model.memory import unfold
from longhmm.model.serialise import model_from_config, model_to_config
from longhmm.posterior.relabel import permute_coordinates
from model.transitions.dwelling import (
    EMISSION,
    EXITS,
    KINDS,
    OWN,
    VALUES,
    chances_of,
    lasting,
    model,
    params,
)


def onward_of(exits):
    found = np.zeros((len(exits), len(exits)))
    for state in range(len(exits)):
        found[state, [other for other in range(len(exits)) if other != state]] = exits[state]
    return found


def semi_markov(chances, first, initial, exits, logs):
    """Log likelihood from `chances[k, d - 1] = P(T = d)`, d = 1 .. n, by where every dwell time begins; `first` are
    those of the dwell times at the first row, from there on."""
    n, size = logs.shape
    onward, summed = onward_of(exits), np.concatenate([np.zeros((1, size)), np.cumsum(logs, axis=0)])
    begins, total = np.zeros((n, size)), 0.0
    begins[0] = initial
    for t in range(n):
        for state in range(size):
            own = (first if t == 0 else chances)[state]
            for d in range(1, n - t):
                seen = begins[t, state] * np.exp(summed[t + d, state] - summed[t, state])
                begins[t + d] += seen * own[d - 1] * onward[state]
            lasting = 1.0 - own[: n - t - 1].sum()
            total += begins[t, state] * lasting * np.exp(summed[n, state] - summed[t, state])
    return np.log(total)


@KINDS
@pytest.mark.parametrize("fresh", [True, False])
def test_likelihoods_are_those_of_a_semi_markov_chain(kind, fresh):
    logs = stats.norm.logpdf(VALUES[:, None], EMISSION["mean"], EMISSION["sd"])
    chances = lasting(kind, 400)
    # In the midst of a dwell time, the rest of it is r rows with probability P(T >= r) / E[T].
    longer = 1.0 - np.cumsum(chances, axis=1) + chances
    first = chances if fresh else longer / longer.sum(axis=1, keepdims=True)
    initial = np.array([0.2, 0.5, 0.3])
    found = lh.log_likelihood(model(kind, fresh=fresh, initial=initial), params(kind), VALUES)
    assert found == pytest.approx(semi_markov(chances, first, initial, EXITS, logs), rel=1e-8)


@pytest.mark.parametrize("kind", ["negative-binomial", "gamma"])
def test_enough_phases_hold_the_whole_distribution(kind):
    logs, chances = stats.norm.logpdf(VALUES[:, None], EMISSION["mean"], EMISSION["sd"]), chances_of(kind, 14)
    found = lh.log_likelihood(model(kind, 14, fresh=True), params(kind), VALUES)
    assert found == pytest.approx(semi_markov(chances, chances, np.full(3, 1 / 3), EXITS, logs), rel=1e-8)


def test_one_phase_is_an_ordinary_chain():
    values, levels = np.array([0.1, 1.2, 0.8, -0.3]), {"mean": [0.0, 1.0], "sd": [0.5, 0.5]}
    given = {"durations": [0.2, 0.3, 1.0, 1.0], **levels}
    plain = {"transition": [[0.8, 0.2], [0.3, 0.7]], **levels}
    for fresh in (True, False):  # no matter
        one = model("free", 1, n_states=2, fresh=fresh)
        assert lh.log_likelihood(one, given, values) == pytest.approx(
            lh.log_likelihood(lh.HMM(2, lh.Gaussian()), plain, values), rel=1e-12
        )
    np.testing.assert_allclose(one.validate(given)["transition"], plain["transition"], rtol=1e-12)


@KINDS
@pytest.mark.parametrize("fresh", [True, False])
def test_slopes_are_those_of_the_likelihood(kind, fresh):
    one, at = model(kind, fresh=fresh, initial="stationary"), params(kind)
    sequences = [VALUES[:8], VALUES[8:9], VALUES[9:]]
    found, u = lh.gradient(one, at, sequences, prior=False), lh.unconstrain(one, at)
    for name, slopes in found.items():
        for place in np.ndindex(np.shape(slopes)):
            step = np.zeros(np.shape(slopes))
            step[place] = 1e-5
            ends = [lh.constrain(one, {**u, name: u[name] + sign * step}) for sign in (1, -1)]
            up, down = (lh.log_likelihood(one, end, sequences) for end in ends)
            assert slopes[place] == pytest.approx((up - down) / 2e-5, abs=1e-7), (name, place)


@pytest.mark.slow
def test_slopes_of_windows_and_of_compiled_passes():
    one, at = model("negative-binomial", 8, n_states=2), {"durations": [5.0, 3.0, 4.0, 2.0, 1.0, 1.0]}
    at |= {"mean": [0.0, 1.0], "sd": [0.4, 0.4]}
    values = lh.simulate(one, at, 3000, seed=3)[1]
    exact = lh.gradient(one, at, values, prior=False)
    estimator = lh.Buffered(windows=lh.Windows(half_width=50, count=30), buffer=lh.FixedBuffer(150))
    windows = lh.gradient(one, at, values, prior=False, estimator=estimator)
    jax.tree.map(lambda some, all_: np.testing.assert_allclose(some, all_, rtol=5e-3, atol=0.3), windows, exact)
    from longhmm.target.target import ExactPosterior

    slope = ExactPosterior.of(one, open_data(values)).log_density_and_gradient(lh.unconstrain(one, at))[1]
    whole = lh.gradient(one, at, values)
    for name in whole:
        np.testing.assert_allclose(slope[name], whole[name], rtol=1e-7, atol=1e-6)


def paths_of(one, at, values):
    """Every path of states, and its posterior probability, from all paths of phases."""
    _, inner, wide = unfold(one, one.validate(at))
    phases = one.transitions.phases
    every = np.array(list(itertools.product(range(inner.n_states), repeat=len(values))))
    with np.errstate(divide="ignore"):
        first, moves = np.log(wide["initial"]), np.log(wide["transition"])
        logs = first[every[:, 0]] + moves[every[:, :-1], every[:, 1:]].sum(axis=1)
    states = every // phases
    logs += stats.norm.logpdf(values, np.array(at["mean"])[states], np.array(at["sd"])[states]).sum(axis=1)
    return states, np.exp(logs - np.logaddexp.reduce(logs)), every[np.argmax(logs)] // phases


def test_answers_are_those_of_the_states():
    one, values = model("negative-binomial", 3, n_states=2), VALUES[:6]
    at = {"durations": [3.0, 2.0, 4.0, 2.0, 1.0, 1.0], "mean": [0.0, 2.0], "sd": [0.8, 0.8]}
    states, weights, best = paths_of(one, at, values)
    expected = np.stack([weights @ (states == state) for state in range(2)], axis=1)
    np.testing.assert_allclose(lh.state_probabilities(one, at, values), expected, rtol=1e-6)
    np.testing.assert_array_equal(lh.decode(one, at, values), best)
    known = np.array([-1, 1, -1, -1, 0, -1])
    kept = (states[:, 1] == 1) & (states[:, 4] == 0)
    found = lh.log_likelihood(one, at, open_data(values, states=known)) - lh.log_likelihood(one, at, values)
    assert found == pytest.approx(np.log(weights[kept].sum()), rel=1e-9)


@pytest.mark.slow
def test_a_posterior_answers_in_states():
    one = model("negative-binomial", 6, n_states=2)
    at = {"durations": [4.0, 6.0, 5.0, 2.0, 1.0, 1.0], "mean": [0.0, 1.0], "sd": [0.3, 0.3]}
    states, values = lh.simulate(one, at, 2000, seed=2)
    assert set(states.tolist()) == {0, 1}
    lengths = np.diff(np.flatnonzero(np.diff(states, prepend=-1)))
    assert lengths[::2].mean() == pytest.approx(4.0 if states[0] == 0 else 6.0, rel=0.15)
    how = {"sampler": lh.HMC(adaptation_steps=10), "init": at, "draws": 10, "chains": 1, "warmup": 0}
    posterior = lh.sample(one, values, **how, progress=False)
    assert np.mean(posterior.decode(values) == states) > 0.95
    assert posterior.state_probabilities(values).shape == (2000, 2)
    assert set(posterior.events(values)["state"]) == {0, 1}
    assert posterior.forecast(values, 3, draws=2, paths=2).state_probabilities.shape == (3, 2)
    assert posterior.dwell()["dwell"].to_numpy() == pytest.approx([4.0, 6.0], rel=0.2)
    assert "durations[shape 1]" in posterior.summary().index


@KINDS
def test_states_may_be_renumbered(kind):
    one, at, order = model(kind), params(kind), np.array([2, 0, 1])
    moved = permute(one, one.validate(at), order)
    assert lh.log_likelihood(one, moved, VALUES) == pytest.approx(lh.log_likelihood(one, at, VALUES), rel=1e-12)
    np.testing.assert_allclose(one.validate(moved)["transition"], moved["transition"], rtol=1e-12)
    found = permute_coordinates(one, lh.unconstrain(one, at), order)
    for name, value in lh.unconstrain(one, moved).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-9)


@KINDS
def test_coordinates(kind):
    moves, parameter = model(kind).transitions, params(kind)["durations"]
    with jax.enable_x64(True):
        u = jax.jit(moves.unconstrain)(parameter)
        assert u.shape == (moves.n_free,)
        np.testing.assert_allclose(jax.jit(moves.constrain)(u), parameter, rtol=1e-12)
        own = len(OWN[kind])
        keep = np.r_[:own, own : len(parameter) : 2]  # of two probabilities one says all
        volume = np.linalg.slogdet(jax.jit(jax.jacobian(moves.constrain))(u)[keep])[1]
        assert float(jax.jit(moves.log_jacobian)(parameter)) == pytest.approx(volume)


def test_priors():
    moves = model("negative-binomial", n_states=2, mean=dist.Gamma(2.0, 0.1), shape=dist.Gamma(3.0, 1.0)).transitions
    with jax.enable_x64(True):
        found = jax.jit(moves.log_prior)(jnp.asarray([11.0, 5.0, 2.0, 1.5, 1.0, 1.0]))
    expected = stats.gamma.logpdf([10.0, 4.0], 2.0, scale=10.0).sum() + stats.gamma.logpdf([2.0, 1.5], 3.0).sum()
    assert float(found) == pytest.approx(expected)


def test_kinds_may_be_families():
    assert lh.Durations(lh.NegativeBinomial()).kind == "negative-binomial" and lh.Durations(lh.Gamma()).kind == "gamma"


def test_it_is_stored():
    for one in (model("gamma", 4, mean=dist.Gamma(2.0, 0.1)), model("free", 2, fresh=True), model("phase-type", 3)):
        config = json.loads(json.dumps(model_to_config(one)))
        again = model_from_config(config)
        assert model_to_config(again) == config and jax.tree.structure(again) == jax.tree.structure(one)


@pytest.mark.slow
def test_brief_and_long_visits_are_found():
    """One visit in three is long, which neither an ordinary chain nor a shape can say."""
    one = model("phase-type", 2, n_states=2)
    own = np.array([3.0, 40.0, 0.7, 4.0, 12.0, 0.5])
    at = {"durations": [*own, 1.0, 1.0], "mean": [0.0, 1.0], "sd": [0.2, 0.2]}
    states, values = lh.simulate(one, at, 30_000, seed=2)
    posterior = lh.sample(one, values, draws=100, chains=2, seed=2, progress=False)
    found = posterior.draws["durations"].stack(every=("chain", "draw")).values[:6]
    assert np.all(np.abs(found.mean(axis=1) - own) < 3 * found.std(axis=1))
    assert np.all(found[:2].std(axis=1) < 0.2 * own[:2])
    assert np.mean(posterior.decode(values) == states) > 0.97


@pytest.mark.slow
def test_shapes_are_found():
    """Dwell times that scatter little, which an ordinary chain cannot have, in a recording with fifty phases."""
    one = model("negative-binomial", 25, n_states=2)
    truth = np.array([12.0, 8.0, 5.0, 2.0])
    at = {"durations": [*truth, 1.0, 1.0], "mean": [0.0, 1.0], "sd": [0.3, 0.3]}
    states, values = lh.simulate(one, at, 10_000, seed=2)
    posterior = lh.sample(one, values, draws=50, chains=2, seed=2, progress=False)
    found = posterior.draws["durations"].stack(every=("chain", "draw")).values[:4]
    assert np.all(np.abs(found.mean(axis=1) - truth) < 3 * found.std(axis=1))
    assert np.all(found.std(axis=1) < 0.15 * truth)
    assert found[2].min() > 2.0  # far from geometric
    assert np.mean(posterior.decode(values) == states) > 0.97


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lh.HMM(1, lh.Gaussian(), transitions=lh.Durations()), "n_states must be at least 2"),
        (
            lambda: lh.Durations("weibull"),
            "kind must be one of 'negative-binomial', 'gamma', 'free', 'phase-type', got",
        ),
        (lambda: lh.Durations(phases=0), "phases must be"),
        (lambda: lh.Durations(mean=3.0), "mean must be one prior for all states"),
        (
            lambda: lh.HMM(2, lh.Gaussian(noise=lh.ARNoise(1)), transitions=lh.Durations()),
            "needs an emission of the present state alone",
        ),
        (
            lambda: lh.log_likelihood(
                model("negative-binomial", n_states=2),
                {"durations": [0.5, 2.0, 1.0, 1.0, 1.0, 1.0], "mean": [0.0, 1.0], "sd": [1.0, 1.0]},
                np.zeros(5),
            ),
            r"params\['durations'\] must hold means above 1",
        ),
        (
            lambda: lh.log_likelihood(
                model("phase-type", 2, n_states=2),
                {"durations": [3.0, 2.0, 0.5, 3.0, 4.0, 0.5, 1.0, 1.0], "mean": [0.0, 1.0], "sd": [1.0, 1.0]},
                np.zeros(5),
            ),
            r"params\['durations'\] must hold rising times above 1 and chances to end between 0 and 1, and where",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ModelError, match=message):
        make()
