"""How long states last, how often they occur, and how often they follow one another."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.data.sequences import open_data
from longhmm.inference.markov import stationary_law
from longhmm.posterior.decode import occupancy
from longhmm.posterior.draws import Draws, central, check_rate

if TYPE_CHECKING:
    import pandas as pd

SINGULAR = 1e-13  # singular values below this are zero: such a matrix has no logarithm
NEGATIVE = 1e-9  # rates per sample below minus this are negative, not rounding


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


class Timing(Draws):
    """Draws that say how long states last and how often they follow one another."""

    def dwell(
        self, *, rate: float | None = None, interval: float = 0.9, data: Any = None, draws: int = 20
    ) -> pd.DataFrame:
        """One row per state, each quantity with its posterior mean and the ends of its central interval.

        Columns: `dwell`, the expected length of a visit, `1 / (1 - A[k, k])`, in samples; `dwell_s`, the same in
        seconds where `rate` (samples per second) is given; `stationary`, the share of time in the long run; and, where
        `data` are given, `occupancy`, the share of their observations, averaged over `draws` draws.
        """
        import pandas as pd

        check_rate(rate)
        transition = self.transitions
        with np.errstate(divide="ignore"):
            # The sum of the others keeps its digits where the state hardly ever changes.
            lengths = 1.0 / (transition.sum(axis=2) - np.diagonal(transition, axis1=1, axis2=2))
        quantities = {"dwell": lengths}
        if rate is not None:
            quantities["dwell_s"] = lengths / rate
        quantities["stationary"] = stationary_law(transition)
        if data is not None:
            quantities["occupancy"] = occupancy(self, open_data(data), draws)
        table = {}
        for name, values in quantities.items():
            table[name] = values.mean(axis=0)
            # A value that occurs, not one between two: a state that is never left lasts for ever.
            table[f"{name}_lower"], table[f"{name}_upper"] = central(values, interval, "inverted_cdf")
        return pd.DataFrame(table, index=pd.RangeIndex(self.model.n_states, name="state"))

    def rates(self, *, rate: float | None = None, interval: float = 0.9, draws: int = 200) -> Rates:
        """Rates of transitions: the generator of a process in continuous time, and how often states switch.

        The generator is `Q = rate * log A` at each draw, by the matrix logarithm. Not every transition matrix belongs
        to such a process: the logarithm may be complex or have negative rates. Negative rates are then set to zero and
        the diagonal is made to fit, and a warning says how often.

        Args:
            rate: samples per second as the model sees them; without it, rates are per sample.
            interval: probability of the central interval.
            draws: how many draws to look at.
        """
        check_rate(rate)
        transition, scale = self.stacked(draws)["transition"], rate or 1.0
        found = [generator_of(each) for each in transition]
        share = float(np.mean([embeddable for _, embeddable in found]))
        warning = None
        if share < 1.0:
            warning = (
                f"for {1 - share:.0%} of the draws no process in continuous time has the transition matrix of the "
                "model, so rates are approximations: sample faster, or read the transition matrix itself."
            )
            warnings.warn(warning, stacklevel=2)
        generators = np.stack([generator for generator, _ in found]) * scale
        switching = stationary_law(transition)[:, :, None] * transition * scale
        tables = (_pairs(generators, interval, diagonal=True), _pairs(switching, interval, diagonal=False))
        return Rates(generators.mean(axis=0), *tables, share, warning)


def dwell_histogram(posterior: Draws, events: pd.DataFrame, *, per_decade: int = 10) -> pd.DataFrame:
    """Decoded dwell times in bins of equal width on a logarithmic axis, state by state.

    Visits cut off by the ends of a sequence are left out: how long they lasted is not known.

    Columns: `state`; `lower`, `upper`, ends of the bin in samples: lengths with `lower < length <= upper`; `count` of
    decoded visits; `expected`, what geometric dwell times lead to expect of as many visits, averaged over draws.
    """
    import pandas as pd

    whole = complete_visits(events)
    lengths, states = (whole["end"] - whole["start"]).to_numpy(), whole["state"].to_numpy()
    edges, tables = _edges(int(lengths.max(initial=1)), per_decade), []
    for state in range(posterior.model.n_states):
        mine = lengths[states == state]
        counts = np.bincount(np.searchsorted(edges, mine, side="left") - 1, minlength=len(edges) - 1)
        # P(length > n) = stay^n, so the bin (a, b] has probability stay^a - stay^b.
        survival = np.mean(posterior.transitions[:, state, state, None] ** edges, axis=0)
        expected = len(mine) * -np.diff(survival)
        table = {"state": state, "lower": edges[:-1], "upper": edges[1:], "count": counts, "expected": expected}
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
