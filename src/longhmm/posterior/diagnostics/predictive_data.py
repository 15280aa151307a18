"""Data sets simulated at draws of the posterior, and a few statistics of them beside those of the data."""

import itertools
from typing import Any, NamedTuple

import numpy as np

from longhmm.backends.stream import Stretches
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.posterior.diagnostics.drawn_path import excerpts
from longhmm.posterior.draws import Draws

ROWS, PIECES = 20_000, 20  # of the data, at most
FAR = 10  # rows apart, for the second correlation
STRETCHES = 10  # for slow changes
WORST = "score of the worst tenth"


class Statistic(NamedTuple):
    """One number of one feature, or of all (-1)."""

    name: str
    feature: int
    observed: float
    simulated: np.ndarray  # (n,) the same of each simulated data set

    @property
    def share(self) -> float:
        """Of simulated data sets that have no more of it."""
        return float(np.mean(self.simulated <= self.observed))


def predictive_statistics(posterior: Draws, data: Any, *, count: int = 20, seed: int = 0) -> list[Statistic]:
    """Compare data, or up to 20,000 rows that stand for all, with data sets of the same shape and gaps."""
    model = posterior.model
    if model.transitions.varies or model.formulas:
        raise ModelError("data sets are simulated only for models without covariates, and this one has some.")
    part, counts, _ = excerpts(model.opened(data), ROWS)
    ends = part.offsets[: PIECES + 1].tolist()
    rows = part.rows(0, ends[-1])
    seen = rows.observed & counts[: ends[-1], None]
    fixed = posterior.params_at(*posterior.thinned(1)[0])

    def statistics(values: np.ndarray) -> dict[tuple[str, int], float]:
        values = np.where(seen, values, np.nan)
        return _statistics(values, ends) | {(WORST, -1): _worst_score(model, fixed, values, ends)}

    found = []
    for number, params in enumerate(posterior.iterate(count)):
        pieces = simulate(model, params, np.diff(ends).tolist(), seed=seed + number)[1]
        found.append(statistics(np.concatenate(pieces)))
    observed = statistics(rows.values)
    return [
        Statistic(name, feature, value, np.array([each[name, feature] for each in found]))
        for (name, feature), value in observed.items()
        if np.isfinite(value)
    ]


def _statistics(values: np.ndarray, ends: list[int]) -> dict[tuple[str, int], float]:
    """By name and feature, of rows `(n, D)` with NaN where missing, cut into sequences."""
    apart = np.full((FAR, values.shape[1]), np.nan)  # between sequences, which are no neighbours
    pieces = [values[start:stop] for start, stop in itertools.pairwise(ends)]
    joined = np.concatenate([part for piece in pieces for part in (piece, apart)])
    found: dict[tuple[str, int], float] = {}
    for feature, column in enumerate(joined.T):
        known = column[np.isfinite(column)]
        if len(known) < 2 or known.std() == 0:
            continue
        centred = (column - known.mean()) / known.std()
        steps = np.abs(np.diff(column))
        numbers = {
            "mean": known.mean(),
            "standard deviation": known.std(),
            "skewness": np.nanmean(centred**3),
            "largest step": np.nanmax(steps) if np.isfinite(steps).any() else np.nan,
            "correlation of neighbours": _mean(centred[1:] * centred[:-1]),
            f"correlation {FAR} rows apart": _mean(centred[FAR:] * centred[:-FAR]),
            "spread of means of tenths": np.std(
                [part.mean() for part in np.array_split(known, STRETCHES) if len(part)]
            ),
        }
        found |= {(name, feature): float(number) for name, number in numbers.items()}
    return found


def _worst_score(model: HMM, params: dict[str, np.ndarray], values: np.ndarray, ends: list[int]) -> float:
    """Log density of an observed row given all before it, on average over that tenth of the rows where it is lowest.

    Parameters were learnt from all data, to which a tenth of 20,000 rows adds little: it is nearly as if held out.
    """
    sequences = open_data(values, lengths=np.diff(ends))
    stretches = Stretches(model, sequences, STRETCHES)
    edges = stretches.edges
    rows = np.add.reduceat(np.isfinite(values).any(axis=1), edges[:-1])
    return float(np.min(stretches.log_likelihoods(params)[rows > 0] / rows[rows > 0], initial=np.inf))


def _mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")
