"""Every backend against the enumeration of all paths: constant and varying matrices, pairs, boundaries, ragged rows."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backends.oracle import enumerate_paths
from longhmm.backends import native, reference
from longhmm.backends.protocol import PAIR, PRECOMPUTED, Boundary, Potentials, Varying, Wanted
from longhmm.data.layout import Layout

LENGTH = 5


def _rows(rng: np.random.Generator, *shape: int) -> np.ndarray:
    found = rng.gamma(1.0, size=shape)
    return found / found.sum(axis=-1, keepdims=True)


def _backends(kind: int, k: int, varying: bool) -> list:
    return [each for each in (native, reference) if each.supports(kind, k, varying, np.dtype(np.float64))]


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("opens", [False, True])
@pytest.mark.parametrize("bounded", [False, True])
def test_chunk_equals_enumeration(k: int, varying: bool, pair: bool, opens: bool, bounded: bool) -> None:
    rng = np.random.default_rng(100 * k + 8 * varying + 4 * pair + 2 * opens + bounded)
    initial, start = _rows(rng, k), _rows(rng, k)
    matrices = _rows(rng, 3 if varying else 1, k, k)
    index = rng.integers(len(matrices), size=LENGTH)
    logs = rng.normal(scale=2.0, size=(LENGTH, k, k) if pair else (LENGTH, k))
    logs[3] = 0.0  # a missing row
    after = _rows(rng, k) if bounded else None
    before = _rows(rng, k) if bounded else start
    truth = enumerate_paths(initial if opens else before, matrices[index], logs, opens, after)
    kind = PAIR if pair else PRECOMPUTED
    with jax.enable_x64(True):
        ends = (None, None) if after is None else (jnp.log(before)[None], jnp.log(after)[None])
        boundary = Boundary(*ends, start=jnp.asarray(start))
        transition = Varying(jnp.asarray(matrices), jnp.asarray(index)) if varying else jnp.asarray(matrices[0])
        layout = Layout(*(np.array([v], np.int32) for v in (0, 0, LENGTH, 0, opens)), (0, LENGTH, 0))
        potentials = Potentials(jnp.asarray(logs), None, transition, jnp.asarray(initial), kind, k)
        backends = _backends(kind, k, varying)
        assert reference in backends
        for backend in backends:
            found = backend.statistics(potentials, layout, boundary, None, Wanted(gamma=LENGTH, messages=True))
            check = dict(rtol=1e-11, atol=1e-13)
            np.testing.assert_allclose(found.gamma, truth.pairs if pair else truth.gamma, **check)
            np.testing.assert_allclose(found.first, truth.first, **check)
            expected = truth.pairs.sum(axis=0)
            np.testing.assert_allclose(found.transitions, expected, **check)
            if varying:
                by_matrix = [truth.pairs[index == each].sum(axis=0) for each in range(len(matrices))]
                np.testing.assert_allclose(found.pairs, by_matrix, **check)
                by_row = replace(potentials, transition=Varying(jnp.asarray(matrices[index])))
                found = backend.statistics(by_row, layout, boundary, None, Wanted(gamma=LENGTH, messages=True))
                np.testing.assert_allclose(found.pairs, truth.pairs, **check)
            else:
                totals = expected.sum(axis=-1, keepdims=True)
                np.testing.assert_allclose(found.centred, expected - matrices[0] * totals, **check)
            if after is None:
                np.testing.assert_allclose(found.log_likelihood, truth.log_likelihood, rtol=1e-12)
            forward = np.exp(found.messages.forward_out[0] + found.messages.backward_in[0])
            np.testing.assert_allclose(forward / forward.sum(), truth.gamma[-1], **check)


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("varying", [False, True])
def test_cores_with_buffers_are_parts_of_the_whole(pair: bool, varying: bool) -> None:
    """Ragged windows with left and right buffers: what the core owns of the chunk's posterior."""
    rng, k, n = np.random.default_rng(7), 2, 12
    initial, start = _rows(rng, k), _rows(rng, k)
    matrices = _rows(rng, 4 if varying else 1, k, k)
    index = rng.integers(len(matrices), size=n)
    logs = rng.normal(size=(n, k, k) if pair else (n, k))
    spans = [(0, 1, 2, 3, True), (4, 3, 1, 2, False), (0, 0, 3, 1, True), (7, 3, 2, 0, False)]
    kind = PAIR if pair else PRECOMPUTED
    with jax.enable_x64(True):
        begin, left, core, right, opens = (np.array(each, np.int32) for each in zip(*spans, strict=True))
        layout = Layout(begin + left, left, core, right, opens, (3, 3, 3))
        transition = Varying(jnp.asarray(matrices), jnp.asarray(index)) if varying else jnp.asarray(matrices[0])
        weights = np.array([2.0, 3.0, 5.0, 7.0])
        potentials = Potentials(jnp.asarray(logs), None, transition, jnp.asarray(initial), kind, k)
        given = (layout, Boundary(start=jnp.asarray(start)), jnp.asarray(weights))
        for backend in _backends(kind, k, varying):
            results = [backend.statistics(potentials, *given, Wanted(per_chunk=each)) for each in (True, False)]
            for w, (first, lead, size, tail, at_start) in enumerate(spans):
                rows = slice(first, first + lead + size + tail)
                truth = enumerate_paths(
                    initial if at_start else start, matrices[index][rows], logs[rows], bool(at_start)
                )
                pairs = truth.pairs[lead : lead + size]
                expected = pairs.sum(axis=0)
                np.testing.assert_allclose(
                    results[0].transitions[w], expected, rtol=1e-11, atol=1e-13, err_msg=f"{backend.name} {w}"
                )
            for name in ("transitions", "log_likelihood", "first"):
                by_chunk = np.asarray(getattr(results[0], name))
                total = np.tensordot(weights, by_chunk, axes=1)
                np.testing.assert_allclose(getattr(results[1], name), total, rtol=1e-12, atol=1e-13)


def test_an_impossible_row_is_named() -> None:
    logs = np.zeros((6, 2))
    logs[4] = -np.inf
    with jax.enable_x64(True):
        layout = Layout(*(np.array([v], np.int32) for v in (0, 0, 6, 0, 1)), (0, 6, 0))
        for backend in _backends(PRECOMPUTED, 2, False):
            given = Potentials(jnp.asarray(logs), None, jnp.full((2, 2), 0.5), jnp.full(2, 0.5), PRECOMPUTED, 2)
            found = backend.statistics(given, layout, Boundary(), None, Wanted())
            assert int(found.impossible) == 4
