"""Every emission of the table against SciPy, numerical derivatives and itself."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from longhmm import Emission
from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.model import parameters
from model.configurations import Configuration, log_law, named, names, observations, prior_draw

EVERY = pytest.mark.parametrize("name", names())
pytestmark = pytest.mark.usefixtures("double_precision")


def as_argument(emission: Emission, y: np.ndarray) -> np.ndarray:
    """Observations (n, D) in the shape that `log_density` takes."""
    return y if emission.vector_valued else y[..., 0]


def expected(configuration: Configuration, y: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """SciPy's log density of the observed part of every row, state by state, row by row."""
    answers = np.zeros((len(y), configuration.n_states))
    for k in range(configuration.n_states):
        law = configuration.law(configuration.params, k)
        for t, (row, seen) in enumerate(zip(y, observed, strict=True)):
            if isinstance(law, list):
                answers[t, k] = sum(log_law(one, row[d]) for d, one in enumerate(law) if seen[d])
            elif seen.all():
                answers[t, k] = log_law(law, row)
            elif seen.any() and hasattr(law, "cov_object"):
                answers[t, k] = stats.multivariate_normal(law.mean[seen], law.cov[np.ix_(seen, seen)]).logpdf(row[seen])
    return answers


def test_the_table_names_its_configurations_once() -> None:
    assert len(set(names())) == len(names()) > 20


@EVERY
def test_density_is_that_of_scipy(name: str) -> None:
    configuration = named(name)
    emission, params = configuration.emission, configuration.params
    _, y = observations(configuration)
    # In blocks (time, windows, D), as the recursions use it.
    argument = as_argument(emission, y.reshape(4, 6, emission.dim))
    answer = np.asarray(jax.jit(emission.log_density)(params, argument))
    assert answer.shape == (4, 6, configuration.n_states)
    answer = answer.reshape(24, -1)
    np.testing.assert_allclose(answer, expected(configuration, y, np.ones_like(y, bool)), rtol=1e-9, atol=1e-9)


@EVERY
def test_missing_values_are_integrated_out_and_gradients_stay_finite(name: str) -> None:
    configuration = named(name)
    emission, params = configuration.emission, configuration.params
    _, y = observations(configuration)
    observed = np.random.default_rng(3).random(y.shape) > 0.4
    observed[0], observed[1] = False, True
    holes = np.where(observed, y, np.nan)
    free = parameters.free_names(emission.parameters(configuration.n_states))
    free_params = {key: jnp.asarray(params[key]) for key in free}

    def total(chosen: dict[str, jax.Array], values: np.ndarray, seen: np.ndarray) -> Any:
        logs = emission.log_likelihoods({**params, **chosen}, Rows(values, seen))
        return jnp.sum(jnp.where(logs > -jnp.inf, logs, 0)), logs

    evaluate = jax.jit(jax.value_and_grad(total, has_aux=True))
    (_, answer), gradient = evaluate(free_params, holes, observed)
    np.testing.assert_allclose(answer, expected(configuration, y, observed), rtol=1e-9, atol=1e-9)
    assert np.all(np.asarray(answer)[0] == 0.0)
    assert all(np.isfinite(value).all() for value in jax.tree.leaves(gradient))


@EVERY
def test_gradient_of_the_density_is_the_slope(name: str) -> None:
    configuration = named(name)
    emission, n_states = configuration.emission, configuration.n_states
    _, y = observations(configuration, 6)
    table = emission.parameters(n_states)
    u = parameters.unconstrain(table, configuration.params)

    @jax.jit
    @jax.value_and_grad
    def objective(coordinates: dict[str, jax.Array]) -> jax.Array:
        params = parameters.constrain(table, coordinates)
        logs = emission.log_density(params, as_argument(emission, y))
        prior = emission.log_prior(params) + parameters.log_abs_det_jacobian(table, coordinates)
        return prior + jnp.sum(jnp.where(logs > -jnp.inf, logs, 0))

    rng = np.random.default_rng(0)
    direction = {key: rng.normal(size=np.shape(value)) for key, value in u.items()}
    gradient = objective(u)[1]
    slope = sum(float(jnp.sum(gradient[key] * direction[key])) for key in u)
    step = 1e-5
    ahead, behind = (objective({key: u[key] + sign * step * direction[key] for key in u})[0] for sign in (1, -1))
    numerical = float(ahead - behind) / (2 * step)
    assert slope == pytest.approx(numerical, rel=2e-6, abs=1e-6)


@EVERY
def test_prior_is_the_sum_over_states(name: str) -> None:
    configuration = named(name)
    emission, params = configuration.emission, configuration.params
    table = emission.parameters(configuration.n_states)
    for key, parameter in table.items():
        assert parameter.shape == np.shape(params[key])
        assert parameter.is_free or np.array_equal(parameter.value, params[key])  # type: ignore[arg-type]

    def by_state(chosen: Any) -> list[jax.Array]:
        logs = []
        for key, parameter in table.items():
            if parameter.prior is not None and not isinstance(parameter.prior, dist.ImproperUniform):
                batch = parameter.shape[: len(parameter.shape) - parameter.prior.event_dim]
                logs += list(parameter.prior.expand(batch).log_prob(chosen[key]))
        return logs

    total, parts = jax.jit(lambda chosen: (emission.log_prior(chosen), by_state(chosen)))(params)
    assert float(total) == pytest.approx(sum(float(np.sum(part)) for part in parts), rel=1e-10, abs=1e-12)


@EVERY
def test_draws_follow_the_density(name: str) -> None:
    configuration = named(name)
    emission, params = configuration.emission, configuration.params
    if name == "user-subclass":
        with pytest.raises(ModelError, match="override sample"):
            emission.sample(jax.random.key(0), params, np.zeros(3, int))
        return
    n = 20_000
    states = np.arange(n * configuration.n_states) % configuration.n_states
    y = np.asarray(jax.jit(emission.sample)(jax.random.key(1), params, states), np.float64)
    assert y.shape == (len(states), emission.dim)
    for k in range(configuration.n_states):
        law, mine = configuration.law(params, k), y[states == k]
        for d, one in enumerate(law if isinstance(law, list) else [law]):
            values = mine[:, d] if isinstance(law, list) else mine
            logs = log_law(one, values)
            assert -logs.mean() == pytest.approx(float(one.entropy()), abs=1e-9 + 5 * logs.std() / np.sqrt(n))
            if name != "von-mises":
                mean = one.loc if hasattr(one, "shape") else one.mean() if callable(one.mean) else one.mean
                np.testing.assert_array_less(np.abs(values.mean(0) - mean), 5 * values.std(0) / np.sqrt(n))


@EVERY
def test_prior_draws_have_the_declared_shapes_and_regions(name: str) -> None:
    configuration = named(name)
    emission, n_states = configuration.emission, configuration.n_states
    if name == "flat-priors":
        with pytest.raises(ModelError, match="cannot be drawn from"):
            prior_draw(emission, jax.random.key(0), n_states)
        return
    sample = jax.jit(lambda key: prior_draw(emission, key, n_states))
    draw, other = sample(jax.random.key(0)), sample(jax.random.key(1))
    for key, parameter in emission.parameters(n_states).items():
        assert draw[key].shape == parameter.shape
        if parameter.is_free:
            assert np.all(np.asarray(parameter.support(draw[key])))  # type: ignore[misc]
    assert name == "nothing-to-infer" or any(np.any(np.asarray(draw[key]) != np.asarray(other[key])) for key in draw)


@EVERY
def test_location_is_the_first_component_of_the_mean(name: str) -> None:
    configuration = named(name)
    location = np.asarray(configuration.emission.location(configuration.params))
    assert location.shape == (configuration.n_states,)
    if configuration.emission.mean_name:  # which stands for it where states are numbered
        own = np.asarray(configuration.params[configuration.emission.mean_name])
        np.testing.assert_allclose(own.reshape(configuration.n_states, -1)[:, 0], location)
    for k in range(configuration.n_states):
        law = configuration.law(configuration.params, k)
        first = law[0] if isinstance(law, list) else law
        if name == "von-mises":
            assert np.cos(location[k] - float(first.mean())) == pytest.approx(1.0)
        elif name not in ("user-subclass", "numpyro-function"):
            mean = first.loc if hasattr(first, "shape") else first.mean() if callable(first.mean) else first.mean
            assert location[k] == pytest.approx(np.ravel(mean)[0])


@EVERY
def test_observations_of_its_own_pass_the_check(name: str) -> None:
    configuration = named(name)
    _, y = observations(configuration)
    observed = np.ones_like(y, bool)
    observed[0] = False
    y[0] = np.nan
    configuration.emission.check(y, observed, str)


@pytest.mark.parametrize("name", ["gaussian-full-2d", "gaussian-full-6d", "negative-binomial", "von-mises", "class-2d"])
def test_single_precision_stays_single_and_close(name: str) -> None:
    configuration = named(name)
    emission = configuration.emission
    _, y = observations(configuration)
    observed = np.ones_like(y, bool)
    with jax.enable_x64(False):
        single = {key: jnp.asarray(value) for key, value in configuration.params.items()}
        answer = jax.jit(emission.log_likelihoods)(single, Rows(jnp.asarray(y), observed))
        rounded = jax.jit(emission.log_prior)(single)
        assert answer.dtype == rounded.dtype == jnp.float32
    np.testing.assert_allclose(answer, expected(configuration, y, observed), rtol=2e-4, atol=2e-4)
    exact = jax.jit(emission.log_prior)(configuration.params)
    assert float(rounded) == pytest.approx(float(exact), rel=1e-4, abs=1e-4)


def test_a_subclass_with_several_features_counts_partly_missing_rows_as_missing():
    class Ring(Emission):
        def __init__(self):
            super().__init__(None, dim=2, radius=dist.HalfNormal(5.0))

        def log_density(self, params, y):
            distance = jnp.sqrt(jnp.sum(y**2, axis=-1, keepdims=True) + 1e-12)
            return -0.5 * (distance - params["radius"]) ** 2

    y = jnp.asarray([[3.0, 4.0], [3.0, jnp.nan], [jnp.nan, jnp.nan]])
    params = {"radius": jnp.asarray([5.0, 4.0])}
    found = Ring().log_likelihoods(params, Rows(y, ~jnp.isnan(y)))
    np.testing.assert_allclose(found, [[0.0, -0.5], [0.0, 0.0], [0.0, 0.0]], atol=1e-6)
