"""Chances to leave in every phase, against SciPy's distributions; derivatives where tails vanish."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longhmm.model.transitions import hazards
from model.transitions.dwelling import MEAN, SHAPE, hazards_of


def steps_of(kind, numbers, phases):
    with jax.enable_x64(True):
        found = jax.jit(getattr(hazards, kind), static_argnums=2)(*np.split(np.asarray(numbers), 2), phases)
        return jax.tree.map(np.asarray, found)


@pytest.mark.parametrize("kind", ["negative_binomial", "gamma"])
def test_hazards_are_those_of_the_distribution(kind):
    expected = hazards_of(kind.replace("_", "-"), 15)
    found = steps_of(kind, [*MEAN, *SHAPE], 40)
    np.testing.assert_allclose(np.exp(found.leave)[:, :15], expected, rtol=1e-8)
    both = np.exp(found.leave) + np.where(np.arange(40) < 39, np.exp(found.onward), np.exp(found.stay))
    np.testing.assert_allclose(both, 1.0, rtol=1e-12)
    narrow = jax.jit(getattr(hazards, kind), static_argnums=2)(MEAN.astype(np.float32), SHAPE.astype(np.float32), 40)
    np.testing.assert_allclose(np.exp(narrow.leave), np.exp(found.leave), rtol=5e-4)
    if kind == "negative_binomial":
        assert np.allclose(np.exp(found.leave[2]), 1 / 2.2)  # with a shape of 1 it is geometric
    sharp = steps_of(kind, [5.0, 1e4], 40)
    assert np.all(np.isfinite(np.concatenate(sharp))) and np.all(sharp.leave <= 0)


@pytest.mark.parametrize("kind", ["negative_binomial", "gamma"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_derivatives_are_finite_where_tails_vanish(kind, dtype):
    mean, shape = np.array([[10.0, 1.0001, 3.0, 400.0, 20.0], [5.0, 300.0, 1e4, 0.02, 1e-3]]).astype(dtype)
    slope = jax.grad(lambda at: sum(jnp.sum(jnp.exp(each)) for each in getattr(hazards, kind)(*at, 25)))
    with jax.enable_x64(dtype is np.float64):
        assert np.isfinite(np.asarray(jax.jit(slope)((jnp.asarray(mean), jnp.asarray(shape))))).all()


@pytest.mark.parametrize("n", [1, 2, 25, 256])
def test_a_running_sum_adds_up_what_came_before(n):
    values = np.random.default_rng(n).normal(size=(3, n))
    with jax.enable_x64(True):
        np.testing.assert_allclose(hazards.running_sum(jnp.asarray(values)), np.cumsum(values, axis=1), atol=1e-13)
