"""What users call, for every emission, against the sum over all paths; against other libraries; and what is refused."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from backends.references import path_score
from longhmm import Categorical, Emission, Gaussian, Poisson
from longhmm.backends.answers import decode, log_likelihood, sample_states, state_probabilities
from longhmm.backends.stream import stream, totals
from longhmm.data.sequences import open_data
from longhmm.errors import ImpossibleObservationError, ModelError
from longhmm.model.hmm import HMM
from longhmm.testing import Enumerated, enumerate_paths
from model.configurations import Configuration, log_law, named, names, observations

LENGTHS = (4, 1, 3)
COPIES = 600  # of the three sequences, so that one draw of paths is many draws
# A factor of six features for each of thousands of rows takes far longer than one of two; densities of the others that
# wait for the long run have the form of one that does not, and are compared with SciPy's in tests/model.
WAIT = {"gaussian-full-6d", "gaussian-spherical", "flat-priors", "class-2d", "user-function", "numpyro-function"}
# Three states and a forbidden transition, shared levels, bounds by state, features that go together, labels.
EACH_KIND = ("poisson", "tied", "support-differs-by-state", "class-multivariate-t", "categorical")
INITIAL = {2: np.array([0.3, 0.7]), 3: np.array([0.2, 0.5, 0.3])}
TRANSITION = {
    2: np.array([[0.8, 0.2], [0.4, 0.6]]),
    3: np.array([[0.7, 0.2, 0.1], [0.0, 0.6, 0.4], [0.3, 0.3, 0.4]]),
}


def log_densities(configuration: Configuration, y: np.ndarray) -> np.ndarray:
    """SciPy's log density of the observed part of every row, `(n, K)`; multivariate laws know whole rows only."""
    logs = np.zeros((len(y), configuration.n_states))
    for k in range(configuration.n_states):
        law = configuration.law(configuration.params, k)
        for t, row in enumerate(y):
            if isinstance(law, list):
                logs[t, k] = sum(
                    float(log_law(one, value)) for one, value in zip(law, row, strict=True) if value == value
                )
            elif not np.isnan(row).any():
                logs[t, k] = float(log_law(law, row))
    return logs


def few_observations(configuration: Configuration) -> tuple[np.ndarray, np.ndarray]:
    """Eight rows, of which one is missing altogether and one, where features are independent, in part."""
    y = observations(configuration, sum(LENGTHS))[1]
    y[2] = np.nan
    if y.shape[1] > 1 and isinstance(configuration.law(configuration.params, 0), list):
        y[6, 0] = np.nan
    states = np.full(len(y), -1)
    possible = np.isfinite(log_densities(configuration, y))
    states[3], states[5] = np.argmax(possible[3]), np.argmax(possible[5])
    return y, states


def pieces(array: np.ndarray) -> list[np.ndarray]:
    return np.split(array, np.cumsum(LENGTHS)[:-1])


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow) if each in WAIT else each for each in names()]
)
def test_every_emission_against_all_paths(name: str) -> None:
    model, params, data, exact = copies_of_few_rows(name)
    np.testing.assert_allclose(
        log_likelihood(model, params, data) / COPIES, sum(one.log_likelihood for one in exact), rtol=1e-11
    )
    found = state_probabilities(model, params, data)
    np.testing.assert_allclose(found, np.tile(np.concatenate([one.gamma for one in exact]), (COPIES, 1)), atol=2e-7)


# Filter and paths see nothing of an emission but the log likelihoods that the smoother has been given too.
@pytest.mark.parametrize(
    "name", [name if name in EACH_KIND else pytest.param(name, marks=pytest.mark.slow) for name in names()]
)
def test_filter_and_paths_of_every_emission_against_all_paths(name: str) -> None:
    model, params, data, exact = copies_of_few_rows(name)
    found = state_probabilities(model, params, data, causal=True)
    np.testing.assert_allclose(found, np.tile(np.concatenate([one.filtered for one in exact]), (COPIES, 1)), atol=2e-7)
    path, length = decode(model, params, data).astype(int), sum(LENGTHS)
    check_paths(path.reshape(COPIES, -1)[:1], exact, best=True)
    np.testing.assert_array_equal(path, np.tile(path[:length], COPIES))
    check_paths(sample_states(model, params, data, seed=5)[0].reshape(COPIES, -1).astype(int), exact, best=False)


def copies_of_few_rows(name: str) -> tuple[HMM, dict[str, Any], Any, list[Enumerated]]:
    """A model, its parameters, data that repeat three sequences, and the truth about these."""
    configuration = named(name)
    n_states = configuration.n_states
    initial, transition = INITIAL[n_states], TRANSITION[n_states]
    y, states = few_observations(configuration)
    logs = log_densities(configuration, y)
    logs[(states[:, None] >= 0) & (np.arange(n_states) != states[:, None])] = -np.inf
    exact = [enumerate_paths(initial, transition, part) for part in pieces(logs)]
    model = HMM(n_states, configuration.emission)
    params = {"initial": initial, "transition": transition, **configuration.params}
    data = open_data(np.tile(y, (COPIES, 1)), states=np.tile(states, COPIES), lengths=LENGTHS * COPIES)
    return model, params, data, exact


def check_paths(paths: np.ndarray, exact: list[Enumerated], *, best: bool) -> None:
    """Most probable paths, or chi-squared of drawn ones, for each of the three sequences."""
    for part, one in zip(np.split(paths, np.cumsum(LENGTHS)[:-1], axis=1), exact, strict=True):
        n_states = one.gamma.shape[1]
        codes = part @ (n_states ** np.arange(part.shape[1])[::-1])
        if best:
            np.testing.assert_allclose(one.probabilities[codes], one.probabilities.max(), rtol=1e-10)
            continue
        counts = np.bincount(codes, minlength=len(one.probabilities))
        expected = one.probabilities * len(part)
        assert counts[expected == 0].sum() == 0
        few = expected < 5
        counts, expected = np.append(counts[~few], counts[few].sum()), np.append(expected[~few], expected[few].sum())
        kept = expected > 1e-3
        freedom = max(kept.sum() - 1, 1)
        statistic = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
        assert statistic < freedom + 6 * np.sqrt(2 * freedom)


# Other libraries ------------------------------------------------------------------------------------------------------

K, T = 3, 300


def random_laws(seed: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng, rng.dirichlet(np.ones(K)), 0.2 * np.eye(K) + 0.8 * rng.dirichlet(np.ones(K), size=K)


def against_hmmlearn(peer: Any, model: HMM, params: dict[str, Any], y: np.ndarray) -> None:
    peer.startprob_, peer.transmat_ = params["initial"], params["transition"]
    lengths = [100, 1, 199]
    total, gamma = peer.score_samples(y, lengths)
    data = open_data(y, lengths=lengths)
    np.testing.assert_allclose(log_likelihood(model, params, data), total, rtol=1e-8)
    np.testing.assert_allclose(totals(model, model.validate(params), data).log_likelihood, total, rtol=1e-8)
    np.testing.assert_allclose(state_probabilities(model, params, data), gamma, atol=2e-7)
    # Discrete data may have several best paths: it is their score that must agree.
    cuts, logs = np.cumsum(lengths)[:-1], peer._compute_log_likelihood(y)
    laws = (params["initial"], params["transition"])
    parts = zip(np.split(logs, cuts), np.split(decode(model, params, data), cuts), strict=True)
    score, path = peer.decode(y, lengths)
    np.testing.assert_allclose(sum(path_score(*laws, *part) for part in parts), score, rtol=1e-12)
    if np.issubdtype(y.dtype, np.floating):
        np.testing.assert_array_equal(decode(model, params, data), path)


@pytest.mark.parametrize("kind, covariance_type", [("full", "full"), ("diagonal", "diag")])
def test_gaussian_against_hmmlearn(kind: str, covariance_type: str) -> None:
    from hmmlearn.hmm import GaussianHMM

    rng, initial, transition = random_laws(1)
    mean, factors = 2 * rng.normal(size=(K, 2)), rng.normal(size=(K, 2, 4))
    covariance = factors @ factors.transpose(0, 2, 1)
    y = 2 * rng.normal(size=(T, 2))
    peer = GaussianHMM(K, covariance_type=covariance_type)
    peer.n_features = 2
    peer.means_ = mean
    peer.covars_ = covariance if kind == "full" else np.diagonal(covariance, axis1=1, axis2=2)
    own = {"covariance": covariance} if kind == "full" else {"variance": np.diagonal(covariance, axis1=1, axis2=2)}
    model = HMM(K, Gaussian(2, kind)).resolve(y)
    against_hmmlearn(peer, model, {"initial": initial, "transition": transition, "mean": mean, **own}, y)


def test_poisson_against_hmmlearn() -> None:
    from hmmlearn.hmm import PoissonHMM

    rng, initial, transition = random_laws(2)
    y = rng.poisson(4.0, size=(T, 1))
    rate = np.array([0.7, 4.0, 11.0])
    peer = PoissonHMM(K)
    peer.n_features = 1
    peer.lambdas_ = rate[:, None]
    params = {"initial": initial, "transition": transition, "rate": rate}
    against_hmmlearn(peer, HMM(K, Poisson()).resolve(y), params, y)


def test_categorical_against_hmmlearn() -> None:
    from hmmlearn.hmm import CategoricalHMM

    rng, initial, transition = random_laws(3)
    y = rng.integers(0, 4, size=(T, 1))
    probs = rng.dirichlet(np.ones(4), size=K)
    peer = CategoricalHMM(K, n_features=4)
    peer.emissionprob_ = probs
    params = {"initial": initial, "transition": transition, "probs": probs}
    against_hmmlearn(peer, HMM(K, Categorical(4)).resolve(y), params, y)


def test_the_smoother_against_dynamax() -> None:
    from dynamax.hidden_markov_model import hmm_smoother

    rng, initial, transition = random_laws(4)
    y = rng.poisson(4.0, size=(T, 1))
    rate = np.array([0.7, 4.0, 11.0])
    logs = stats.poisson.logpmf(y, rate)
    with jax.enable_x64(True):
        peer = hmm_smoother(*map(jnp.asarray, (initial, transition, logs)))
    params = {"initial": initial, "transition": transition, "rate": rate}
    model = HMM(K, Poisson()).resolve(y)
    found = totals(model, model.validate(params), open_data(y))
    np.testing.assert_allclose(found.log_likelihood, peer.marginal_loglik, rtol=1e-8)
    gamma = np.concatenate([own.probabilities for own in stream(model, model.validate(params), open_data(y))])
    np.testing.assert_allclose(gamma, peer.smoothed_probs, atol=1e-9)
    transitions = np.asarray(peer.trans_probs)
    transitions = transitions.sum(0) if transitions.ndim == 3 else transitions
    np.testing.assert_allclose(found.transitions, transitions, rtol=1e-8)


# What is refused ------------------------------------------------------------------------------------------------------

ABSORBING = np.array([[1.0, 0.0], [0.0, 1.0]])


def impossible_data() -> tuple[HMM, dict[str, Any], np.ndarray]:
    """State 0 alone can say 0, state 1 alone can say 1, and neither can become the other: row 2500 is impossible."""
    model = HMM(2, Categorical(2, probs=dist.Dirichlet(np.ones(2))))
    params = {"transition": ABSORBING, "probs": [[1.0, 0.0], [0.0, 1.0]]}
    y = np.zeros(3000, int)
    y[2500] = 1
    return model, params, y


def test_an_impossible_observation_has_likelihood_zero_and_a_warning_that_names_it() -> None:
    model, params, y = impossible_data()
    with pytest.warns(RuntimeWarning, match="row 2500 of the array"):
        assert log_likelihood(model, params, y) == -np.inf
    with pytest.warns(RuntimeWarning, match="row 500 of sequence 1"):
        assert log_likelihood(model, params, open_data(y, lengths=[2000, 1000])) == -np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(log_likelihood(model, params, np.delete(y, 2500)), np.log(0.5), rtol=1e-12)


@pytest.mark.parametrize("ask", [state_probabilities, decode, sample_states])
def test_there_are_no_posteriors_of_impossible_data(ask: Any) -> None:
    model, params, y = impossible_data()
    with pytest.raises(ImpossibleObservationError, match="row 2500 of the array"):
        ask(model, params, y)


def test_a_transient_state_may_last() -> None:
    """The stationary law has no room for a state that is left for good; guesses that start from it must have."""
    model, params, _ = impossible_data()
    params = {**params, "transition": [[0.999, 0.001], [0.0, 1.0]], "initial": [1.0, 0.0]}
    y = np.repeat([0, 1], [2900, 100])
    expected = 2899 * np.log(0.999) + np.log(0.001)
    np.testing.assert_allclose(log_likelihood(model, params, y), expected, rtol=1e-12)
    np.testing.assert_array_equal(decode(model, params, y), y)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"rate": [1.0, np.nan]}, r"params\['rate'\]"),
        ({"rate": [1.0, -2.0]}, r"params\['rate'\]"),
        ({"rate": [1.0]}, r"shape \(2,\)"),
        ({"rate": None}, "must hold 'rate'"),
        ({"transition": [[0.9, 0.2], [0.1, 0.9]]}, "row sums"),
        ({"transition": [[np.nan, 0.2], [0.1, 0.9]]}, "row sums"),
        ({"transition": [[1.5, -0.5], [0.1, 0.9]]}, "rows of probabilities"),
        ({"transition": [[1.0]]}, r"shape \(2, 2\)"),
        ({"initial": [0.5, 0.6]}, "2 probabilities"),
        ({"initial": [0.5, np.nan]}, "2 probabilities"),
        ({"speed": 1.0}, "speed"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(change: dict[str, Any], message: str) -> None:
    model = HMM(2, Poisson(rate=dist.Gamma(1.0, 1.0)))
    params = {"transition": [[0.9, 0.1], [0.1, 0.9]], "rate": [1.0, 5.0], **change}
    with pytest.raises(ModelError, match=message):
        log_likelihood(model, params, [1, 2, 3])


def test_wrong_number_of_features_and_of_draws() -> None:
    model = HMM(2, Poisson(rate=dist.Gamma(1.0, 1.0)))
    params = {"transition": [[0.9, 0.1], [0.1, 0.9]], "rate": [1.0, 5.0]}
    for ask in (log_likelihood, state_probabilities, decode, sample_states):
        with pytest.raises(ModelError, match="2 feature"):
            ask(model, params, np.ones((5, 2)))
    with pytest.raises(ModelError, match="draws must be a whole number of at least 1, got 0"):
        sample_states(model, params, [1, 2], draws=0)


class Undefined(Emission):
    """A density that is not a number beyond 5."""

    def __init__(self) -> None:
        super().__init__(None, level=dist.Normal(0.0, 1.0))

    def log_density(self, params: Any, y: Any) -> Any:
        return jnp.where(y[..., None] > 5, jnp.nan, params["level"])


def test_a_density_that_is_not_a_number_is_refused_by_row() -> None:
    params = {"transition": [[0.9, 0.1], [0.1, 0.9]], "level": [0.0, 1.0]}
    for ask in (log_likelihood, state_probabilities, decode):
        with pytest.raises(ModelError, match=r"not a number for row 2 of the array"):
            ask(HMM(2, Undefined()), params, [1.0, 2.0, 7.0])
