"""Cells with unequal chances: weights exact in fractions, no cell twice, tables that do not grow with the data."""

import itertools
from fractions import Fraction

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longhmm.data.windows import Cells
from longhmm.target import arcs as module
from longhmm.target.arcs import Arcs, blocks_of, plan_arcs
from longhmm.target.schemes import Rotation, Windows


def cells_of(lengths: list[int], core_length: int) -> Cells:
    return Cells(np.concatenate([[0], np.cumsum(lengths)]), core_length)


def patterns(rotation: Rotation) -> list[list[int]]:
    """Some of the patterns of places that the scheme can draw, before rotation."""
    spare = rotation.n_cells - rotation.count * rotation.gap
    cuts = itertools.combinations_with_replacement(sorted({0, spare // 3, spare}), rotation.count - 1)
    return [[0] + [cut + rotation.gap * (i + 1) for i, cut in enumerate(each)] for each in cuts]


def expected_weights(cells: Cells, arcs: Arcs, places: list[int]) -> list[Fraction]:
    """Expected weight of every cell over all rotations of one pattern, in exact arithmetic."""
    total = [Fraction(0)] * cells.n_cells
    for offset in range(arcs.rotation.n_cells):
        turned = np.asarray(arcs.rotation.rotate(np.array(places), np.array(offset)))
        drawn, weights = arcs.find(np, turned)
        assert len(set(drawn.tolist())) == arcs.rotation.count, "no cell is drawn twice"
        block = np.searchsorted(arcs.edges, turned, side="right") - 1
        for cell, weight, size in zip(drawn.tolist(), weights, arcs.size[block].tolist(), strict=True):
            exact = Fraction(arcs.rotation.n_cells, arcs.rotation.count * size)
            assert np.float32(float(exact)) == weight
            total[cell] += exact / arcs.rotation.n_cells
    return total


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    core_length=st.integers(1, 3),
    count=st.integers(1, 4),
    most_blocks=st.sampled_from([2, 5, 1000]),
    uniform=st.sampled_from([0.01, 0.5, 1.0]),
    data=st.data(),
)
def test_the_expected_weight_of_every_cell_is_exactly_one(lengths, core_length, count, most_blocks, uniform, data):
    """Whatever the importance, the blocks and the gaps, by enumeration of all rotations of small circles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "INT32_LIMIT", 300)
        patch.setattr(module, "MOST_BLOCKS", most_blocks)
        cells = cells_of(lengths, core_length)
        n_blocks = blocks_of(cells).n_cells
        importance = data.draw(
            st.lists(st.sampled_from([0.0, 1e-9, 1.0, 7.0, 1e6]), min_size=n_blocks, max_size=n_blocks)
        )
        importance = np.array(importance) if any(importance) else np.ones(n_blocks)
        rotation = Rotation.plan(cells.n_cells, Windows(0, count), 1, 2.0)
        arcs = plan_arcs(cells, importance, uniform, rotation)
        assert arcs.rotation.count == rotation.count
        assert arcs.rotation.n_cells < 300
        for places in patterns(arcs.rotation)[:3]:
            assert expected_weights(cells, arcs, places) == [Fraction(1)] * cells.n_cells


def test_cells_that_matter_are_drawn_in_proportion():
    cells = cells_of([500, 500], 1)
    importance = np.ones(1000)
    importance[100:110] = 50.0
    arcs = plan_arcs(cells, importance, 0.2, Rotation(1000, 5, 1))
    share = 1 / 1000
    expected = 0.2 * share + 0.8 * importance / importance.sum()
    np.testing.assert_allclose(arcs.size / arcs.rotation.n_cells, expected, rtol=1e-4)
    # Drawn by the generator itself.
    draw = jax.jit(jax.vmap(arcs.to_device().rotation.draw))
    places = np.asarray(draw(jax.random.split(jax.random.key(0), 20_000)))
    drawn, weights = arcs.find(np, places)
    counted = np.bincount(drawn.ravel(), minlength=1000) / drawn.size
    np.testing.assert_allclose(counted[100:110].sum(), expected[100:110].sum(), rtol=0.02)
    np.testing.assert_allclose(weights, 1 / (5 * expected[drawn]), rtol=1e-4)


def test_weights_are_bounded_by_the_uniform_share():
    rng = np.random.default_rng(0)
    cells = cells_of([20_000], 2)
    for uniform in (0.1, 0.5, 1.0):
        arcs = plan_arcs(cells, rng.pareto(0.3, 10_000) + 1e-6, uniform, Rotation(10_000, 64, 3))
        usual = 10_000 / 64
        assert arcs.weight.max() <= usual / uniform * 1.001
        assert arcs.weight.min() >= 1.999  # no cell more often than every second time
    np.testing.assert_allclose(arcs.weight, usual, rtol=1e-5)  # all alike: the usual weights


def test_where_there_are_hardly_more_cells_than_windows_all_are_alike():
    arcs = plan_arcs(cells_of([30], 3), np.array([1e9, *np.ones(9)]), 0.5, Rotation(10, 9, 1))
    assert len(set(arcs.size.tolist())) == 1


def test_the_table_stays_small_and_blocks_keep_to_their_sequences():
    lengths = [40_000_000, 7, 999_999_999, 1]
    cells = cells_of(lengths, 21)
    blocks = blocks_of(cells)
    assert cells.n_cells > 40 * module.MOST_BLOCKS
    assert blocks.n_cells <= module.MOST_BLOCKS + len(lengths)
    arcs = plan_arcs(cells, np.ones(blocks.n_cells), 0.5, Rotation(cells.n_cells, 64, 10))
    assert arcs.narrow and arcs.edges.dtype == np.int32
    # The ends of the circle and of the sequences lie where they should.
    last, _ = arcs.find(np, np.array([0, arcs.rotation.n_cells - 1]))
    assert last.tolist() == [0, cells.n_cells - 1]
    starts = np.searchsorted(arcs.first, cells.cell_offsets[:-1])
    assert arcs.first[starts].tolist() == cells.cell_offsets[:-1].tolist()


def test_more_cells_than_32_bits_can_tell_apart_get_64_bit_places():
    cells = cells_of([2**29], 1)
    arcs = plan_arcs(cells, np.ones(blocks_of(cells).n_cells), 0.5, Rotation(cells.n_cells, 8, 1))
    assert not arcs.narrow and arcs.edges.dtype == np.int64
    with jax.enable_x64(True):
        places = np.asarray(arcs.rotation.draw(jax.random.key(0)))
    assert places.dtype == np.int64 and len(set(arcs.find(np, places)[0].tolist())) == 8
