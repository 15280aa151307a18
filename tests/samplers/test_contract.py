"""Every registered sampler keeps the contract: inspected, and stepped on a tiny model."""

import dataclasses
import importlib
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from longhmm.samplers import REGISTERED
from longhmm.target.control_variate import ControlVariate
from samplers.targets import Prepared, tuned_by_hand

PARAMS = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}


# What these need beside their defaults: steps that suit a tiny model, and no long adaptation.
SETTINGS = {
    "SGLD": {"step_size": 1e-4},
    "NUTS": {"step_size": 0.3, "inverse_mass": 0.01 * np.eye(4), "max_tree_depth": 3},
    "HMC": {"step_size": 0.3, "inverse_mass": 0.01 * np.eye(4), "leapfrogs": 3},
}
BY_HAND = {"BatchRLD", "ExpectationMaximisation"}  # one pass over streamed data per step
WITHOUT_GRADIENT = {"ExpectationMaximisation", "Gibbs", "StochasticVariational"}
WITHOUT_CHANCE = {"ExpectationMaximisation", "StochasticVariational"}  # given the minibatch
STEPPED = ("BatchRLD", "HMC", "SGHMC", "SGLD", "SGRLD")  # the user gives them a step size


def class_of(name):
    return getattr(importlib.import_module(REGISTERED[name]), name)


def make(name):
    return class_of(name)(**SETTINGS.get(name, {}))


@pytest.fixture(scope="module")
def tiny():
    model = lh.HMM(2, lh.Poisson())
    _, y = lh.simulate(model, PARAMS, 300, seed=0)
    return model.resolve(y), lh.open_data(y)


class Built:
    """A sampler on the tiny model, with its kernel and first state, in the precision it runs in."""

    def __init__(self, name, tiny):
        model, data = tiny
        self.model, self.sampler = model, make(name)
        self.x64 = self.sampler.x64
        policy = self.sampler.estimator(lh.Windows(3, 4), lh.FixedBuffer(3))
        if name == "ControlVariateSGLD":
            policy, self.sampler = (
                ControlVariate(lh.Windows(3, 4), lh.FixedBuffer(3)),
                tuned_by_hand(lh.unconstrain(model, PARAMS), 0.1),
            )
        target = policy.bind(model, data, PARAMS)
        self.target, self.ready = target, Prepared(self.sampler, target)
        with jax.enable_x64(self.x64):
            kind = jnp.float64 if self.x64 else jnp.float32
            self.start = {name: jnp.asarray(value, kind) for name, value in lh.unconstrain(model, PARAMS).items()}
            self.state = self.ready.init(jax.random.key(0), self.start)

    def step(self, seed, state=None, draw_key=None):
        with jax.enable_x64(self.x64):
            minibatch = self.target.minibatch(jax.random.key(2) if draw_key is None else draw_key)
            key = jax.random.key(seed) if isinstance(seed, int) else seed
            return self.ready.step(key, self.state if state is None else state, minibatch)


@pytest.fixture(scope="module", params=REGISTERED)
def built(request, tiny):
    return request.param, Built(request.param, tiny)


@pytest.mark.parametrize("name", REGISTERED)
def test_policy_is_a_small_frozen_object(name):
    sampler = make(name)
    assert dataclasses.is_dataclass(sampler) and type(sampler).__dataclass_params__.frozen
    assert isinstance(sampler.name, str) and sampler.name
    assert hash(sampler) == hash(make(name)) and sampler == make(name)
    asked = {
        "estimator": ["windows", "buffer"],
        "init": ["target", "key", "u"],
        "step": ["target", "key", "state", "minibatch"],
    }
    for method, arguments in asked.items():
        assert list(inspect.signature(getattr(sampler, method)).parameters) == arguments


@pytest.mark.parametrize("name", REGISTERED)
def test_docstring_has_equations_example_and_reference(name):
    text = class_of(name).__doc__
    assert "' = " in text or "' ~ " in text
    assert name not in STEPPED or "step_size" in text
    for part in ("Example:", "Reference", "iffer"):
        assert part in text, part


def test_state_and_info(built):
    _, made = built
    state, start = made.state, made.start
    assert hasattr(state, "_fields") and set(state.coordinates) == set(start)
    after, info = made.step(1)
    assert type(after) is type(state) and hasattr(info, "_fields")
    assert set(info.gradient) == set(start) and bool(info.finite)
    for name_of, value in start.items():
        assert after.coordinates[name_of].shape == info.gradient[name_of].shape == value.shape
        assert after.coordinates[name_of].dtype == value.dtype
        assert not np.array_equal(after.coordinates[name_of], value)
    shapes = [jax.tree.map(jnp.shape, each) for each in (state, after)]
    assert shapes[0] == shapes[1]


def test_steps_depend_on_their_key_alone(built):
    name, made = built
    first, again, other = (made.step(seed)[0] for seed in (1, 1, 3))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    same = np.array_equal(first.coordinates["rate"], other.coordinates["rate"])
    assert same == (name in WITHOUT_CHANCE)


def test_gradient_is_the_one_before_the_step(built):
    name, made = built
    _, info = made.step(1)
    if name in WITHOUT_GRADIENT:
        assert all(np.all(np.asarray(value) == 0) for value in info.gradient.values())
        return
    with jax.enable_x64(made.x64):
        minibatch = made.target.minibatch(jax.random.key(2))
        expected = made.target.estimate(made.state.coordinates, minibatch).gradient
    for key, value in expected.items():
        np.testing.assert_allclose(info.gradient[key], value, rtol=1e-4, atol=1e-3)


def test_not_a_number_is_reported(built):
    name, made = built

    def broken(leaf):
        floating = np.issubdtype(np.asarray(leaf).dtype, np.floating)
        return np.full_like(leaf, np.nan) if floating else leaf

    with jax.enable_x64(made.x64):
        state = jax.tree.map(broken, made.state)
    try:
        _, info = made.step(1, state)
    except lh.errors.LongHMMError:
        assert name in BY_HAND
    else:
        assert not bool(info.finite)


@jax.jit
def scanned(sampler, target, state, keys):
    """As the driver runs it: sampler and target are arguments of compiled code."""

    def one(state, key):
        draw_key, step_key = jax.random.split(key)
        state, info = sampler.step(target, step_key, state, target.minibatch(draw_key))
        return state, info.finite

    return jax.lax.scan(one, state, keys)


def test_compiled_as_promised(built):
    name, made = built
    assert made.target.compiled == (name not in BY_HAND)
    if not made.target.compiled:
        return
    keys = jax.random.split(jax.random.key(5), 3)
    with jax.enable_x64(made.x64):
        after, finite = scanned(made.sampler, made.target, made.state, keys)
        assert bool(jnp.all(finite))
        state = made.state
        for key in keys:
            draw_key, step_key = jax.random.split(key)
            state, _ = made.step(step_key, state, draw_key)
    for each in state.coordinates:
        np.testing.assert_allclose(after.coordinates[each], state.coordinates[each], rtol=2e-4, atol=2e-4)
