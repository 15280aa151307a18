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
from longhmm.kernels.forms import form_of, packs
from longhmm.kernels.fused_windows import FusedSums, Placed, place, statistics_of
from longhmm.kernels.pallas_kernel import Config
from longhmm.kernels.pallas_windows import window_sums
from longhmm.kernels.rows import _numbers
from longhmm.kernels.statistics import Statistics, window_statistics

CORE, BUFFER = 6, 3
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
    _, y = lh.simulate(model, params, 40, seed=1)
    y = np.array(y)
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
        run = jax.jit(partial(window_statistics, model))
        return jax.tree.map(np.asarray, run(wide, windows, jnp.asarray(start)))


def by_kernel(
    model: lh.HMM, params: Mapping[str, Any], sequences: Sequences, start: np.ndarray, config: Config | None = None
) -> Statistics:
    narrow = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    cells = Cells(sequences.offsets, CORE)
    index = cells.locate(np.arange(cells.n_cells), BUFFER)
    block = sequences.read(0, sequences.length)
    with jax.enable_x64(True):
        rows = np.asarray(_numbers(model, block.values, block.observed), np.float32)
    how: dict[str, Any] = {"per_window": True, "config": config, "interpret": True}

    @jax.jit
    def run(placed: Placed, params: Mapping[str, jax.Array], start: jax.Array) -> Statistics:
        laws = (params["transition"], params["initial"], start)
        found = window_sums(form_of(model), placed, laws, packs(model, params), (BUFFER, CORE, BUFFER), **how)
        return jax.vmap(partial(statistics_of, model, params))(FusedSums(*found[:4]))

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


SPLIT, FUSED = Config(held=True, fused_counts=False, splits=4), Config(held=False, fused_counts=True)


@pytest.mark.parametrize(
    ("made", "missing", "config"),
    [
        (gaussian(1, 1), False, None),
        (gaussian(2, 2, kind="diagonal"), True, None),
        (gaussian(3, 3), True, SPLIT),
        (gaussian(8, 2), True, FUSED),
        (gaussian(17, 1), False, None),
        (counts(2), True, None),
        (categories(3), True, None),
    ],
    ids=["one state", "diagonal", "split", "fused", "many states", "poisson", "categories"],
)
def test_equals_the_reference(made: Any, missing: bool, config: Config | None) -> None:
    compare(*made, missing=missing, config=config)
