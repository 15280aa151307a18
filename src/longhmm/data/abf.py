"""Axon Binary Files (.abf), versions 1 and 2: the header is read by pyabf, the samples are mapped."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from longhmm.data.array_source import Columns
from longhmm.data.recorded import Channels, RecordedSource, missing_library
from longhmm.errors import DataError


def open_abf(path: Path, columns: Columns = None) -> RecordedSource:
    """All channels of an ABF file, or those chosen by name or number; every sweep is a sequence of its own."""
    return RecordedSource(str(path), functools.partial(_channels, path), columns)


def _channels(path: Path) -> Channels:
    try:
        import pyabf
    except ImportError as error:
        raise missing_library(path, "pyabf", "abf") from error
    header = pyabf.ABF(str(path), loadData=False)
    count = int(header.channelCount)
    integers = header.dataPointByteSize == 2
    points = int(header.dataPointCount)
    held = (path.stat().st_size - int(header.dataByteStart)) // int(header.dataPointByteSize)
    if held < points:
        raise DataError(f"{path} ends early, after sample {held // count} of {points // count}; copy it again")
    raw = np.memmap(
        path, np.dtype("<i2") if integers else np.dtype("<f4"), "r", int(header.dataByteStart), (points // count, count)
    )
    gain = np.asarray(header._dataGain, np.float64) if integers else np.ones(count)
    offset = np.asarray(header._dataOffset, np.float64) if integers else np.zeros(count)

    def fetch(start: int, stop: int, chosen: list[int]) -> np.ndarray:
        return (raw[start:stop, chosen] * gain[chosen] + offset[chosen]).astype(np.float32)

    sweeps, each = int(header.sweepCount), int(header.sweepPointCount)
    lengths = [each] * sweeps if sweeps > 1 and sweeps * each == len(raw) else None
    units = ["" if unit == "?" else unit for unit in header.adcUnits]
    return Channels(len(raw), list(header.adcNames), units, float(header.dataRate), fetch, lengths=lengths)
