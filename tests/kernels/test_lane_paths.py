"""Paths drawn inside one program, by the C++ kernel and by JAX, against the enumeration of all paths."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import longhmm as lh
from longhmm.kernels import fused_pass, lanes, native
from longhmm.kernels.compiled_paths import draw_path
from longhmm.kernels.lane_paths import DrawnPaths, draw_paths
from longhmm.kernels.resident import ResidentPosterior
from longhmm.testing import enumerate_paths

TRANSITION = np.array([[0.7, 0.3, 0.0], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]])
RATE = np.array([1.0, 2.0, 4.0])
FIRST, SECOND = np.array([1, 4, 2, 0, 5, 3, 1, 2, 2, 3]), np.array([3, 1, 0])
DRAWS = 40_000


@pytest.mark.parametrize("path", ["native", "jax"])
def test_paths_have_their_posterior_law(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sequences in chunks of 4 times, two chunks to a block: paths are joined within blocks and across them."""
    if path == "native" and not native.usable():
        pytest.skip("the fused kernel was not built")
    monkeypatch.setattr(fused_pass, "CHUNK", 4)
    monkeypatch.setattr(fused_pass, "LEAST_CHUNK", 4)
    monkeypatch.setattr(lanes, "CHUNK_LENGTHS", (4,))
    monkeypatch.setattr(lanes, "BLOCK_ENTRIES", {"cpu": 3 * 4 * 2})
    monkeypatch.setattr(lanes, "BLOCK_ENTRIES_ELSEWHERE", 3 * 4 * 2)
    prior = (TRANSITION > 0).astype(float)
    model = lh.HMM(3, lh.Poisson(rate=RATE), transition_prior=prior)
    with native.switched_off() if path == "jax" else nullcontext():
        posterior = ResidentPosterior(model, lh.open_data([FIRST, SECOND]))
    assert (posterior.inputs.chunks is None) == (path == "jax")
    assert posterior.program.lanes.n_blocks == 2
    with jax.enable_x64(True):
        params = {name: jnp.asarray(value) for name, value in model.validate({"transition": TRANSITION}).items()}

        @jax.jit
        def draws(keys: jax.Array) -> DrawnPaths:
            return jax.vmap(lambda key: draw_paths(posterior.program, posterior.inputs, params, key))(keys)

        if posterior.inputs.chunks is not None:
            first = draw_path(
                posterior.model, posterior.program.form, posterior.inputs.chunks, params, jax.random.key(1)
            )
            assert bool(first.sound) and posterior.inputs.chunks.begin.shape == (4,)
        paths = jax.tree.map(np.asarray, draws(jax.random.split(jax.random.key(7), DRAWS)))
    chunks = np.moveaxis(paths.states, 2, 3).reshape(DRAWS, 4, 4)
    one, two = chunks[:, :3].reshape(DRAWS, 12)[:, :10], chunks[:, 3, :3]
    np.testing.assert_allclose(
        paths.log_likelihood, lh.log_likelihood(model, {"transition": TRANSITION}, [FIRST, SECOND]), rtol=1e-12
    )
    for drawn, y in ((one, FIRST), (two, SECOND)):
        exact = enumerate_paths(np.full(3, 1 / 3), TRANSITION, stats.poisson.logpmf(y[:, None], RATE))
        code = drawn @ 3 ** np.arange(drawn.shape[1])[::-1]
        seen = np.bincount(code, minlength=len(exact.probabilities))
        assert seen[exact.probabilities == 0].sum() == 0
        expected = DRAWS * exact.probabilities
        often = expected > 5
        rest = np.array([seen[~often].sum(), expected[~often].sum()])
        observed, wanted = np.append(seen[often], rest[0]), np.append(expected[often], rest[1])
        kept = wanted > 0
        assert stats.chisquare(observed[kept], wanted[kept]).pvalue > 1e-3
    counts = np.zeros((DRAWS, 3, 3))
    for drawn in (one, two):
        for t in range(1, drawn.shape[1]):
            np.add.at(counts, (np.arange(DRAWS), drawn[:, t - 1], drawn[:, t]), 1)
    np.testing.assert_array_equal(paths.transitions, counts)
    np.testing.assert_array_equal(paths.first, np.eye(3)[one[:, 0]] + np.eye(3)[two[:, 0]])


@pytest.mark.skipif(not native.usable(), reason="the fused kernel was not built")
def test_where_nothing_is_forgotten_jax_carries_the_edges() -> None:
    """Two states that hardly differ and never change: a path is all of one or all of the other."""
    model = lh.HMM(2, lh.Poisson(rate=np.array([4.0, 4.2])), transition_prior=np.eye(2))
    y = lh.simulate(model, {"transition": np.eye(2)}, 1500, seed=3)[1]
    posterior = ResidentPosterior(model, lh.open_data(y))
    with jax.enable_x64(True):
        params = {name: jnp.asarray(value) for name, value in model.validate({"transition": np.eye(2)}).items()}
        flat = draw_path(posterior.model, posterior.program.form, posterior.inputs.chunks, params, jax.random.key(0))
        drawn = draw_paths(posterior.program, posterior.inputs, params, jax.random.key(0))
    assert not bool(flat.sound)
    np.testing.assert_allclose(drawn.log_likelihood, lh.log_likelihood(model, {"transition": np.eye(2)}, y), rtol=1e-12)
    assert sorted(np.diagonal(drawn.transitions)) == [0, 1499]


@pytest.mark.parametrize(("n_states", "path"), [(2, "native"), (6, "native"), (6, "jax")])
def test_the_same_path_is_drawn_inside_a_program_and_from_outside(n_states: int, path: str) -> None:
    """Many chunks, missing rows, an emission whose log likelihoods JAX computes; the counts are those of the path."""
    if path == "native" and not native.usable():
        pytest.skip("the fused kernel was not built")
    rng = np.random.default_rng(5)
    model = lh.HMM(n_states, lh.StudentT())
    params = {
        "transition": 0.8 * np.eye(n_states) + 0.2 / n_states,
        "df": np.full(n_states, 5.0),
        "loc": 2.0 * np.arange(n_states),
        "scale": np.ones(n_states),
    }
    y = np.where(rng.random(3000) < 0.1, np.nan, np.asarray(lh.simulate(model, params, 3000, seed=6)[1]).ravel())
    data = lh.open_data([y[:2000], y[2000:]])
    with native.switched_off() if path == "jax" else nullcontext():
        posterior = ResidentPosterior(model, data)
        expected = lh.sample_states(model, params, data, seed=9)[0]
    key = jax.random.fold_in(jax.random.key(9), 0)
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(value) for name, value in model.validate(params).items()}
        drawn = draw_paths(posterior.program, posterior.inputs, arrays, key)
        sound = posterior.inputs.chunks is None or bool(
            draw_path(posterior.model, posterior.program.form, posterior.inputs.chunks, arrays, key).sound
        )
    assert sound and (posterior.inputs.chunks is None) == (path == "jax")
    # Chunk after chunk, each without what lies beyond its end.
    chunks = np.moveaxis(np.asarray(drawn.states), 1, 2).reshape(-1, posterior.program.lanes.chunk_length)
    lengths = np.asarray(posterior.inputs.data.length)[:, 1:-1].ravel()
    found = np.concatenate([states[:length] for states, length in zip(chunks, lengths, strict=True)])
    np.testing.assert_array_equal(found, expected)
    counts = np.zeros((n_states, n_states))
    for part in np.split(expected, [2000]):
        np.add.at(counts, (part[:-1], part[1:]), 1)
    np.testing.assert_array_equal(drawn.transitions, counts)
    np.testing.assert_allclose(drawn.log_likelihood, lh.log_likelihood(model, params, data), rtol=1e-12)
