"""Windows drawn by importance: rare states are looked at, gradients keep their mean and lose their noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from longhmm.backends import reference
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.samplers import langevin_moves as langevin
from longhmm.target.control_variate import ControlVariate
from longhmm.target.coordinates import Flat, scores

BUFFER = lh.FixedBuffer(8)
PARAMS = {
    "transition": [[0.97, 0.029, 0.001], [0.05, 0.949, 0.001], [0.1, 0.1, 0.8]],
    "mean": [0.0, 3.0, 8.0],
    "sd": [1.0, 1.0, 1.0],
}


@pytest.fixture(scope="module")
def problem():
    """A state that holds half a percent of the times."""
    model = lh.HMM(3, lh.Gaussian())
    states, y = lh.simulate(model, PARAMS, 20_000, seed=3)
    data = open_data(y)
    return model.resolve(data), data, states


def windows(proposal, count=16):
    return lh.Windows(5, count, proposal)


def test_every_state_gets_its_part_of_the_windows(problem):
    model, data, states = problem
    bound = lh.Buffered(windows(lh.Importance(0.1)), BUFFER).bind(model, data, PARAMS)
    plain = lh.Buffered(windows(None), BUFFER).bind(model, data, PARAMS)

    def rare_share(source):
        keys = jax.random.split(jax.random.key(0), 400)
        rows, layout = jax.lax.map(lambda key: (source.draw(key).rows, source.draw(key).layout), keys)
        values, core = np.asarray(rows.values)[..., 0], np.arange(rows.values.shape[2])
        begin = np.asarray(layout.left)[..., None]
        mine = (core >= begin) & (core < begin + np.asarray(layout.core)[..., None])
        return np.mean(np.any(mine & (values > 6.0), axis=-1))

    assert np.mean(states == 2) < 0.01
    assert rare_share(plain.source) < 0.03
    assert rare_share(bound.source) > 0.4  # a third of what is not uniform, and its share of the moves


def test_weighted_sums_estimate_those_of_all_data(problem):
    """Of the rows themselves, so that a weight at the wrong window would show: the rare state has the largest."""
    model, data, _ = problem
    bound = lh.Buffered(windows(lh.Importance()), BUFFER).bind(model, data, PARAMS)
    exact = np.sort(np.asarray(data.rows(0, data.length).values, np.float64)[:, 0] ** 2).sum()

    def total(key):
        minibatch = bound.minibatch(key)
        values, layout = minibatch.rows.values, minibatch.layout
        time = jnp.arange(values.shape[1])
        mine = (time >= layout.left[:, None]) & (time < (layout.left + layout.core)[:, None])
        sums = jnp.sum(jnp.where(mine, values[..., 0] ** 2, 0.0), axis=1)
        return minibatch.weights @ sums, jnp.mean(minibatch.weights) * jnp.sum(sums)

    found, mixed_up = np.asarray(jax.lax.map(total, jax.random.split(jax.random.key(1), 4000)), np.float64)
    error = found.std() / np.sqrt(len(found))
    assert abs(found.mean() - exact) < 4 * error
    assert abs(mixed_up.mean() - exact) > 40 * error


@pytest.mark.parametrize("fused", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["kernel", "reference"])
def test_gradients_keep_their_mean_and_rare_ones_lose_their_noise(problem, fused, monkeypatch):
    """Control variates about the truth, asked at a point two percent away."""
    if not fused:
        monkeypatch.setattr("longhmm.backends.evaluate.BACKENDS", (reference,))
        jax.clear_caches()
    model, data, _ = problem
    moved = {**PARAMS, "mean": np.array(PARAMS["mean"]) + 0.1}
    at = {name: jnp.asarray(value, jnp.float32) for name, value in lh.unconstrain(model, moved).items()}
    flat = Flat.like(at)
    exact = flat.ravel_numpy(lh.gradient(model, moved, data))
    spread = {}
    for proposal in (None, lh.Importance()):
        bound = ControlVariate(windows(proposal), BUFFER).bind(model, data, PARAMS)
        one = lambda key, bound=bound: flat.ravel(bound.estimate(at, bound.minibatch(key)).gradient)  # noqa: E731
        draw = jax.jit(lambda keys, one=one: jax.lax.map(one, keys))
        found = np.asarray(draw(jax.random.split(jax.random.key(2), 1500)), np.float64)
        # Rare windows make the uniform mean itself unreliable.
        if proposal is not None:
            error = found.std(axis=0) / np.sqrt(len(found))
            assert np.all(np.abs(found.mean(axis=0) - exact) < 4.5 * error + 0.02 * np.abs(exact) + 0.5)
        spread[proposal] = flat.unravel(found.var(axis=0))
    rare = spread[lh.Importance()]["mean"][2] / spread[None]["mean"][2]
    common = spread[lh.Importance()]["mean"][0] / spread[None]["mean"][0]
    assert rare < 0.1
    assert common < 3.5  # at most one over the uniform share, and sampling error


def test_the_noise_read_off_the_windows_is_that_of_the_gradient(problem):
    model, data, _ = problem
    bound = lh.Buffered(windows(lh.Importance()), BUFFER).bind(model, data, PARAMS)
    at = {name: jnp.asarray(value, jnp.float32) for name, value in lh.unconstrain(model, PARAMS).items()}

    @jax.jit
    def one(key):
        minibatch = bound.minibatch(key)
        seen = bound.estimate(at, minibatch, per_window=True)
        found = scores(bound.model, at, seen.windows, initial_moves=bound.initial is None)
        guess = {name: langevin.variance(value, minibatch) for name, value in found.items()}
        return seen.likelihood, guess

    gradients, guesses = jax.lax.map(one, jax.random.split(jax.random.key(0), 3000), batch_size=20)
    for name, value in gradients.items():
        np.testing.assert_allclose(guesses[name].mean(0), value.var(0), rtol=0.15)


def test_the_same_windows_and_weights_from_memory_and_from_a_file(problem, tmp_path):
    model, data, _ = problem
    np.save(tmp_path / "y.npy", data.rows(0, data.length).values)
    memory, file = (
        lh.Buffered(windows(lh.Importance()), BUFFER).bind(model, each, PARAMS)
        for each in (data, open_data(tmp_path / "y.npy"))
    )
    assert file.on_host and not memory.on_host
    for name in ("edges", "first", "size", "weight"):
        np.testing.assert_array_equal(getattr(memory.source.unequal, name), getattr(file.source.unequal, name))
    for seed in range(5):
        drawn, read = (each.minibatch(jax.random.key(seed)) for each in (memory, file))
        np.testing.assert_array_equal(drawn.weights, read.weights)
        np.testing.assert_array_equal(drawn.rows.values, read.rows.values)
        assert len(set(np.asarray(drawn.weights).tolist())) > 1


def test_blocks_of_many_cells_and_one_state_and_missing_rows(monkeypatch):
    """What could leave nothing to tell cells apart by: no moves, no rows; and blocks longer than a cell."""
    monkeypatch.setattr("longhmm.target.systematic.MOST_GROUPS", 7)
    model = lh.HMM(1, lh.Gaussian())
    y = np.random.default_rng(0).normal(size=(600, 1))
    y[100:300] = np.nan
    data = open_data(y)
    params = {"transition": [[1.0]], "mean": [0.0], "sd": [1.0]}
    bound = lh.Buffered(windows(lh.Importance(), 4), lh.FixedBuffer(0)).bind(model.resolve(data), data, params)
    assert bound.source.unequal is not None and len(bound.source.unequal.size) == 7
    # Every time is a visit, seen or not: all cells are alike, but for the last, which is shorter.
    np.testing.assert_allclose(bound.source.unequal.weight[:-1], 600 / 11 / 4, rtol=0.02)


@pytest.mark.parametrize("wrong", [0.0, -0.5, 1.5, True, "half", float("nan")])
def test_nonsense_is_refused(wrong):
    with pytest.raises(ModelError, match="uniform must be a number above 0 and at most 1"):
        lh.Importance(wrong)
    with pytest.raises(ModelError, match="proposal must be"):
        lh.Windows(5, 4, proposal=wrong)
