"""The model as a whole: what it accepts, its initial law, its prior density, and priors that wait for the data."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import longhmm as lh
from longhmm import Emission, Gaussian, Poisson
from longhmm.data.layout import Partition, gather
from longhmm.data.rows import Rows
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.model.transitions.dirichlet import Sticky

NORMAL = Emission(dist.Normal, loc=dist.Normal(0.0, 3.0), scale=dist.HalfNormal(2.0))
TRANSITION = np.array([[0.9, 0.1], [0.4, 0.6]])
PARAMS: dict[str, Any] = {"transition": TRANSITION, "loc": [-1.0, 2.0], "scale": [0.5, 1.5]}


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"n_states": 0}, "n_states must be a whole number of at least 1, got 0"),
        ({"n_states": 2.0}, "n_states must be a whole number"),
        ({"n_states": True}, "n_states must be a whole number"),
        ({"emission": "gaussian"}, "emission must be an Emission"),
        ({"emission": Gaussian}, "emission must be an Emission"),
        ({"initial": "first"}, "initial must be 'uniform', 'stationary' or 2 probabilities"),
        ({"initial": [0.5, 0.6]}, "initial must be 2 probabilities that sum to 1"),
        ({"initial": [1.0]}, "initial must be 2 probabilities"),
        ({"initial": [1.5, -0.5]}, "initial must be 2 probabilities"),
        ({"transition_prior": -1}, "transition_prior"),
        ({"fixed_rows": {5: [1, 0]}}, "fixed_rows"),
        ({"emission": Emission(dist.Normal, loc=dist.Normal(np.zeros(3), 1.0), scale=1.0)}, "2 states"),
    ],
)
def test_what_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        HMM(**{"n_states": 2, "emission": NORMAL, **options})


def test_forbidden_transitions_must_be_zero() -> None:
    model = HMM(2, NORMAL, transition_prior=[[1.0, 0.0], [1.0, 1.0]])
    with pytest.raises(ModelError, match=r"forbids a transition, got 0.1 from state 0 to state 1"):
        model.validate(PARAMS)
    complete = model.validate({**PARAMS, "transition": [[1.0, 0.0], [0.4, 0.6]]})
    assert complete["transition"][0, 1] == 0.0


def test_validated_parameters_are_complete() -> None:
    complete = HMM(2, Emission(dist.Normal, loc=dist.Normal(0.0, 1.0), scale=2.0)).validate(
        {"transition": TRANSITION.astype(np.float32), "loc": [1, 2]}
    )
    assert sorted(complete) == ["initial", "loc", "scale", "transition"]
    assert all(value.dtype == np.float64 for value in complete.values())
    np.testing.assert_array_equal(complete["scale"], [2.0, 2.0])
    np.testing.assert_allclose(complete["transition"].sum(1), 1.0, rtol=1e-15)  # rounding of float32 is mended
    np.testing.assert_array_equal(complete["initial"], [0.5, 0.5])


def test_initial_laws() -> None:
    def initial_of(given: Any, **changed: Any) -> np.ndarray:
        return HMM(2, NORMAL, initial=given).validate({**PARAMS, **changed})["initial"]

    np.testing.assert_allclose(initial_of("uniform"), 0.5)
    np.testing.assert_allclose(initial_of([0.2, 0.8]), [0.2, 0.8])
    law = initial_of("stationary")
    np.testing.assert_allclose(law, [0.8, 0.2], rtol=1e-10)
    np.testing.assert_allclose(law @ TRANSITION, law, rtol=1e-10)
    np.testing.assert_allclose(initial_of("stationary", initial=[0.1, 0.9]), [0.1, 0.9])  # what is given wins


def test_a_given_initial_law_is_told_from_the_models_own() -> None:
    model = HMM(2, NORMAL, initial="stationary")
    assert model.given_initial(model.validate(PARAMS)) is None
    np.testing.assert_array_equal(model.given_initial(model.validate({**PARAMS, "initial": [0.5, 0.5]})), [0.5, 0.5])


def test_the_stationary_law_moves_with_the_transitions() -> None:
    model = HMM(2, NORMAL, initial="stationary")
    with jax.enable_x64(True):
        u = model.unconstrain({name: jnp.asarray(value) for name, value in model.validate(PARAMS).items()})

        def first(free: jax.Array) -> jax.Array:
            return model.constrain({**u, "transition": free})["initial"][0]

        slope = np.asarray(jax.grad(first)(u["transition"]))
        step = 1e-5
        expected = [
            (first(u["transition"] + step * unit) - first(u["transition"] - step * unit)) / (2 * step)
            for unit in np.eye(2)
        ]
    np.testing.assert_allclose(slope, np.array(expected), rtol=1e-7)
    assert np.abs(slope).min() > 0.01


def test_the_prior_density_of_coordinates() -> None:
    """Dirichlet rows, the emission's priors, and the Jacobians of ILR and of the logarithm, from SciPy and NumPy."""
    model = HMM(2, NORMAL, transition_prior=Sticky(stay=4.0, move=2.0))
    scale = np.array(PARAMS["scale"])
    rows = stats.dirichlet.logpdf(TRANSITION[0], [4.0, 2.0]) + stats.dirichlet.logpdf(TRANSITION[1], [2.0, 4.0])
    natural = rows + stats.norm.logpdf(PARAMS["loc"], 0, 3).sum() + stats.halfnorm.logpdf(scale, scale=2).sum()
    jacobian = np.log(TRANSITION).sum() + 2 * 0.5 * np.log(2) + np.log(scale).sum()
    with jax.enable_x64(True):
        params = {name: jnp.asarray(value) for name, value in model.validate(PARAMS).items()}
        u = model.unconstrain(params)
        assert sorted(u) == ["loc", "scale", "transition"]
        np.testing.assert_allclose(model.log_prior(params), natural, rtol=1e-12)
        np.testing.assert_allclose(model.log_prior_unconstrained(u), natural + jacobian, rtol=1e-12)
        back = model.constrain(u)
    for name in params:
        np.testing.assert_allclose(back[name], params[name], rtol=1e-12)


def test_log_likelihoods_know_missing_values_and_known_states() -> None:
    model = HMM(2, NORMAL)
    y = np.array([0.5, np.nan, 2.0, -1.0])[:, None]
    with jax.enable_x64(True):
        params = {name: jnp.asarray(value) for name, value in model.validate(PARAMS).items()}
        states = jnp.array([-1, 1, 0, -1])
        logs = np.asarray(model.log_likelihoods(params, Rows(jnp.asarray(y), jnp.asarray(~np.isnan(y)), states)))
        data = open_data(y[:, 0], states=[-1, 1, 0, -1])
        rows, _ = gather(data, Partition(data.offsets, 2).locate([0, 1], 1), 4)
        window_logs = np.asarray(model.log_likelihoods(params, jax.tree.map(jnp.asarray, rows)))
    expected = stats.norm.logpdf(y, PARAMS["loc"], PARAMS["scale"])
    expected[1] = 0.0
    expected[1, 0] = expected[2, 1] = -np.inf
    np.testing.assert_allclose(logs, expected, rtol=1e-12)
    np.testing.assert_allclose(window_logs[0, :3], expected[:3], rtol=1e-12)
    np.testing.assert_allclose(window_logs[1, :3], expected[1:], rtol=1e-12)
    assert (window_logs[:, 3] == 0).all()


def test_default_priors_are_resolved_alike() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(7.0, 3.0, size=(5000, 2))
    model = HMM(3, Gaussian(2))
    assert not model.emission.is_resolved
    one, two = model.resolve(y), model.resolve(open_data(y.copy()))
    assert one is not model and one.emission.is_resolved and not model.emission.is_resolved
    assert jax.tree.structure(one) == jax.tree.structure(two)
    jax.tree.map(np.testing.assert_array_equal, one, two)
    assert one.emission is two.emission  # with all that it has cached
    assert one.resolve(rng.normal(size=(10, 2))) is one  # resolved is resolved
    other = model.resolve(y + 100.0)
    assert other is not one
    with jax.enable_x64(True):
        values = {"mean": jnp.full((3, 2), 7.0), "covariance": jnp.tile(jnp.eye(2), (3, 1, 1))}
        again = HMM(3, Gaussian(2)).resolve(y)
        assert float(again.emission.log_prior(values)) == float(one.emission.log_prior(values))
        assert float(other.emission.log_prior(values)) != float(one.emission.log_prior(values))
    known = HMM(2, NORMAL)
    assert known.resolve(y[:, 0]) is known


def test_data_of_another_width_are_refused() -> None:
    with pytest.raises(ModelError, match=r"has 3 feature\(s\) per observation"):
        HMM(2, Gaussian(2)).resolve(np.zeros((10, 3)))


def test_repr_names_states_and_emission() -> None:
    assert repr(HMM(3, Gaussian(2))) == "HMM(n_states=3, emission=Gaussian(dim=2, covariance='full'))"
    assert repr(HMM(2, Poisson())).startswith("HMM(n_states=2, emission=Poisson(")


def test_potentials_are_all_that_inference_needs() -> None:
    model = lh.HMM(2, lh.Gaussian(), initial=[0.3, 0.7])
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "mean": [0.0, 2.0], "sd": [1.0, 0.5]}
    data = lh.open_data([0.1, np.nan, 1.9, 2.2], states=[-1, -1, 1, -1])
    model = model.resolve(data)
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(value) for name, value in model.validate(params).items()}
        potentials = jax.tree.map(np.asarray, model.potentials(arrays, data.rows(0, 4)))
    assert [each.shape for each in potentials] == [(2,), (2, 2), (4, 2)]
    assert potentials.log_likelihood[1].tolist() == [0.0, 0.0] and potentials.log_likelihood[2, 0] == -np.inf
    exact = lh.testing.enumerate_paths(*potentials)
    assert lh.log_likelihood(model, params, data) == pytest.approx(exact.log_likelihood, rel=1e-12)
    np.testing.assert_allclose(lh.state_probabilities(model, params, data), exact.gamma, atol=1e-6)
