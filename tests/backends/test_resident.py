"""Exact passes inside one program, by the C++ kernel and by JAX, against streams in JAX and finite differences."""

from collections.abc import Callable
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from longhmm.backends import native, read, resident
from longhmm.data.sequences import open_data
from longhmm.errors import DataError
from longhmm.target.target import ExactPosterior, exact
from model.configurations import named, names, observations


def sticky(n_states: int, stay: float) -> np.ndarray:
    return np.full((n_states, n_states), (1 - stay) / (n_states - 1)) + np.eye(n_states) * (
        stay - (1 - stay) / (n_states - 1)
    )


def separated() -> tuple[lh.HMM, dict, dict]:
    """Two features, some values missing one by one, three sequences, one of a single row."""
    model = lh.HMM(3, lh.Gaussian(dim=2))
    params = {
        "transition": sticky(3, 0.9),
        "mean": np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]]),
        "covariance": np.stack([np.eye(2), [[1.0, 0.4], [0.4, 1.0]], np.eye(2)]),
    }
    _, y = lh.simulate(model, params, 1500, seed=1)
    y = np.array(y, np.float64)
    y[np.random.default_rng(0).random(y.shape) < 0.1] = np.nan
    return model, params, {"data": [y[:700], y[700:701], y[701:]]}


def slow() -> tuple[lh.HMM, dict, dict]:
    """States that hardly differ and hardly ever change: no neighbourhood tells where a chunk begins."""
    model = lh.HMM(2, lh.Poisson(), initial="stationary")
    params = {"transition": np.array([[0.9995, 0.0005], [0.001, 0.999]]), "rate": np.array([4.0, 4.2])}
    _, y = lh.simulate(model, params, 1200, seed=2)
    return model, params, {"data": np.asarray(y), "mask": np.arange(1200) % 7 == 3}


def zeros() -> tuple[lh.HMM, dict, dict]:
    """A cycle with structural zeros, a fixed row, and states that are known here and there."""
    prior = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
    model = lh.HMM(3, lh.Gaussian(), transition_prior=prior, fixed_rows={2: [0.3, 0.0, 0.7]})
    params = {
        "transition": np.array([[0.9, 0.1, 0.0], [0.0, 0.8, 0.2], [0.3, 0.0, 0.7]]),
        "mean": np.array([0.0, 1.0, 3.0]),
        "sd": np.ones(3),
    }
    states, y = lh.simulate(model, params, 1000, seed=3)
    return model, params, {"data": np.asarray(y), "states": np.where(np.arange(1000) % 50 == 0, states, -1)}


def own_density() -> tuple[lh.HMM, dict, dict]:
    """An emission without a form of its own: JAX computes its log likelihoods."""
    model = lh.HMM(2, lh.StudentT())
    params = {
        "transition": np.array([[0.95, 0.05], [0.1, 0.9]]),
        "df": np.array([4.0, 8.0]),
        "loc": np.array([-2.0, 2.0]),
        "scale": np.array([0.7, 1.0]),
    }
    _, y = lh.simulate(model, params, 1500, seed=4)
    y = np.array(y, np.float64)
    y[::13] = np.nan
    return model, params, {"data": [y[:900], y[900:]]}


def many_states() -> tuple[lh.HMM, dict, dict]:
    """Eleven states, for which no kernel was specialised, with a constant of the density that no parameter moves."""
    model = lh.HMM(11, lh.Poisson())
    params = {"transition": sticky(11, 0.8), "rate": 3.0 * np.arange(1, 12) ** 1.5}
    _, y = lh.simulate(model, params, 2000, seed=5)
    return model, params, {"data": np.asarray(y)}


# The overlap, by number, at which all is exact, for the C++ kernel and for JAX; the last number means operators.
CASES = {
    "separated": (separated, 0, 0),
    "slow": (slow, 3, 1),
    "zeros": (zeros, None, None),
    "own density": (own_density, 0, 0),
    "many states": (many_states, 1, 0),
}
PATHS = ("cpp", "reference")


# To JAX all densities are alike, and so are all numbers of states.
LONG = ("own density", "many states")
COMBINATIONS = [
    pytest.param(
        case, path, marks=[pytest.mark.slow] * (path == "reference" and case in ("own density", "many states"))
    )
    for case in CASES
    for path in PATHS
]


@pytest.fixture
def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks of few chunks each, of data that are read on the host in every pass."""
    monkeypatch.setattr(read, "CHUNK", 64)
    monkeypatch.setattr(resident, "BLOCK_ENTRIES", 3 * 64 * 4)
    monkeypatch.setattr(resident, "RESIDENT_BYTES", 0)


@pytest.mark.parametrize(("case", "backend"), COMBINATIONS, indirect=["backend"])
def test_equals_a_stream(case: str, backend: str, request: pytest.FixtureRequest) -> None:
    make, *levels = CASES[case]
    level = levels[PATHS.index(backend)]
    model, params, given = make()
    if case == "separated":
        request.getfixturevalue("cut_small")
    sequences = open_data(given.pop("data"), **given)
    model = model.resolve(sequences)
    u = lh.unconstrain(model, params)
    posterior = ExactPosterior.of(model, sequences)
    assert posterior.program.backend.name == backend
    assert (posterior.program.source is not None) == (posterior.program.n_blocks > 1) == (case == "separated")
    value, gradient = posterior.log_density_and_gradient(u)
    found = posterior.settle(u)
    assert level is None or found == level
    again, _ = posterior.at_level(found).log_density_and_gradient(u)
    with patch.object(native, "available", lambda: False):
        expected_value, (expected, *_) = exact(model, model.validate(params), sequences)
    np.testing.assert_allclose([value, again], expected_value, rtol=1e-12)
    for name, slope in expected.items():
        np.testing.assert_allclose(gradient[name], slope, rtol=1e-10, atol=1e-9, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_family_equals_a_stream(name: str) -> None:
    configuration = named(name)
    model = lh.HMM(configuration.n_states, configuration.emission)
    params = {"transition": sticky(configuration.n_states, 0.7), **configuration.params}
    y = observations(configuration, 90)[1]
    y[7] = np.nan
    sequences = open_data([y[:50], y[50:]])
    posterior = ExactPosterior.of(model, sequences)
    value, gradient = posterior.log_density_and_gradient(lh.unconstrain(posterior.model, params))
    expected_value, (expected, *_) = exact(posterior.model, posterior.model.validate(params), sequences)
    assert float(value) == pytest.approx(expected_value, rel=1e-12)
    assert set(gradient) == set(expected)
    for parameter, slope in expected.items():
        np.testing.assert_allclose(gradient[parameter], slope, rtol=1e-9, atol=1e-9, err_msg=parameter)


@pytest.mark.parametrize("make", [own_density, pytest.param(many_states, marks=pytest.mark.slow)])
def test_chains_may_share_a_call(make: Callable[[], tuple[lh.HMM, dict, dict]]) -> None:
    """Under `jax.vmap` every point has its own comparisons."""
    if not native.usable():
        pytest.skip("the fused kernel was not built")
    model, params, given = make()
    sequences = open_data(given["data"])
    posterior = ExactPosterior.of(model, sequences)
    u = lh.unconstrain(posterior.model, params)
    with jax.enable_x64(True):
        points = {name: jnp.asarray(value + np.array([[0.0], [0.01]])) for name, value in u.items()}
        values, slopes = jax.vmap(jax.value_and_grad(posterior))(points)
        for chain in range(2):
            value, slope = posterior.log_density_and_gradient({name: each[chain] for name, each in points.items()})
            assert float(values[chain]) == pytest.approx(float(value), rel=1e-13)
            for name in u:
                np.testing.assert_allclose(slopes[name][chain], slope[name], rtol=1e-10, atol=1e-9)


def test_no_likelihood_where_a_parameter_is_no_number() -> None:
    for make in (many_states, own_density):
        model, params, given = make()
        posterior = ExactPosterior.of(model, open_data(given["data"]))
        u = lh.unconstrain(posterior.model, params)
        name = next(name for name in u if name != "transition")
        u[name] = np.full_like(u[name], np.nan)
        assert not np.isfinite(float(posterior.log_density_and_gradient(u)[0]))


def test_inside_compiled_code_and_under_its_own_derivative(backend: str) -> None:
    """`jax.grad` of the function is the Fisher gradient, and finite differences of its values agree."""
    model, params, given = slow()
    sequences = open_data(given["data"][:300])
    model = model.resolve(sequences)
    posterior = ExactPosterior.of(model, sequences)
    u = lh.unconstrain(model, params)
    with jax.enable_x64(True):
        wide = {name: jnp.asarray(value) for name, value in u.items()}
        slope = jax.jit(jax.grad(lambda at: 2.0 * posterior(at)))(wide)
        for name in u:
            for index in range(u[name].size):
                moved = [{**u, name: u[name] + sign * 1e-5 * np.eye(u[name].size)[index]} for sign in (1, -1)]
                difference = (float(posterior(moved[0])) - float(posterior(moved[1]))) / 2e-5
                assert float(slope[name][index]) == pytest.approx(2 * difference, rel=1e-6, abs=1e-5)


def test_impossible_data() -> None:
    """Data outside the support are refused; a path that does not exist has log likelihood minus infinity."""
    counts = lh.HMM(2, lh.Poisson(rate=np.array([1.0, 2.0])))
    with pytest.raises(DataError, match="row 2"):
        ExactPosterior.of(counts, open_data(np.array([1.0, 2.0, -1.0])))
    prior = np.array([[1.0, 0.0], [1.0, 1.0]])  # state 0 is never left
    known = open_data(np.array([1, 2, 3]), states=np.array([0, 1, 1]))
    model = lh.HMM(2, lh.Poisson(rate=np.array([1.0, 2.0])), transition_prior=prior)
    posterior = ExactPosterior.of(model, known)
    params = {"transition": np.array([[1.0, 0.0], [0.5, 0.5]])}
    assert float(posterior(lh.unconstrain(model, params))) == -np.inf
