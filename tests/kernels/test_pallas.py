"""The fused GPU kernel, run without a GPU, against the float64 reference on the same windows."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from longhmm.data.sequences import Sequences, open_data
from longhmm.data.windows import Cells, gather
from longhmm.gradients.full_data import full_statistics
from longhmm.kernels import gpu_pass, native, pallas_windows
from longhmm.kernels.forms import form_of, packs
from longhmm.kernels.fused_windows import FusedSums, Placed, given_statistics, place, placed_sums, statistics_of
from longhmm.kernels.pallas_plan import Config
from longhmm.kernels.pallas_windows import window_sums
from longhmm.kernels.resident import ResidentPosterior
from longhmm.kernels.rows import host_numbers
from longhmm.kernels.statistics import Statistics, window_statistics

CORE, BUFFER = 6, 3
QUICK = {"xla_backend_optimization_level": 0}  # these programs run once: compiling them is all that takes time
# Float32 recursions over a dozen rows, and sums of at most that many terms.
TOLERANCE = {"rtol": 2e-4, "atol": 2e-4}


def matrix(n: int, rng: np.random.Generator) -> np.ndarray:
    return 0.6 * np.eye(n) + 0.4 * rng.dirichlet(np.ones(n), size=n)


def gaussian(n: int, dim: int, *, kind: str = "full") -> tuple[lh.HMM, dict[str, Any]]:
    rng = np.random.default_rng(n + dim)
    shape = rng.normal(size=(n, dim, dim)) * 0.4 + np.eye(dim)
    spread = (
        {"covariance": shape @ shape.swapaxes(1, 2)} if kind == "full" else {"variance": rng.uniform(1, 2, (n, dim))}
    )
    params = {"transition": matrix(n, rng), "mean": rng.normal(size=(n, dim)) * 2 + 40, **spread}
    return lh.HMM(n, lh.Gaussian(dim=dim, covariance=kind)), params


def counts(n: int) -> tuple[lh.HMM, dict[str, Any]]:
    rng = np.random.default_rng(n)
    return lh.HMM(n, lh.Poisson()), {"transition": matrix(n, rng), "rate": rng.uniform(1, 9, n)}


def categories(n: int) -> tuple[lh.HMM, dict[str, Any]]:
    rng = np.random.default_rng(n)
    probs = rng.dirichlet(np.ones(5), size=n)
    probs[0] = [0.5, 0.5, 0.0, 0.0, 0.0]  # impossible in that state, not everywhere
    return lh.HMM(n, lh.Categorical(5)), {"transition": matrix(n, rng), "probs": probs}


def data(model: lh.HMM, params: Mapping[str, Any], *, missing: bool) -> Sequences:
    """Three sequences, of which one is shorter than a core and one ends with a short core."""
    rng = np.random.default_rng(0)
    states = rng.integers(model.n_states, size=40)
    if "mean" in params:
        y = params["mean"][states] + rng.normal(size=(40, model.dim))
    elif "rate" in params:
        y = rng.poisson(params["rate"][states])
    else:
        y = rng.integers(5, size=40)
    mask = np.zeros(40, bool)
    if missing:
        mask[[0, 5, 6, 7, 21, 39]] = True
    pieces = [slice(0, 18), slice(18, 21), slice(21, 40)]
    given = {"mask": [mask[piece] for piece in pieces]} if missing else {}
    return open_data([y[piece] for piece in pieces], **given)


def reference(model: lh.HMM, params: Mapping[str, Any], sequences: Sequences, start: np.ndarray) -> Statistics:
    cells = Cells(sequences.offsets, CORE)
    windows = gather(sequences, cells.locate(np.arange(cells.n_cells), BUFFER), cells.width(BUFFER))
    with jax.enable_x64(True):
        wide = {name: jnp.asarray(value, jnp.float64) for name, value in params.items()}
        run = jax.jit(partial(window_statistics, model), compiler_options=QUICK)
        return jax.tree.map(np.asarray, run(wide, windows, jnp.asarray(start)))


def by_kernel(
    model: lh.HMM, params: Mapping[str, Any], sequences: Sequences, start: np.ndarray, config: Config | None = None
) -> Statistics:
    narrow = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    cells = Cells(sequences.offsets, CORE)
    index = cells.locate(np.arange(cells.n_cells), BUFFER)
    block = sequences.read(0, sequences.length)
    with jax.enable_x64(True):
        rows = host_numbers(model, block.values, block.observed)
    how: dict[str, Any] = {"weights": None, "config": config, "interpret": True}

    @partial(jax.jit, compiler_options=QUICK)
    def run(placed: Placed, params: Mapping[str, jax.Array], start: jax.Array) -> Statistics:
        laws = (params["transition"], params["initial"], start)
        found = window_sums(form_of(model), placed, laws, packs(model, params), (BUFFER, CORE, BUFFER), **how)
        return jax.vmap(partial(statistics_of, model, params))(FusedSums(*found[:5]))

    return jax.tree.map(np.asarray, run(place(rows, index), narrow, jnp.asarray(start, jnp.float32)))


def compare(model: lh.HMM, params: dict[str, Any], *, missing: bool, config: Config | None = None) -> None:
    complete = model.validate(params)
    sequences = data(model, complete, missing=missing)
    start = np.full(model.n_states, 1 / model.n_states)
    expected = reference(model, complete, sequences, start)
    found = by_kernel(model, complete, sequences, start, config)
    constant = base_measure(model, sequences)
    np.testing.assert_allclose(found.log_likelihood + constant, expected.log_likelihood, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.first, expected.first, atol=1e-5)
    np.testing.assert_allclose(found.transitions, expected.transitions, **TOLERANCE)
    for name, slope in expected.emission.items():
        np.testing.assert_allclose(found.emission[name], slope, err_msg=name, **TOLERANCE)


def base_measure(model: lh.HMM, sequences: Sequences) -> np.ndarray:
    """`log h(y)` of every core, which the kernel leaves out."""
    cells = Cells(sequences.offsets, CORE)
    windows = gather(sequences, cells.locate(np.arange(cells.n_cells), 0), CORE)
    logs = model.emission.log_base_measure(jnp.where(windows.observed, windows.values, 1)[..., 0])
    if not isinstance(model.emission, lh.Poisson):
        return np.zeros(cells.n_cells)
    return np.asarray(jnp.sum(jnp.where(windows.observed[..., 0], logs, 0.0), axis=1))


SPLIT, LOOPED = Config(splits=4, tile=2), Config(held=False, splits=4, tile=2)


@pytest.mark.parametrize(
    ("made", "missing", "config"),
    [
        (gaussian(1, 1), False, None),
        (gaussian(2, 2, kind="diagonal"), True, None),
        (gaussian(3, 3), True, SPLIT),
        (gaussian(4, 2), True, None),
        pytest.param(gaussian(8, 2), True, None, marks=pytest.mark.slow),
        pytest.param(gaussian(17, 1), False, None, marks=pytest.mark.slow),
        (counts(3), True, LOOPED),
        (categories(3), True, None),
    ],
    ids=["one state", "diagonal", "split", "four states", "eight states", "many states", "poisson", "categories"],
)
def test_equals_the_reference(made: Any, missing: bool, config: Config | None) -> None:
    compare(*made, missing=missing, config=config)


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything believes that there is a GPU; the kernel itself knows better, and is interpreted."""
    monkeypatch.setattr(native, "usable", lambda: False)
    monkeypatch.setattr(pallas_windows, "usable", lambda: True)


def test_chains_share_a_call_and_lost_windows_are_redone(on_a_gpu: None) -> None:
    """A jump of probability 1e-30 there and back: single precision cannot hold the messages of that window."""
    model = lh.HMM(2, lh.Gaussian(), initial="stationary")
    leave = 1e-30
    complete = model.validate(
        {
            "transition": np.array([[1 - leave, leave], [leave, 1 - leave]]),
            "mean": np.array([0.0, 8.0]),
            "sd": np.ones(2),
        }
    )
    y = np.random.default_rng(0).normal(size=(36, 1)).astype(np.float32)
    y[20:22] += 60.0
    sequences = open_data(y)
    expected = reference(model, complete, sequences, np.array([0.5, 0.5]))
    assert expected.log_likelihood.min() < -100
    narrow = {name: jnp.asarray(value, jnp.float32) for name, value in complete.items()}
    cells = Cells(sequences.offsets, CORE)
    chains = np.array([[0, 1, 4], [3, 2, 3]])
    weights = np.array([[1.0, 2.0, 0.5], [3.0, 0.25, 7.0]], np.float32)
    index = cells.locate(chains.ravel(), BUFFER)
    index = type(index)(*(np.reshape(each, chains.shape) for each in index))

    @partial(jax.jit, compiler_options=QUICK)
    def run(params: Mapping[str, jax.Array], rows: jax.Array) -> Any:
        one = lambda own, by: placed_sums(model, params, place(rows, own), None, CORE, BUFFER, by)  # noqa: E731
        return jax.vmap(one)(index, weights)

    found = run(narrow, jnp.asarray(y))
    for chain, own in enumerate(chains):
        by = weights[chain]
        np.testing.assert_allclose(found.log_likelihood[chain], by @ expected.log_likelihood[own], rtol=1e-5)
        np.testing.assert_allclose(found.first[chain], by @ expected.first[own], atol=1e-5)
        expected_moves = np.tensordot(by, expected.transitions[own], 1)
        np.testing.assert_allclose(found.transitions[chain], expected_moves, **TOLERANCE)


def test_common_transitions_leave_no_rounding_for_those_that_are_never_seen() -> None:
    """Counts of a hundred thousand cancel in the excess of a transition that is expected a tenth of a time."""
    model = lh.HMM(4, lh.Poisson())
    rows = np.array([[0.99 - 6e-7, 0.01, 3e-7, 3e-7], [0.01, 0.99 - 6e-7, 3e-7, 3e-7], [0.25] * 4, [0.25] * 4])
    rate = np.array([2.0, 30.0, 200.0, 900.0])
    params = {name: np.float32(value).astype(np.float64) for name, value in model.validate(
        {"transition": rows, "rate": rate}
    ).items()}  # fmt: skip
    y = np.random.default_rng(1).poisson(rate[np.repeat([0, 1, 0], [14, 15, 11])])
    sequences, weight = open_data(y), 1e4
    start = np.array([0.5, 0.5, 0.0, 0.0])
    exact = weight * reference(model, params, sequences, start).transitions.sum(0)
    wide = params["transition"] / params["transition"].sum(1, keepdims=True)
    expected = exact - wide * exact.sum(1, keepdims=True)
    cells = Cells(sequences.offsets, CORE)
    placed = place(jnp.asarray(y[:, None], jnp.float32), cells.locate(np.arange(cells.n_cells), BUFFER))
    narrow = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    laws = (narrow["transition"], narrow["initial"], jnp.asarray(start, jnp.float32))
    weights = jnp.full(cells.n_cells, weight, jnp.float32)
    run = jax.jit(
        lambda: window_sums(form_of(model), placed, laws, packs(model, narrow), (BUFFER, CORE, BUFFER), weights)
    )
    found = run()[3]
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found[:2, 2:], expected[:2, 2:], rtol=1e-4)
    np.testing.assert_allclose(found.sum(1), 0.0, atol=1e-3)
    assert np.abs(expected[:2, 2:]).max() < 0.1 and exact.max() > 1e5


def test_statistics_of_windows_are_summed_in_double_precision() -> None:
    """In a program in single precision: what comes out is the exact sum, rounded once."""
    rng = np.random.default_rng(2)
    weights = rng.uniform(1e3, 1e4, size=300).astype(np.float32)
    parts = Statistics(*(rng.normal(size=(300, *shape)).astype(np.float32) for shape in ((3,), (3, 3))), {}, weights)
    found = jax.jit(lambda one: one.total(jnp.asarray(weights)))(parts)
    exact = np.tensordot(weights.astype(np.float64), parts.transitions.astype(np.float64), 1)
    assert found.transitions.dtype == np.float32
    np.testing.assert_array_equal(found.transitions, exact.astype(np.float32))
    chains = jax.vmap(jax.jit(lambda by: parts.total(by)))(np.stack([weights, 2 * weights]))
    np.testing.assert_array_equal(chains.transitions[1], (2 * exact).astype(np.float32))


def test_log_likelihoods_may_be_handed_over(on_a_gpu: None) -> None:
    rng = np.random.default_rng(3)
    model = lh.HMM(2, lh.StudentT())
    found_at = {"transition": matrix(2, rng), "df": np.array([4.0, 9.0]), "loc": np.array([0.0, 3.0])}
    complete = model.validate({**found_at, "scale": np.ones(2)})
    sequences = open_data([rng.standard_t(4, size=18), rng.standard_t(4, size=3)])
    start = np.array([0.3, 0.7])
    expected = reference(model, complete, sequences, start)
    cells = Cells(sequences.offsets, CORE)
    windows = gather(sequences, cells.locate(np.arange(cells.n_cells), BUFFER), cells.width(BUFFER))
    narrow = {name: jnp.asarray(value, jnp.float32) for name, value in complete.items()}
    windows = windows._replace(values=windows.values.astype(np.float32))

    @partial(jax.jit, compiler_options=QUICK)
    def run(params: Mapping[str, jax.Array], windows: Any, start: jax.Array) -> Statistics:
        return given_statistics(model, params, windows, start, CORE, BUFFER)

    found = run(narrow, windows, jnp.asarray(start, jnp.float32))
    jax.tree.map(partial(np.testing.assert_allclose, **TOLERANCE), found, expected)


def test_a_full_pass_equals_the_streamed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = lh.HMM(2, lh.Gaussian())
    apart = {"mean": np.array([40.0, 42.0]), "sd": np.sqrt([1.0, 2.0])}
    complete = model.validate({**apart, "transition": np.array([[0.8, 0.2], [0.3, 0.7]])})
    rng = np.random.default_rng(5)
    y = complete["mean"][rng.integers(2, size=900)] + rng.normal(size=(900, 1))
    y[[3, 500]] = np.nan
    sequences = open_data([y[:640], y[640:641], y[641:]])
    with native.switched_off():
        expected = full_statistics(model, complete, sequences)
        monkeypatch.setattr(pallas_windows, "usable", lambda: True)
        # Several blocks, whose joints must agree as well.
        monkeypatch.setattr(gpu_pass, "LEAST_CHUNK", 16)
        monkeypatch.setattr(gpu_pass, "BLOCK_ENTRIES", 1)
        rows: list[int] = []
        found = full_statistics(model, complete, sequences, rows.append)
    (laid,) = gpu_pass._laid[sequences].values()
    assert [block.joined.shape for block in laid.blocks] == [(32,), (32,)]
    assert rows == [900]  # one report for all rows: it was the GPU's pass that answered
    np.testing.assert_allclose(found.log_likelihood, expected.log_likelihood, rtol=1e-6)
    np.testing.assert_allclose(found.first, expected.first, atol=1e-5)
    np.testing.assert_allclose(found.transitions, expected.transitions, rtol=1e-6, atol=1e-3)
    for name, slope in expected.emission.items():
        np.testing.assert_allclose(found.emission[name], slope, rtol=1e-4, atol=1e-3, err_msg=name)
    # States that hardly ever change and hardly differ: no reach proves anything, and nothing is given out.
    alike = {"mean": np.array([40.0, 40.01]), "sd": np.ones(2)}
    slow = model.validate({**alike, "transition": np.array([[0.9999, 1e-4], [1e-4, 0.9999]])})
    monkeypatch.setattr(gpu_pass, "REACHES", (32,))
    assert gpu_pass.gpu_totals(model, slow, sequences) is None


@pytest.mark.slow
def test_the_posterior_in_one_program_uses_the_kernel(on_a_gpu: None) -> None:
    model = lh.HMM(2, lh.Poisson())
    params = model.validate({"transition": np.array([[0.8, 0.2], [0.3, 0.7]]), "rate": np.array([2.0, 9.0])})
    sequences = open_data(np.random.default_rng(1).poisson(4.0, size=300))
    model = model.resolve(sequences)
    posterior = ResidentPosterior(model, sequences, np.float32)
    assert posterior.program.plan is not None
    u = lh.unconstrain(model, params)
    exact = ResidentPosterior(model, sequences, np.float64)
    assert exact.program.plan is None
    expected_value, expected = exact.value_and_gradient(u)
    value, gradient = posterior.value_and_gradient(u)
    np.testing.assert_allclose(value, expected_value, rtol=1e-6)
    for name, slope in expected.items():
        np.testing.assert_allclose(gradient[name], slope, rtol=1e-4, atol=1e-3, err_msg=name)
    # It is the kernel that answers: without its rows it cannot.
    block, base = posterior.inputs.fused
    blank = (block._replace(rows=jnp.full_like(block.rows, jnp.nan)), base)
    without = ResidentPosterior.tree_unflatten(posterior.program, (posterior.inputs._replace(fused=blank),))
    assert abs(float(without.value_and_gradient(u)[0]) - float(expected_value)) > 100
