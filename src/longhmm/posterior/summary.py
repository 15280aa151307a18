"""A posterior at a glance: tables of parameters with R-hat and effective sizes, of levels, dwell times and rates."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import xarray as xr
from numpyro.distributions import constraints

from longhmm.backends.stream import totals
from longhmm.data.preprocess import Preprocessing
from longhmm.inference.markov import stationary_on_host
from longhmm.model.support import unwrapped
from longhmm.posterior.draws import SAMPLE_DIMS, Draws, central, check_rate, entry_table, in_float64, labelled
from longhmm.posterior.kinetics import Kinetics, generators_of
from longhmm.run.chains import bulk_effective_size, effective_sizes, r_hat, tail_effective_size

if TYPE_CHECKING:
    import pandas as pd

MOST_DRAWS = 1000
MOST_ROWS = 16  # states shown in a notebook
SHORTEST = 8  # draws per chain from which anything is said
SINGULAR = 1e-13  # singular values below this are zero: such a matrix has no logarithm
NEGATIVE = 1e-9  # rates per sample below minus this are negative, not rounding
APART = 1e5  # condition of eigenvectors up to which a logarithm by them has ten digits

_means = jax.jit(lambda model, params: model.emission.means(params))
_locations = jax.jit(lambda model, params: jax.vmap(model.emission.location)(params))


class Summarising(Kinetics):
    """Draws that show what they are, how long states last and how often they follow one another."""

    def summary(self, *, interval: float = 0.9) -> pd.DataFrame:
        """One row per entry of every parameter: mean, sd, central interval, R-hat, bulk and tail ESS."""
        from longhmm.posterior.tables import SummaryTable

        draws, low, high = self.draws, (1 - interval) / 2, (1 + interval) / 2
        columns = {
            "mean": draws.mean(SAMPLE_DIMS),
            "sd": draws.std(SAMPLE_DIMS, ddof=1),
            f"{100 * low:.3g}%": draws.quantile(low, SAMPLE_DIMS),
            f"{100 * high:.3g}%": draws.quantile(high, SAMPLE_DIMS),
            **convergence(draws),
        }
        table = SummaryTable({name: entry_table(each) for name, each in columns.items()}).rename_axis("parameter")
        return table[(table["mean"] != 0) | (table["sd"] != 0)]  # what is 0 by definition is no result

    def dwell(
        self, *, rate: float | None = None, interval: float = 0.9, data: Any = None, draws: int = 20
    ) -> pd.DataFrame:
        """One row per state, each quantity with its posterior mean and the ends of its central interval.

        Columns: `dwell`, the expected length of a visit, `1 / (1 - A[k, k])`, in samples; `dwell_s`, the same in
        seconds where `rate` (samples per second) is given; `stationary`, the share of time in the long run; and, where
        `data` are given, `occupancy`, the share of their observations, averaged over `draws` draws.
        """
        check_rate(rate)
        transition = self.transitions
        with np.errstate(divide="ignore"):
            # The sum of the others keeps its digits where the state hardly ever changes.
            lengths = 1.0 / (transition.sum(axis=2) - np.diagonal(transition, axis1=1, axis2=2))
        quantities = {"dwell": lengths}
        if rate is not None:
            quantities["dwell_s"] = lengths / rate
        quantities["stationary"] = stationary_on_host(transition)
        if data is not None:
            sequences = self.model.opened(data)
            sums = [totals(self.model, params, sequences) for params in self.iterate(draws)]
            shares = [(each.first + each.transitions.sum(axis=0)) / sequences.length for each in sums]
            quantities["occupancy"] = np.stack(shares)
        table = {}
        for name, values in quantities.items():
            table[name] = values.mean(axis=0)
            # A value that occurs, not one between two: a state that is never left lasts for ever.
            table[f"{name}_lower"], table[f"{name}_upper"] = central(values, interval, "inverted_cdf")
        return labelled(table, {}, ("state",)).to_dataframe()

    def rates(
        self, *, rate: float | None = None, interval: float = 0.9, draws: int = 200, flow: bool = False
    ) -> pd.DataFrame:
        """One row per rate between two states: `from`, `to`, `mean`, `sd`, and the ends `low` and `high` of its
        interval; per second where transitions are `Rates` or `rate` is given, else per sample.

        Without `Rates` they are the generator `rate * log A` at each draw, by the matrix logarithm. Not every
        transition matrix belongs to a process in continuous time: the logarithm may be complex or have negative rates.
        Negative rates are then set to zero, and a warning, also in `attrs["warning"]`, says how often.

        Args:
            rate: samples per second as the model sees them.
            interval: probability of the central interval.
            draws: how many draws to look at.
            flow: how often one state is seen to follow the other in the long run, instead.
        """
        import pandas as pd

        check_rate(rate)
        moves, stacked, warning = self.model.transitions, self.stacked(draws), None
        transition, scale = stacked["transition"], (rate or 1.0) if moves.dt is None else 1.0 / float(moves.dt[0])
        if flow:
            found = stationary_on_host(transition)[:, :, None] * transition * scale
        elif moves.dt is not None:
            found = in_float64(generators_of, moves := moves.single, stacked[moves.parameter])
        else:
            generators, valid = generators_from(transition)
            found = generators * scale
            if not valid.all():
                warning = (
                    f"for {1 - np.mean(valid):.0%} of the draws no process in continuous time has the transition "
                    "matrix of the model, so rates are approximations: sample faster, or read the matrix itself."
                )
                warnings.warn(warning, stacklevel=2)
        rows, columns = np.nonzero((moves.allowed if flow else moves.direct) & ~np.eye(moves.n_states, dtype=bool))
        values, names = found[:, rows, columns], np.array(moves.states or range(moves.n_states))
        low, high = central(values, interval)
        numbers = {"mean": values.mean(axis=0), "sd": values.std(axis=0), "low": low, "high": high}
        table = pd.DataFrame({"from": names[rows], "to": names[columns], **numbers})
        table.attrs["warning"] = warning
        return table

    @property
    def _headline(self) -> str:
        return f"{self.n_chains} chain{'s' if self.n_chains > 1 else ''} x {self.n_draws:,} draws"

    def __repr__(self) -> str:
        sampler = self.settings.get("sampler")
        verdict = "not yet diagnosed" if self.verdict is None else self.verdict.kind
        parts = [self._headline, repr(self.model), *([sampler] if isinstance(sampler, str) else []), verdict]
        return f"Posterior({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """Headline, verdict, notes, and one row per state; every text is escaped, wherever a run comes from."""
        import pandas as pd

        transition = self.transitions
        columns = {"share of time": stationary_on_host(transition)}
        columns["stays with probability"] = np.diagonal(transition, axis1=1, axis2=2)
        for name, values in self.draws.items():
            if name != "transition" and values.dims[2] == "state" and values.ndim <= 4:
                label = str(name) if values.ndim == 3 else f"{name} (first of {values.shape[3]})"
                columns[label] = np.asarray(values).reshape(*transition.shape[:2], -1)[:, :, 0]
        pairs = {name: zip(each.mean(axis=0), each.std(axis=0), strict=True) for name, each in columns.items()}
        shown = {name: [f"{mean:.4g} ± {sd:.1g}" for mean, sd in each] for name, each in pairs.items()}
        table = pd.DataFrame(shown).rename_axis("state")
        said = "not yet diagnosed: call diagnose(data)" if self.verdict is None else str(self.verdict)
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        more = f"<p>and {len(table) - MOST_ROWS} more states</p>" if len(table) > MOST_ROWS else ""
        return (
            f"<div class='longhmm-posterior'><p><b>Posterior</b>: {escape(self._headline)}, {escape(repr(self.model))}"
            f"<br>{escape(said)}</p>{f'<ul>{notes}</ul>' if notes else ''}"
            f"{table.head(MOST_ROWS).to_html(border=0)}{more}</div>"
        )


def generators_from(transitions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of transition matrices `(n, K, K)`, made generators, and which of them were such already `(n,)`."""
    from scipy.linalg import logm

    values, vectors = np.linalg.eig(transitions)
    found, apart = np.zeros(transitions.shape, complex), np.linalg.cond(vectors) < APART
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a singular matrix: handled below
        logs = np.log(values.astype(complex))[:, None, :]
        found[apart] = (vectors * logs)[apart] @ np.linalg.inv(vectors[apart])
        for each in np.flatnonzero(~apart):  # eigenvectors that fall together do not tell the matrix; this takes long
            found[each] = logm(transitions[each])
    valid = np.isfinite(found).all(axis=(1, 2)) & (np.abs(found.imag).max(axis=(1, 2)) < NEGATIVE)
    valid &= np.linalg.svd(transitions, compute_uv=False)[:, -1] > SINGULAR
    stay = np.eye(transitions.shape[1])
    rates = np.nan_to_num(found.real, nan=0.0, posinf=0.0, neginf=0.0) * (1.0 - stay)
    valid &= rates.min(axis=(1, 2)) > -NEGATIVE
    rates = np.maximum(rates, 0.0)
    return rates - stay * rates.sum(axis=2)[:, None], valid


def levels(posterior: Draws, *, interval: float = 0.9, preprocessing: Preprocessing | None = None) -> pd.DataFrame:
    """One row per state: `level` at the posterior mean, and the ends of its central interval over the draws, in the
    units of the file where `preprocessing` says what was done to the recording."""
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


def convergence(draws: xr.Dataset) -> dict[str, xr.Dataset]:
    """`r_hat`, `ess_bulk` and `ess_tail` of every entry; NaN for entries that never move, such as fixed transitions."""
    measures = {"r_hat": r_hat, "ess_bulk": bulk_effective_size, "ess_tail": tail_effective_size}
    return {name: draws.map(partial(_measured, measure)) for name, measure in measures.items()}


def _measured(measure: Callable[[np.ndarray], np.ndarray], values: xr.DataArray) -> xr.DataArray:
    flat = np.asarray(values, np.float64).reshape(*values.shape[:2], -1)
    found = measure(flat) if flat.shape[1] >= SHORTEST else np.nan
    found = np.where(np.ptp(flat, axis=(0, 1)) > 0, found, np.nan)
    return values.isel(chain=0, draw=0, drop=True).copy(data=found.reshape(values.shape[2:]))


def sd_errors(draws: np.ndarray) -> np.ndarray:
    """`(P,)` relative standard error of the standard deviation of each column of `(chain, draw, P)`."""
    squares = (draws - draws.mean(axis=(0, 1))) ** 2
    spread = squares.std(axis=(0, 1)) / squares.mean(axis=(0, 1))
    return np.asarray(0.5 * spread / np.sqrt(effective_sizes(squares)))
