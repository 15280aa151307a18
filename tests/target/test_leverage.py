"""Rows with rare values of covariates: their leverage, and windows that are drawn by it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from longhmm.data.layout import Partition
from longhmm.target.control_variate import ControlVariate
from longhmm.target.coordinates import Flat
from longhmm.target.leverage import columns_of, group_leverage
from toys.leaving import MODEL

LENGTH, SEEN = 20_000, 0.001
STEADY = [[0.95, 0.05], [0.1, 0.9]]


def named(y, **columns):
    return lh.open_data(y, covariates=columns)


@pytest.mark.parametrize("rows", [7, 1 << 18])
def test_it_is_that_of_the_hat_matrix(rows, monkeypatch):
    """Columns of very different sizes, far from 0 and alike, of sequences of any length, read in any pieces."""
    monkeypatch.setattr("longhmm.target.leverage.ROWS", rows)
    rng = np.random.default_rng(0)
    lengths = (31, 3, 50)
    x = rng.normal(size=(sum(lengths), 3)) * [1.0, 1e-3, 1e4] + [0.0, 5.0, 1e6]
    x[:, 1] += 1e-3 * x[:, 0]
    pieces = np.split(x, np.cumsum(lengths)[:-1])
    data = lh.open_data([np.zeros(length) for length in lengths], covariates=pieces)
    groups = Partition(data.offsets, 8)
    found = group_leverage(lh.HMM(2, lh.Poisson(), transitions=lh.Logit(3)), data, groups)
    design = np.insert(x, 0, 1.0, axis=1)
    hat = np.diag(design @ np.linalg.solve(design.T @ design, design.T)) - 1 / len(x)
    layout = groups.locate(np.arange(groups.n_blocks), 0)
    expected = [hat[begin : begin + core].sum() for begin, core in zip(layout.begin, layout.core, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(found.sum(), 3.0, rtol=1e-8)


def test_a_column_that_says_nothing_new_counts_once():
    x = np.random.default_rng(1).normal(size=(40, 1))
    model, groups = lh.HMM(2, lh.Poisson(), transitions=lh.Logit(3)), Partition(np.array([0, 40]), 5)
    alike = lh.open_data(np.zeros(40), covariates=np.hstack([x, 2 * x + 1, np.ones_like(x)]))
    alone = lh.open_data(np.zeros(40), covariates=x)
    found = group_leverage(lh.HMM(2, lh.Poisson(), transitions=lh.Logit(1)), alone, groups)
    np.testing.assert_allclose(group_leverage(model, alike, groups), found, rtol=1e-6)


def test_which_columns_count():
    y = named(np.arange(30.0) % 7, x=np.arange(30.0), z=np.sin(np.arange(30.0)))
    model, _ = lh.HMM(2, lh.Gaussian(mean="~ z", drift=lh.Drift(2)), transitions="~ x").meet(y)
    assert columns_of(model) == [0, 1] and model.n_covariates == 3  # the number of the row is no rare value
    assert columns_of(MODEL) == [0]  # matrices that follow a covariate in a way of their own
    assert columns_of(lh.HMM(2, lh.Gaussian(drift=lh.Drift(2, rows=30)))) == []
    assert group_leverage(lh.HMM(2, lh.Poisson()), lh.open_data(np.zeros(9)), Partition(np.array([0, 9]), 3)) is None


def problem(kind):
    """A covariate that is 0 in all but a thousandth of the rows, its model, the truth, and which coordinate hangs on
    it; one for each way to follow covariates."""
    x = (np.random.default_rng(2).random(LENGTH) < SEEN).astype(float)
    if kind == "transitions":
        model = lh.HMM(2, lh.Gaussian(), transitions="~ x")
        params = {"coefficients": [[[0, 0], [-3.0, 2.0]], [[-2.0, 1.0], [0, 0]]], "mean": [-1.0, 1.0], "sd": [0.5, 0.5]}
        slopes = "transition", (1, 3)
    else:
        model = lh.HMM(2, lh.Poisson(rate="~ x"))
        params = {"transition": STEADY, "rate_coefficients": [[0.5, 1.0], [1.5, -0.5]]}
        slopes = "rate_coefficients", ((0, 1), (1, 1))
    model, data = model.meet(named(np.zeros(LENGTH), x=x))
    data = named(lh.simulate(model, params, LENGTH, seed=1, covariates={"x": x})[1], x=x)
    return *model.meet(data), params, slopes


@pytest.mark.parametrize("kind", ["transitions", "emissions"])
def test_gradients_keep_their_mean_and_those_of_rare_values_lose_their_noise(kind):
    """Control variates about the truth, asked at a point a little away."""
    model, data, params, (name, entries) = problem(kind)
    model = model.resolve(data)
    home = {key: jnp.asarray(value, jnp.float32) for key, value in lh.unconstrain(model, params).items()}
    at = {key: value + 0.02 for key, value in home.items()}
    flat = Flat.like(at)
    exact = flat.ravel_numpy(lh.gradient(model, lh.constrain(model, at), data))
    spread = {}
    for proposal in (None, lh.Importance()):
        bound = ControlVariate(lh.Windows(5, 16, proposal), lh.FixedBuffer(12)).bind(model, data, params)
        one = lambda key, bound=bound: flat.ravel(bound.estimate(at, bound.minibatch(key)).gradient)  # noqa: E731
        draw = jax.jit(lambda keys, one=one: jax.lax.map(one, keys))
        found = np.asarray(draw(jax.random.split(jax.random.key(2), 1500)), np.float64)
        if proposal is not None:  # rare windows make the uniform mean itself unreliable
            error = found.std(axis=0) / np.sqrt(len(found))
            assert np.all(np.abs(found.mean(axis=0) - exact) < 4.5 * error + 0.01 * np.abs(exact) + 0.05)
        spread[proposal] = flat.unravel(found.var(axis=0))
    ratio = spread[lh.Importance()][name] / spread[None][name]
    assert all(ratio[entry] < 0.2 for entry in entries)
    assert np.all(np.concatenate([np.ravel(spread[lh.Importance()][key] / spread[None][key]) for key in at]) < 3.5)
