"""Rows that arrive one after the other: filtered, and smoothed a fixed number of rows later, against all paths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longhmm.inference.fixed_lag import Held, advance, arrived, settle
from longhmm.testing import enumerate_paths

K, T, LAG = 3, 6, 2
RNG = np.random.default_rng(1)
INITIAL, LOGS = RNG.dirichlet(np.ones(K)), RNG.normal(0.0, 2.0, (T, K))
STEPS = RNG.dirichlet(np.ones(K), (T, K))  # a matrix of every row; the first is not used


def smoothed(rows, varying):
    """`P(x_t = k | y_0 .. y_{rows - 1})`, from all paths."""
    moves = STEPS[:rows] if varying else STEPS[0]
    return enumerate_paths(INITIAL, moves, LOGS[:rows])


@pytest.mark.parametrize("varying", [False, True])
def test_it_equals_a_smoother_that_ends_at_every_row(varying):
    with jax.enable_x64(True):
        held = Held(
            jnp.log(INITIAL)[None],
            jnp.asarray(True),
            jnp.full((LAG, 1, K), -jnp.inf),
            jnp.full((LAG, 1, K if varying else 1, K), -jnp.inf),
        )
        filtered, settled, total = [], [], 0.0
        for start, count in ((0, 1), (1, 3), (4, 2)):  # in pieces, each filled up to three rows
            part = np.minimum(np.arange(start, start + 3), T - 1)
            moves = jnp.asarray(STEPS[part] if varying else STEPS[0])[None]
            new = arrived(moves, jnp.asarray(LOGS[part])[None], couples=False)
            held, log_filtered, found, sizes = advance(held, new, jnp.asarray(count))
            filtered.append(np.exp(log_filtered[:count, 0]))
            settled.append(np.asarray(found[:count, 0]))
            total += float(sizes[:count].sum())
        rest = np.asarray(settle(held, new.log_matrices))[:, 0]
    every = [smoothed(rows, varying) for rows in range(1, T + 1)]
    np.testing.assert_allclose(np.concatenate(filtered), [each.gamma[-1] for each in every], rtol=1e-10)
    # Of the rows before the first there is nothing to say.
    np.testing.assert_allclose(
        np.concatenate(settled)[LAG:], [every[t + LAG].gamma[t] for t in range(T - LAG)], rtol=1e-10
    )
    np.testing.assert_allclose(rest, every[-1].gamma[-LAG:], rtol=1e-10)
    assert total == pytest.approx(every[-1].log_likelihood, rel=1e-12)
