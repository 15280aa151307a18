"""The fused kernel against plain recursions, one step at a time, on random inputs."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels.references import given_model, given_params, reference
from longhmm import Bernoulli, Categorical, Gamma, Gaussian, LogNormal, Poisson, StudentT, Tied
from longhmm.data.sequences import open_data
from longhmm.data.windows import Cells, gather
from longhmm.errors import ImpossibleObservationError
from longhmm.gradients import full_data
from longhmm.kernels import native
from longhmm.kernels.forms import form_of, lowering_of
from longhmm.kernels.fused_pass import fused_probabilities, fused_totals
from longhmm.kernels.fused_windows import given_statistics, place, placed_sums, statistics_of
from longhmm.kernels.rows import fused_rows
from longhmm.kernels.statistics import window_statistics
from longhmm.messages.markov import stationary, stationary_law
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate

pytestmark = pytest.mark.skipif(not native.available(), reason="the fused kernel was not built here")

EMISSIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "full": (
        Gaussian(dim=2),
        {
            "mean": [[-1.0, 0.5], [1.0, -0.5], [0.0, 2.0]],
            "covariance": [[[1, 0.3], [0.3, 0.5]], [[0.8, -0.2], [-0.2, 1]], [[1, 0], [0, 1]]],
        },
    ),
    "diagonal": (Gaussian(dim=3, covariance="diagonal"), {"mean": np.eye(3) * 2, "variance": np.ones((3, 3)) * 0.7}),
    "spherical": (Gaussian(dim=5, covariance="spherical"), {"mean": np.eye(5)[:3] * 2, "variance": [0.5, 1.0, 2.0]}),
    "lognormal": (LogNormal(), {"loc": [0.0, 1.0, 2.0], "scale": [0.4, 0.5, 0.3]}),
    "poisson": (Poisson(), {"rate": [1.0, 5.0, 12.0]}),
    "gamma": (Gamma(), {"concentration": [1.5, 4.0, 9.0], "rate": [2.0, 1.0, 1.5]}),
    "bernoulli": (Bernoulli(dim=3), {"probs": [[0.1, 0.5, 0.9], [0.8, 0.5, 0.2], [0.5, 0.9, 0.5]]}),
    "categorical": (Categorical(4), {"probs": [[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.4, 0.4]]}),
    "student": (StudentT(), {"df": [4.0, 6.0, 9.0], "loc": [-2.0, 0.0, 2.0], "scale": [0.7, 0.8, 0.9]}),
    "tied": (
        Tied(Gaussian(), levels=(0, 1, 1)),
        {"mean": [-1.0, 1.0], "sd": np.sqrt([0.8, 0.5])},
    ),
}
# One of each kind runs always; the others compile programs of their own and are left to the long run.
QUICK = ("full", "lognormal", "poisson", "categorical", "student")
FORMS = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in EMISSIONS]
ROWS = np.array([[0.9, 0.06, 0.04], [0.1, 0.8, 0.1], [0.05, 0.15, 0.8]])


def problem(name: str, length: int = 700, seed: int = 0) -> tuple[HMM, dict[str, np.ndarray], np.ndarray]:
    emission, own = EMISSIONS[name]
    model = HMM(3, emission)
    params = model.validate({"transition": ROWS, **own})
    return model, params, np.asarray(simulate(model, params, length, seed=seed)[1])


def with_gaps(y: np.ndarray) -> np.ndarray:
    gaps = np.array(y, np.float64)
    gaps[100:130] = np.nan
    gaps[::17] = np.nan
    return gaps


def close(found: Any, expected: Any, tolerance: float) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        scale = max(float(np.max(np.abs(other), initial=0.0)), 1e-3)
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=0, atol=tolerance * scale)


# Full passes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_states", [1, 3, 8, 64, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 5, 16, 23))])
def test_any_number_of_states_against_plain_recursions(n_states: int) -> None:
    rng = np.random.default_rng(n_states)
    transition = rng.dirichlet(np.ones(n_states), size=n_states)
    initial = rng.dirichlet(np.ones(n_states))
    logs = [2.0 * rng.normal(size=(length, n_states)) for length in (1, 2, 65, 150)]
    logs[2][10:20] = 0.0
    expected = reference(initial, transition, logs)
    model, params = given_model(n_states), given_params(initial, transition)
    totals = fused_totals(model, model.validate(params), open_data(logs))
    assert totals is not None
    assert totals.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-12)
    np.testing.assert_allclose(totals.transitions, expected.transitions, atol=1e-10)
    np.testing.assert_allclose(totals.first, expected.first, atol=1e-12)
    for causal, known in ((False, expected.gamma), (True, expected.filtered)):
        found = fused_probabilities(model, model.validate(params), open_data(logs), causal=causal)
        np.testing.assert_allclose(found, known, atol=1e-6)


@pytest.mark.parametrize("name", FORMS)
def test_statistics_of_every_form(name: str) -> None:
    model, params, y = problem(name)
    data = [y[:300], y[300:301], y[301:]] if name in ("full", "poisson") else with_gaps(y)
    sequences = open_data(data)
    found = full_data.full_statistics(model, params, sequences)
    with native.switched_off():
        expected = full_data.full_statistics(model, params, sequences)
    close(found, expected, 1e-6 if name in ("lognormal", "gamma") and y.dtype == np.float32 else 1e-11)


def test_every_form_is_used_as_meant() -> None:
    kinds = {name: form_of(HMM(3, emission)).kind for name, (emission, _) in EMISSIONS.items()}
    gaussians = ("full", "diagonal", "spherical", "lognormal", "tied")
    assert all(kinds[name] == native.GAUSSIAN for name in gaussians)
    assert all(kinds[name] == native.LINEAR for name in ("poisson", "gamma", "bernoulli"))
    assert kinds["categorical"] == native.TABLE and kinds["student"] == native.GIVEN


@pytest.mark.parametrize("name", FORMS[:3])
def test_means_far_from_zero_lose_no_digits(name: str) -> None:
    model, params, y = problem(name)
    far = {**params, "mean": params["mean"] + 1e6}
    sequences = open_data(y.astype(np.float64) + 1e6)
    with native.switched_off():
        expected = full_data.full_statistics(model, far, sequences)
    close(full_data.full_statistics(model, far, sequences), expected, 1e-8)


@pytest.mark.parametrize("name", [*FORMS[:3], "poisson", "categorical"])
def test_sufficient_statistics(name: str) -> None:
    model, params, y = problem(name)
    totals = fused_totals(model, params, open_data(y))
    assert totals is not None and totals.sums is not None
    emission = model.emission
    centre = np.full(emission.dim, 0.3) if isinstance(emission, Gaussian) else np.zeros(emission.dim)
    gamma = np.asarray(fused_probabilities(model, params, open_data(y), causal=False), np.float64)
    with jax.enable_x64(True):
        values = y.astype(np.float64) - centre
        known = gamma.T @ np.asarray(emission.sufficient_statistics(values if emission.vector_valued else values[:, 0]))
    found, counts = lowering_of(model).expected_statistics(params, totals.sums, centre)
    np.testing.assert_allclose(counts, gamma.sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found, known, rtol=1e-4, atol=1e-3)


def test_evidence_beyond_double_precision_is_done_again_on_logarithms() -> None:
    # A forbidden way back, and an observation that only it explains: linear numbers would be lost.
    rng = np.random.default_rng(3)
    logs = rng.normal(size=(400, 3))
    logs[150:156, 1] += 400.0
    logs[156:162, 2] += 900.0
    transition = np.array([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.1, 0.0, 0.9]])
    initial = np.full(3, 1 / 3)
    expected = reference(initial, transition, [logs])
    model, params = given_model(3), given_params(initial, transition)
    totals = fused_totals(model, model.validate(params), open_data([logs]))
    assert totals is not None
    assert totals.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-12)
    np.testing.assert_allclose(totals.transitions, expected.transitions, atol=1e-9)


def test_a_chain_that_never_forgets_is_left_to_the_reference() -> None:
    logs = np.zeros((40_000, 2))
    logs[-1] = [0.0, 3.0]
    model, params = given_model(2), given_params(np.array([0.5, 0.5]), np.eye(2))
    assert fused_totals(model, model.validate(params), open_data([logs])) is None


def test_an_impossible_row_is_named() -> None:
    model, params, y = problem("categorical")
    none = params["probs"].copy()
    none[:, 3], none[:, 0] = 0.0, none[:, 0] + none[:, 3]
    row = int(np.argmax(y[:, 0] == 3))
    with pytest.raises(ImpossibleObservationError, match=f"row {row} "):
        fused_totals(model, {**params, "probs": none}, open_data(y))


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    model, params, y = problem("full", length=60_000)
    found = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("LONGHMM_THREADS", threads)
        # The chunks follow the number of threads for short data only; these are long enough.
        found.append(fused_totals(model, params, open_data(y)))
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(found[0]), jax.tree.leaves(other), strict=True))


# Windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wide", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FORMS)
def test_windows_of_every_form(name: str, wide: bool) -> None:
    if wide and name not in ("full", "student"):
        pytest.skip("two kinds are enough in double precision")
    model, params, y = problem(name, length=260)
    lengths = [90, 5, 1, 164]
    values = with_gaps(y) if y.dtype.kind == "f" else y
    sequences = open_data(values, lengths=lengths)
    cells, buffer = Cells(sequences.offsets, 7), 4
    index = cells.locate(np.arange(cells.n_cells), buffer)
    batch = gather(sequences, index, cells.width(buffer))
    kind, tolerance = (np.float64, 1e-11) if wide else (np.float32, 2e-5)
    with jax.enable_x64(True):
        exact = {key: jnp.asarray(value, jnp.float64) for key, value in params.items()}
        expected = window_statistics(model, exact, batch, stationary(exact["transition"]))
    with jax.enable_x64(wide):
        arrays = {key: jnp.asarray(np.asarray(value, kind)) for key, value in params.items()}
        rows = fused_rows(model, sequences, jnp.asarray(values.astype(np.float32)))
        if wide:
            rows = None if rows is None else jnp.asarray(values)
        if name == "student" or rows is None:
            narrow = batch._replace(values=np.asarray(batch.values, kind))
            found = given_statistics(model, arrays, narrow, None, 7, buffer)
        else:
            sums = placed_sums(model, arrays, place(rows, index), None, 7, buffer, None)
            found = jax.vmap(lambda one: statistics_of(model, arrays, one))(sums)
            weights = np.random.default_rng(0).uniform(0.1, 9.0, cells.n_cells).astype(kind)
            total = placed_sums(model, arrays, place(rows, index), None, 7, buffer, jnp.asarray(weights))
            close(total.transitions, np.tensordot(weights, expected.transitions, 1), tolerance)
            close(total.first, np.tensordot(weights, expected.first, 1), tolerance)
            close(total.sums, np.tensordot(weights, sums.sums, 1), tolerance)
            close(total.log_likelihood, weights @ sums.log_likelihood, tolerance)
    close(found._replace(log_likelihood=0.0), expected._replace(log_likelihood=0.0), tolerance)
    if name not in ("lognormal", "poisson", "gamma"):  # there the kernel leaves out log h(y)
        close(found.log_likelihood, expected.log_likelihood, tolerance)


def test_chains_and_points_share_one_call() -> None:
    model, params, y = problem("full", length=300)
    sequences = open_data(y)
    cells = Cells(sequences.offsets, 9)
    rows = jnp.asarray(y, jnp.float32)
    arrays = {key: jnp.asarray(np.asarray(value, np.float32)) for key, value in params.items()}
    picked = np.array([[0, 5, 9], [1, 2, 33]])
    places = [place(rows, cells.locate(each, 3)) for each in picked]
    stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *[each._replace(rows=0) for each in places])
    shifts = jnp.array([0.0, 0.4])

    def at(shift: jax.Array, where: Any, weights: jax.Array) -> jax.Array:
        moved = {**arrays, "mean": arrays["mean"] + shift}
        return placed_sums(model, moved, where._replace(rows=rows), None, 9, 3, weights).transitions

    own = jnp.array([[1.0, 2.0, 0.5], [3.0, 0.25, 7.0]])
    for weights, axis in ((own[0], None), (own, 0)):  # shared by the chains, and of each chain
        each = jax.vmap(lambda where, one: jax.vmap(lambda shift: at(shift, where, one))(shifts), (0, axis))
        both = each(stacked, weights)
        for chain, point in itertools.product(range(2), range(2)):
            alone = at(shifts[point], places[chain], own[0 if axis is None else chain])
            np.testing.assert_allclose(both[chain, point], alone, atol=1e-6)


def test_a_window_that_is_done_again_keeps_its_weight() -> None:
    """Two states that hardly mix, and rows that jump from one to the other: the linear recursion underflows."""
    model = HMM(2, Gaussian())
    params = {
        "transition": np.array([[1.0 - 1e-30, 1e-30], [1e-30, 1.0 - 1e-30]]),
        "mean": np.array([0.0, 60.0]),
        "sd": np.ones(2),
        "initial": np.array([0.5, 0.5]),
    }
    y = np.random.default_rng(0).normal(size=(36, 1)).astype(np.float32)
    y[20:22] += 60.0
    sequences = open_data(y)
    cells = Cells(sequences.offsets, 9)
    index = cells.locate(np.arange(cells.n_cells), 3)
    with jax.enable_x64(True):
        exact = {key: jnp.asarray(value, jnp.float64) for key, value in params.items()}
        windows = gather(sequences, index, cells.width(3))
        expected = jax.tree.map(np.asarray, window_statistics(model, exact, windows, jnp.array([0.5, 0.5])))
    assert expected.log_likelihood.min() < -100
    arrays = {key: jnp.asarray(value, jnp.float32) for key, value in params.items()}
    weights = np.array([1.0, 4.0, 7.0, 2.0], np.float32)
    start = jnp.array([0.5, 0.5])
    found = placed_sums(model, arrays, place(jnp.asarray(y), index), start, 9, 3, jnp.asarray(weights))
    np.testing.assert_allclose(found.log_likelihood, weights @ expected.log_likelihood, rtol=1e-5)
    np.testing.assert_allclose(found.transitions, np.tensordot(weights, expected.transitions, 1), atol=1e-4)
    np.testing.assert_allclose(found.first, np.tensordot(weights, expected.first, 1), atol=1e-5)


def test_the_stationary_law_on_the_host() -> None:
    rng = np.random.default_rng(0)
    for n_states in (1, 2, 7, 20):
        matrix = rng.dirichlet(np.ones(n_states) * 0.3, size=n_states)
        law = stationary_law(matrix)
        np.testing.assert_allclose(law @ matrix, law, atol=1e-12)
        assert law.sum() == pytest.approx(1.0)
