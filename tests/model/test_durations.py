"""Dwell times with a distribution of their own, against an explicit semi-Markov forward pass."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.model.serialise import model_from_config, model_to_config
from longhmm.model.transitions.durations import negative_binomial_hazards

MEAN, SHAPE = np.array([3.0, 6.5, 2.2]), np.array([4.0, 0.7, 1.0])
EXITS = np.array([[0.7, 0.3], [0.4, 0.6], [0.1, 0.9]])
FREE = np.array([[0.05, 0.3, 0.6], [0.4, 0.1, 0.2], [0.9, 0.5, 0.25]])
EMISSION = {"mean": np.array([0.0, 1.0, 2.5]), "sd": np.array([0.8, 0.6, 0.7])}


of_phases = jax.jit(negative_binomial_hazards, static_argnums=2)


def model(moves):
    return lh.HMM(moves.n_states, lh.Tied(lh.Gaussian(), moves.levels), transitions=moves, initial=moves.first)


def semi_markov(chances, exits, logs):
    """Log likelihood from `chances[k, d - 1] = P(T = d)`, d = 1 .. n, by where every dwell time begins."""
    n, size = logs.shape
    onward = np.zeros((size, size))
    for state in range(size):
        onward[state, [other for other in range(size) if other != state]] = exits[state]
    summed = np.concatenate([np.zeros((1, size)), np.cumsum(logs, axis=0)])
    begins, total = np.zeros((n, size)), 0.0
    begins[0] = 1 / size
    for t in range(n):
        for state in range(size):
            for d in range(1, n - t):
                seen = begins[t, state] * np.exp(summed[t + d, state] - summed[t, state])
                begins[t + d] += seen * chances[state, d - 1] * onward[state]
            lasting = 1.0 - chances[state, : n - t - 1].sum()
            total += begins[t, state] * lasting * np.exp(summed[n, state] - summed[t, state])
    return np.log(total)


def of_hazards(hazards, n):
    """`P(T = d)`, d = 1 .. n, where the last hazard goes on."""
    every = np.concatenate([hazards, np.repeat(hazards[:, -1:], max(n - hazards.shape[1], 0), axis=1)], axis=1)[:, :n]
    return every * np.concatenate([np.ones((len(every), 1)), np.cumprod(1 - every, axis=1)[:, :-1]], axis=1)


def chances_of_negative_binomial(n):
    p = SHAPE / (SHAPE + MEAN - 1)
    return stats.nbinom.pmf(np.arange(n)[None], SHAPE[:, None], p[:, None])


def test_likelihoods_are_those_of_a_semi_markov_chain():
    values = np.random.default_rng(4).normal(1.0, 1.2, 14)
    logs = stats.norm.logpdf(values[:, None], EMISSION["mean"], EMISSION["sd"])
    free = lh.Durations(3, "free", phases=3)
    numbers = np.concatenate([FREE.ravel(), EXITS.ravel()])
    found = lh.log_likelihood(model(free), {"durations": numbers, **EMISSION}, values)
    assert found == pytest.approx(semi_markov(of_hazards(FREE, 14), EXITS, logs), rel=1e-10)
    binomial = lh.Durations(3, phases=14)
    numbers = np.concatenate([MEAN, SHAPE, EXITS.ravel()])
    found = lh.log_likelihood(model(binomial), {"durations": numbers, **EMISSION}, values)
    assert found == pytest.approx(semi_markov(chances_of_negative_binomial(14), EXITS, logs), rel=1e-10)


def test_hazards_are_those_of_the_distribution():
    chances = chances_of_negative_binomial(40)
    expected = chances / (1.0 - np.cumsum(chances, axis=1) + chances)
    with jax.enable_x64(True):
        found = np.asarray(of_phases(MEAN, SHAPE, 40))
        np.testing.assert_allclose(found[:, :15], expected[:, :15], rtol=1e-8)
        assert np.allclose(found[2], 1 / 2.2)  # with a shape of 1 it is geometric
        sharp = of_phases(np.array([5.0]), np.array([1e4]), 40)
        sharp = np.asarray(sharp)
    narrow = of_phases(MEAN.astype(np.float32), SHAPE.astype(np.float32), 40)
    np.testing.assert_allclose(narrow, found, rtol=2e-4)
    assert np.all(np.isfinite(sharp)) and np.all((sharp >= 0) & (sharp <= 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_derivatives_are_finite_where_tails_vanish(dtype):
    mean, shape = np.array([[10.0, 1.0001, 3.0, 400.0, 20.0], [5.0, 300.0, 1e4, 0.02, 1e-3]]).astype(dtype)
    slope = jax.grad(lambda at: jnp.sum(negative_binomial_hazards(*at, 25)))
    with jax.enable_x64(dtype is np.float64):
        assert np.isfinite(np.asarray(jax.jit(slope)((jnp.asarray(mean), jnp.asarray(shape))))).all()


def test_one_phase_is_an_ordinary_chain():
    moves, values = lh.Durations(2, "free", phases=1), np.array([0.1, 1.2, 0.8, -0.3])
    levels = {"mean": [0.0, 1.0], "sd": [0.5, 0.5]}
    found = lh.log_likelihood(model(moves), {"durations": [0.2, 0.3, 1.0, 1.0], **levels}, values)
    plain = {"transition": [[0.8, 0.2], [0.3, 0.7]], **levels}
    assert found == pytest.approx(lh.log_likelihood(lh.HMM(2, lh.Gaussian()), plain, values), rel=1e-12)


@pytest.mark.parametrize("kind", ["negative-binomial", "free"])
def test_derivatives_and_coordinates(kind):
    moves = lh.Durations(3, kind, phases=3)
    own = FREE.ravel() if kind == "free" else np.concatenate([MEAN, SHAPE])
    parameter = np.concatenate([own, EXITS.ravel()])
    with jax.enable_x64(True):
        typical = jax.jit(moves.typical)
        matrix = np.asarray(typical(parameter))
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-12)
        np.testing.assert_array_equal(matrix > 0, moves.allowed)
        slopes = np.asarray(jax.jit(jax.jacobian(moves.typical))(parameter))
        for index, unit in enumerate(np.eye(len(parameter))):
            ends = [np.asarray(typical(parameter + sign * 1e-6 * unit)) for sign in (1, -1)]
            np.testing.assert_allclose(slopes[..., index], (ends[0] - ends[1]) / 2e-6, atol=1e-8)
        u = jax.jit(moves.unconstrain)(parameter)
        assert u.shape == (moves.n_free,)
        np.testing.assert_allclose(jax.jit(moves.constrain)(u), parameter, rtol=1e-12)
        keep = np.r_[: len(own), len(own) : len(parameter) : 2]  # of two probabilities one says all
        volume = np.linalg.slogdet(jax.jit(jax.jacobian(moves.constrain))(u)[keep])[1]
        assert float(jax.jit(moves.log_jacobian)(parameter)) == pytest.approx(volume)


def test_priors():
    moves = lh.Durations(2, mean=dist.Gamma(2.0, 0.1), shape=dist.Gamma(3.0, 1.0))
    with jax.enable_x64(True):
        found = jax.jit(moves.log_prior)(jnp.asarray([11.0, 5.0, 2.0, 1.5, 1.0, 1.0]))
    expected = stats.gamma.logpdf([10.0, 4.0], 2.0, scale=10.0).sum() + stats.gamma.logpdf([2.0, 1.5], 3.0).sum()
    assert float(found) == pytest.approx(expected)


def test_it_is_stored():
    for moves in (lh.Durations(2, phases=4, mean=dist.Gamma(2.0, 0.1)), lh.Durations(2, "free", phases=2)):
        one = model(moves).resolve(np.linspace(0, 5, 50))
        config = json.loads(json.dumps(model_to_config(one)))
        again = model_from_config(config)
        assert model_to_config(again) == config and jax.tree.structure(again) == jax.tree.structure(one)


@pytest.mark.slow
def test_shapes_are_found():
    """Dwell times that scatter little, which an ordinary chain cannot have."""
    one = model(lh.Durations(2, phases=12))
    truth = np.array([7.0, 4.0, 5.0, 1.0, 1.0, 1.0])
    given = {"durations": truth, "mean": [0.0, 1.0], "sd": [0.3, 0.3]}
    _, values = lh.simulate(one, given, 2000, seed=2)
    posterior = lh.sample(one, values, draws=100, chains=2, seed=2, progress=False)
    found = posterior.draws["durations"].stack(every=("chain", "draw")).values
    assert np.all(np.abs(found.mean(axis=1) - truth)[:4] < 4 * found.std(axis=1)[:4])
    assert found[2].min() > 2.0  # far from geometric
    posterior.diagnose(values)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lh.Durations(1), "states must be"),
        (lambda: lh.Durations(2, "gamma"), "kind must be one of 'negative-binomial', 'free', got 'gamma'."),
        (lambda: lh.Durations(2, phases=0), "phases must be"),
        (lambda: lh.Durations(2, mean=3.0), "mean must be one prior for all states"),
        (
            lambda: lh.log_likelihood(
                model(lh.Durations(2, phases=2)),
                {"durations": [0.5, 2.0, 1.0, 1.0, 1.0, 1.0], "mean": [0.0, 1.0], "sd": [1.0, 1.0]},
                np.zeros(5),
            ),
            r"params\['durations'\] must hold means above 1",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ModelError, match=message):
        make()
