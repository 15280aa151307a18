"""The decoded path as a table of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import open_data
from longhmm.errors import DataError, ModelError
from longhmm.posterior.decode import decode

if TYPE_CHECKING:
    import pandas as pd

    from longhmm.posterior.posterior import Posterior


def events(
    posterior: Posterior, data: Any, *, rate: float | None = None, path: np.ndarray | None = None
) -> pd.DataFrame:
    """One row per visit to a state: when it began and ended, which state, and at what level.

    Columns: `sequence`; `start` (inclusive) and `end` (exclusive) in samples, counted from the start of the sequence;
    `start_s` and `end_s` in seconds where `rate` (samples per second) is given; `state`; `level`, the emission's
    location in the units of the data. An event never runs from one sequence into the next.

    Args:
        path: states `(T,)`, if they were decoded already; otherwise the most probable path at the posterior mean.
    """
    import pandas as pd

    if rate is not None and not rate > 0:
        raise ModelError(f"rate must be a positive number of samples per second, got {rate!r}.")
    sequences = open_data(data)
    states = decode(posterior, sequences) if path is None else np.asarray(path)
    if states.shape != (sequences.length,):
        raise DataError(f"path must hold one state for each of {sequences.length} observations, got {states.shape}.")
    changes = np.flatnonzero(states[1:] != states[:-1]) + 1
    starts = np.union1d(changes, sequences.offsets[:-1]).astype(np.int64)
    ends = np.append(starts[1:], sequences.length)
    number = np.searchsorted(sequences.offsets, starts, side="right") - 1
    origin = sequences.offsets[number]
    table: dict[str, np.ndarray] = {"sequence": number, "start": starts - origin, "end": ends - origin}
    if rate is not None:
        table["start_s"], table["end_s"] = table["start"] / rate, table["end"] / rate
    table["state"] = states[starts].astype(np.int64)
    table["level"] = levels(posterior)[table["state"]]
    return pd.DataFrame(table)


def levels(posterior: Posterior) -> np.ndarray:
    """`(K,)`, first component of the emission's location in each state, at the posterior mean."""
    with jax.enable_x64(True):
        params = {name: jnp.asarray(value) for name, value in posterior.mean_params().items()}
        return np.asarray(posterior.model.emission.location(params))
