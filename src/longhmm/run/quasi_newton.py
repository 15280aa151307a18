"""Ascent by BFGS, where second derivatives are not at hand or mislead: on ridges, near saddles, far from an optimum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from longhmm.errors import LongHMMError

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]
WORSE = 1e6  # by which a point that cannot be evaluated counts as below the start


def ascend(objective: Objective, start: np.ndarray, *, factor: np.ndarray, tolerance: float, steps: int) -> np.ndarray:
    """A point near a local maximum, at least as high as the start.

    Args:
        objective: value and gradient at a point; a `LongHMMError` means that there is none there.
        factor: `(P, P)` L of `point = start + L z`, in which the search runs; `L L^T` guesses the inverse curvature.
        tolerance: the search ends where no entry of the gradient in z is larger.
        steps: iterations at most.
    """
    from scipy.optimize import minimize

    value, slope = objective(start)
    best = (value, start)

    def downhill(z: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        point = start + factor @ z
        try:
            here, gradient = (value, slope) if not z.any() else objective(point)
        except LongHMMError:  # parameters overflow, or no state can have produced the data
            here, gradient = np.nan, np.zeros_like(z)
        if not (np.isfinite(here) and np.isfinite(gradient).all()):
            return WORSE, np.zeros_like(z)
        if here > best[0]:
            best = here, point
        return value - here, -factor.T @ gradient

    options = {"gtol": tolerance, "maxiter": steps}
    minimize(downhill, np.zeros_like(start), jac=True, method="BFGS", options=options)
    return best[1]
