"""Every registered sampler keeps the contract: inspected, and stepped on a tiny model."""

import dataclasses
import doctest
import importlib
import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from longhmm.samplers import REGISTERED
from longhmm.samplers.sgld import SGLD
from samplers.targets import coordinates_of

PARAMS = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}


def class_of(name):
    return getattr(importlib.import_module(REGISTERED[name]), name)


def make(name):
    return SGLD(step_size=1e-4) if name == "SGLD" else class_of(name)()


@pytest.fixture(scope="module")
def tiny():
    model = lh.HMM(2, lh.Poisson())
    _, y = lh.simulate(model, PARAMS, 300, seed=0)
    return model.resolve(y), lh.open_data(y)


def built(name, tiny):
    model, data = tiny
    sampler = make(name)
    estimator = sampler.estimator(lh.Windows(3, 4), lh.FixedBuffer(3)).bind(model, data, PARAMS)
    return sampler, estimator, sampler.build(model, estimator)


@pytest.mark.parametrize("name", REGISTERED)
def test_policy_is_a_small_frozen_object(name):
    sampler = make(name)
    assert dataclasses.is_dataclass(sampler) and type(sampler).__dataclass_params__.frozen
    assert isinstance(sampler.name, str) and sampler.name
    assert hash(sampler) == hash(make(name)) and sampler == make(name)
    for method, arguments in (("estimator", ["windows", "buffer"]), ("build", ["model", "estimator"])):
        assert list(inspect.signature(getattr(sampler, method)).parameters) == arguments


@pytest.mark.parametrize("name", REGISTERED)
def test_docstring_has_equations_example_and_reference(name):
    text = class_of(name).__doc__
    for part in ("' = ", "`step_size`", "Example:", "Reference", "iffer"):
        assert part in text, part


@pytest.mark.parametrize("module", sorted(set(REGISTERED.values())))
def test_examples_run(module):
    outcome = doctest.testmod(importlib.import_module(module))
    assert outcome.attempted > 0 and outcome.failed == 0


@pytest.mark.parametrize("name", REGISTERED)
def test_state_and_info(name, tiny):
    model, _ = tiny
    _, _, kernel = built(name, tiny)
    start = coordinates_of(model, PARAMS)
    state = kernel.init(jax.random.key(0), start)
    assert hasattr(state, "_fields") and set(state.coordinates) == set(start)
    after, info = kernel.step(jax.random.key(1), state, kernel.draw(jax.random.key(2)))
    assert type(after) is type(state) and hasattr(info, "_fields")
    assert set(info.gradient) == set(start) and bool(info.finite)
    for name_of, value in start.items():
        assert after.coordinates[name_of].shape == info.gradient[name_of].shape == value.shape
        assert after.coordinates[name_of].dtype == value.dtype
        assert not np.array_equal(after.coordinates[name_of], value)
    shapes = [jax.tree.map(jnp.shape, each) for each in (state, after)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("name", REGISTERED)
def test_steps_depend_on_their_key_alone(name, tiny):
    model, _ = tiny
    _, _, kernel = built(name, tiny)
    state = kernel.init(jax.random.key(0), coordinates_of(model, PARAMS))
    minibatch = kernel.draw(jax.random.key(2))
    first, again, other = (kernel.step(jax.random.key(seed), state, minibatch)[0] for seed in (1, 1, 3))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert not np.array_equal(first.coordinates["rate"], other.coordinates["rate"])


@pytest.mark.parametrize("name", REGISTERED)
def test_gradient_is_the_one_before_the_step(name, tiny):
    model, _ = tiny
    _, estimator, kernel = built(name, tiny)
    start = coordinates_of(model, PARAMS)
    minibatch = kernel.draw(jax.random.key(2))
    _, info = kernel.step(jax.random.key(1), kernel.init(jax.random.key(0), start), minibatch)
    expected = estimator.estimate(start, minibatch).gradient
    for key, value in expected.items():
        np.testing.assert_allclose(info.gradient[key], value, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", REGISTERED)
def test_not_a_number_is_reported(name, tiny):
    model, _ = tiny
    _, _, kernel = built(name, tiny)
    state = kernel.init(jax.random.key(0), coordinates_of(model, PARAMS))
    broken = state._replace(coordinates={**state.coordinates, "rate": jnp.full(2, jnp.nan)})
    if not kernel.compiled:
        with pytest.raises(lh.LongHMMError):
            kernel.step(jax.random.key(1), broken, kernel.draw(jax.random.key(2)))
        return
    _, info = kernel.step(jax.random.key(1), broken, kernel.draw(jax.random.key(2)))
    assert not bool(info.finite)


@partial(jax.jit, static_argnames=("sampler", "model"))
def scanned(sampler, model, estimator, state, keys):
    """As the driver runs it: the policy is a constant of compiled code, the bound estimator an argument."""
    kernel = sampler.build(model, estimator)

    def one(state, key):
        draw_key, step_key = jax.random.split(key)
        state, info = kernel.step(step_key, state, kernel.draw(draw_key))
        return state, info.finite

    return jax.lax.scan(one, state, keys)


@pytest.mark.parametrize("name", REGISTERED)
def test_compiled_as_promised(name, tiny):
    model, _ = tiny
    sampler, estimator, kernel = built(name, tiny)
    if not kernel.compiled:
        assert name == "BatchRLD"
        return
    keys = jax.random.split(jax.random.key(5), 3)
    state = start = kernel.init(jax.random.key(0), coordinates_of(model, PARAMS))
    after, finite = scanned(sampler, model, estimator, start, keys)
    assert bool(jnp.all(finite))
    for key in keys:
        draw_key, step_key = jax.random.split(key)
        state, _ = kernel.step(step_key, state, kernel.draw(draw_key))
    for each in state.coordinates:
        np.testing.assert_allclose(after.coordinates[each], state.coordinates[each], rtol=2e-4, atol=2e-4)
