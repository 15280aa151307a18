"""Paths drawn inside one program against the enumeration of all paths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import longhmm as lh
from longhmm.kernels import lanes
from longhmm.kernels.lane_paths import DrawnPaths, draw_paths
from longhmm.kernels.resident import ResidentPosterior
from longhmm.testing import enumerate_paths

TRANSITION = np.array([[0.7, 0.3, 0.0], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]])
RATE = np.array([1.0, 2.0, 4.0])
FIRST, SECOND = np.array([1, 4, 2, 0, 5, 3, 1, 2, 2, 3]), np.array([3, 1, 0])
DRAWS = 40_000


def test_paths_have_their_posterior_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sequences in chunks of 4 times, two chunks to a block: paths are joined within blocks and across them."""
    monkeypatch.setattr(lanes, "CHUNK_LENGTHS", (4,))
    monkeypatch.setattr(lanes, "BLOCK_ENTRIES", {"cpu": 3 * 4 * 2})
    monkeypatch.setattr(lanes, "BLOCK_ENTRIES_ELSEWHERE", 3 * 4 * 2)
    prior = (TRANSITION > 0).astype(float)
    model = lh.HMM(3, lh.Poisson(rate=RATE), transition_prior=prior)
    posterior = ResidentPosterior(model, lh.open_data([FIRST, SECOND]))
    assert posterior.program.lanes.n_blocks == 2
    with jax.enable_x64(True):
        params = {name: jnp.asarray(value) for name, value in model.validate({"transition": TRANSITION}).items()}

        @jax.jit
        def draws(keys: jax.Array) -> DrawnPaths:
            return jax.vmap(lambda key: draw_paths(posterior.program, posterior.inputs.data, params, key))(keys)

        paths = jax.tree.map(np.asarray, draws(jax.random.split(jax.random.key(7), DRAWS)))
    chunks = np.moveaxis(paths.states, 2, 3).reshape(DRAWS, 4, 4)
    one, two = chunks[:, :3].reshape(DRAWS, 12)[:, :10], chunks[:, 3, :3]
    np.testing.assert_allclose(
        paths.log_likelihood, lh.log_likelihood(model, {"transition": TRANSITION}, [FIRST, SECOND]), rtol=1e-12
    )
    for path, y in ((one, FIRST), (two, SECOND)):
        exact = enumerate_paths(np.full(3, 1 / 3), TRANSITION, stats.poisson.logpmf(y[:, None], RATE))
        code = path @ 3 ** np.arange(path.shape[1])[::-1]
        seen = np.bincount(code, minlength=len(exact.probabilities))
        assert seen[exact.probabilities == 0].sum() == 0
        expected = DRAWS * exact.probabilities
        often = expected > 5
        rest = np.array([seen[~often].sum(), expected[~often].sum()])
        observed, wanted = np.append(seen[often], rest[0]), np.append(expected[often], rest[1])
        kept = wanted > 0
        assert stats.chisquare(observed[kept], wanted[kept]).pvalue > 1e-3
    counts = np.zeros((DRAWS, 3, 3))
    for path in (one, two):
        for t in range(1, path.shape[1]):
            np.add.at(counts, (np.arange(DRAWS), path[:, t - 1], path[:, t]), 1)
    np.testing.assert_array_equal(paths.transitions, counts)
    np.testing.assert_array_equal(paths.first, np.eye(3)[one[:, 0]] + np.eye(3)[two[:, 0]])
