"""Blocks on a circle: exact inclusion probabilities by enumeration, gaps, uniform draws, and equal draws everywhere."""

from __future__ import annotations

import itertools
from fractions import Fraction

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from longhmm.data.layout import Partition
from longhmm.errors import ModelError
from longhmm.inference.markov import mixing_time
from longhmm.target import systematic as module
from longhmm.target.systematic import SystematicSampling, UnequalSampling, Windows, _below, groups_of, plan_unequal

# Weights ------------------------------------------------------------------------------------------------------------


def gap_patterns(scheme: SystematicSampling) -> list[list[int]]:
    """Places of the cells before scheme for every pattern of gaps that the scheme can draw, as sorted cuts."""
    spare = scheme.population - scheme.count * scheme.spacing
    cuts = itertools.combinations_with_replacement(range(spare + 1), scheme.count - 1)
    return [[0] + [cut + scheme.spacing * (i + 1) for i, cut in enumerate(each)] for each in cuts]


def average_weights(
    lengths: list[int], core_length: int, scheme: SystematicSampling, places: list[int]
) -> list[Fraction]:
    """Expected weight of every time over all rotations of one pattern, in exact arithmetic."""
    cells = Partition(np.concatenate([[0], np.cumsum(lengths)]), core_length)
    covered = np.zeros(sum(lengths), int)
    for offset in range(scheme.population):
        drawn = np.asarray(scheme.shift(np.array(places), np.array(offset)))
        assert len(set(drawn.tolist())) == scheme.count
        index = cells.locate(drawn, 3)
        for begin, size in zip(index.begin, index.core, strict=True):
            covered[begin : begin + size] += 1
    weight = Fraction(scheme.population, scheme.count)
    assert float(weight) == scheme.weight
    return [weight * Fraction(int(times), scheme.population) for times in covered]


@pytest.mark.parametrize("lengths", [[1], [5], [7, 1, 4], [1, 1, 1, 1], [2, 9, 3], [13]])
@pytest.mark.parametrize("half_width", [0, 1, 2])
def test_expected_weight_of_every_time_is_one(lengths: list[int], half_width: int) -> None:
    windows_of = {count: Windows(half_width, count) for count in (1, 2, 3, 50)}
    n_blocks = Partition(np.concatenate([[0], np.cumsum(lengths)]), 2 * half_width + 1).n_blocks
    for windows, buffer, mixing in itertools.product(windows_of.values(), (0, 2), (1.0, 4.5)):
        scheme = SystematicSampling.plan(n_blocks, windows, buffer, mixing)
        for places in gap_patterns(scheme)[::7] or [[0]]:
            weights = average_weights(lengths, windows.core_length, scheme, places)
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
    """Whatever the gaps: any distinct places will do, the scheme alone makes the weights right."""
    n_blocks = Partition(np.concatenate([[0], np.cumsum(lengths)]), 2 * half_width + 1).n_blocks
    count = min(count, n_blocks)
    places = data.draw(st.lists(st.integers(0, n_blocks - 1), min_size=count, max_size=count, unique=True))
    weights = average_weights(lengths, 2 * half_width + 1, SystematicSampling(n_blocks, count, gap), places)
    assert weights == [Fraction(1)] * sum(lengths)


# Draws --------------------------------------------------------------------------------------------------------------


def draws(scheme: SystematicSampling, number: int, seed: int = 0) -> np.ndarray:
    return np.asarray(jax.jit(jax.vmap(scheme.draw))(jax.random.split(jax.random.key(seed), number)))


@pytest.mark.parametrize(
    "scheme",
    [
        SystematicSampling(23, 4, 3),
        SystematicSampling(24, 4, 6),
        SystematicSampling(9, 9, 1),
        SystematicSampling(5, 1, 5),
        SystematicSampling(101, 7, 1),
    ],
)
def test_draws_are_distinct_apart_and_uniform(scheme: SystematicSampling) -> None:
    number = 200_000
    cells = draws(scheme, number)
    assert cells.shape == (number, scheme.count)
    assert cells.min() >= 0
    assert cells.max() < scheme.population
    ordered = np.sort(cells, axis=1)
    around = np.concatenate([ordered, ordered[:, :1] + scheme.population], axis=1)
    assert np.diff(around, axis=1).min() >= scheme.spacing  # gap >= 1: distinct
    if scheme.count == scheme.population:
        assert (ordered == np.arange(scheme.population)).all()
        return
    # Each of the S cells of a draw is uniform; taken one at a time they are independent over draws.
    for column in {0, scheme.count - 1}:
        counted = np.bincount(cells[:, column], minlength=scheme.population)
        assert stats.chisquare(counted).pvalue > 1e-3


def test_every_gap_pattern_is_reached() -> None:
    """The spare cells are spread in every possible way: for 10 cells, 3 at least 2 apart, 15 patterns of gaps."""
    scheme = SystematicSampling(10, 3, 2)
    cells = draws(scheme, 20_000)
    gaps = np.diff(np.concatenate([cells, cells[:, :1]], axis=1), axis=1) % scheme.population
    assert (gaps.sum(axis=1) == scheme.population).all()
    assert len(np.unique(gaps, axis=0)) == len(gap_patterns(scheme)) == 15


def test_no_overflow_near_the_largest_number_of_cells() -> None:
    scheme = SystematicSampling(2**31 - 2, 5, 400_000_000)
    cells = draws(scheme, 2000).astype(np.int64)
    assert cells.min() >= 0
    assert cells.max() < scheme.population
    ordered = np.sort(cells, axis=1)
    assert np.diff(np.concatenate([ordered, ordered[:, :1] + scheme.population], axis=1)).min() >= scheme.spacing
    assert stats.kstest(cells[:, 0] / scheme.population, "uniform").pvalue > 1e-3


def test_a_limit_known_only_at_run_time_draws_the_same_numbers() -> None:
    """Remainders by one division for all are those of `jax.random.randint`, which divides for each."""
    rng = np.random.default_rng(5)
    some = [*rng.integers(1, 5000, 10), *rng.integers(1, 2**31 - 1, 10)]
    ours = jax.jit(_below, static_argnums=1)
    theirs = jax.jit(lambda key, shape, limit: jax.random.randint(key, shape, 0, limit), static_argnums=1)
    for limit in map(int, [1, 2, 3, 2**16 - 1, 2**16, 2**16 + 1, 2**30, 2**31 - 2, 2**31 - 1, *some]):
        key = jax.random.key(limit)
        np.testing.assert_array_equal(ours(key, (2000,), limit), theirs(key, (2000,), limit))


def test_draws_do_not_depend_on_the_precision_in_force() -> None:
    scheme = SystematicSampling(1000, 5, 20)
    key = jax.random.key(3)
    with jax.enable_x64(True):
        wide = np.asarray(jax.jit(scheme.draw)(key))
    np.testing.assert_array_equal(wide, np.asarray(jax.jit(scheme.draw)(key)))


# Plans --------------------------------------------------------------------------------------------------------------


def test_plan_keeps_whole_windows_a_mixing_time_apart() -> None:
    windows = Windows(half_width=2, count=10)
    # ceil((2 (L + B) + nu) / C) = ceil((2 * (2 + 6) + 33.2) / 5) = ceil(9.84)
    assert SystematicSampling.plan(100_000, windows, 6, 33.2) == SystematicSampling(100_000, 10, 10, False)
    # Partition a and a + gap: from the end of one window to the start of the next there are at least nu steps.
    for half_width, buffer, mixing in itertools.product((0, 2, 5), (0, 1, 7), (1.0, 8.3, 50.0)):
        gap = SystematicSampling.plan(10**6, Windows(half_width, 3), buffer, mixing).spacing
        core = 2 * half_width + 1
        assert (
            gap * core - (core + 2 * buffer) + 1 >= mixing
        )  # steps from the last time of one to the first of the other
        assert (gap - 1) * core - (core + 2 * buffer) + 1 < mixing or gap == 1


def test_a_gap_without_room_is_shrunk_and_says_so() -> None:
    windows = Windows(half_width=2, count=10)
    assert SystematicSampling.plan(50, windows, 6, 33.2) == SystematicSampling(50, 10, 5, True)
    assert SystematicSampling.plan(7, windows, 0, 1e6) == SystematicSampling(
        7, 7, 1, True
    )  # more windows than cells: take each cell once
    assert SystematicSampling.plan(1, windows, 0, 1.0) == SystematicSampling(1, 1, 1, False)
    assert SystematicSampling.plan(7, windows, 0, 1e6).weight == 1.0


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


# Unequal probabilities -----------------------------------------------------------------------------------------------


def cells_of(lengths: list[int], core_length: int) -> Partition:
    return Partition(np.concatenate([[0], np.cumsum(lengths)]), core_length)


def patterns(scheme: SystematicSampling) -> list[list[int]]:
    """Some of the patterns of places that the scheme can draw, before scheme."""
    spare = scheme.population - scheme.count * scheme.spacing
    cuts = itertools.combinations_with_replacement(sorted({0, spare // 3, spare}), scheme.count - 1)
    return [[0] + [cut + scheme.spacing * (i + 1) for i, cut in enumerate(each)] for each in cuts]


def expected_weights(cells: Partition, unequal: UnequalSampling, places: list[int]) -> list[Fraction]:
    """Expected weight of every cell over all rotations of one pattern, in exact arithmetic."""
    total = [Fraction(0)] * cells.n_blocks
    for offset in range(unequal.scheme.population):
        turned = np.asarray(unequal.scheme.shift(np.array(places), np.array(offset)))
        drawn, weights = unequal.find(np, turned)
        assert len(set(drawn.tolist())) == unequal.scheme.count, "no cell is drawn twice"
        block = np.searchsorted(unequal.edges, turned, side="right") - 1
        for cell, weight, size in zip(drawn.tolist(), weights, unequal.size[block].tolist(), strict=True):
            exact = Fraction(unequal.scheme.population, unequal.scheme.count * size)
            assert np.float32(float(exact)) == weight
            total[cell] += exact / unequal.scheme.population
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
        patch.setattr(module, "MOST_GROUPS", most_blocks)
        cells = cells_of(lengths, core_length)
        n_blocks = groups_of(cells).n_blocks
        importance = data.draw(
            st.lists(st.sampled_from([0.0, 1e-9, 1.0, 7.0, 1e6]), min_size=n_blocks, max_size=n_blocks)
        )
        importance = np.array(importance) if any(importance) else np.ones(n_blocks)
        scheme = SystematicSampling.plan(cells.n_blocks, Windows(0, count), 1, 2.0)
        unequal = plan_unequal(cells, importance, uniform, scheme)
        assert unequal.scheme.count == scheme.count
        assert unequal.scheme.population < 300
        for places in patterns(unequal.scheme)[:3]:
            assert expected_weights(cells, unequal, places) == [Fraction(1)] * cells.n_blocks


def test_cells_that_matter_are_drawn_in_proportion():
    cells = cells_of([500, 500], 1)
    importance = np.ones(1000)
    importance[100:110] = 50.0
    unequal = plan_unequal(cells, importance, 0.2, SystematicSampling(1000, 5, 1))
    share = 1 / 1000
    expected = 0.2 * share + 0.8 * importance / importance.sum()
    np.testing.assert_allclose(unequal.size / unequal.scheme.population, expected, rtol=1e-4)
    # Drawn by the generator itself.
    draw = jax.jit(jax.vmap(unequal.scheme.draw))
    places = np.asarray(draw(jax.random.split(jax.random.key(0), 20_000)))
    drawn, weights = unequal.find(np, places)
    counted = np.bincount(drawn.ravel(), minlength=1000) / drawn.size
    np.testing.assert_allclose(counted[100:110].sum(), expected[100:110].sum(), rtol=0.02)
    np.testing.assert_allclose(weights, 1 / (5 * expected[drawn]), rtol=1e-4)


def test_weights_are_bounded_by_the_uniform_share():
    rng = np.random.default_rng(0)
    cells = cells_of([20_000], 2)
    for uniform in (0.1, 0.5, 1.0):
        unequal = plan_unequal(cells, rng.pareto(0.3, 10_000) + 1e-6, uniform, SystematicSampling(10_000, 64, 3))
        usual = 10_000 / 64
        assert unequal.weight.max() <= usual / uniform * 1.001
        assert unequal.weight.min() >= 1.999  # no cell more often than every second time
    np.testing.assert_allclose(unequal.weight, usual, rtol=1e-5)  # all alike: the usual weights


def test_where_there_are_hardly_more_cells_than_windows_all_are_alike():
    unequal = plan_unequal(cells_of([30], 3), np.array([1e9, *np.ones(9)]), 0.5, SystematicSampling(10, 9, 1))
    assert len(set(unequal.size.tolist())) == 1


def test_the_table_stays_small_and_blocks_keep_to_their_sequences():
    lengths = [40_000_000, 7, 999_999_999, 1]
    cells = cells_of(lengths, 21)
    blocks = groups_of(cells)
    assert cells.n_blocks > 40 * module.MOST_GROUPS
    assert blocks.n_blocks <= module.MOST_GROUPS + len(lengths)
    unequal = plan_unequal(cells, np.ones(blocks.n_blocks), 0.5, SystematicSampling(cells.n_blocks, 64, 10))
    assert unequal.scheme.narrow and unequal.edges.dtype == np.int32
    # The ends of the circle and of the sequences lie where they should.
    last, _ = unequal.find(np, np.array([0, unequal.scheme.population - 1]))
    assert last.tolist() == [0, cells.n_blocks - 1]
    starts = np.searchsorted(unequal.first, cells.block_offsets[:-1])
    assert unequal.first[starts].tolist() == cells.block_offsets[:-1].tolist()


def test_more_cells_than_32_bits_can_tell_apart_get_64_bit_places():
    cells = cells_of([2**29], 1)
    unequal = plan_unequal(cells, np.ones(groups_of(cells).n_blocks), 0.5, SystematicSampling(cells.n_blocks, 8, 1))
    assert not unequal.scheme.narrow and unequal.edges.dtype == np.int64
    with jax.enable_x64(True):
        places = np.asarray(unequal.scheme.draw(jax.random.key(0)))
    assert places.dtype == np.int64 and len(set(unequal.find(np, places)[0].tolist())) == 8
