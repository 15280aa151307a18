"""Windows of models whose transitions follow covariates: each begins from what its own first row says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from longhmm.data.layout import Partition
from longhmm.errors import ModelError
from longhmm.target.buffer_report import Blocks
from longhmm.target.buffered import IID, stationary_start, uniform_start
from longhmm.target.coordinates import interior
from toys.leaving import MODEL, PARAMS, simulated

CORE = 21


def scores(data, numbers, buffer, start=stationary_start):
    return Blocks(MODEL, interior(MODEL, PARAMS), data, Partition(data.offsets, CORE), numbers).scores(buffer, start)


@pytest.mark.parametrize(
    "covariate",
    [2.0 + 0.5 * np.sin(np.arange(8000) / 50), 1.5 * np.sin(np.arange(8000) / 160), np.sin(np.arange(8000) / 10)],
    ids=["offset", "slow", "medium"],
)
def test_unbuffered_windows_have_little_bias(covariate):
    """In posterior standard deviations, against the exact scores; uniform starts are far off on the same blocks."""
    data = simulated(covariate, 1)
    numbers = np.arange(Partition(data.offsets, CORE).n_blocks)
    exact, _ = scores(data, numbers, 256)
    scale = np.sqrt(len(numbers)) / exact.std(axis=0)
    bias, uniform = (
        np.abs(np.mean(scores(data, numbers, 0, start)[0] - exact, axis=0) * scale).max()
        for start in (stationary_start, uniform_start)
    )
    assert bias < 0.8, bias
    assert uniform > 1.2 and uniform > 2.5 * bias, (uniform, bias)


def test_the_exact_scores_add_up_to_the_exact_gradient():
    data = simulated(np.sin(np.arange(1000) / 30), 2)
    found, _ = scores(data, np.arange(Partition(data.offsets, CORE).n_blocks), 256)
    exact = lh.gradient(MODEL, PARAMS, data, prior=False)
    flat = np.concatenate([np.ravel(exact[name]) for name in sorted(exact)])
    np.testing.assert_allclose(found.sum(axis=0), flat, rtol=1e-9, atol=1e-8)


def test_a_window_does_not_depend_on_the_others():
    data = simulated(2.0 * np.sin(np.arange(2000) / 40), 3)
    together, _ = scores(data, np.array([3, 20, 47]), 2)
    alone = np.concatenate([scores(data, np.array([each]), 2)[0] for each in (3, 20, 47)])
    np.testing.assert_allclose(together, alone, rtol=1e-10, atol=1e-12)


def test_distributions_that_enter_cores_follow_the_covariates():
    """With a long buffer they are those of a filter over all rows, and do not depend on the start."""
    data = simulated(2.0 * np.sin(np.arange(600) / 20), 4)
    values, covariate = data.rows(0, 600).values[:, 0], data.rows(0, 600).covariates
    matrices = np.asarray(MODEL.transitions.matrices(jnp.asarray(PARAMS["coefficients"]), jnp.asarray(covariate)))
    filtered = [np.array([0.5, 0.5])]
    for t in range(600):
        ahead = filtered[-1] @ matrices[t] if t else filtered[-1]
        message = ahead * np.exp(-0.5 * (values[t] - np.array(PARAMS["mean"])) ** 2)
        filtered.append(message / message.sum())
    numbers = np.array([5, 14, 25])
    for start in (stationary_start, uniform_start):
        _, entering = scores(data, numbers, 120, start)
        np.testing.assert_allclose(entering, np.array(filtered)[numbers * CORE], atol=1e-7)


def test_importance_windows_are_unbiased():
    """Half of the time is spent where transitions are rare; weights make up for it."""
    data = simulated(np.where(np.arange(3000) < 2700, -2.0, 2.0), 6)
    windows = lh.Windows(5, 8, lh.Importance(uniform=0.5))
    target = lh.Buffered(windows, lh.FixedBuffer(20)).bind(MODEL.resolve(data), data, PARAMS)
    u = {name: jnp.asarray(value, jnp.float32) for name, value in lh.unconstrain(target.model, PARAMS).items()}
    found = [target.estimate(u, target.minibatch(jax.random.key(seed))).likelihood for seed in range(400)]
    exact = lh.gradient(target.model, PARAMS, data, prior=False)
    for name, expected in exact.items():
        draws = np.stack([np.asarray(each[name]) for each in found])
        error = draws.std(axis=0) / np.sqrt(len(draws))
        assert np.all(np.abs(draws.mean(axis=0) - expected) < 4 * error + 1e-3), name
    assert np.ptp(target.minibatch(jax.random.key(0)).weights) > 0


def test_independent_rows_are_refused():
    data = simulated(np.zeros(100), 7)
    with pytest.raises(ModelError, match=r"IID\(\) needs one transition matrix"):
        lh.gradient(MODEL, PARAMS, data, estimator=IID())
