"""SG-RLD beyond its targets: estimators, structure, noise estimates, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.samplers import langevin_moves as langevin
from longhmm.samplers.langevin_moves import CoxIngersollRoss, GaussianMetric, normalised
from longhmm.samplers.sgld import SGHMC, SGLD
from longhmm.samplers.sgrld import SGRLD, Alternating, BatchRLD
from longhmm.target.buffered import IID, FullData
from longhmm.target.control_variate import ControlVariate
from longhmm.target.coordinates import scores
from samplers.targets import CONCENTRATION, Prepared, coordinates_of, dirichlet_moments, known_states

WINDOWS, BUFFER = lh.Windows(5, 20), lh.FixedBuffer(4)
TRANSITION = [[0.9, 0.1], [0.2, 0.8]]
EMISSIONS = {
    "gaussian": (lh.Gaussian(2), {"mean": [[0.0, 1.0], [3.0, 2.0]], "covariance": [np.eye(2), 2 * np.eye(2)]}),
    "diagonal": (lh.Gaussian(2, "diagonal"), {"mean": [[0.0, 1.0], [3.0, 2.0]], "variance": np.ones((2, 2))}),
    "student": (
        lh.Emission(dist.StudentT, df=4.0, loc=dist.Normal(0, 10), scale=dist.HalfNormal(5)),
        {"loc": [0.0, 4.0], "scale": [1.0, 2.0]},
    ),
    "categorical": (lh.Categorical(3), {"probs": [[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]]}),
    "tied": (lh.Tied(lh.Poisson(), levels=(0, 0)), {"rate": [3.0]}),
}


def problem(emission, params, length=2000, **options):
    model = lh.HMM(2, emission, **options)
    params = {"transition": TRANSITION, **params}
    complete = {**params, "df": [4.0, 4.0]} if "loc" in params else params
    _, y = lh.simulate(model, complete, length, seed=1)
    return model.resolve(y), lh.open_data(y), params


def step_some(sampler, model, data, params, estimator=None, steps=5):
    target = (estimator or sampler.estimator(WINDOWS, BUFFER)).bind(model, data, params)
    ready = Prepared(sampler, target)
    state = ready.init(jax.random.key(0), coordinates_of(model, params))
    for number in range(steps):
        minibatch = target.minibatch(jax.random.key(2 * number))
        state, info = ready.step(jax.random.key(2 * number + 1), state, minibatch)
        assert bool(info.finite)
    return state, info


PAPER = SGRLD.paper(1e-5, 2)
COMBINATIONS = [
    pytest.param(SGRLD(0.05), name, id=f"default-{name}", marks=[pytest.mark.slow] * (name == "tied"))
    for name in EMISSIONS
] + [
    # Under the paper's settings only Gaussians move in a way of their own.
    pytest.param(PAPER, name, id=f"paper-{name}", marks=[pytest.mark.slow] * (name not in ("gaussian", "tied")))
    for name in EMISSIONS
]


@pytest.mark.parametrize(("sampler", "name"), COMBINATIONS)
def test_every_emission_moves_and_stays_valid(sampler, name):
    model, data, params = problem(*EMISSIONS[name])
    state, _ = step_some(sampler, model, data, params)
    with jax.enable_x64(True):
        wide = {key: jnp.asarray(np.asarray(value, np.float64)) for key, value in state.coordinates.items()}
        model.validate(jax.tree.map(np.asarray, model.constrain(wide)))
    np.testing.assert_allclose(normalised(state.expanded), model.constrain(state.coordinates)["transition"], atol=1e-5)


@pytest.mark.parametrize(
    "estimator",
    [
        lh.Buffered(WINDOWS, BUFFER),
        IID(WINDOWS),
        ControlVariate(WINDOWS, BUFFER),
        FullData(),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_every_estimator_serves(estimator):
    model, data, params = problem(*EMISSIONS["gaussian"])
    step_some(SGRLD(0.05), model, data, params, estimator, steps=2)


def test_counts_and_gradient_forms_agree_on_full_data():
    """The reflected step takes its drift from the gradient; it must be the expected counts less their share."""
    target, posterior = known_states(300)
    bound = FullData().bind(target.model, target.data, target.params)
    seen = bound.estimate(coordinates_of(target.model, target.params), None)
    np.testing.assert_allclose(seen.totals.transitions, posterior - CONCENTRATION, atol=1e-6)


def test_batch_rld_samples_the_dirichlet_posterior():
    target, posterior = known_states(300)
    mean, sd = dirichlet_moments(posterior)
    sampler = BatchRLD(0.3, transitions=CoxIngersollRoss())
    bound = sampler.estimator(None, None).bind(target.model, target.data, target.params)
    assert not bound.compiled
    state = sampler.init(bound, jax.random.key(0), coordinates_of(target.model, target.params))
    draws = []
    for key in jax.random.split(jax.random.key(3), 150):
        state, info = sampler.step(bound, key, state, None)
        draws.append(np.asarray(normalised(state.expanded)))
    assert bool(info.finite)
    draws = np.array(draws[15:])
    visited = posterior > 10
    assert np.abs((draws.mean(0) - mean)[visited] / sd[visited]).max() < 0.7
    np.testing.assert_allclose((draws.std(0)[visited] / sd[visited]).mean(), 1.0, atol=0.25)


def test_fixed_rows_and_forbidden_transitions_stay():
    emission = lh.Poisson(rate=[1.0, 4.0, 9.0])
    prior = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    model = lh.HMM(3, emission, transition_prior=prior, fixed_rows={2: [0.5, 0.25, 0.25]})
    params = {"transition": [[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.5, 0.25, 0.25]]}
    _, y = lh.simulate(model, params, 1000, seed=0)
    state, _ = step_some(SGRLD(0.1), model, lh.open_data(y), params)
    found = np.asarray(model.constrain(state.coordinates)["transition"])
    assert found[0, 2] == 0.0 and np.array_equal(found[2], np.float32([0.5, 0.25, 0.25]))
    assert not np.allclose(found[1], params["transition"][1], atol=1e-4)


# Noise ------------------------------------------------------------------------------------------------------------


def test_estimated_gradient_noise_is_the_noise_of_the_gradient():
    model, data, params = problem(*EMISSIONS["gaussian"], length=3000)
    bound = lh.Buffered(WINDOWS, BUFFER).bind(model, data, params)
    at = coordinates_of(model, params)

    @jax.jit
    def one(key):
        minibatch = bound.minibatch(key)
        seen = bound.estimate(at, minibatch, per_window=True)
        found = scores(bound.model, at, seen.windows, initial_moves=bound.initial is None)
        guess = {name: langevin.variance(value, minibatch) for name, value in found.items()}
        return seen.likelihood, guess

    gradients, guesses = jax.lax.map(one, jax.random.split(jax.random.key(0), 3000), batch_size=20)
    for name, value in gradients.items():
        np.testing.assert_allclose(guesses[name].mean(0), value.var(0), rtol=0.15)


def test_moving_average_is_plain_first_and_forgets_later():
    average = jnp.zeros(())
    for index in range(5):
        average = langevin.averaged(average, jnp.asarray(float(index)), jnp.asarray(index))
    np.testing.assert_allclose(average, 2.0)
    later = langevin.averaged(jnp.asarray(1.0), jnp.asarray(2.0), jnp.asarray(10**6))
    np.testing.assert_allclose(later, 1.01, rtol=1e-6)


# Refusals ---------------------------------------------------------------------------------------------------------


def test_refusals():
    key = jax.random.key(0)
    model, data, params = problem(*EMISSIONS["gaussian"])
    controlled = ControlVariate(WINDOWS, BUFFER).bind(model, data, params)
    for sampler in (SGRLD(0.1, transitions=CoxIngersollRoss()), SGRLD.paper(1e-5)):
        with pytest.raises(ModelError, match="needs expected counts, which control variates do not give"):
            sampler.init(controlled, key, coordinates_of(model, params))
    for sampler in (SGRLD(0.1, noise_correction=True), SGLD(0.1, noise_correction=True), SGHMC(noise_correction=True)):
        with pytest.raises(ModelError, match=r"noise_correction of .* needs the scores of independent windows"):
            sampler.init(controlled, key, coordinates_of(model, params))
        with pytest.raises(ModelError, match="at least 2 windows"):
            one = lh.Buffered(lh.Windows(5, 1), BUFFER).bind(model, data, params)
            sampler.init(one, key, coordinates_of(model, params))
    stationary, data, params = problem(*EMISSIONS["gaussian"], initial="stationary")
    with pytest.raises(ModelError, match="initial='stationary'"):
        bound = lh.Buffered(WINDOWS, BUFFER).bind(stationary, data, params)
        SGRLD(0.1, transitions=CoxIngersollRoss()).init(bound, key, coordinates_of(stationary, params))
    with pytest.raises(ModelError, match="noise_correction must go with"):
        SGRLD(0.1, emission=GaussianMetric(), noise_correction=True)
    with pytest.raises(ModelError, match="inner_steps must be"):
        Alternating(0)
    with pytest.raises(ModelError, match="friction must be"):
        SGHMC(0.1, friction=0.0)
