"""Every emission of the table against SciPy, numerical derivatives and itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from scipy import stats

from longhmm import Emission, Gaussian, Poisson
from longhmm.data.rows import Rows
from longhmm.errors import DataError, ModelError
from longhmm.model import parameters
from longhmm.model.serialise import emission_from_config, emission_to_config
from model.configurations import Configuration, exponential_scale, log_law, named, names, observations, prior_draw

EVERY = pytest.mark.parametrize("name", names())


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


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


@EVERY
def test_description_rebuilds_the_emission(name: str) -> None:
    configuration = named(name)
    emission, params = configuration.emission, configuration.params
    if name.startswith("user-"):
        with pytest.raises(ModelError, match="pass it again when loading"):
            emission_to_config(emission)
        return
    config = json.loads(json.dumps(emission_to_config(emission)))
    again = emission_from_config(config)
    assert type(again) is type(emission) and repr(again) == repr(emission)
    prior, expected_prior = jax.jit(lambda chosen: (again.log_prior(chosen), emission.log_prior(chosen)))(params)
    assert float(prior) == pytest.approx(float(expected_prior), rel=1e-14, abs=1e-14)
    assert emission_to_config(again) == config


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


def normal(**priors: Any) -> Emission:
    return Emission(dist.Normal, **priors)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Emission(dist.Uniform, low=dist.Normal(0.0, 1.0), high=9.0), "'low' of Uniform moves the support"),
        (lambda: Emission(dist.Uniform, low=0.0, high=dist.HalfNormal(1.0)), "'high' of Uniform moves the support"),
        (lambda: Emission(dist.Pareto, scale=dist.HalfNormal(1.0), alpha=2.0), "'scale' of Pareto moves the support"),
        (lambda: normal(loc=0.0, scale=dist.Normal(0.0, 1.0)), "needs a positive number, but its Normal prior"),
        (lambda: normal(loc=0.0, scale=-1.0), "'scale' of Normal needs a positive number, but its fixed value"),
        (lambda: normal(loc=0.0, width=1.0), "Normal has no parameter 'width'"),
        (lambda: Emission(dist.Poisson), "'rate' of Poisson is missing"),
        (lambda: normal(loc=dist.Normal(0.0, 50.0)), "'scale' of Normal is missing"),  # not 1, which nobody chose
        (lambda: Emission(dist.StudentT, df=4.0, scale=1.0), "'loc' of StudentT is missing"),
        (lambda: normal(loc=dist.Normal, scale=1.0), "must be a distribution such as"),
        (lambda: normal(loc="zero", scale=1.0), "'loc' must be a NumPyro distribution"),
        (lambda: normal(loc=dist.Poisson(3.0), scale=1.0), "no unconstrained coordinates"),
        (lambda: normal(loc=dist.Normal(0.0, np.ones(4)), scale=dist.HalfNormal(np.ones(3))), "has shape"),
        (lambda: Emission(exponential_scale, loc=0.0), "'log_scale' of exponential_scale is missing"),
        (lambda: Emission(lambda loc: dist.Normal(0.0, loc), loc=dist.Normal(0.0, 1.0)), "whose 'scale' left a pos"),
        (lambda: Emission(dist.MultivariateNormal, loc=dist.Normal(0.0, np.ones(3)), covariance_matrix=np.eye(3)),
         "one distribution over 1 feature"),
        (lambda: Emission(None), "must override log_density"),
        (lambda: normal(dim=0, loc=0.0), "dim must be a whole number of at least 1"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_a_sentence(make: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make()


def test_per_state_priors_must_match_the_number_of_states() -> None:
    emission = normal(loc=dist.Normal(np.zeros(3), 1.0), scale=dist.HalfNormal(1.0))
    assert emission.parameters(3)["scale"].shape == (3,)
    with pytest.raises(ModelError, match=r"prior of 'loc' has shape \(3,\), which does not fit 4 states"):
        emission.parameters(4)
    assert emission.states_differ(3)
    assert not normal(loc=0.0, scale=dist.HalfNormal(1.0)).states_differ(3)


@pytest.mark.parametrize(
    ("emission", "value", "message"),
    [
        (Emission(dist.Poisson, rate=dist.Gamma(1.0, 1.0)), -3.0, "row 1 of counts.npy is -3, but a Poisson emission "
         "needs a non-negative integer"),
        (Emission(dist.Poisson, rate=dist.Gamma(1.0, 1.0)), 1.5, "is 1.5, but"),
        (Emission(dist.Binomial, total_count=np.array([3, 8]), probs=dist.Beta(1.0, 1.0)), 9.0, "integer from 0 to 8"),
        (Emission(dist.Beta, concentration1=1.0, concentration0=dist.HalfNormal(1.0)), 1.1, "between 0 and 1"),
    ],
)  # fmt: skip
def test_impossible_values_are_reported_with_their_place(emission: Emission, value: float, message: str) -> None:
    values = np.array([[1.0], [value], [value]])
    with pytest.raises(DataError, match=message):
        emission.check(values, np.ones((3, 1), bool), lambda row: f"row {row} of counts.npy")
    emission.check(values, np.array([[True], [False], [False]]), str) if value != 1.1 else None


def test_rows_of_a_multivariate_support_are_checked_whole() -> None:
    shares = Emission(dist.Dirichlet, dim=3, concentration=dist.LogNormal(0.0, 1.0))
    good, bad = [0.2, 0.3, 0.5], [0.2, 0.3, 0.6]
    shares.check(np.array([good, bad]), np.array([[True] * 3, [True, False, True]]), str)
    with pytest.raises(DataError, match=r"row 1 is \[0.2 0.3 0.6\].*shares that sum to one"):
        shares.check(np.array([good, bad]), np.ones((2, 3), bool), lambda row: f"row {row}")


def test_every_feature_has_bounds_of_its_own() -> None:
    both = Emission(dist.Uniform, dim=2, low=np.array([0.0, 10.0]), high=np.array([1.0, 11.0]))
    seen = np.ones((2, 2), bool)
    both.check(np.array([[0.2, 10.7], [0.4, 10.9]]), seen, str)
    with pytest.raises(DataError, match=r"row 0 is 0\.7 in feature 1"):
        both.check(np.array([[0.2, 0.7], [0.4, 10.9]]), seen, lambda row: f"row {row}")


def test_a_state_that_cannot_produce_a_row_gives_it_no_probability() -> None:
    emission = Emission(dist.Multinomial, dim=2, total_count=np.array([2, 5]), probs=dist.Dirichlet(np.ones(2)))
    params = {"total_count": np.array([2, 5]), "probs": np.array([[0.5, 0.5], [0.2, 0.8]])}
    answer = np.asarray(emission.log_density(params, np.array([[1.0, 1.0], [2.0, 3.0]])))
    first, second = stats.multinomial.logpmf([1, 1], 2, [0.5, 0.5]), stats.multinomial.logpmf([2, 3], 5, [0.2, 0.8])
    np.testing.assert_allclose(answer, [[first, -np.inf], [-np.inf, second]], rtol=1e-9)


def test_stored_names_are_never_more_than_names() -> None:
    for bad in ({"family": "os"}, {"family": ["gaussian"]}, {"family": "poisson", "options": {"wings": 2}},
                {"family": "distribution", "options": {"distribution": {"distribution": "enable_validation"}}},
                {"family": "distribution", "options": {"distribution": {"distribution": "__class__"}}},
                {"family": "distribution", "options": {}}):  # fmt: skip
        with pytest.raises(ModelError, match="The stored emission"):
            emission_from_config(bad)
    config = emission_to_config(Poisson(rate=dist.Gamma(1.0, 2.0)))
    config["parameters"]["rate"]["prior"]["distribution"] = "eval"
    with pytest.raises(ModelError, match="The stored prior 'eval'"):
        emission_from_config(config)
    unknown = Gaussian(mean=dist.SoftLaplace(0.0, 1.0))
    with pytest.raises(ModelError, match="prior of 'mean' is a SoftLaplace"):
        emission_to_config(unknown)


@pytest.mark.parametrize(
    "prior",
    [
        dist.TruncatedNormal(1.0, 2.0, low=0.0),
        dist.TruncatedNormal(1.0, 2.0, low=0.0, high=5.0),
        dist.Uniform(0.5, 2.0),
        dist.HalfNormal(1.0).expand((2,)),
        dist.ImproperUniform(constraints.positive, (), ()),
        dist.InverseGamma(2.0, 3.0),
    ],
    ids=lambda prior: type(prior).__name__,
)
def test_priors_survive_storage(prior: dist.Distribution) -> None:
    emission = Emission(dist.Normal, loc=0.0, scale=prior)
    again = emission_from_config(json.loads(json.dumps(emission_to_config(emission))))
    params = {"loc": np.zeros(2), "scale": np.array([0.7, 1.9])}
    expected_value = float(np.sum(np.broadcast_to(prior.log_prob(params["scale"]), 2)))
    assert float(again.log_prior(params)) == pytest.approx(expected_value, rel=1e-7)


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
