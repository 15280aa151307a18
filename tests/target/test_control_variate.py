"""The control variate for expected counts: no bias, and less noise."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from longhmm.data.sequences import open_data
from longhmm.target.control_variate import ControlVariate, known_at
from longhmm.target.minibatch import Minibatch, host_rows


@pytest.fixture(scope="module")
def problem():
    # States 0 and 2 overlap, and the way from one to the other is hardly ever taken: its expected count is soft.
    model = lh.HMM(3, lh.Gaussian())
    params = {
        "transition": [[0.95, 0.0499, 1e-4], [0.1, 0.8, 0.1], [1e-4, 0.0999, 0.9]],
        "mean": [0.0, 3.0, 1.5],
        "sd": [1.0, 1.0, 1.0],
    }
    data = open_data(lh.simulate(model, params, 3000, seed=0)[1])
    resolved = model.resolve(data)
    plain = ControlVariate(lh.Windows(5, 4), lh.FixedBuffer(12)).bind(resolved, data, params)
    rare = known_at(resolved, data, lh.unconstrain(resolved, params))[1]
    # Only the rare transitions differ from the centre: there their counts are foreseen.
    moved = np.array(params["transition"]) * np.where(rare.elasticity > 0, 2.0, 1.0)
    there = {**params, "transition": moved / moved.sum(axis=1, keepdims=True)}
    away = {name: jnp.asarray(value, jnp.float32) for name, value in lh.unconstrain(resolved, there).items()}
    return plain, rare, away


def test_soft_counts_are_told_from_hard_ones(problem):
    _, rare, _ = problem
    assert rare.elasticity[0, 2] > 0.8 and rare.elasticity[2, 0] > 0.8
    assert np.all(rare.elasticity[rare.counts > 20] == 0)


def test_the_mean_over_all_cells_stays_and_the_noise_shrinks(problem):
    plain, rare, away = problem
    source = plain.source
    cells = np.arange(source.partition.n_blocks)

    def gradients(bound):
        def one(cell):
            minibatch = Minibatch(
                *host_rows(source.sequences, source.partition, np.array([cell]), source.buffer, 0),
                np.array([len(cells)], np.float32),
            )
            return bound.estimate(away, minibatch).likelihood["transition"]

        return np.stack([np.asarray(one(cell), np.float64) for cell in cells])

    without, with_rare = gradients(plain), gradients(replace(plain, rare=rare))
    # The counts of buffered windows add up to the exact ones, nearly. The unit is that of a rare coordinate: its
    # posterior has a standard deviation of about 1.
    np.testing.assert_allclose(with_rare.mean(axis=0), without.mean(axis=0), atol=0.01)
    assert not np.allclose(without, with_rare)
    # Along the logarithms of the two rare probabilities.
    flat = jax.tree.map(jnp.asarray, away)["transition"]
    slopes = jax.jacobian(lambda u: jnp.log(plain.model.transitions.constrain(u)))(flat)
    for i, j in ((0, 2), (2, 0)):
        direction = np.linalg.pinv(np.asarray(slopes, np.float64).reshape(9, -1)).T[3 * i + j]
        assert (with_rare @ direction).std() < 0.75 * (without @ direction).std()
