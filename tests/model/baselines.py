"""Baselines of mean 0, by SciPy's splines."""

from typing import Any

import jax
import numpy as np
from scipy.interpolate import BSpline

from longhmm.model.drift import Drift, FromSteps


def wandering(knots: int, size: float = 1.0, seed: int = 3) -> np.ndarray:
    """Coefficients of a baseline of mean 0."""
    with jax.enable_x64(True):
        steps = jax.numpy.asarray(np.random.default_rng(seed).normal(size=knots + 2))
        return size * np.asarray(FromSteps(Drift(knots))(steps))


def baseline(coefficients: np.ndarray, rows: int, at: Any) -> Any:
    """By SciPy; it stays where it ends."""
    knots = len(coefficients) - 3
    return BSpline(np.arange(-3.0, knots + 4), coefficients, 3)(np.clip(np.asarray(at) / rows, 0, 1) * knots)
