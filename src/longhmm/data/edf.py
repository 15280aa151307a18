"""European Data Format (.edf) and its BioSemi variant (.bdf), by pyedflib."""

from __future__ import annotations

import functools
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from longhmm.data.array_source import Columns, column_indices
from longhmm.data.recorded import Channels, RecordedSource, missing_library
from longhmm.errors import DataError

# The library refuses to open a file twice, so all sources of one file share its reader, one at a time.
_READERS: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()


def open_edf(path: Path, columns: Columns = None) -> RecordedSource:
    """The signals of an EDF file, or those chosen by label or number; they must share one sampling rate."""
    return RecordedSource(str(path), functools.partial(_channels, path, columns), columns)


def _reader(path: Path) -> Any:
    try:
        import pyedflib
    except ImportError as error:
        raise missing_library(path, "pyedflib", "edf") from error
    key = str(path.resolve())
    with _LOCK:
        file = _READERS.get(key)
        if file is None:
            file = _READERS[key] = pyedflib.EdfReader(key)
    return file


def _channels(path: Path, columns: Columns) -> Channels:
    file = _reader(path)
    labels = [label.strip() for label in file.getSignalLabels()]
    chosen = column_indices(columns, labels, str(path))
    used = list(range(len(labels))) if chosen is None else chosen
    rates = [float(file.getSampleFrequency(each)) for each in range(len(labels))]
    if len({rates[each] for each in used}) > 1:
        listed = ", ".join(f"{labels[each]} at {rates[each]:g} Hz" for each in used)
        raise DataError(f"the signals of {path} have different rates ({listed}); choose one with columns=[...]")
    lengths = file.getNSamples()

    def fetch(start: int, stop: int, wanted: list[int]) -> np.ndarray:
        with _LOCK:
            return np.stack([file.readSignal(each, start, stop - start) for each in wanted], axis=1)

    units = [file.getPhysicalDimension(each) for each in range(len(labels))]
    return Channels(int(lengths[used[0]]), labels, units, rates[used[0]], fetch)
