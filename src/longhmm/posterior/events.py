"""The decoded path as a table of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.data.preprocess import Preprocessing
from longhmm.data.sequences import open_data
from longhmm.errors import DataError, ModelError
from longhmm.posterior.decode import decode
from longhmm.posterior.levels import levels

if TYPE_CHECKING:
    import pandas as pd

    from longhmm.posterior.posterior import Posterior


def events(
    posterior: Posterior,
    data: Any,
    *,
    rate: float | None = None,
    path: np.ndarray | None = None,
    interval: float = 0.9,
    preprocessing: Preprocessing | None = None,
) -> pd.DataFrame:
    """See `Posterior.events`."""
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
    every = 1 if preprocessing is None else preprocessing.decimate
    table: dict[str, np.ndarray] = {
        "sequence": number,
        "start": (starts - origin) * every,
        "end": (ends - origin) * every,
    }
    if rate is not None:
        table["start_s"], table["end_s"] = table["start"] / rate, table["end"] / rate
    table["state"] = states[starts].astype(np.int64)
    for name, values in levels(posterior, interval=interval, preprocessing=preprocessing).items():
        table[str(name)] = values.to_numpy()[table["state"]]
    return pd.DataFrame(table)
