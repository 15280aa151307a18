"""How well the chains agree and how much they are worth: rank-normalised split R-hat, bulk and tail ESS, by ArviZ."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import xarray as xr

from longhmm.posterior.draws import SAMPLE_DIMS, labelled

SHORTEST = 8  # draws per chain
TAILS = (0.05, 0.95)  # ArviZ's own choice has changed between versions


@contextmanager
def arviz() -> Iterator[Any]:
    """ArviZ, imported on first use (it is slow to load), silent about its future, constants and short chains."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        import arviz

        yield arviz


def convergence(draws: xr.Dataset) -> dict[str, xr.Dataset]:
    """`r_hat`, `ess_bulk` and `ess_tail` of every entry; NaN for entries that never move, such as fixed transitions.

    A single chain is compared with itself: its two halves count as chains. Fewer than eight draws tell nothing.
    """
    if draws.sizes["draw"] < SHORTEST:
        nothing = draws.isel(chain=0, draw=0, drop=True) * np.nan
        return dict.fromkeys(("r_hat", "ess_bulk", "ess_tail"), nothing)
    with arviz() as az:
        found = {
            "r_hat": az.rhat(_halves(draws) if draws.sizes["chain"] == 1 else draws),
            "ess_bulk": az.ess(draws, method="bulk"),
            "ess_tail": az.ess(draws, method="tail", prob=TAILS),
        }
    varies = draws.max(SAMPLE_DIMS) > draws.min(SAMPLE_DIMS)
    return {name: each.where(varies) for name, each in found.items()}


def _halves(draws: xr.Dataset) -> xr.Dataset:
    half = draws.sizes["draw"] // 2
    parts = [draws.isel(draw=slice(start, start + half)).assign_coords(draw=np.arange(half)) for start in (0, half)]
    return xr.concat([part.assign_coords(chain=[index]) for index, part in enumerate(parts)], dim="chain")


def effective_sizes(draws: np.ndarray) -> np.ndarray:
    """`(P,)` effective number of draws for the mean of each of P columns of `(chain, draw, P)`."""
    with arviz() as az:
        return np.asarray(az.ess(labelled({"value": draws}, {"value": ("entry",)}), method="mean")["value"], np.float64)


def sd_errors(draws: np.ndarray) -> np.ndarray:
    """`(P,)` relative standard error of the standard deviation of each column of `(chain, draw, P)`."""
    squares = (draws - draws.mean(axis=(0, 1))) ** 2
    spread = squares.std(axis=(0, 1)) / squares.mean(axis=(0, 1))
    return np.asarray(0.5 * spread / np.sqrt(effective_sizes(squares)))


def to_arviz(groups: dict[str, xr.Dataset]) -> Any:
    """ArviZ's own container: InferenceData before version 1, an xarray DataTree since."""
    with arviz() as az:
        before_one = int(az.__version__.split(".")[0]) < 1
        return az.InferenceData(**groups) if before_one else xr.DataTree.from_dict(dict(groups))
