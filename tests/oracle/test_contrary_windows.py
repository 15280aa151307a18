"""Windows of chains that cannot go back, with evidence that turns inside them: every backend, both precisions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from backends.contrary import TRANSITIONS, TURNS, Chain, cases, contrary, random_structure, random_turns
from backends.references import given_model, given_params
from backends.references import reference as plain
from longhmm.backends import evaluate, native, reference
from longhmm.backends.evaluate import Statistics
from longhmm.backends.pallas import full, windows
from longhmm.backends.pallas.plan import Config
from longhmm.data.layout import Layout, Partition, gather
from longhmm.data.rows import Rows
from longhmm.data.sequences import open_data

CORE, BUFFER = 40, 90
MODELS = {n_states: given_model(n_states) for n_states in (2, 3, 4)}
TURNING = ("there and back", "hidden turn", "steep")
CASES = cases(TURNING)
NARROW = {"rtol": 2e-5, "atol": 5e-3}  # log likelihoods of hundreds of nats have four decimals in single precision
WIDE = {"rtol": 1e-11, "atol": 1e-8}


def at_precision(chain: Chain, kind: Any) -> Chain:
    """The chain as the kernels are given it."""
    initial, transition, logs = (np.asarray(each.astype(kind), np.float64) for each in chain)
    return Chain(initial, transition / transition.sum(1, keepdims=True), logs)


def expected_statistics(chain: Chain, start: np.ndarray) -> Statistics:
    """Every window by the recursion on logarithms, with the state before it as a row that nothing was seen of."""
    length, n_states = chain.logs.shape
    parts = []
    for begin in range(0, length, CORE):
        stop = min(begin + CORE, length)
        first, last = max(0, begin - BUFFER), min(length, stop + BUFFER)
        opens = first == 0
        rows = chain.logs[first:last] if opens else np.concatenate([np.zeros((1, n_states)), chain.logs[first:last]])
        shift = first - (not opens)  # the row that comes first
        run = partial(plain, chain.initial if opens else start, chain.transition)
        smoothed = run([rows])
        likelihood = run([rows[: stop - shift]]).log_likelihood
        if begin > shift:
            likelihood -= run([rows[: begin - shift]]).log_likelihood
        gamma = smoothed.gamma[begin - shift : stop - shift]
        moves = smoothed.xi[max(begin - shift - 1, 0) : stop - shift - 1].sum(0)
        opening = gamma[0] if begin == 0 else np.zeros(n_states)
        centred = moves - chain.transition * moves.sum(1, keepdims=True)
        parts.append(Statistics(np.float64(likelihood), opening, moves, centred, {"shift": gamma.sum(0)}))
    return jax.tree.map(lambda *each: np.stack(each), *parts)


@partial(jax.jit, static_argnums=(0, 1))
def run_windows(model: lh.HMM, backend: Any, params: Any, rows: Rows, layout: Layout, start: jax.Array) -> Statistics:
    with patch.object(evaluate, "choose", lambda *_: backend):
        return evaluate.window_statistics(model, params, rows, None, layout, start)


def check_windows(chain: Chain, kind: Any, backend: Any) -> None:
    expected, found = windows_of(chain, kind, backend)
    compare(found, expected, WIDE if kind is np.float64 else NARROW)


def windows_of(chain: Chain, kind: Any, backend: Any) -> tuple[Statistics, Statistics]:
    """Expected and found."""
    chain = at_precision(chain, kind)
    n_states = len(chain.initial)
    start = np.asarray(np.full(n_states, 1 / n_states, kind), np.float64)
    expected = expected_statistics(chain, start)
    sequences = open_data([chain.logs])
    cells = Partition(sequences.offsets, CORE)
    rows, layout = gather(sequences, cells.locate(np.arange(cells.n_blocks), BUFFER), cells.width(BUFFER))
    rows, layout = rows._replace(values=rows.values.astype(kind)), replace(layout, spans=(BUFFER, CORE, BUFFER))
    with jax.enable_x64(kind is np.float64):
        params = {
            part: jnp.asarray(value, kind) for part, value in given_params(chain.initial, chain.transition).items()
        }
        found = run_windows(MODELS[n_states], backend, params, rows, layout, jnp.asarray(start, kind))
    return expected, found


def compare(found: Statistics, expected: Statistics, tolerance: dict[str, float]) -> None:
    for field in ("log_likelihood", "first", "transitions", "centred"):
        one, other = np.asarray(getattr(found, field)), getattr(expected, field)
        np.testing.assert_allclose(one, other, err_msg=field, **tolerance)
    for part, slope in expected.natural.items():
        np.testing.assert_allclose(np.asarray(found.natural[part]), slope, err_msg=part, **tolerance)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("backend", [native, reference], ids=lambda each: each.name)
@pytest.mark.parametrize(("chain", "turns"), CASES)
def test_windows_of_every_chain(chain: str, turns: str, backend: Any, kind: Any) -> None:
    if backend is native and not native.usable():
        pytest.skip("the C++ kernel was not built here")
    check_windows(contrary(TRANSITIONS[chain], TURNS[turns]), kind, backend)


@pytest.mark.parametrize("count", [20, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("backend", [native, reference], ids=lambda each: each.name)
@pytest.mark.slow
def test_windows_of_random_chains(backend: Any, kind: Any, count: int) -> None:
    if backend is native and not native.usable():
        pytest.skip("the C++ kernel was not built here")
    rng = np.random.default_rng(5)
    for seed in range(count):
        check_windows(contrary(random_structure(rng), random_turns(rng, 300), seed), kind, backend)


GPU_CHAINS = ("identity", "no way back", "cycle that waits", "nearly 1e-12", "nearly 1e-30")


@pytest.mark.parametrize(("chain", "turns"), cases(TURNING, GPU_CHAINS))
def test_windows_on_a_gpu(chain: str, turns: str) -> None:
    check_windows(contrary(TRANSITIONS[chain], TURNS[turns]), np.float32, windows)


@pytest.mark.parametrize("held", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("chain", GPU_CHAINS[:3])
def test_the_gpu_kernel_flags_what_it_may_have_lost(chain: str, held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does not flag is right; without contrary evidence, or where one may go round, it flags nothing."""
    jax.clear_caches()  # compiled functions know nothing of what is patched here
    flags: list[np.ndarray] = []

    def keep(*given: Any) -> Any:
        jax.debug.callback(lambda lost: flags.append(np.asarray(lost)), given[3])
        return given[4]

    monkeypatch.setattr(windows, "_redo_lost", keep)
    monkeypatch.setattr(windows, "config_for", lambda n: Config(held=held, fused_counts=held))
    for turns in (((300, 1.0),), TURNS["hidden turn"]):
        made = contrary(TRANSITIONS[chain], turns)
        expected, found = windows_of(made, np.float32, windows)
        jax.effects_barrier()
        lost = flags.pop()
        assert not flags and lost.any() == (turns == TURNS["hidden turn"] and chain != "cycle that waits")
        kept = partial(jax.tree.map, lambda each, lost=lost: np.asarray(each)[~lost])
        compare(kept(found), kept(expected), NARROW)


@pytest.mark.parametrize(("chain", "turns"), cases([*TURNING, "slow"], [*GPU_CHAINS, "left to right"]))
def test_full_passes_on_a_gpu(chain: str, turns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the GPU's pass answers is right; where it cannot tell it gives nothing."""
    made = contrary(TRANSITIONS[chain], TURNS[turns])
    n_states, nats = len(made.initial), {"slow": 0.6}.get(turns, 18.0)
    best = made.logs.argmax(1)
    side = np.sqrt(nats)  # states that lie so far apart differ by so many nats where one of them is met
    y = side * np.eye(n_states)[best] + 0.1 * np.random.default_rng(0).normal(size=(len(best), n_states))
    model = lh.HMM(n_states, lh.Gaussian(dim=n_states, covariance="spherical"))
    given = {"mean": side * np.eye(n_states), "variance": np.ones(n_states)}
    params = model.validate({"initial": made.initial, "transition": made.transition, **given})
    logs = -0.5 * ((y[:, None, :] - given["mean"]) ** 2).sum(2) - 0.5 * n_states * np.log(2 * np.pi)
    exact = plain(made.initial, made.transition, [logs])
    monkeypatch.setattr(windows, "usable", lambda: True)
    with patch.object(native, "available", lambda: False):
        found = full.gpu_totals(model, params, open_data(y))
        if found is None:
            assert chain != "cycle that waits"
            return
    likelihood, _, transitions, _ = found[0]
    assert likelihood == pytest.approx(exact.log_likelihood, rel=1e-5)
    np.testing.assert_allclose(transitions, exact.transitions, rtol=1e-4, atol=2e-2)
