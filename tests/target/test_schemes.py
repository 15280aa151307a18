"""Cells on a circle: exact inclusion probabilities by enumeration, gaps, uniform draws, and equal draws everywhere."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from longhmm.data.sequences import Sequences, open_data
from longhmm.data.windows import Cells
from longhmm.errors import ModelError
from longhmm.inference.markov import mixing_time
from longhmm.target.minibatch import Minibatch, MinibatchSource
from longhmm.target.schemes import Rotation, Windows

# Weights ------------------------------------------------------------------------------------------------------------


def gap_patterns(rotation: Rotation) -> list[list[int]]:
    """Places of the cells before rotation for every pattern of gaps that the scheme can draw, as sorted cuts."""
    spare = rotation.n_cells - rotation.count * rotation.gap
    cuts = itertools.combinations_with_replacement(range(spare + 1), rotation.count - 1)
    return [[0] + [cut + rotation.gap * (i + 1) for i, cut in enumerate(each)] for each in cuts]


def average_weights(lengths: list[int], core_length: int, rotation: Rotation, places: list[int]) -> list[Fraction]:
    """Expected weight of every time over all rotations of one pattern, in exact arithmetic."""
    cells = Cells(np.concatenate([[0], np.cumsum(lengths)]), core_length)
    covered = np.zeros(sum(lengths), int)
    for offset in range(rotation.n_cells):
        drawn = np.asarray(rotation.rotate(np.array(places), np.array(offset)))
        assert len(set(drawn.tolist())) == rotation.count
        index = cells.locate(drawn, 3)
        for begin, size in zip(index.begin, index.core, strict=True):
            covered[begin : begin + size] += 1
    weight = Fraction(rotation.n_cells, rotation.count)
    assert float(weight) == rotation.weight
    return [weight * Fraction(int(times), rotation.n_cells) for times in covered]


@pytest.mark.parametrize("lengths", [[1], [5], [7, 1, 4], [1, 1, 1, 1], [2, 9, 3], [13]])
@pytest.mark.parametrize("half_width", [0, 1, 2])
def test_expected_weight_of_every_time_is_one(lengths: list[int], half_width: int) -> None:
    windows_of = {count: Windows(half_width, count) for count in (1, 2, 3, 50)}
    n_cells = Cells(np.concatenate([[0], np.cumsum(lengths)]), 2 * half_width + 1).n_cells
    for windows, buffer, mixing in itertools.product(windows_of.values(), (0, 2), (1.0, 4.5)):
        rotation = Rotation.plan(n_cells, windows, buffer, mixing)
        for places in gap_patterns(rotation)[::7] or [[0]]:
            weights = average_weights(lengths, windows.core_length, rotation, places)
            assert weights == [Fraction(1)] * sum(lengths)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    half_width=st.integers(0, 3),
    count=st.integers(1, 6),
    gap=st.integers(1, 4),
    data=st.data(),
)
def test_expected_weight_is_one_for_any_pattern(lengths, half_width, count, gap, data) -> None:
    """Whatever the gaps: any distinct places will do, the rotation alone makes the weights right."""
    n_cells = Cells(np.concatenate([[0], np.cumsum(lengths)]), 2 * half_width + 1).n_cells
    count = min(count, n_cells)
    places = data.draw(st.lists(st.integers(0, n_cells - 1), min_size=count, max_size=count, unique=True))
    weights = average_weights(lengths, 2 * half_width + 1, Rotation(n_cells, count, gap), places)
    assert weights == [Fraction(1)] * sum(lengths)


# Draws --------------------------------------------------------------------------------------------------------------


def draws(rotation: Rotation, number: int, seed: int = 0) -> np.ndarray:
    return np.asarray(jax.jit(jax.vmap(rotation.draw))(jax.random.split(jax.random.key(seed), number)))


@pytest.mark.parametrize(
    "rotation", [Rotation(23, 4, 3), Rotation(24, 4, 6), Rotation(9, 9, 1), Rotation(5, 1, 5), Rotation(101, 7, 1)]
)
def test_draws_are_distinct_apart_and_uniform(rotation: Rotation) -> None:
    number = 200_000
    cells = draws(rotation, number)
    assert cells.shape == (number, rotation.count)
    assert cells.min() >= 0
    assert cells.max() < rotation.n_cells
    ordered = np.sort(cells, axis=1)
    around = np.concatenate([ordered, ordered[:, :1] + rotation.n_cells], axis=1)
    assert np.diff(around, axis=1).min() >= rotation.gap  # gap >= 1: distinct
    if rotation.count == rotation.n_cells:
        assert (ordered == np.arange(rotation.n_cells)).all()
        return
    # Each of the S cells of a draw is uniform; taken one at a time they are independent over draws.
    for column in {0, rotation.count - 1}:
        counted = np.bincount(cells[:, column], minlength=rotation.n_cells)
        assert stats.chisquare(counted).pvalue > 1e-3


def test_every_gap_pattern_is_reached() -> None:
    """The spare cells are spread in every possible way: for 10 cells, 3 at least 2 apart, 15 patterns of gaps."""
    rotation = Rotation(10, 3, 2)
    cells = draws(rotation, 20_000)
    gaps = np.diff(np.concatenate([cells, cells[:, :1]], axis=1), axis=1) % rotation.n_cells
    assert (gaps.sum(axis=1) == rotation.n_cells).all()
    assert len(np.unique(gaps, axis=0)) == len(gap_patterns(rotation)) == 15


def test_no_overflow_near_the_largest_number_of_cells() -> None:
    rotation = Rotation(2**31 - 2, 5, 400_000_000)
    cells = draws(rotation, 2000).astype(np.int64)
    assert cells.min() >= 0
    assert cells.max() < rotation.n_cells
    ordered = np.sort(cells, axis=1)
    assert np.diff(np.concatenate([ordered, ordered[:, :1] + rotation.n_cells], axis=1)).min() >= rotation.gap
    assert stats.kstest(cells[:, 0] / rotation.n_cells, "uniform").pvalue > 1e-3


def test_draws_do_not_depend_on_the_precision_in_force() -> None:
    rotation = Rotation(1000, 5, 20)
    key = jax.random.key(3)
    with jax.enable_x64(True):
        wide = np.asarray(jax.jit(rotation.draw)(key))
    np.testing.assert_array_equal(wide, np.asarray(jax.jit(rotation.draw)(key)))


# Plans --------------------------------------------------------------------------------------------------------------


def test_plan_keeps_whole_windows_a_mixing_time_apart() -> None:
    windows = Windows(half_width=2, count=10)
    # ceil((2 (L + B) + nu) / C) = ceil((2 * (2 + 6) + 33.2) / 5) = ceil(9.84)
    assert Rotation.plan(100_000, windows, 6, 33.2) == Rotation(100_000, 10, 10, False)
    # Cells a and a + gap: from the end of one window to the start of the next there are at least nu steps.
    for half_width, buffer, mixing in itertools.product((0, 2, 5), (0, 1, 7), (1.0, 8.3, 50.0)):
        gap = Rotation.plan(10**6, Windows(half_width, 3), buffer, mixing).gap
        core = 2 * half_width + 1
        assert (
            gap * core - (core + 2 * buffer) + 1 >= mixing
        )  # steps from the last time of one to the first of the other
        assert (gap - 1) * core - (core + 2 * buffer) + 1 < mixing or gap == 1


def test_a_gap_without_room_is_shrunk_and_says_so() -> None:
    windows = Windows(half_width=2, count=10)
    assert Rotation.plan(50, windows, 6, 33.2) == Rotation(50, 10, 5, True)
    assert Rotation.plan(7, windows, 0, 1e6) == Rotation(7, 7, 1, True)  # more windows than cells: take each cell once
    assert Rotation.plan(1, windows, 0, 1.0) == Rotation(1, 1, 1, False)
    assert Rotation.plan(7, windows, 0, 1e6).weight == 1.0


def test_mixing_time_uses_the_modulus() -> None:
    """Reversed cycles: two cycles joined by bridges have complex eigenvalues; real parts would promise 8 steps."""
    printed = np.array(
        [
            [0.01, 0, 0.85, 0, 0, 0, 0, 1],
            [0.99, 0.01, 0, 0, 0, 0, 0, 0],
            [0, 0.99, 0, 0, 0, 0, 0, 0],
            [0, 0, 0.15, 0, 0, 0, 0, 0],
            [0, 0, 0, 1, 0.01, 0, 0.85, 0],
            [0, 0, 0, 0, 0.99, 0.01, 0, 0],
            [0, 0, 0, 0, 0, 0.99, 0, 0],
            [0, 0, 0, 0, 0, 0, 0.15, 0],
        ]
    )
    transition = printed.T
    np.testing.assert_allclose(transition.sum(axis=1), 1.0)
    assert mixing_time(transition) == pytest.approx(33.0, abs=0.5)
    real = np.sort(np.linalg.eigvals(transition).real)[-2]
    assert 1 / (1 - real) == pytest.approx(8.0, abs=0.5)
    # The law of the state does come to rest at that rate: the distance shrinks by e in about 33 steps.
    rest = np.linalg.matrix_power(transition, 100_000)
    away, later = (np.linalg.norm(np.linalg.matrix_power(transition, steps) - rest) for steps in (150, 450))
    rate = np.log(away / later) / 300
    assert -1 / np.expm1(-rate) == pytest.approx(33.0, rel=0.05)


def test_mixing_time_of_chains_that_never_mix_is_capped() -> None:
    assert mixing_time(np.eye(2)) == mixing_time(np.array([[0.0, 1.0], [1.0, 0.0]])) == 1e6
    assert mixing_time(np.ones((1, 1))) == 1.0
    assert mixing_time(np.array([[0.999, 0.001], [0.001, 0.999]])) == pytest.approx(500.0)


@pytest.mark.parametrize("wrong", [{"half_width": -1}, {"count": 0}, {"count": 2.5}, {"count": True}])
def test_windows_refuse_nonsense(wrong: dict) -> None:
    with pytest.raises(ModelError, match=next(iter(wrong))):
        Windows(**wrong)


# In memory and out of core ------------------------------------------------------------------------------------------

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
        np.testing.assert_array_equal(drawn.weights, np.full(4, memory.cells.n_cells / 4, np.float32))
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
