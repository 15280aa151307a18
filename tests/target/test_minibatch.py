"""Minibatches: the same windows from memory and from files, with the rows that they say."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longhmm.data.sequences import Sequences, open_data
from longhmm.target.minibatch import Minibatch, MinibatchSource
from longhmm.target.systematic import Windows

LENGTHS = [17, 1, 40, 2, 5]


def assert_same(drawn: Minibatch, read: Minibatch) -> None:
    for name in ("begin", "left", "core", "right", "opens"):
        np.testing.assert_array_equal(getattr(drawn.layout, name), getattr(read.layout, name), err_msg=name)
    left, right = drawn.rows, read.rows
    np.testing.assert_array_equal(left.observed, right.observed)
    observed = np.asarray(left.observed)
    np.testing.assert_array_equal(np.asarray(left.values)[observed], np.asarray(right.values)[observed])
    assert np.asarray(left.values).dtype == np.asarray(jnp.asarray(right.values)).dtype
    assert (left.states is None) == (right.states is None)
    if left.states is not None:
        np.testing.assert_array_equal(left.states, right.states)


def in_file(folder: Path, y: np.ndarray, **options) -> Sequences:
    np.save(folder / "y.npy", y)
    sequences = open_data(folder / "y.npy", lengths=LENGTHS, **options)
    assert not sequences.in_memory
    return sequences


@pytest.mark.parametrize("kind", ["float64", "float32", "int64", "uint8"])
@pytest.mark.parametrize("extras", [False, True])
def test_the_same_windows_from_memory_and_from_a_file(tmp_path: Path, kind: str, extras: bool) -> None:
    rng = np.random.default_rng(0)
    y = (rng.normal(size=(sum(LENGTHS), 2)) * 20 + 100).astype(kind)
    options = {}
    if kind.startswith("float"):
        y[rng.random(y.shape) < 0.2] = np.nan
    if extras:
        options = {"mask": rng.random(y.shape) < 0.2, "states": rng.integers(-1, 2, len(y))}
    windows = Windows(half_width=2, count=4)
    memory = MinibatchSource(open_data(y, lengths=LENGTHS, **options), windows, 3, 2.0)
    file = MinibatchSource(in_file(tmp_path, y, **options), windows, 3, 2.0)
    assert memory.on_device
    assert not file.on_device
    for seed in range(5):
        drawn, read = memory.draw(jax.random.key(seed)), file.draw(jax.random.key(seed))
        np.testing.assert_array_equal(drawn.weights, np.full(4, memory.partition.n_blocks / 4, np.float32))
        np.testing.assert_array_equal(drawn.weights, read.weights)
        assert_same(drawn, read)
        truth, layout = np.asarray(drawn.rows.observed).any(axis=2), jax.tree.map(np.asarray, drawn.layout)
        assert not truth[np.arange(truth.shape[1]) >= (layout.left + layout.core + layout.right)[:, None]].any()


def test_windows_hold_the_rows_they_say() -> None:
    """Row numbers as data: every window is a run of consecutive rows of one sequence, around its cell."""
    y = np.arange(sum(LENGTHS))
    source = MinibatchSource(open_data(y, lengths=LENGTHS), Windows(half_width=1, count=6), 2, 1.0)
    starts = np.concatenate([[0], np.cumsum(LENGTHS)])
    seen = np.zeros(len(y), int)
    for seed in range(60):
        batch = jax.tree.map(np.asarray, source.draw(jax.random.key(seed)))
        layout = batch.layout
        for n, length in enumerate(layout.left + layout.core + layout.right):
            rows = batch.rows.values[n, :length, 0]
            np.testing.assert_array_equal(rows, np.arange(rows[0], rows[0] + length))
            sequence = np.searchsorted(starts, rows[0], side="right") - 1
            assert rows[-1] < starts[sequence + 1]
            assert layout.opens[n] == (rows[0] == starts[sequence])
            seen[rows[layout.left[n] : layout.left[n] + layout.core[n]]] += 1
    assert seen.min() > 0
