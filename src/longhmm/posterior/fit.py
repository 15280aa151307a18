"""Whether the model fits: the scatter of the data against the posterior's width, and residuals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.posterior.bias import errors_allowed
from longhmm.posterior.entries import entries
from longhmm.posterior.residuals import residuals
from longhmm.posterior.sandwich import sandwich

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior

MOST_SANDWICH, MOST_AUTOCORRELATION = 1.5, 0.1  # beyond: the model does not fit


def misfits(posterior: Posterior, sequences: Sequences, cells: int, details: dict[str, Any]) -> list[str]:
    """One sentence for every way in which the model does not fit; the numbers go into `details`."""
    params = posterior.mean_params() if posterior.mode is None else posterior.mode
    return [
        *_judge_residuals(posterior, params, sequences, details),
        *_judge_scatter(posterior, params, sequences, cells, details),
    ]


def _judge_scatter(
    posterior: Posterior, params: Any, sequences: Sequences, cells: int, details: dict[str, Any]
) -> list[str]:
    table = entries(posterior)
    if not table.names:
        return []
    sd = table.values.std(axis=(0, 1))
    ratios = sandwich(posterior.model, params, table.directions, sd, sequences, cells=cells)
    excess = ratios.ratio - errors_allowed(len(table.names)) * ratios.error
    worst = int(np.argmax(excess))
    ratio, name = float(ratios.ratio[worst]), table.names[worst]
    details.update(sandwich=ratio, sandwich_error=float(ratios.error[worst]), sandwich_of=name)
    if excess[worst] <= MOST_SANDWICH:
        return []
    return [f"the data scatter more than the model says: intervals of {name} should be about {ratio:.1f} times as wide"]


def _judge_residuals(posterior: Posterior, params: Any, sequences: Sequences, details: dict[str, Any]) -> list[str]:
    left = residuals(posterior.model, params, sequences)
    if left is None or not np.isfinite(left.autocorrelation).any():
        return []
    feature = int(np.nanargmax(np.abs(left.autocorrelation)))
    correlation, error = float(left.autocorrelation[feature]), float(left.autocorrelation_error[feature])
    details.update(autocorrelation=correlation, residual_distance=float(np.nanmax(left.distance)))
    if abs(correlation) - errors_allowed(len(left.autocorrelation)) * error <= MOST_AUTOCORRELATION:
        return []
    return [f"neighbouring residuals are correlated ({correlation:+.2f}), so intervals are too narrow"]
