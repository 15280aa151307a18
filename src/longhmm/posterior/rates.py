"""Rates in time: the generator of the chain, and how often states follow one another."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from longhmm.errors import ModelError
from longhmm.posterior.dwell import stationary_draws
from longhmm.posterior.levels import stacked_draws

if TYPE_CHECKING:
    import pandas as pd

    from longhmm.posterior.posterior import Posterior

SINGULAR = 1e-13  # singular values below this are zero: such a matrix has no logarithm
NEGATIVE = 1e-9  # rates per sample below minus this are negative, not rounding


@dataclass(frozen=True)
class RateMatrix:
    """The generator Q of a process in continuous time: over one sample, its transition matrix is A = exp(Q / rate).

    Attributes:
        table: one row per pair of states: `state`, `to_state`, and the `mean`, `lower` and `upper` end of the rate.
        mean: `(K, K)`, per second (per sample without a rate); rows sum to zero.
        embeddable: share of the draws for which such a process exists.
        warning: a sentence where it does not exist for some draws, else None.
    """

    table: pd.DataFrame
    mean: np.ndarray
    embeddable: float
    warning: str | None


def rate_matrix(
    posterior: Posterior, *, rate: float | None = None, interval: float = 0.9, draws: int = 200
) -> RateMatrix:
    """Q = rate * log A at each draw, by the matrix logarithm.

    Not every transition matrix belongs to a process in continuous time: the logarithm may be complex or have negative
    rates. Negative rates are then set to zero and the diagonal is made to fit, and a warning says how often.

    Args:
        rate: samples per second as the model sees them; without it, rates are per sample.
        interval: probability of the central interval.
        draws: how many draws to look at.
    """
    _check(rate, interval)
    generators, sound = [], []
    for transition in stacked_draws(posterior, draws)["transition"]:
        generator, embeddable = generator_of(transition)
        generators.append(generator * (rate or 1.0))
        sound.append(embeddable)
    share = float(np.mean(sound))
    warning = None
    if share < 1.0:
        warning = (
            f"for {1 - share:.0%} of the draws no process in continuous time has the transition matrix of the model, "
            "so rates are approximations: sample faster, or read the transition matrix itself."
        )
        warnings.warn(warning, stacklevel=2)
    stacked = np.stack(generators)
    return RateMatrix(_pairs(stacked, interval, diagonal=True), stacked.mean(axis=0), share, warning)


def generator_of(transition: np.ndarray) -> tuple[np.ndarray, bool]:
    """The logarithm of a transition matrix, made a generator, and whether it was one already."""
    from scipy.linalg import logm

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a singular matrix: handled below
        found = np.asarray(logm(np.asarray(transition, np.float64)))
    invertible = float(np.linalg.svd(transition, compute_uv=False)[-1]) > SINGULAR
    sound = invertible and bool(np.isfinite(found).all()) and float(np.abs(found.imag).max()) < NEGATIVE
    generator = np.nan_to_num(found.real, nan=0.0, posinf=0.0, neginf=0.0)
    np.fill_diagonal(generator, 0.0)
    sound = sound and float(generator.min(initial=0.0)) > -NEGATIVE
    generator = np.maximum(generator, 0.0)
    np.fill_diagonal(generator, -generator.sum(axis=1))
    return generator, sound


def switching_rates(posterior: Posterior, *, rate: float | None = None, interval: float = 0.9) -> pd.DataFrame:
    """How often the chain goes from one state to another in the long run, per second (per sample without `rate`).

    One row per pair of different states, with `mean`, `lower` and `upper` over all draws.
    """
    _check(rate, interval)
    transition = np.asarray(posterior.draws["transition"]).reshape(-1, *(posterior.model.n_states,) * 2)
    flow = stationary_draws(transition)[:, :, None] * transition * (rate or 1.0)
    return _pairs(flow, interval, diagonal=False)


def _pairs(values: np.ndarray, interval: float, *, diagonal: bool) -> pd.DataFrame:
    import pandas as pd

    lower, upper = np.quantile(values, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
    mean = values.mean(axis=0)
    pairs = [(i, j) for i, j in np.ndindex(*mean.shape) if diagonal or i != j]
    rows = [(i, j, mean[i, j], lower[i, j], upper[i, j]) for i, j in pairs]
    return pd.DataFrame(rows, columns=["state", "to_state", "mean", "lower", "upper"])


def _check(rate: float | None, interval: float) -> None:
    if rate is not None and not rate > 0:
        raise ModelError(f"rate must be a positive number of samples per second, got {rate!r}.")
    if not 0 < interval < 1:
        raise ModelError(f"interval must lie between 0 and 1, got {interval!r}.")
