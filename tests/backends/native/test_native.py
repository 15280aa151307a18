"""The C++ kernel against the reference backend and plain recursions: every kind of rows, whatever is asked of it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from backends.native.problems import LENGTHS, close, comparable, windows
from backends.references import reference as plain
from longhmm.backends import native, reference
from longhmm.backends.protocol import GAUSSIAN, PRECOMPUTED, Boundary, ChunkStatistics, Potentials, Wanted
from longhmm.data.layout import Layout, Partition
from model.configurations import named, observations

pytestmark = pytest.mark.skipif(not native.available(), reason="the C++ kernel was not built here")

# One of each kind runs always; the others compile programs of their own and are left to the long run.
QUICK = ("gaussian-full-2d", "poisson", "categorical", "precomputed")
SLOW = ("gaussian-1d", "gaussian-full-6d", "gaussian-diagonal", "gamma-2d", "bernoulli-3d", "log-normal", "tied")
KINDS = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


class Problem:
    """Rows of one kind with parameters, in double precision, and chunks in them."""

    def __init__(self, rows: np.ndarray, natural: np.ndarray | None, kind: int, sums: int, n_states: int) -> None:
        rng = np.random.default_rng(n_states)
        self.rows, self.natural, self.kind, self.sums, self.n_states = rows, natural, kind, sums, n_states
        self.transition = 0.5 * np.eye(n_states) + 0.5 * rng.dirichlet(np.ones(n_states), size=n_states)
        self.initial, self.start = rng.dirichlet(np.ones(n_states), size=2)

    def run(
        self, backend: Any, layout: Layout, wanted: Wanted, precision: Any = np.float64, rows: Any = None, **given: Any
    ) -> ChunkStatistics:
        """What a backend finds, on the host."""
        with jax.enable_x64(True):
            rows = self.rows.astype(precision) if rows is None else rows
            natural = None if self.natural is None else jnp.asarray(self.natural, precision)
            transition, initial, start = (
                jnp.asarray(each, precision) for each in (self.transition, self.initial, self.start)
            )
            kind = (self.kind, self.rows.shape[1], self.sums)
            potentials = Potentials(jnp.asarray(rows), natural, transition, initial, *kind)
            given = jax.tree.map(lambda each: jnp.asarray(each, precision), given)
            boundary = given.get("boundary", Boundary())._replace(start=start)
            return jax.tree.map(np.asarray, _run(backend, wanted, potentials, layout, boundary, given.get("weights")))


@partial(jax.jit, static_argnums=(0, 1))
def _run(backend: Any, wanted: Wanted, potentials: Potentials, layout: Any, boundary: Any, weights: Any) -> Any:
    return backend.statistics(potentials, layout, boundary, weights, wanted)


@cache
def problem(name: str) -> Problem:
    length = sum(LENGTHS)
    if name == "precomputed":
        rng = np.random.default_rng(0)
        rows = 2.0 * rng.normal(size=(length, 3))
        rows[40:45, 1] = -np.inf
        rows[::17] = np.nan
        return Problem(rows, None, PRECOMPUTED, 0, 3)
    configuration = named(name)
    lowering = configuration.emission.lowering
    y = observations(configuration, length)[1]
    y[60:70] = y[::17] = np.nan
    with jax.enable_x64(True):
        natural = np.asarray(lowering.natural({key: jnp.asarray(each) for key, each in configuration.params.items()}))
    # Numbers that single precision holds, so that both precisions see the same rows.
    rows = np.asarray(lowering.rows(y, ~np.isnan(y))).astype(np.float32).astype(np.float64)
    return Problem(rows, natural, lowering.kind, lowering.sums, configuration.n_states)


@pytest.mark.parametrize("precision", [np.float64, np.float32])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_equals_the_reference(name: str, precision: Any) -> None:
    """Of each window; summed with weights; and with all that can be asked for beside sums."""
    given, layout, tolerance = problem(name), windows(), 1e-11 if precision == np.float64 else 2e-5
    weights = np.random.default_rng(1).uniform(0.1, 9.0, layout.size)
    each = given.run(reference, layout, Wanted(per_chunk=True))
    close(given.run(native, layout, Wanted(per_chunk=True), precision)[:5], each[:5], tolerance)
    total = jax.tree.map(lambda part: np.tensordot(weights, part, 1), each[:5])
    close(given.run(native, layout, Wanted(), precision, weights=weights)[:5], total, tolerance)
    for forward_only in (False, True):
        wanted = Wanted(forward_only=forward_only, gamma=len(given.rows), messages=True)
        found, expected = (
            given.run(*how) for how in ((native, layout, wanted, precision), (reference, layout, wanted))
        )
        close(found.log_likelihood, expected.log_likelihood, tolerance)
        np.testing.assert_allclose(found.gamma, expected.gamma, atol=tolerance)
        close(*(comparable(one.messages, layout, forward_only) for one in (found, expected)), tolerance)


@pytest.mark.parametrize("forward_only", [False, True])
def test_chunks_begin_and_end_with_given_messages(forward_only: bool) -> None:
    given, layout = problem("gaussian-full-2d"), windows(buffer=0)
    rng = np.random.default_rng(2)
    ends = [np.log(rng.dirichlet(np.ones(given.n_states), size=layout.size)) for _ in range(2)]
    boundary = Boundary(ends[0], None if forward_only else ends[1] - 3.0)
    wanted = Wanted(per_chunk=True, forward_only=forward_only, gamma=len(given.rows), messages=True)
    found, expected = (given.run(each, layout, wanted, boundary=boundary) for each in (native, reference))
    close(found.gamma, expected.gamma, 1e-11)
    close(*(comparable(one.messages, layout, forward_only) for one in (found, expected)), 1e-11)
    close(found.log_likelihood, expected.log_likelihood, 1e-11)
    if not forward_only:
        close(found[:5], expected[:5], 1e-11)


def test_rows_may_be_borrowed() -> None:
    given, layout = problem("gaussian-full-2d"), windows()
    for precision in (np.float32, np.float64):
        rows = np.ascontiguousarray(given.rows.astype(precision))
        found = given.run(native, layout, Wanted(), rows=native.borrowed(rows))
        expected = given.run(native, layout, Wanted(), rows=rows)
        assert all(np.array_equal(one, other) for one, other in zip(found[:5], expected[:5], strict=True))


def test_means_far_from_zero_lose_no_digits() -> None:
    near, layout = problem("gaussian-full-2d"), windows()
    natural = near.natural.copy()
    natural[:, 1:3] += 2.0**20
    far = Problem(near.rows + 2.0**20, natural, GAUSSIAN, near.sums, near.n_states)
    close(far.run(native, layout, Wanted())[:5], near.run(native, layout, Wanted())[:5], 1e-8)


# Against NumPy ------------------------------------------------------------------------------------------------------


def of_sequences(n_states: int, logs: list[np.ndarray], transition: Any, initial: Any) -> tuple[Problem, Layout]:
    """Every sequence is one chunk."""
    given = Problem(np.concatenate(logs), None, PRECOMPUTED, 0, n_states)
    given.transition, given.initial = np.asarray(transition), np.asarray(initial)
    lengths = [len(each) for each in logs]
    begin, nothing = np.cumsum([0, *lengths[:-1]]), np.zeros(len(logs), np.int32)
    return given, Layout(begin, nothing, np.array(lengths), nothing, nothing + 1, (0, max(lengths), 0)).padded(
        len(logs)
    )


def check_against_plain(given: Problem, layout: Layout, logs: list[np.ndarray]) -> None:
    expected = plain(given.initial, given.transition, logs)
    for forward_only, probabilities in ((False, expected.gamma), (True, expected.filtered)):
        found = given.run(native, layout, Wanted(forward_only=forward_only, gamma=len(given.rows)))
        assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-12)
        np.testing.assert_allclose(found.gamma, probabilities, atol=1e-11)
    found = given.run(native, layout, Wanted())
    np.testing.assert_allclose(found.transitions, expected.transitions, atol=1e-9)
    np.testing.assert_allclose(found.first, expected.first, atol=1e-11)


@pytest.mark.parametrize("n_states", [1, 2, 3, 4, 5, 8, 16, 23, 64])
def test_any_number_of_states(n_states: int) -> None:
    rng = np.random.default_rng(n_states)
    transition, initial = rng.dirichlet(np.ones(n_states), size=n_states), rng.dirichlet(np.ones(n_states))
    logs = [2.0 * rng.normal(size=(length, n_states)) for length in (1, 2, 65, 150)]
    logs[2][10:20] = 0.0
    check_against_plain(*of_sequences(n_states, logs, transition, initial), logs)


def test_evidence_beyond_double_precision_is_done_again_in_log_space() -> None:
    # A forbidden way back, and an observation that only it explains: linear numbers would be lost.
    logs = np.random.default_rng(3).normal(size=(400, 3))
    logs[150:156, 1] += 400.0
    logs[156:162, 2] += 900.0
    transition = [[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.1, 0.0, 0.9]]
    check_against_plain(*of_sequences(3, [logs], transition, np.full(3, 1 / 3)), [logs])


@pytest.mark.parametrize("smallest", [0.0, 1e-300, 1e-40])
def test_the_only_way_on_is_not_lost(smallest: float) -> None:
    """A thousand nats speak for one state, then more for the other: filtering alone must hold both."""
    logs = np.zeros((300, 2))
    logs[:100, 0], logs[100:, 1] = 10.0, 10.0
    transition = [[1.0 - smallest, smallest], [smallest, 1.0 - smallest]]
    check_against_plain(*of_sequences(2, [logs], transition, [0.5, 0.5]), [logs])


def test_a_hard_transition_from_a_faint_state_is_not_taken_for_a_forbidden_one() -> None:
    """Neither underflows by itself, their product does, and the rest of the rows speak for it."""
    logs = np.zeros((101, 3))
    logs[1:, 1] = 20.0
    transition = [[1.0, 1e-60, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    given, layout = of_sequences(3, [logs], transition, [1e-270, 0.0, 1.0])
    check_against_plain(given, layout, [logs])
    assert plain(given.initial, given.transition, [logs]).gamma[-1, 1] == pytest.approx(1.0)


def test_a_window_that_is_done_again_keeps_its_weight() -> None:
    """Two states that hardly mix, and rows that jump from one to the other: single precision underflows."""
    y = np.random.default_rng(0).normal(size=(36, 1)).astype(np.float32)
    y[20:22] += 60.0
    constant = -0.5 * np.log(2 * np.pi)
    given = Problem(y.astype(np.float64), np.array([[constant, 0.0, 1.0], [constant, 60.0, 1.0]]), GAUSSIAN, 3, 2)
    given.transition = np.array([[1.0 - 1e-30, 1e-30], [1e-30, 1.0 - 1e-30]])
    given.initial = given.start = np.array([0.5, 0.5])
    cells = Partition(np.array([0, 36]), 9)
    layout = replace(cells.locate(np.arange(4), 3), spans=(3, 9, 3)).padded(4)
    each, weights = given.run(reference, layout, Wanted(per_chunk=True)), np.array([1.0, 4.0, 7.0, 2.0])
    assert each.log_likelihood.min() < -100
    found = given.run(native, layout, Wanted(), np.float32, weights=weights)
    close(found[:5], jax.tree.map(lambda part: np.tensordot(weights, part, 1), each[:5]), 1e-5)


# Many at once -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 150])  # one batch of windows for each point, and several
def test_chains_and_points_share_one_call(count: int) -> None:
    given, layout, rng = problem("gaussian-full-2d"), windows(spare=0), np.random.default_rng(count)
    rows, natural = (jnp.asarray(each, jnp.float32) for each in (given.rows, given.natural))
    laws = [jnp.asarray(each, jnp.float32) for each in (given.transition, given.initial, given.start)]
    picked, shifts = rng.integers(layout.size, size=(2, count)), jnp.array([0.0, 0.4])
    places = [jax.tree.map(lambda each: jnp.asarray(each[own]), layout) for own in picked]  # noqa: B023
    stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *places)

    def at(shift: jax.Array, where: Layout, weights: jax.Array) -> jax.Array:
        potentials = Potentials(rows, natural.at[:, 1:3].add(shift), *laws[:2], given.kind, 2, given.sums)
        return native.statistics(potentials, where, Boundary(start=laws[2]), weights, Wanted()).transitions

    own = jnp.asarray(rng.uniform(0.2, 7.0, (2, count)), jnp.float32)
    for weights, axis in ((own[0], None), (own, 0)):  # shared by the chains, and of each chain
        each = jax.vmap(lambda where, one: jax.vmap(lambda shift: at(shift, where, one))(shifts), (0, axis))
        both = each(stacked, weights)
        for chain, point in product(range(2), range(2)):
            alone = at(shifts[point], places[chain], own[0 if axis is None else chain])
            close(both[chain, point], alone, 1e-6)


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem("gaussian-full-2d")
    long = Problem(np.tile(given.rows, (40, 1)), given.natural, GAUSSIAN, given.sums, given.n_states)
    cells = Partition(np.array([0, len(long.rows)]), 64)
    layout = cells.locate(np.arange(cells.n_blocks), 16).padded(cells.n_blocks)
    found = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("LONGHMM_THREADS", threads)
        _run.clear_cache()
        found.append(long.run(native, layout, Wanted(gamma=len(long.rows))))
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(found[0]), jax.tree.leaves(other), strict=True))


def test_a_category_that_does_not_exist_is_impossible_and_never_read() -> None:
    """Data in memory may be changed by their owner after they were checked."""
    model = lh.HMM(2, lh.Categorical(3))
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "probs": [[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]}
    values = np.zeros(3000, np.float64)
    data = lh.open_data(values)
    assert np.isfinite(lh.log_likelihood(model, params, data))
    values[1234] = 4000.0
    with pytest.warns(RuntimeWarning, match="row 1234"):
        assert lh.log_likelihood(model, params, data) == -np.inf
