"""The coherence check passes for what is right, and names what is wrong."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

from longhmm import Emission, Gaussian, Poisson
from longhmm.data.rows import Rows
from longhmm.data.sequences import open_data
from longhmm.errors import LongHMMError
from longhmm.model.hmm import HMM
from longhmm.testing import check_coherence, enumerate_paths
from model.configurations import named, names, observations

TRANSITION = [[0.8, 0.2], [0.4, 0.6]]
LENGTHS = [4, 2]  # and two states throughout, so that one set of compiled programs serves all


@pytest.mark.parametrize(
    "name", [pytest.param("class-multivariate-normal", marks=pytest.mark.slow), "support-differs-by-state"]
)
def test_what_is_right_passes(name: str) -> None:
    configuration = named(name)
    y = observations(configuration, 6)[1]
    y[4] = np.nan
    if y.shape[1] > 1:
        y[1, 0] = np.nan
    params = {"transition": TRANSITION, **configuration.params}
    check_coherence(HMM(2, configuration.emission), params, open_data(y, lengths=LENGTHS))


def test_a_forbidden_transition_passes_where_it_is_forbidden() -> None:
    params = {"transition": [[1.0, 0.0], [0.4, 0.6]], "rate": [1.0, 8.0]}
    data = open_data([9, 1, 0, 2, 7, 6], lengths=LENGTHS)
    prior = [[1.0, 0.0], [1.0, 1.0]]
    check_coherence(HMM(2, Poisson(rate=dist.Gamma(1.0, 1.0)), transition_prior=prior), params, data)


def test_known_states_and_a_stationary_start_pass() -> None:
    model = HMM(2, Poisson(rate=dist.Gamma(1.0, 1.0)), initial="stationary")
    data = open_data([0, 1, 9, 7, 3, 0], states=[-1, 0, -1, 1, -1, -1], lengths=LENGTHS)
    check_coherence(model, {"transition": TRANSITION, "rate": [1.0, 8.0]}, data)


@pytest.mark.parametrize("name", [pytest.param("log-normal", marks=pytest.mark.slow), "poisson"])
def test_data_in_single_precision_pass(name: str) -> None:
    """As `simulate` gives them: the part of the log likelihood without parameters is summed in double precision too."""
    configuration = named(name)
    states = configuration.n_states
    params = {"transition": np.full((states, states), 1.0 / states), **configuration.params}
    data = observations(configuration, 40)[1].astype(np.float32)
    check_coherence(HMM(states, configuration.emission), params, data)


class Normal2(Emission):
    """Two independent normal features with one mean per state: right, and the parent of what is wrong."""

    def __init__(self) -> None:
        super().__init__(None, dim=2, level=dist.Normal(0.0, 3.0))

    def log_density(self, params: Any, y: jax.Array) -> jax.Array:
        return jnp.sum(-0.5 * (y[..., None, :] - params["level"][:, None]) ** 2 - 0.5 * jnp.log(2 * jnp.pi), -1)

    def log_likelihoods(self, params: Any, rows: Rows) -> jax.Array:
        observed = jnp.asarray(rows.observed)
        filled = jnp.where(observed, rows.values, 0.0)[..., None, :]
        logs = -0.5 * (filled - params["level"][:, None]) ** 2 - 0.5 * jnp.log(2 * jnp.pi)
        return jnp.sum(jnp.where(observed[..., None, :], logs, 0.0), -1)

    def sample(self, key: Any, params: Any, states: Any) -> jax.Array:
        return params["level"][states][:, None] + jax.random.normal(key, (*states.shape, 2))


class ForgetsNormaliser(Normal2):
    def log_density(self, params: Any, y: jax.Array) -> jax.Array:
        return jnp.sum(-0.5 * (y[..., None, :] - params["level"][:, None]) ** 2, -1)


class CountsMissing(Normal2):
    def log_likelihoods(self, params: Any, rows: Rows) -> jax.Array:
        logs = super().log_likelihoods(params, rows)
        return jnp.where(jnp.any(rows.observed, -1)[..., None], logs, logs - 0.1)


class BlocksGradient(Normal2):
    def log_likelihoods(self, params: Any, rows: Rows) -> jax.Array:
        frozen = {**params, "level": jax.lax.stop_gradient(params["level"])}
        return super().log_likelihoods(frozen, rows)


class DrawsOutside(Normal2):
    support = constraints.interval(-1.0, 1.0)


class DrawsElsewhere(Normal2):
    def log_likelihoods(self, params: Any, rows: Rows) -> jax.Array:
        logs = super().log_likelihoods(params, rows)
        return jnp.where(jnp.abs(rows.values[..., :1]) > 1.5, -jnp.inf, logs)

    def log_density(self, params: Any, y: jax.Array) -> jax.Array:
        return jnp.where(jnp.abs(y[..., :1]) > 1.5, -jnp.inf, super().log_density(params, y))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names() if name != "nothing-to-infer"])
def test_every_kind_of_emission_passes(name: str) -> None:
    configuration = named(name)
    states = configuration.n_states
    params = {"transition": np.full((states, states), 1.0 / states), **configuration.params}
    check_coherence(HMM(states, configuration.emission), params, observations(configuration, 6)[1])


def test_an_emission_of_ones_own_passes() -> None:
    y = np.random.default_rng(0).uniform(-0.9, 0.9, size=(6, 2))
    y[3], y[4, 0] = np.nan, np.nan
    check_coherence(HMM(2, Normal2()), {"transition": TRANSITION, "level": [-0.5, 0.7]}, open_data(y, lengths=LENGTHS))


@pytest.mark.parametrize(
    "emission, sentence",
    [
        (ForgetsNormaliser, "must equal log_density where nothing is missing"),
        (CountsMissing, "must be 0 for every state where all is missing"),
        (BlocksGradient, "derivative of log_density with respect to 'level'"),
        (DrawsOutside, "Draws must lie in the support"),
        (DrawsElsewhere, "must be finite for what sample draws"),
    ],
)
def test_what_is_wrong_is_named(emission: type[Emission], sentence: str) -> None:
    y = np.random.default_rng(0).uniform(-0.9, 0.9, size=(6, 2))
    y[3] = np.nan
    params = {"transition": TRANSITION, "level": [-0.5, 0.7]}
    data = open_data(y, lengths=LENGTHS)
    with pytest.raises(AssertionError, match=sentence):
        check_coherence(HMM(2, emission()), params, data)


@pytest.mark.parametrize(
    "name, sentence",
    [
        ("totals", "sum to one|must agree|must equal|one log likelihood"),
        ("decode", "higher score than the most probable"),
        ("log_likelihood", "must mean missing|add up|twice|one log likelihood"),
    ],
)
def test_wrong_answers_are_named(name: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from longhmm.testing import coherence as testing

    right = getattr(testing, name)
    wrong: dict[str, Any] = {
        "totals": lambda model, params, *rest: right(
            model, {**params, "transition": np.asarray(params["transition"])[::-1]}, *rest
        ),
        "decode": lambda *arguments: 1 - right(*arguments),
        "log_likelihood": lambda *arguments: right(*arguments) + 0.01,
    }
    monkeypatch.setattr(testing, name, wrong[name])
    params = {"transition": TRANSITION, "level": [-0.5, 0.7]}
    data = np.random.default_rng(1).normal(size=(6, 2))
    with pytest.raises(AssertionError, match=sentence):
        check_coherence(HMM(2, Normal2()), params, open_data(data, lengths=LENGTHS))


@pytest.mark.slow
def test_data_with_more_paths_than_a_64_bit_number_can_count_are_not_enumerated() -> None:
    model, params = HMM(2, Poisson()), {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
    counts = np.random.default_rng(0).poisson(3.0, 300)
    check_coherence(model.resolve(counts), params, counts)


def test_long_data_are_refused() -> None:
    with pytest.raises(LongHMMError, match="at most 20,000"):
        check_coherence(HMM(2, Gaussian()), {}, np.zeros(30_000))
    with pytest.raises(LongHMMError, match=r"3 \*\* 20"):
        enumerate_paths(np.ones(3) / 3, np.ones((3, 3)) / 3, np.zeros((20, 3)))
