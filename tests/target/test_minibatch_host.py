"""Windows read from files, many minibatches at a time, against windows of data in memory."""

from __future__ import annotations

import operator

import jax
import numpy as np
import pytest

import longhmm as lh
from longhmm.backends import native
from longhmm.target.buffered import Buffered
from longhmm.target.coordinates import unconstrain

CASES = {
    "Gaussian": (lh.Gaussian(dim=2), {"mean": [[-2.0, 0.0], [2.0, 1.0]], "covariance": np.tile(np.eye(2), (2, 1, 1))}),
    "Poisson": (lh.Poisson(), {"rate": [2.0, 9.0]}),
    "log-normal": (lh.LogNormal(), {"loc": [0.0, 2.0], "scale": [0.5, 0.5]}),
    "Student's t": (lh.StudentT(), {"df": [4.0, 9.0], "loc": [-3.0, 3.0], "scale": [1.0, 1.0]}),
}


def both(folder, name, spoil=lambda y: None, proposal=None):
    """The same estimator on data in memory and on a memory map of them."""
    emission, extra = CASES[name]
    model = lh.HMM(2, emission)
    params = {"transition": [[0.95, 0.05], [0.1, 0.9]], **extra}
    y = np.array(lh.simulate(model, params, 3000, seed=2)[1], np.float32)
    spoil(y)
    np.save(folder / "y.npy", y)
    model = model.resolve(y)
    policy = Buffered(windows=lh.Windows(4, 12, proposal=proposal), buffer=lh.FixedBuffer(6))
    coordinates = jax.tree.map(jax.numpy.asarray, unconstrain(model, params))
    return coordinates, *(policy.bind(model, lh.open_data(data), params) for data in (y, str(folder / "y.npy")))


def spoil_rows(y):
    y[100:140] = np.nan
    y[1:400:7] = np.nan


def spoil_one_feature(y):
    y[::5, 0] = np.nan


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("spoil", [lambda y: None, spoil_rows], ids=["complete", "missing rows"])
def test_gradients_of_windows_do_not_depend_on_where_the_data_lie(tmp_path, name, spoil):
    coordinates, here, there = both(tmp_path, name, spoil)
    for seed in range(3):
        key = jax.random.key(seed)
        one = here.estimate(coordinates, here.minibatch(key)).gradient
        other = there.estimate(coordinates, there.minibatch(key)).gradient
        for each in one:
            np.testing.assert_allclose(other[each], one[each], rtol=2e-4, atol=2e-4 * np.abs(one[each]).max())


def test_rows_seen_in_part(tmp_path):
    coordinates, here, there = both(tmp_path, "Gaussian", spoil_one_feature)
    minibatch = there.minibatch(jax.random.key(0))
    assert (minibatch.numbers is not None) == native.usable()
    one, other = here.estimate(coordinates, here.minibatch(jax.random.key(0))), there.estimate(coordinates, minibatch)
    for each in one.gradient:
        np.testing.assert_allclose(other.gradient[each], one.gradient[each], rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("proposal", [None, lh.Importance()], ids=["uniform", "importance"])
def test_many_minibatches_are_those_of_their_keys(tmp_path, proposal, monkeypatch):
    _, _, there = both(tmp_path, "Poisson", proposal=proposal)
    monkeypatch.setattr("longhmm.target.minibatch.ROWS_AT_ONCE", 300)  # in several goes
    keys = jax.random.split(jax.random.key(3), 7)
    together = there.minibatches(keys)
    for number, key in enumerate(keys):
        own = jax.tree.map(operator.itemgetter(number), together)
        jax.tree.map(np.testing.assert_array_equal, own, there.minibatch(key))
