"""A posterior at a glance: tables of parameters and of the levels of states, as text and for notebooks; and how well
chains agree and how much they are worth: rank-normalised split R-hat, bulk and tail ESS, by ArviZ.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import xarray as xr
from numpyro.distributions import constraints

from longhmm.data.preprocess import Preprocessing
from longhmm.inference.markov import stationary_law
from longhmm.model.support import unwrapped
from longhmm.posterior.draws import SAMPLE_DIMS, Draws, central, entry_table, in_float64, labelled

if TYPE_CHECKING:
    import pandas as pd

MOST_DRAWS = 1000
MOST_ROWS = 16  # states shown in a notebook
SHORTEST = 8  # draws per chain from which anything is said
TAILS = (0.05, 0.95)  # ArviZ's own choice has changed between versions

_means = jax.jit(lambda model, params: model.emission.means(params))
_locations = jax.jit(lambda model, params: jax.vmap(model.emission.location)(params))


class Summarising(Draws):
    """Draws that show what they are."""

    def summary(self, *, interval: float = 0.9) -> pd.DataFrame:
        """One row per entry of every parameter: mean, sd, central interval, R-hat, bulk and tail ESS."""
        import pandas as pd

        draws, low, high = self.draws, (1 - interval) / 2, (1 + interval) / 2
        columns = {
            "mean": draws.mean(SAMPLE_DIMS),
            "sd": draws.std(SAMPLE_DIMS, ddof=1),
            f"{100 * low:.3g}%": draws.quantile(low, SAMPLE_DIMS),
            f"{100 * high:.3g}%": draws.quantile(high, SAMPLE_DIMS),
            **convergence(draws),
        }
        return pd.DataFrame({name: entry_table(each) for name, each in columns.items()}).rename_axis("parameter")

    @property
    def _headline(self) -> str:
        plural = "s" if self.n_chains > 1 else ""
        return f"{self.n_chains} chain{plural} x {self.n_draws:,} draws"

    def __repr__(self) -> str:
        sampler = self.settings.get("sampler")
        verdict = "not yet diagnosed" if self.verdict is None else self.verdict.kind
        parts = [self._headline, repr(self.model), *([sampler] if isinstance(sampler, str) else []), verdict]
        return f"Posterior({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """Headline, verdict, notes, and one row per state. Every text is escaped: a loaded run may come from
        anywhere."""
        import pandas as pd

        said = "not yet diagnosed: call diagnose(data)" if self.verdict is None else str(self.verdict)
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        table = pd.DataFrame(_columns(self)).rename_axis("state")
        more = f"<p>and {len(table) - MOST_ROWS} more states</p>" if len(table) > MOST_ROWS else ""
        return (
            f"<div class='longhmm-posterior'><p><b>Posterior</b>: {escape(self._headline)}, {escape(repr(self.model))}"
            f"<br>{escape(said)}</p>{f'<ul>{notes}</ul>' if notes else ''}"
            f"{table.head(MOST_ROWS).to_html(border=0)}{more}</div>"
        )


def levels(posterior: Draws, *, interval: float = 0.9, preprocessing: Preprocessing | None = None) -> pd.DataFrame:
    """One row per state: `level` at the posterior mean, and the ends of its central interval over the draws.

    Args:
        preprocessing: what was done to the recording; levels are then given in the units of its file.
    """
    undo = (preprocessing or Preprocessing()).in_file_units
    lower, upper = central(level_draws(posterior), interval)
    mean = {name: value[None] for name, value in posterior.mean_params().items()}
    level = in_float64(_locations, posterior.model, mean)[0]
    table = {"level": undo(level), "level_lower": undo(lower), "level_upper": undo(upper)}
    return labelled(table, {}, ("state",)).to_dataframe()


def level_draws(posterior: Draws, draws: int = MOST_DRAWS) -> np.ndarray:
    """`(draws, K)`, first component of the emission's location in each state, for draws of the parameters."""
    found: np.ndarray = in_float64(_locations, posterior.model, posterior.stacked(draws))
    return unwrapped(found, (0,)) if posterior.model.emission.support is constraints.circular else found


def feature_levels(posterior: Draws) -> np.ndarray:
    """`(K, D)` at the posterior mean; `(K, 1)` where only the level of the first feature is known."""
    return np.asarray(in_float64(_means, posterior.model, posterior.mean_params()), np.float64)


def _columns(posterior: Draws) -> dict[str, list[str]]:
    """Posterior mean and sd of what has one number per state, and of the first feature of vectors."""
    transition = posterior.transitions
    columns = {
        "share of time": stationary_law(transition),
        "stays with probability": np.diagonal(transition, axis1=1, axis2=2),
    }
    for name, values in posterior.draws.items():
        if name != "transition" and values.dims[2] == "state" and values.ndim <= 4:
            flat = np.asarray(values).reshape(-1, values.shape[2], int(np.prod(values.shape[3:], dtype=int)))
            label = str(name) if flat.shape[2] == 1 else f"{name} (first of {flat.shape[2]})"
            columns[label] = flat[:, :, 0]
    return {
        name: [f"{mean:.4g} ± {sd:.1g}" for mean, sd in zip(each.mean(axis=0), each.std(axis=0), strict=True)]
        for name, each in columns.items()
    }


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
    chains = draws
    if draws.sizes["chain"] == 1:
        half = draws.sizes["draw"] // 2
        halves = [draws.isel(chain=0, draw=slice(at, at + half)).assign_coords(draw=range(half)) for at in (0, half)]
        chains = xr.concat(halves, dim="chain")
    with arviz() as az:
        found = {
            "r_hat": az.rhat(chains),
            "ess_bulk": az.ess(draws, method="bulk"),
            "ess_tail": az.ess(draws, method="tail", prob=TAILS),
        }
    varies = draws.max(SAMPLE_DIMS) > draws.min(SAMPLE_DIMS)
    return {name: each.where(varies) for name, each in found.items()}


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
