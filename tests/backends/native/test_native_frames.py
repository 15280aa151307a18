"""Frames that show a mean over their exposure, in the C++ kernel: against likelihoods of pairs in the reference."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backends.native.problems import LENGTHS, close, comparable, windows
from longhmm.backends import native, reference
from longhmm.backends.protocol import FRAMES, PAIR, Boundary, PathsGiven, PathsWanted, Potentials, Wanted

pytestmark = pytest.mark.skipif(not native.available(), reason="the C++ kernel was not built here")
N_ROWS, SHARES = sum(LENGTHS), 6


class Frames:
    """Rows, chances of the shares of a frame, some of them 0, and numbers of the shares; all that single precision
    holds."""

    def __init__(self, k: int, spread: float = 2.0) -> None:
        rng = np.random.default_rng(k)
        self.k, self.y = k, (spread * rng.normal(size=N_ROWS)).astype(np.float32).astype(float)
        self.y[60:70] = self.y[::17] = np.nan
        chances = rng.dirichlet(np.full(SHARES, 0.5), size=(k, k))
        chances[0, 1, 2] = chances[1, 0] = 0.0
        chances[1, 0, 3] = 1.0
        numbers = rng.normal(size=(SHARES, 4))
        numbers[:, 2] = rng.uniform(0.5, 3.0, SHARES)
        packed = np.concatenate([chances.reshape(k, -1), np.tile(numbers.ravel(), (k, 1))], axis=1)
        self.natural = packed.astype(np.float32).astype(float)
        self.chances = self.natural[:, : k * SHARES].reshape(k, k, SHARES)
        self.numbers = self.natural[0, k * SHARES :].reshape(SHARES, 4)
        self.transition = 0.5 * np.eye(k) + 0.5 * rng.dirichlet(np.ones(k), size=k)
        self.initial = rng.dirichlet(np.ones(k))

    @property
    def away(self) -> np.ndarray:
        return np.nan_to_num(self.y)[:, None] - self.numbers[:, 1]

    @property
    def share_logs(self) -> np.ndarray:
        a, _, s, b = self.numbers.T
        return a + b * np.nan_to_num(self.y)[:, None] - 0.5 * (s * self.away) ** 2

    @property
    def pair_logs(self) -> np.ndarray:
        with np.errstate(divide="ignore"):
            every = np.log(self.chances) + self.share_logs[:, None, None, :]
        return np.logaddexp.reduce(every, axis=-1) + np.where(np.isnan(self.y), np.nan, 0.0)[:, None, None]

    def sums(self, gamma: np.ndarray) -> np.ndarray:
        """Derivatives by the numbers of the pack, from posteriors of pairs `(n, K, K)`."""
        seen = ~np.isnan(self.y)
        ratios = self.share_logs[:, None, None, :] - self.pair_logs[..., None]
        relative = np.exp(np.where(self.chances > 0, ratios, -np.inf)[seen])
        chances = np.einsum("tij,tijc->ijc", gamma[seen], relative)
        share = np.einsum("tij,ijc,tijc->tc", gamma[seen], self.chances, relative)
        _, _, s, _ = self.numbers.T
        away, y = self.away[seen], self.y[seen, None]
        own = np.stack([share, share * s**2 * away, -share * s * away**2, share * y], axis=-1).sum(axis=0)
        tail = np.zeros((self.k, own.size))
        tail[0] = own.ravel()
        return np.concatenate([chances.reshape(self.k, -1), tail], axis=1)

    def potentials(self, backend: Any, precision: Any) -> Potentials:
        moves = [jnp.asarray(each, precision) for each in (self.transition, self.initial)]
        if backend is reference:
            return Potentials(jnp.asarray(self.pair_logs, precision), None, *moves, PAIR, self.k)
        rows, natural = jnp.asarray(self.y[:, None], precision), jnp.asarray(self.natural, precision)
        return Potentials(rows, natural, *moves, FRAMES, 1, natural.shape[1])

    def run(self, backend: Any, wanted: Wanted, precision: Any = np.float64, weights: Any = None) -> Any:
        with jax.enable_x64(True):
            boundary = Boundary(start=jnp.full(self.k, 1.0 / self.k, precision))
            found = _run(backend, wanted, self.potentials(backend, precision), windows(), boundary, weights)
            return jax.tree.map(np.asarray, found)


@partial(jax.jit, static_argnums=(0, 1))
def _run(backend: Any, wanted: Wanted, potentials: Potentials, layout: Any, boundary: Any, weights: Any) -> Any:
    return backend.statistics(potentials, layout, boundary, weights, wanted)


@pytest.mark.parametrize("precision", [np.float64, np.float32])
@pytest.mark.parametrize(("k", "spread"), [(3, 2.0), (5, 2.0), (3, 40.0)])
def test_marginals_and_sums_are_those_of_pairs(k: int, spread: float, precision: Any) -> None:
    """The last rows lie so far out that linear numbers underflow, and windows are done again in log space."""
    frames, layout = Frames(k, spread), windows()
    tolerance = 1e-10 if precision == np.float64 else 1e-4
    for forward_only in (False, True):
        wanted = Wanted(forward_only=forward_only, gamma=N_ROWS, messages=True)
        found, expected = frames.run(native, wanted, precision), frames.run(reference, wanted)
        close(found.log_likelihood, expected.log_likelihood, tolerance)
        np.testing.assert_allclose(found.gamma, expected.gamma, atol=tolerance)
        close(*(comparable(one.messages, layout, forward_only) for one in (found, expected)), tolerance)
        if not forward_only:
            close(found[:4], expected[:4], tolerance)
            # A chance of 0 stays 0: what its derivative is does not matter.
            close(found.sums * (frames.natural != 0), frames.sums(expected.gamma), tolerance)
    each = frames.run(native, Wanted(per_chunk=True), precision)
    weights = np.random.default_rng(1).uniform(0.1, 9.0, layout.size)
    total = jax.tree.map(lambda part: np.tensordot(weights, part, 1), each[:5])
    close(frames.run(native, Wanted(), precision, weights)[:5], total, tolerance)


@pytest.mark.parametrize("spread", [2.0, 40.0])
def test_paths_are_those_of_pairs(spread: float) -> None:
    frames, layout = Frames(3, spread), windows()
    given = PathsGiven(forward=np.log(np.full((layout.size, 3), 1 / 3)), following=np.zeros(layout.size, np.int32))
    for drawn in (False, True):
        wanted = PathsWanted(drawn, maps=True, states=N_ROWS)
        with jax.enable_x64(True):
            logs = jnp.asarray(frames.pair_logs)
            pairs = frames.potentials(native, np.float64)
            as_pairs = Potentials(logs, None, pairs.transition, pairs.initial, PAIR, 3)
            both = [jax.jit(partial(native.paths, wanted=wanted))(one, layout, given) for one in (pairs, as_pairs)]
        np.testing.assert_array_equal(both[0].states, both[1].states)
        np.testing.assert_array_equal(both[0].maps, both[1].maps)
