"""How long states last, how often they occur, and how often they follow one another."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.inference.markov import stationary_law
from longhmm.posterior.decode import occupancy
from longhmm.posterior.draws import Draws, central, check_rate

if TYPE_CHECKING:
    import pandas as pd

SINGULAR = 1e-13  # singular values below this are zero: such a matrix has no logarithm
NEGATIVE = 1e-9  # rates per sample below minus this are negative, not rounding


def dwell(posterior: Draws, rate: float | None, interval: float, data: Any, draws: int) -> pd.DataFrame:
    """See `Posterior.dwell`."""
    import pandas as pd

    check_rate(rate)
    transition = posterior.transitions
    with np.errstate(divide="ignore"):
        # The sum of the others keeps its digits where the state hardly ever changes.
        lengths = 1.0 / (transition.sum(axis=2) - np.diagonal(transition, axis1=1, axis2=2))
    quantities = {"dwell": lengths}
    if rate is not None:
        quantities["dwell_s"] = lengths / rate
    quantities["stationary"] = stationary_law(transition)
    if data is not None:
        quantities["occupancy"] = occupancy(posterior, open_data(data), draws)
    table = {}
    for name, values in quantities.items():
        table[name] = values.mean(axis=0)
        # A value that occurs, not one between two: a state that is never left lasts for ever.
        table[f"{name}_lower"], table[f"{name}_upper"] = central(values, interval, "inverted_cdf")
    return pd.DataFrame(table, index=pd.RangeIndex(posterior.model.n_states, name="state"))


def dwell_histogram(
    posterior: Draws,
    events: pd.DataFrame,
    *,
    rate: float | None = None,
    bins_per_decade: int = 10,
    interval: float = 0.9,
    every: int = 1,
) -> pd.DataFrame:
    """Decoded dwell times in bins of equal width on a logarithmic axis, state by state.

    Visits cut off by the ends of a sequence are left out: how long they lasted is not known.

    Columns: `state`; `lower`, `upper`, ends of the bin in seconds (in samples without `rate`): lengths with
    `lower < length <= upper`; `count` of decoded visits; `expected`, `expected_lower` and `expected_upper`, what
    geometric dwell times lead to expect of as many visits, as mean and central interval over the draws.

    Args:
        events: a table of events, as `Posterior.events` returns it.
        rate: samples per second of the recording whose samples `events` counts.
        every: samples of the recording per observation of the model, if it was decimated.
    """
    import pandas as pd

    check_rate(rate)
    if bins_per_decade < 1:
        raise ModelError(f"bins_per_decade must be at least 1, got {bins_per_decade!r}.")
    whole = complete_visits(events)
    samples = np.maximum(np.rint((whole["end"] - whole["start"]).to_numpy() / every), 1).astype(np.int64)
    edges = _edges(int(samples.max(initial=1)), bins_per_decade)
    unit = every if rate is None else every / rate
    tables = []
    for state in range(posterior.model.n_states):
        mine = samples[whole["state"].to_numpy() == state]
        # P(length > n) = stay^n, so the bin (a, b] has probability stay^a - stay^b.
        survival = posterior.transitions[:, state, state, None] ** edges
        expected = len(mine) * (survival[:, :-1] - survival[:, 1:])
        lower, upper = central(expected, interval)
        table = {
            "state": state,
            "lower": edges[:-1] * unit,
            "upper": edges[1:] * unit,
            "count": np.bincount(np.searchsorted(edges, mine, side="left") - 1, minlength=len(edges) - 1),
            "expected": expected.mean(axis=0),
            "expected_lower": lower,
            "expected_upper": upper,
        }
        tables.append(pd.DataFrame(table))
    return pd.concat(tables, ignore_index=True)


def complete_visits(events: pd.DataFrame) -> pd.DataFrame:
    """The events whose beginning and end were both seen."""
    changes = events["sequence"].to_numpy()[1:] != events["sequence"].to_numpy()[:-1]
    return events[~(np.append(True, changes) | np.append(changes, True))]


def _edges(longest: int, per_decade: int) -> np.ndarray:
    """Whole numbers of samples, rising, about equally spaced on a logarithmic axis; (0, 1] is the first bin."""
    decades = np.log10(max(longest, 2))
    steps = np.arange(int(np.ceil(decades * per_decade)) + 1) / per_decade
    grid = np.unique(np.floor(10**steps + 1e-9).astype(np.int64))
    return np.concatenate([[0], grid[grid < longest], [max(longest, 1)]])


@dataclass(frozen=True)
class Rates:
    """Rates of transitions, per second (per sample without a sampling rate).

    Tables have one row per pair of states: `state`, `to_state`, and the `mean`, `lower` and `upper` end of the rate.

    Attributes:
        generator: `(K, K)` posterior mean of the generator Q of a process in continuous time, whose transition matrix
            over one sample is `A = exp(Q / rate)`; rows sum to zero.
        table: its entries with intervals.
        switching: how often one state follows another in the long run.
        embeddable: share of the draws for which such a process exists.
        warning: a sentence where it does not exist for some draws, else None.
    """

    generator: np.ndarray
    table: pd.DataFrame
    switching: pd.DataFrame
    embeddable: float
    warning: str | None


def rates(posterior: Draws, rate: float | None, interval: float, draws: int) -> Rates:
    """See `Posterior.rates`."""
    check_rate(rate)
    transition, scale = posterior.stacked(draws)["transition"], rate or 1.0
    found = [generator_of(each) for each in transition]
    share = float(np.mean([embeddable for _, embeddable in found]))
    warning = None
    if share < 1.0:
        warning = (
            f"for {1 - share:.0%} of the draws no process in continuous time has the transition matrix of the model, "
            "so rates are approximations: sample faster, or read the transition matrix itself."
        )
        warnings.warn(warning, stacklevel=3)
    generators = np.stack([generator for generator, _ in found]) * scale
    switching = stationary_law(transition)[:, :, None] * transition * scale
    tables = (_pairs(generators, interval, diagonal=True), _pairs(switching, interval, diagonal=False))
    return Rates(generators.mean(axis=0), *tables, share, warning)


def generator_of(transition: np.ndarray) -> tuple[np.ndarray, bool]:
    """The logarithm of a transition matrix, made a generator, and whether it was one already."""
    from scipy.linalg import logm

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a singular matrix: handled below
        found = np.asarray(logm(np.asarray(transition, np.float64)))
    invertible = float(np.linalg.svd(transition, compute_uv=False)[-1]) > SINGULAR
    valid = invertible and bool(np.isfinite(found).all()) and float(np.abs(found.imag).max()) < NEGATIVE
    generator = np.nan_to_num(found.real, nan=0.0, posinf=0.0, neginf=0.0)
    np.fill_diagonal(generator, 0.0)
    valid = valid and float(generator.min(initial=0.0)) > -NEGATIVE
    generator = np.maximum(generator, 0.0)
    np.fill_diagonal(generator, -generator.sum(axis=1))
    return generator, valid


def _pairs(values: np.ndarray, interval: float, *, diagonal: bool) -> pd.DataFrame:
    import pandas as pd

    lower, upper = central(values, interval)
    mean = values.mean(axis=0)
    pairs = [(i, j) for i, j in np.ndindex(*mean.shape) if diagonal or i != j]
    rows = [(i, j, mean[i, j], lower[i, j], upper[i, j]) for i, j in pairs]
    return pd.DataFrame(rows, columns=["state", "to_state", "mean", "lower", "upper"])
