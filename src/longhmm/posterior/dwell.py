"""How long states last, how often they occur, and how often they follow one another."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.backends.stream import totals
from longhmm.data.sequences import open_data
from longhmm.inference.markov import stationary_law
from longhmm.posterior.draws import Draws, central, check_rate, labelled

if TYPE_CHECKING:
    import pandas as pd

SINGULAR = 1e-13  # singular values below this are zero: such a matrix has no logarithm
NEGATIVE = 1e-9  # rates per sample below minus this are negative, not rounding


@dataclass(frozen=True)
class Rates:
    """Rates of transitions, per second (per sample without a sampling rate).

    Tables have one row per pair of states: `state`, `to_state`, and the `mean`, `lower` and `upper` end of the rate.
    """

    generator: np.ndarray  # (K, K) posterior mean of Q, rows sum to zero; over one sample, A = exp(Q / rate)
    table: pd.DataFrame  # its entries with intervals
    switching: pd.DataFrame  # how often one state follows another in the long run
    embeddable: float  # share of the draws for which there is such a process in continuous time
    warning: str | None  # a sentence where there is none for some draws


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
            sequences = open_data(data)
            sums = [totals(self.model, params, sequences) for params in self.iterate(draws)]
            shares = [(each.first + each.transitions.sum(axis=0)) / sequences.length for each in sums]
            quantities["occupancy"] = np.stack(shares)
        table = {}
        for name, values in quantities.items():
            table[name] = values.mean(axis=0)
            # A value that occurs, not one between two: a state that is never left lasts for ever.
            table[f"{name}_lower"], table[f"{name}_upper"] = central(values, interval, "inverted_cdf")
        return labelled(table, {}, ("state",)).to_dataframe()

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
        generators, valid = zip(*map(generator_of, transition), strict=True)
        share, warning = float(np.mean(valid)), None
        if share < 1.0:
            warning = (
                f"for {1 - share:.0%} of the draws no process in continuous time has the transition matrix of the "
                "model, so rates are approximations: sample faster, or read the transition matrix itself."
            )
            warnings.warn(warning, stacklevel=2)
        generator = np.stack(generators) * scale
        switching = stationary_law(transition)[:, :, None] * transition * scale
        tables = (_pairs(generator, interval, diagonal=True), _pairs(switching, interval, diagonal=False))
        return Rates(generator.mean(axis=0), *tables, share, warning)


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
    lower, upper = central(values, interval)
    columns = {"mean": values.mean(axis=0), "lower": lower, "upper": upper}
    table = labelled(columns, {}, ("state", "to_state")).to_dataframe().reset_index()
    return table if diagonal else table[table["state"] != table["to_state"]].reset_index(drop=True)
