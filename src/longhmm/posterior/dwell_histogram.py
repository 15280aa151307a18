"""How long visits lasted: counts in logarithmic bins, beside what the model expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from longhmm.errors import ModelError

if TYPE_CHECKING:
    import pandas as pd

    from longhmm.posterior.posterior import Posterior


def dwell_histogram(
    posterior: Posterior,
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

    if rate is not None and not rate > 0:
        raise ModelError(f"rate must be a positive number of samples per second, got {rate!r}.")
    if bins_per_decade < 1 or not 0 < interval < 1:
        raise ModelError(
            f"bins_per_decade must be at least 1 and interval lie between 0 and 1, got {bins_per_decade!r} and "
            f"{interval!r}."
        )
    whole = complete_visits(events)
    samples = np.maximum(np.rint((whole["end"] - whole["start"]).to_numpy() / every), 1).astype(np.int64)
    longest = int(samples.max()) if len(samples) else 1
    edges = _edges(longest, bins_per_decade)
    transition = np.asarray(posterior.draws["transition"]).reshape(-1, *(posterior.model.n_states,) * 2)
    stay = np.diagonal(transition, axis1=1, axis2=2)
    unit = every if rate is None else every / rate
    rows = []
    for state in range(posterior.model.n_states):
        mine = samples[whole["state"].to_numpy() == state]
        counts = np.bincount(np.searchsorted(edges, mine, side="left") - 1, minlength=len(edges) - 1)
        # P(length > n) = stay^n, so the bin (a, b] has probability stay^a - stay^b.
        survival = stay[:, state, None] ** edges
        expected = len(mine) * (survival[:, :-1] - survival[:, 1:])
        lower, upper = np.quantile(expected, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
        rows.append(
            pd.DataFrame(
                {
                    "state": state,
                    "lower": edges[:-1] * unit,
                    "upper": edges[1:] * unit,
                    "count": counts,
                    "expected": expected.mean(axis=0),
                    "expected_lower": lower,
                    "expected_upper": upper,
                }
            )
        )
    return pd.concat(rows, ignore_index=True)


def complete_visits(events: pd.DataFrame) -> pd.DataFrame:
    """The events whose beginning and end were both seen."""
    sequence = events["sequence"].to_numpy()
    first = np.append(True, sequence[1:] != sequence[:-1])
    last = np.append(sequence[1:] != sequence[:-1], True)
    return events[~(first | last)]


def _edges(longest: int, per_decade: int) -> np.ndarray:
    """Whole numbers of samples, rising, about equally spaced on a logarithmic axis; (0, 1] is the first bin."""
    decades = np.log10(max(longest, 2))
    steps = np.arange(int(np.ceil(decades * per_decade)) + 1) / per_decade
    grid = np.unique(np.floor(10**steps + 1e-9).astype(np.int64))
    return np.concatenate([[0], grid[grid < longest], [max(longest, 1)]])
