"""Joining chunks: transfer operators against enumeration, and every comparison of boundaries is needed."""

from typing import Any

import jax
import numpy as np
import pytest

from backends.chains import HARD, IDENTITY, MODEL, PER_BLOCK, K, cut, late_evidence, quiet_beginnings, rows_of
from backends.path_cases import KINDS, make
from backends.references import given_params, reference
from longhmm.backends import block, native, stitch, stream
from longhmm.backends.stitch import transfer_operators
from longhmm.data.layout import Layout
from longhmm.data.sequences import open_data


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drawn", [False, True])
def test_transfer_operators_equal_enumeration(kind: str, drawn: bool) -> None:
    """From each state alone: the weight of all paths, or of the best one, to each state at the last row."""
    case = make(kind, 3, 6, 5, forbid=True)
    layout = Layout(*(np.array(each, np.int32) for each in ([0, 3], [0, 0], [3, 3], [0, 0], [1, 0])), (0, 3, 0))
    with jax.enable_x64(True):
        for backend in case.backends():
            operators = np.asarray(transfer_operators(backend, case.potentials(), layout, best=not drawn))
            for w, (rows, opens) in enumerate([(slice(0, 3), True), (slice(3, 6), False)]):
                for i, j in np.ndindex(3, 3):
                    truth = case.truth(rows, case.initial if opens else np.eye(3)[i], opens, np.eye(3)[j])
                    expected = truth.best_score
                    if drawn and np.isfinite(expected):
                        expected = truth.log_likelihood
                    np.testing.assert_allclose(operators[w, i, j], expected, rtol=1e-12, err_msg=f"{backend.name} {w}")


@pytest.mark.parametrize(
    ("broken", "nothing", "per_block", "cases"),
    [
        ("forward_gap", np.zeros(PER_BLOCK - 1), PER_BLOCK, list(HARD.values())),
        ("posterior_gap", np.zeros(PER_BLOCK - 1), PER_BLOCK, [(0.97 * np.eye(K) + 0.01, quiet_beginnings())]),
        ("block_gap", 0.0, 1, list(HARD.values())),
        ("open_gap", np.zeros(()), 1, [(IDENTITY, late_evidence())]),
    ],
)
@pytest.mark.slow
def test_every_comparison_of_boundaries_is_needed(
    broken: str,
    nothing: Any,
    per_block: int,
    cases: list[tuple[np.ndarray, np.ndarray]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All is well with it and not without it, so these tests can fail."""
    monkeypatch.setattr(native, "available", lambda: False)
    cut(monkeypatch, per_block=per_block, overlaps=(4,) if broken == "posterior_gap" else (8, 40))
    forward_only = broken in ("forward_gap", "block_gap")  # what these alone see is the likelihood

    def wrong() -> int:
        block._run[False].clear_cache()
        count = 0
        for transition, logs in cases:
            initial = np.array([0.2, 0.5, 0.3])
            exact = reference(initial, transition, [logs])
            params = MODEL.validate(given_params(initial, transition))
            found = rows_of(stream.stream(MODEL, params, open_data(logs), forward_only=forward_only))
            count += not np.allclose(found, exact.filtered if forward_only else exact.gamma, atol=1e-11)
        return count

    assert wrong() == 0
    monkeypatch.setattr(stitch, broken, lambda *arguments: nothing)
    assert wrong() > 0
    block._run[False].clear_cache()
