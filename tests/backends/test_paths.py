"""Paths through chunks, by every backend: against the enumeration of all paths, and against one another."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from backends.oracle import Truth, enumerate_paths
from longhmm.backends import native, reference
from longhmm.backends.paths import DrawnPath, draw_chunks
from longhmm.backends.protocol import (
    GAUSSIAN,
    LINEAR,
    PAIR,
    PRECOMPUTED,
    TABLE,
    PathsGiven,
    PathsWanted,
    Potentials,
    Varying,
)
from longhmm.backends.reference import row_uniforms
from longhmm.backends.stitch import find_paths, propagate_forward, transfer_operators
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


# One call of a backend ----------------------------------------------------------------------------------------------

# begin, left, core, right, opens
SPANS = [(0, 0, 4, 1, 1), (4, 3, 3, 1, 0), (0, 0, 1, 1, 1), (5, 2, 2, 0, 0), (3, 2, 1, 1, 0), (2, 2, 4, 1, 1)]


@pytest.mark.parametrize("forbid", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_best_paths_of_ragged_chunks_equal_enumeration(kind: str, forbid: bool) -> None:
    """Scores before and behind, the first state for whatever follows, and the states."""
    case = make(kind, 3, 8, 11, forbid)
    before = np.array([0.2, 0.5, 0.3])
    begin, left, core, right, opens = (np.array(each, np.int32) for each in zip(*SPANS, strict=True))
    layout = Layout(begin, left, core, right, opens, (3, 4, 1))
    with jax.enable_x64(True):
        for backend in case.backends():
            found = find(backend, case, layout, PathsWanted(False, messages=True, maps=True), start=before)
            for w, (first, lead, size, tail, at_start) in enumerate(SPANS):
                law, rows = case.initial if at_start else before, slice(first - lead, first + size)
                for follower in [-1, 0, 1, 2] if tail else [-1]:
                    after = None if follower < 0 else np.eye(3)[follower]
                    whole = rows if after is None else slice(rows.start, rows.stop + 1)
                    truth = case.truth(whole, law, bool(at_start), after)
                    if np.isneginf(truth.best_score):
                        continue
                    best = truth.best[lead : lead + size]
                    assert found.maps[w, follower] == best[0], (backend.name, w, follower)
                    alone, following = jax.tree.map(lambda each, w=w: each[w : w + 1], layout), np.array([follower])
                    filled = find(backend, case, alone, PathsWanted(False, states=8), start=before, following=following)
                    np.testing.assert_array_equal(filled.states[first : first + size], best)
                scores = [case.truth(rows, law, bool(at_start), after).best_score for after in np.eye(3)]
                np.testing.assert_allclose(
                    np.asarray(found.forward_out[w]) - np.max(found.forward_out[w]), scores - np.max(scores), atol=1e-12
                )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drawn", [False, True])
def test_transfer_operators_equal_enumeration(kind: str, drawn: bool) -> None:
    """From each state alone: the weight of all paths, or of the best one, to each state at the last row."""
    case = make(kind, 3, 6, 5, forbid=True)
    layout = Layout(*(np.array(each, np.int32) for each in ([0, 3], [0, 0], [3, 3], [0, 0], [1, 0])), (0, 3, 0))
    with jax.enable_x64(True):
        for backend in case.backends():
            operators = np.asarray(transfer_operators(backend, case.potentials(), layout, best=not drawn))
            for w, (rows, opens) in enumerate([(slice(0, 3), True), (slice(3, 6), False)]):
                for i, j in np.ndindex(3, 3):
                    truth = case.truth(rows, case.initial if opens else np.eye(3)[i], opens, np.eye(3)[j])
                    expected = truth.best_score
                    if drawn and np.isfinite(expected):
                        expected = truth.log_likelihood
                    np.testing.assert_allclose(operators[w, i, j], expected, rtol=1e-12, err_msg=f"{backend.name} {w}")


# Whole paths inside a program ---------------------------------------------------------------------------------------


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
            return propagate_forward(jnp.full(n, -jnp.log(n)), operators)[0]

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


DRAWS = 20_000


@pytest.mark.parametrize("backend", [native, reference], ids=lambda each: each.name)
@pytest.mark.parametrize("kind", KINDS)
def test_drawn_paths_have_their_posterior_distribution(kind: str, backend: Any) -> None:
    """Two sequences in chunks of 2 rows; every path as often as it should be."""
    lengths, k = [5, 2], 3
    case = make(kind, k, 7, 23, forbid=True)
    if backend not in case.backends():
        pytest.skip("not served by this backend")
    layout = layout_of(lengths, 2, backend, 3)
    with jax.enable_x64(True):
        drawn = draw(backend, case, layout, jax.random.split(jax.random.key(7), DRAWS))
    for start, stop in ((0, 5), (5, 7)):
        truth = case.truth(slice(start, stop), case.initial, True)
        seen = {path: 0 for path in truth.paths}
        for path in drawn.states[:, start:stop].tolist():
            seen[tuple(path)] += 1
        assert all(seen[path] == 0 for path, probability in truth.paths.items() if probability == 0)
        expected = DRAWS * np.array(list(truth.paths.values()))
        observed, often = np.array(list(seen.values())), expected > 5
        assert often.sum() > 3
        observed, expected = (np.append(each[often], each[~often].sum()) for each in (observed, expected))
        kept = expected > 1e-9
        assert stats.chisquare(observed[kept], expected[kept]).pvalue > 1e-3
    total = sum(case.truth(slice(*rows), case.initial, True).log_likelihood for rows in ((0, 5), (5, 7)))
    np.testing.assert_allclose(drawn.log_likelihood, total, rtol=1e-12)
    for path, first, steps in zip(drawn.states[:50], drawn.first, drawn.transitions, strict=False):
        np.testing.assert_array_equal(first, counts(path, lengths, k)[0])
        np.testing.assert_array_equal(steps, counts(path, lengths, k)[1])


@pytest.mark.parametrize("kind", KINDS)
def test_draws_depend_neither_on_chunks_nor_on_the_backend(kind: str) -> None:
    lengths = [300, 1, 7, 92]
    case = make(kind, 4, sum(lengths), 31, forbid=True)
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(1), 3)
        drawn = [
            draw(backend, case, layout_of(lengths, chunk, backend), keys)
            for backend in case.backends()
            for chunk in (300, 16)
        ]
    for each in drawn[1:]:
        np.testing.assert_array_equal(each.states, drawn[0].states)
        np.testing.assert_array_equal(each.transitions, drawn[0].transitions)
        np.testing.assert_allclose(each.log_likelihood, drawn[0].log_likelihood, rtol=1e-12)


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


@pytest.mark.parametrize("name", [*hard(), "pair"])
def test_reducible_and_slow_chains_are_drawn_exactly(name: str) -> None:
    """Warm starts disagree here: transfer operators do it. One chunk has nothing to join."""
    case, keys = {**hard(), "pair": hard_pair()}[name], jax.random.split(jax.random.key(4), 2)
    with jax.enable_x64(True):
        whole = draw(reference, case, layout_of([1400], 1400, reference), keys)
        for backend in case.backends():
            found = draw(backend, case, layout_of([1400], 100, backend), keys)
            np.testing.assert_array_equal(found.states, whole.states)
            np.testing.assert_allclose(found.log_likelihood, whole.log_likelihood, rtol=1e-12, atol=1e-12)
    if name == "identity":
        assert all(len(np.unique(path)) == 1 for path in whole.states)
    if name == "beyond plain numbers":
        assert (whole.states == 2).all()


class Numbers(NamedTuple):
    """Rows as numbers with natural parameters."""

    given: Potentials

    def potentials(self) -> Potentials:
        return self.given


@pytest.mark.skipif(not native.supports(GAUSSIAN, 2, False, np.float64), reason="the C++ kernel was not built")
@pytest.mark.parametrize("kind", [GAUSSIAN, LINEAR, TABLE])
@pytest.mark.parametrize("k", [2, 5])
def test_backends_read_rows_alike(kind: int, k: int) -> None:
    """Single precision, some rows missing; best and drawn."""
    rng, n, width = np.random.default_rng(kind + k), 400, 1 if kind == TABLE else 2
    rows = rng.integers(4, size=(n, 1)) if kind == TABLE else 2 * rng.normal(size=(n, width))
    rows = np.where(rng.random((n, 1)) < 0.1, np.nan, rows).astype(np.float32)
    natural = 2.0 * rng.normal(size=(k, {GAUSSIAN: 1 + 2 + 3, LINEAR: 3, TABLE: 4}[kind]))
    if kind != TABLE:
        natural[:, 0] = 0.0
    sticky = 0.5 * np.eye(k) + 0.5 * rng.dirichlet(np.ones(k), k)
    with jax.enable_x64(True):
        given = (jnp.asarray(each) for each in (rows, natural, sticky, np.full(k, 1 / k)))
        case = Numbers(Potentials(*given, kind, width, natural.shape[1]))
        keys = jax.random.split(jax.random.key(1), 2)
        one, other = (draw(each, case, layout_of([250, 150], 64, each), keys) for each in (native, reference))
        np.testing.assert_array_equal(one.states, other.states)
        np.testing.assert_allclose(one.log_likelihood, other.log_likelihood, rtol=1e-12)
        assert len(np.unique(one.states)) > 1
        layout = Layout(*(np.array([each], np.int32) for each in (0, 0, n, 0, 1)), (0, n, 0))
        following = np.array([-1], np.int32)
        best = [
            find(each, case, layout, PathsWanted(False, states=n), following=following) for each in (native, reference)
        ]
    np.testing.assert_array_equal(best[0].states, best[1].states)
    assert len(np.unique(best[0].states)) > 1


def test_random_numbers_are_uniform_and_need_only_the_row() -> None:
    with jax.enable_x64(True):
        key = jax.random.key_data(jax.random.key(7))
        rows = jnp.arange(2**33 - 5000, 2**33 + 5000)
        found = np.asarray(row_uniforms(key, rows))
        np.testing.assert_array_equal(found[10:20], row_uniforms(key, rows[10:20]))
    assert found.min() >= 0 and found.max() < 1
    assert stats.chisquare(np.histogram(found, 20, (0, 1))[0]).pvalue > 1e-3
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 0.04
