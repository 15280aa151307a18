"""Moving the centre of the control variates to where the chains are, if that is not where the mode was found.

The control-variate gradient is exact at its centre and noisier the further away it is asked for. A chain that stays
away from the centre therefore runs under more noise than the tuning allowed for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.run.tuning import Tuning
from longhmm.target.control_variate import CountControl
from longhmm.target.coordinates import Flat, constrain
from longhmm.target.full_data import log_posterior_and_gradient

MOST_TIMES = 3
# In posterior standard deviations. The mean of the most skewed coordinate there is, the logarithm of an exponential
# variable, lies SKEW from its mode; along the common direction of n such coordinates it is SKEW sqrt(n).
SKEW, FAR, EACH_FAR = 0.58, 1.0, 1.0


def drifted(offsets: np.ndarray, n_states: int) -> bool:
    """Whether all chains have gone the same way from the centre, far beyond what skewness explains.

    Args:
        offsets: `(chain, draw, P)` in whitened coordinates.
        n_states: K; in a row of transitions, all but one may never have been seen.
    """
    means = offsets.mean(axis=1)
    together = np.abs(means.mean(axis=0)) > FAR + SKEW * np.sqrt(n_states - 1)
    same_way = np.abs(np.sign(means).sum(axis=0)) == len(means)
    return bool(np.any(together & same_way & (np.abs(means) > EACH_FAR).all(axis=0)))


def centre_of(found: Tuning, offsets: np.ndarray) -> dict[str, np.ndarray]:
    """Coordinates of the mean of whitened offsets `(chain, draw, P)`."""
    flat = Flat.like(found.mode.coordinates)
    at = flat.ravel_numpy(found.estimator.centre)
    return flat.unravel(at + np.asarray(found.estimator.factor, np.float64) @ offsets.mean(axis=(0, 1)))


def exact_slope(model: HMM, centre: Mapping[str, Any], sequences: Sequences) -> dict[str, np.ndarray]:
    """The gradient of the log likelihood at a new centre: one pass over the data."""
    _, slope = log_posterior_and_gradient(model, constrain(model, centre), sequences, prior=False)
    return {name: np.asarray(value) for name, value in slope.items()}


def recentred(
    found: Tuning, centre: Mapping[str, np.ndarray], slope: Mapping[str, np.ndarray], rare: CountControl
) -> Tuning:
    """The same tuning with its control variates about another centre; the mode stays what it is."""

    def narrow(tree: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: np.asarray(value, np.float32) for name, value in tree.items()}

    moved = replace(found.estimator, centre=narrow(centre), exact=narrow(slope), rare=rare)
    return found._replace(estimator=moved)


def to_arrays(
    centre: Mapping[str, np.ndarray], slope: Mapping[str, np.ndarray], rare: CountControl
) -> dict[str, np.ndarray]:
    """A centre for a checkpoint."""
    named = {f"recentred_at_{name}": value for name, value in centre.items()}
    named |= {f"recentred_slope_{name}": value for name, value in slope.items()}
    return named | {
        "recentred_rare_counts": np.asarray(rare.counts),
        "recentred_rare_share": np.asarray(rare.elasticity),
    }


def from_arrays(found: Tuning, arrays: Mapping[str, np.ndarray]) -> Tuning:
    """The tuning about the centre that a checkpoint holds, if it holds one."""
    centre, slope = (
        {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
        for prefix in ("recentred_at_", "recentred_slope_")
    )
    if not centre:
        return found
    rare = CountControl(arrays["recentred_rare_counts"], arrays["recentred_rare_share"])
    return recentred(found, centre, slope, rare)
