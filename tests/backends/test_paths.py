"""Paths through chunks, by every backend: against the enumeration of all paths, and against one another."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from backends.path_cases import KINDS, counts, draw, find, hard, hard_pair, layout_of, make
from longhmm.backends import native, reference
from longhmm.backends.protocol import (
    GAUSSIAN,
    LINEAR,
    TABLE,
    PathsWanted,
    Potentials,
)
from longhmm.data.layout import Layout

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


# Whole paths inside a program ---------------------------------------------------------------------------------------


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
@pytest.mark.slow
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
