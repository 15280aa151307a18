"""A window with weight 3 counts like three windows, wherever weights are read."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from longhmm.data.sequences import open_data
from longhmm.samplers.preconditioning import EmissionBlocks, information
from longhmm.target.buffered import WindowTarget
from longhmm.target.control_variate import ControlVariate, CountControl
from longhmm.target.minibatch import Minibatch, host_rows
from longhmm.target.target import exact, impossible_windows
from samplers.targets import Prepared

PARAMS = {"transition": [[0.9, 0.1], [0.3, 0.7]], "rate": [1.0, 8.0]}
CELLS, TIMES = np.array([0, 7, 30, 55]), np.array([1, 2, 3, 1])


@pytest.fixture(scope="module")
def problem():
    model = lh.HMM(2, lh.Poisson())
    data = open_data(lh.simulate(model, PARAMS, 700, seed=0)[1])
    model = model.resolve(data)
    bound = ControlVariate(lh.Windows(5, 4), lh.FixedBuffer(6)).bind(model, data, PARAMS)
    counts = exact(model, model.validate(PARAMS), data)[1].totals.transitions
    bound = replace(bound, rare=CountControl(counts.astype(np.float32), np.full((2, 2), 0.5, np.float32)))
    moved = {**PARAMS, "rate": [1.2, 7.0], "transition": [[0.8, 0.2], [0.25, 0.75]]}
    at = {name: jnp.asarray(value, jnp.float32) for name, value in lh.unconstrain(model, moved).items()}
    cells = bound.source.partition
    weighted = Minibatch(*host_rows(data, cells, CELLS, 6, 0), TIMES.astype(np.float32))
    times = np.ones(TIMES.sum(), np.float32)
    repeated = Minibatch(*host_rows(data, cells, np.repeat(CELLS, TIMES), 6, 0), times)
    return model, bound, at, weighted, repeated


def plain(bound):
    return WindowTarget(bound.model, bound.start, bound.initial, bound.source)


def same(left, right):
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-3), left, right)


@pytest.mark.parametrize("per_window", [False, True])
@pytest.mark.parametrize("control", [False, True], ids=["plain", "control variates"])
def test_gradients_and_totals(problem, control, per_window):
    _, bound, at, weighted, repeated = problem
    target = bound if control else plain(bound)
    seen = jax.jit(lambda each: target.estimate(at, each, per_window=per_window))
    one, other = seen(weighted), seen(repeated)
    same((one.likelihood, one.gradient, one.totals), (other.likelihood, other.gradient, other.totals))
    alike = seen(weighted._replace(weights=np.ones(4, np.float32)))
    assert not np.allclose(alike.likelihood["rate"], one.likelihood["rate"], rtol=0.05)


def test_information_of_the_preconditioner(problem):
    model, _, at, weighted, repeated = problem
    blocks = EmissionBlocks.like(at)
    same(*(information(model, blocks, at, each) for each in (weighted, repeated)))


def test_steps_of_variational_inference(problem):
    _, bound, at, weighted, repeated = problem
    ready = Prepared(lh.samplers.StochasticVariational(), plain(bound))
    state = ready.init(jax.random.key(0), at)
    one, other = (ready.step(jax.random.key(1), state, each)[0] for each in (weighted, repeated))
    same((one.transitions, one.sums), (other.transitions, other.sums))


@pytest.mark.parametrize("weights", [[1.0, 500.0, 1.0, 1.0], [500.0, 1.0, 500.0, 500.0]], ids=["heavy", "light"])
def test_a_window_without_a_likelihood_is_counted_whatever_its_weight(problem, weights):
    _, bound, at, weighted, _ = problem
    batch = weighted._replace(weights=jnp.array(weights, jnp.float32))
    found = plain(bound).estimate(at, batch, per_window=True).windows
    assert int(impossible_windows(found.total(batch.weights), batch)) == 0
    without = jax.tree.map(lambda each: each.at[1].set(0.0), found)  # as the kernels leave it
    assert int(impossible_windows(without.total(batch.weights), batch)) == 1
