"""Stochastic variational inference: near the exact posterior means, with standard deviations that are too small."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.samplers.gibbs import Gibbs
from longhmm.samplers.stochastic_variational import StochasticVariational, draw_from_posterior
from samplers.exact_chains import run
from samplers.targets import dirichlet_moments, known_states

TRANSITION = np.array([[0.9, 0.1], [0.2, 0.8]])


def fit(model: lh.HMM, data: Sequences, params: dict, steps: int, windows: lh.Windows) -> tuple:
    """The model on its data, and `q` after some steps of all windows with a buffer of 20."""
    model = model.resolve(data)
    sampler = StochasticVariational()
    target = sampler.estimator(windows, lh.FixedBuffer(20)).bind(model, data, params)

    @jax.jit
    def climb(state: object, key: jax.Array) -> object:
        def one(state: object, key: jax.Array) -> tuple:
            draw_key, step_key = jax.random.split(key)
            return sampler.step(target, step_key, state, target.minibatch(draw_key))

        return jax.lax.scan(one, state, jax.random.split(key, steps))

    start = {name: jnp.asarray(value, jnp.float32) for name, value in lh.unconstrain(model, params).items()}
    state, info = climb(sampler.init(target, jax.random.key(0), start), jax.random.key(1))
    assert bool(jnp.all(info.finite))
    return model, state


def test_known_states_give_the_exact_dirichlet_rows() -> None:
    """With all states known, and all windows in every step, mean field is exact."""
    target, concentration = known_states(420)
    everything = lh.Windows(half_width=10, count=20)
    model, state = fit(target.model, target.data, target.params, 400, everything)
    weights = model.transitions.concentration + np.asarray(state.transitions, np.float64)
    possible = concentration > 0
    np.testing.assert_allclose(weights[possible], concentration[possible], rtol=1e-3)
    draws = draw_from_posterior(model, jax.random.key(2), state, 4000)
    rows = np.asarray(jax.vmap(model.transitions.constrain)(draws["transition"]))
    mean, sd = dirichlet_moments(concentration)
    np.testing.assert_allclose(rows.mean(0)[possible], mean[possible], atol=0.004)
    np.testing.assert_allclose(rows.std(0)[possible], sd[possible], rtol=0.05)


def test_means_are_near_and_spreads_too_small() -> None:
    """Overlapping states: against Gibbs draws, with windows drawn at random."""
    model = lh.HMM(2, lh.Gaussian())
    params = {"transition": TRANSITION, "mean": [0.0, 2.0], "sd": np.ones(2)}
    _, y = lh.simulate(model, params, 2000, seed=6)
    data = lh.open_data(np.asarray(y))
    exact, _ = run(Gibbs(), model, data, params, 1500, chains=1)
    off = {"transition": [[0.7, 0.3], [0.4, 0.6]], "mean": [0.4, 1.7], "sd": np.full(2, 1.2)}
    model, state = fit(model, data, off, 1500, lh.Windows(half_width=25, count=20))
    draws = draw_from_posterior(model, jax.random.key(2), state, 3000)
    natural = jax.tree.map(np.asarray, jax.vmap(model.constrain)(draws))
    for name in ("transition", "mean", "sd"):
        mean, sd = exact[name].mean((0, 1)), exact[name].std((0, 1))
        np.testing.assert_array_less(np.abs(natural[name].mean(0) - mean), 1.0 * sd, err_msg=name)
        np.testing.assert_array_less(natural[name].std(0), 1.05 * sd, err_msg=name)
        np.testing.assert_array_less(0.4 * sd, natural[name].std(0), err_msg=name)
    # What mean field leaves out: the states are hard to tell apart, so their means move together.
    assert np.all(natural["mean"].std(0) < 0.85 * exact["mean"].std((0, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["poisson", "bernoulli", "categorical", "tied"])
def test_other_families(case: str) -> None:
    """Well separated states, where mean field is nearly exact; means against Gibbs draws."""
    rng = np.random.default_rng(0)
    emission, values = {
        "poisson": (lh.Poisson(), {"rate": [1.0, 9.0]}),
        "bernoulli": (lh.Bernoulli(dim=6), {"probs": np.array([[0.1] * 6, [0.9] * 6])}),
        "categorical": (lh.Categorical(4), {"probs": [[0.6, 0.3, 0.05, 0.05], [0.05, 0.05, 0.4, 0.5]]}),
        "tied": (lh.Tied(lh.Poisson(), levels=(0, 1, 1)), {"rate": [1.0, 9.0]}),
    }[case]
    model = lh.HMM(3 if case == "tied" else 2, emission)
    transition = TRANSITION
    if case == "tied":
        # States that share a level are told apart by how long they last.
        transition = np.array([[0.8, 0.1, 0.1], [0.05, 0.9, 0.05], [0.5, 0.3, 0.2]])
    params = {"transition": transition, **values}
    _, y = lh.simulate(model, params, 4000, seed=7)
    y = np.array(y, np.float64)
    y[rng.random(len(y)) < 0.1] = np.nan
    data = lh.open_data(y)
    exact, _ = run(Gibbs(), model, data, params, 2000, chains=1)
    _, state = fit(model, data, params, 2000, lh.Windows(half_width=25, count=30))
    mean = model.resolve(data).constrain(state.coordinates)
    name = next(iter(values))
    np.testing.assert_allclose(mean[name], exact[name].mean((0, 1)), atol=2.0 * exact[name].std((0, 1)).max())


def test_unsupported_emissions_are_named() -> None:
    model = lh.HMM(2, lh.StudentT())
    data = lh.open_data(np.random.default_rng(0).normal(size=100))
    params = {"transition": TRANSITION, "df": [4.0, 4.0], "loc": [0.0, 1.0], "scale": [1.0, 1.0]}
    with pytest.raises(ModelError, match=r"needs an emission whose parameters all have conjugate priors.*got StudentT"):
        fit(model, data, params, 1, lh.Windows(half_width=5, count=2))
    # A flat prior is no distribution that an approximation could begin as.
    flat = dist.ImproperUniform(dist.constraints.positive, (), ())
    model = lh.HMM(2, lh.Gaussian(sd=flat))
    params = {"transition": TRANSITION, "mean": [0.0, 1.0], "sd": [1.0, 1.0]}
    with pytest.raises(ModelError, match="conjugate priors"):
        fit(model, data, params, 1, lh.Windows(half_width=5, count=2))
    with pytest.raises(ModelError, match="forgetting must lie in"):
        StochasticVariational(forgetting=0.4)
