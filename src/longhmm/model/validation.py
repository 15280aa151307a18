"""Checks of what a user passes as parameters: one sentence each, naming what it must be and what it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from longhmm.errors import ModelError


def check_initial(initial: Any, n_states: int) -> np.ndarray | str:
    if isinstance(initial, str):
        if initial == "uniform":
            return np.full(n_states, 1.0 / n_states)
        if initial == "stationary":
            return initial
        raise ModelError(f"initial must be 'uniform', 'stationary' or {n_states} probabilities, got {initial!r}.")
    return check_law("initial", initial, n_states)


def check_law(name: str, given: Any, n_states: int) -> np.ndarray:
    try:
        law = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        law = np.zeros(0)
    if law.shape != (n_states,) or not np.all(law >= 0) or abs(law.sum() - 1) > 1e-4:
        raise ModelError(f"{name} must be {n_states} probabilities that sum to 1, got {given!r}.")
    return law / law.sum()


def check_transition(params: Mapping[str, Any], n_states: int) -> np.ndarray:
    if "transition" not in params:
        raise ModelError(f"params must hold 'transition', an array of shape ({n_states}, {n_states}), got none.")
    try:
        matrix = np.asarray(params["transition"], dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.zeros(0)
    if matrix.shape != (n_states, n_states):
        raise ModelError(
            f"params['transition'] must be an array of numbers of shape ({n_states}, {n_states}), got "
            f"{'shape ' + str(matrix.shape) if matrix.size else repr(params['transition'])}."
        )
    sums = matrix.sum(axis=1)
    if not np.all(matrix >= 0) or np.any(np.abs(sums - 1) > 1e-4):
        raise ModelError(
            f"params['transition'] must have rows of probabilities that sum to 1, got row sums of {np.round(sums, 6)}."
        )
    return matrix / sums[:, None]
