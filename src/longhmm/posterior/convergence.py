"""How well the chains agree and how much they are worth: rank-normalised split R-hat, bulk and tail ESS, by ArviZ."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from longhmm.posterior.labels import SAMPLE_DIMS, entry_names, labelled

if TYPE_CHECKING:
    import pandas as pd

SHORTEST = 8  # draws per chain
TAILS = (0.05, 0.95)  # ArviZ's own choice has changed between versions


def arviz() -> Any:
    """ArviZ, imported on first use (it is slow to load) without its announcement of future versions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import arviz

    return arviz


def convergence(draws: xr.Dataset) -> dict[str, xr.Dataset]:
    """`r_hat`, `ess_bulk` and `ess_tail` of every entry; NaN for entries that never move, such as fixed transitions.

    A single chain is compared with itself: its two halves count as chains. Fewer than eight draws tell nothing.
    """
    if draws.sizes["draw"] < SHORTEST:
        nothing = draws.isel(chain=0, draw=0, drop=True) * np.nan
        return dict.fromkeys(("r_hat", "ess_bulk", "ess_tail"), nothing)
    az = arviz()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # about constants and short chains: both become NaN
        found = {
            "r_hat": az.rhat(_halves(draws) if draws.sizes["chain"] == 1 else draws),
            "ess_bulk": az.ess(draws, method="bulk"),
            "ess_tail": az.ess(draws, method="tail", prob=TAILS),
        }
    moves = draws.max(SAMPLE_DIMS) > draws.min(SAMPLE_DIMS)
    return {name: each.where(moves) for name, each in found.items()}


def _halves(draws: xr.Dataset) -> xr.Dataset:
    half = draws.sizes["draw"] // 2
    parts = [draws.isel(draw=slice(start, start + half)).assign_coords(draw=np.arange(half)) for start in (0, half)]
    return xr.concat([part.assign_coords(chain=[index]) for index, part in enumerate(parts)], dim="chain")


def effective_sizes(draws: np.ndarray) -> np.ndarray:
    """`(P,)` effective number of draws for the mean of each of P columns of `(chain, draw, P)`."""
    az = arviz()
    data = labelled({"value": draws}, {"value": ("entry",)}, SAMPLE_DIMS)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return np.asarray(az.ess(data, method="mean")["value"], np.float64)


def summary_table(draws: xr.Dataset, interval: float = 0.9) -> pd.DataFrame:
    """One row per entry of every parameter: mean, sd, central interval, R-hat, bulk and tail ESS."""
    import pandas as pd

    low, high = (1 - interval) / 2, (1 + interval) / 2
    columns: dict[str, xr.Dataset] = {
        "mean": draws.mean(SAMPLE_DIMS),
        "sd": draws.std(SAMPLE_DIMS, ddof=1),
        f"{100 * low:.3g}%": draws.quantile(low, SAMPLE_DIMS),
        f"{100 * high:.3g}%": draws.quantile(high, SAMPLE_DIMS),
        **convergence(draws),
    }
    names = [entry for name, each in columns["mean"].items() for entry in entry_names(str(name), each.shape)]
    values = {
        column: np.concatenate([np.ravel(np.asarray(each[name])) for name in draws.data_vars])
        for column, each in columns.items()
    }
    return pd.DataFrame(values, index=pd.Index(names, name="parameter"))


def to_arviz(groups: dict[str, xr.Dataset]) -> Any:
    """ArviZ's own container: InferenceData before version 1, an xarray DataTree since."""
    az = arviz()
    if int(az.__version__.split(".")[0]) < 1:
        return az.InferenceData(**groups)
    return xr.DataTree.from_dict(dict(groups))
