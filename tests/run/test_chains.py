"""What went wrong quietly is told once; effective sizes against ArviZ and the closed form of an autoregression."""

from functools import partial

import arviz
import jax
import numpy as np
import pytest

import longhmm as lh
from longhmm.run.chains import (
    bulk_effective_size,
    effective_sizes,
    notes_on_windows,
    r_hat,
    tail_effective_size,
)
from longhmm.target.control_variate import ControlVariateTarget
from samplers.targets import coordinates_of, tuned_by_hand

STUCK = np.array([[1.0, 0.0], [1.0, 1.0]])  # state 0 is never left
PARAMS = {"transition": [[1.0, 0.0], [0.3, 0.7]]}


@pytest.fixture(scope="module")
def contradiction():
    """Known states that the model forbids, at one place out of sixty cells."""
    states = np.full(300, -1)
    states[150:152] = 0, 1
    model = lh.HMM(2, lh.Poisson(rate=[1.0, 4.0]), transition_prior=STUCK)
    return model, lh.open_data(np.ones(300, int), states=states)


def samplers():
    windows, buffer = lh.Windows(2, 60), lh.FixedBuffer(0)
    for sampler in (lh.SGRLD(0.05), lh.SGRLD.paper(1e-4, 2), lh.SGLD(1e-4), lh.SGHMC(0.1)):
        yield pytest.param(sampler, sampler.estimator(windows, buffer), id=sampler.name)
    yield pytest.param(lh.ControlVariateSGLD(), lh.Buffered(windows, buffer), id="matched")


@pytest.mark.parametrize(("sampler", "policy"), list(samplers()))
def test_windows_without_a_possible_path_are_counted(sampler, policy, contradiction):
    """All sixty cells in every minibatch: exactly the one that holds the contradiction is impossible."""
    model, data = contradiction
    bound = policy.bind(model, data, PARAMS)
    if isinstance(sampler, lh.ControlVariateSGLD):
        start = coordinates_of(model, PARAMS)
        bound = ControlVariateTarget.of(bound, start, jax.tree.map(np.zeros_like, start))
        sampler = tuned_by_hand(start, 1.0)
    state = sampler.init(bound, jax.random.key(0), coordinates_of(model, PARAMS))
    _, info = sampler.step(bound, jax.random.key(1), state, bound.minibatch(jax.random.key(2)))
    assert int(info.stats["impossible"]) == 1


def test_impossible_windows_are_reported_and_the_verdict_says_biased(contradiction):
    model, data = contradiction
    posterior = lh.sample(
        model, data, sampler=lh.SGRLD(0.05), windows=lh.Windows(2, 60), buffer=lh.FixedBuffer(0), chains=2, draws=500,
        warmup=5, init=PARAMS, progress=False,
    )  # fmt: skip
    told = [note for note in posterior.notes if "no state can produce" in note]
    assert len(told) == 1 and "1,000 of 60,000 windows" in told[0]


def test_crowded_windows_are_told_once(contradiction):
    model, data = contradiction
    bound = lh.Buffered(lh.Windows(2, 30), lh.FixedBuffer(5)).bind(model, data, PARAMS)
    assert bound.source.scheme.shrunk
    (told,) = notes_on_windows(bound.source, {})
    assert "30 windows of 15 rows do not fit into 300 rows" in told
    roomy = lh.Buffered(lh.Windows(2, 4), lh.FixedBuffer(5)).bind(model, data, PARAMS)
    assert notes_on_windows(roomy.source, {"impossible": np.zeros((2, 5), int)}) == []


def autoregression(rng, rho, shape):
    noise = rng.normal(size=shape)
    draws = np.empty(shape)
    draws[:, 0] = noise[:, 0]
    for t in range(1, shape[1]):
        draws[:, t] = rho * draws[:, t - 1] + np.sqrt(1 - rho**2) * noise[:, t]
    return draws


MEASURES = {
    "mean": (effective_sizes, partial(arviz.ess, method="mean")),
    "bulk": (bulk_effective_size, partial(arviz.ess, method="bulk")),
    "tail": (tail_effective_size, partial(arviz.ess, method="tail", prob=(0.05, 0.95))),
    "r_hat": (r_hat, arviz.rhat),
}


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("shape", [(4, 1000), (3, 75), (2, 9)])
def test_agrees_with_arviz(name, shape):
    rng = np.random.default_rng(0)
    columns = [autoregression(rng, rho, shape) for rho in (-0.5, 0.0, 0.5, 0.9)]
    columns.append(np.round(columns[2]))  # ties
    columns.append(columns[3] + np.arange(shape[0])[:, None])  # chains that disagree
    columns.append(np.exp(5 * columns[1]))  # without moments to speak of
    measure, arviz_measure = MEASURES[name]
    expected = [float(np.asarray(arviz_measure(column))) for column in columns]
    np.testing.assert_allclose(measure(np.stack(columns, axis=2)), expected, rtol=1e-9)


def test_a_single_chain_is_compared_with_itself():
    draws = autoregression(np.random.default_rng(0), 0.9, (1, 400))
    assert r_hat(draws[..., None])[0] == pytest.approx(float(np.asarray(arviz.rhat(draws.reshape(2, 200)))), abs=1e-9)
    assert r_hat((draws + np.linspace(0, 5, 400))[..., None])[0] > 1.2


def test_agrees_with_the_closed_form():
    draws = autoregression(np.random.default_rng(0), 0.9, (4, 1000))[..., None]
    for measure in (effective_sizes, bulk_effective_size):
        np.testing.assert_allclose(measure(draws), 4000 * (1 - 0.9) / (1 + 0.9), rtol=0.35)


def test_constant_draws_count_in_full():
    assert bulk_effective_size(np.ones((2, 50, 1)))[0] == 100
