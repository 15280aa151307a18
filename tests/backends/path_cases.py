"""Chains whose paths are enumerated, found and drawn, for tests of paths."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from backends.oracle import Truth, enumerate_paths
from longhmm.backends import native, reference
from longhmm.backends.paths import DrawnPath, draw_chunks
from longhmm.backends.protocol import PAIR, PRECOMPUTED, PathsGiven, PathsWanted, Potentials, Varying
from longhmm.backends.stitch import find_paths, propagate, transfer_operators
from longhmm.data.layout import Layout, Partition

KINDS = ("constant", "varying", "pair", "varying pair")


class Case(NamedTuple):
    """A chain with log likelihoods; `index` into `matrices`, by row."""

    initial: np.ndarray
    matrices: np.ndarray
    index: np.ndarray
    logs: np.ndarray

    @property
    def pair(self) -> bool:
        return self.logs.ndim == 3

    def truth(self, rows: slice, before: np.ndarray, opens: bool, after: np.ndarray | None = None) -> Truth:
        with np.errstate(divide="ignore"):
            return enumerate_paths(before, self.matrices[self.index][rows], self.logs[rows], opens, after)

    def potentials(self) -> Potentials:
        kind, k = PAIR if self.pair else PRECOMPUTED, len(self.initial)
        matrices = jnp.asarray(self.matrices)
        transition = Varying(matrices, jnp.asarray(self.index)) if len(matrices) > 1 else matrices[0]
        return Potentials(jnp.asarray(self.logs), None, transition, jnp.asarray(self.initial), kind, k)

    def backends(self) -> list[Any]:
        served = (PAIR if self.pair else PRECOMPUTED, len(self.initial), len(self.matrices) > 1)
        return [each for each in (native, reference) if each.supports(*served, np.float64)]


def make(kind: str, k: int, n: int, seed: int, forbid: bool = False) -> Case:
    """Some rows are missing; with `forbid`, some transitions and some states of the first row are impossible."""
    rng = np.random.default_rng(seed)
    matrices = rng.gamma(1.0, size=(4 if "varying" in kind else 1, k, k))
    initial = rng.gamma(1.0, size=k)
    if forbid:
        matrices[:, 0, k - 1] = matrices[:, 1, 0] = initial[0] = 0.0
    logs = rng.normal(scale=1.5, size=(n, k, k) if "pair" in kind else (n, k))
    logs[3 % n] = 0.0
    index = rng.integers(len(matrices), size=n)
    return Case(initial / initial.sum(), matrices / matrices.sum(axis=-1, keepdims=True), index, logs)


@partial(jax.jit, static_argnames=("backend", "wanted"))
def _find(backend: Any, potentials: Potentials, layout: Layout, wanted: Any, given: PathsGiven) -> Any:
    return backend.paths(potentials, layout, given, wanted)


def find(backend: Any, case: Any, layout: Layout, wanted: PathsWanted, **given: Any) -> Any:
    return _find(backend, case.potentials(), layout, wanted, PathsGiven(log_space=0, **given))


def layout_of(lengths: list[int], chunk: int, backend: Any, overlap: int = 512) -> Layout:
    cells = Partition(np.concatenate([[0], np.cumsum(lengths)]), chunk)
    layout = cells.locate(np.arange(cells.n_blocks), overlap)
    spans = (int(layout.left.max()), chunk, 1) if backend is reference else (0, 0, 0)
    return jax.tree.map(jnp.asarray, replace(layout, spans=spans).padded(cells.n_blocks + 2))


@partial(jax.jit, static_argnames="backend")
def _draw(backend: Any, potentials: Potentials, layout: Layout, keys: jax.Array) -> DrawnPath:
    n, (_, longest, _) = len(potentials.initial), layout.spans

    def one(key: jax.Array) -> DrawnPath:
        def run(chunks: Layout, given: PathsGiven, wanted: PathsWanted) -> Any:
            return find_paths(backend, potentials, chunks, given._replace(key=jax.random.key_data(key)), wanted)

        def exact() -> jax.Array:
            operators = transfer_operators(backend, potentials, layout.trimmed(0, 0, (0, longest, 0)))
            return propagate(jnp.full(n, -jnp.log(n)), operators, jnp.zeros(len(operators), bool))[0]

        return draw_chunks(run, exact, layout, n, potentials.rows.shape[0], backend.underflows)

    return jax.vmap(one)(keys)


def draw(backend: Any, case: Any, layout: Layout, keys: jax.Array) -> DrawnPath:
    """A path for each key."""
    return jax.tree.map(np.asarray, _draw(backend, case.potentials(), layout, keys))


def counts(path: np.ndarray, lengths: list[int], k: int) -> tuple[np.ndarray, np.ndarray]:
    first, steps = np.zeros(k), np.zeros((k, k))
    for part in np.split(path, np.cumsum(lengths)[:-1]):
        first[part[0]] += 1
        np.add.at(steps, (part[:-1], part[1:]), 1)
    return first, steps


def hard() -> dict[str, Case]:
    rng, k, n = np.random.default_rng(3), 3, 1400
    little, row = 1e-3 * rng.normal(size=(n, k)), np.array([0.2, 0.5, 0.3])
    strong = np.zeros((n, k))
    strong[: n // 2, 0], strong[n // 2 :, 2] = 20.0, 40.0
    left_to_right = np.array([[0.99, 0.01, 0.0], [0.0, 0.99, 0.01], [0.0, 0.0, 1.0]])
    absorbing = np.array([[1 - 1e-12, 1e-12, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    none = np.zeros(n, int)
    # Two states that change places all the time are likely together, the third, never left, has the best path.
    crowd, each = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.5, 0.5]]), np.array([-0.65, 0.0, 0.0])
    return {
        "crowd": Case(row, crowd[None], none, little + each),
        "identity": Case(row, np.eye(k)[None], none, little),
        "cycle": Case(row, np.roll(np.eye(k), 1, axis=1)[None], none, little),
        "left to right": Case(row, left_to_right[None], none, rng.normal(size=(n, k))),
        "slow": Case(row, (0.9997 * np.eye(k) + 0.0001)[None], none, little),
        "beyond plain numbers": Case(row, absorbing[None], none, strong),
    }


def hard_pair() -> Case:
    """The matrix forgets at once, the likelihoods of pairs hardly ever: what joins chunks has to look at both."""
    rng, k, n = np.random.default_rng(8), 3, 1400
    logs = 1e-3 * rng.normal(size=(n, k, k)) - 12.0 * (1 - np.eye(k))
    return Case(np.array([0.2, 0.5, 0.3]), np.full((1, k, k), 1 / k), np.zeros(n, int), logs)
