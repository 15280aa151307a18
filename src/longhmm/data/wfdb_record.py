"""WFDB records (.hea with its .dat), as PhysioNet has them, by wfdb."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from longhmm.data.array_source import Columns
from longhmm.data.recorded import Channels, RecordedSource, missing_library
from longhmm.errors import DataError


def open_wfdb(path: Path, columns: Columns = None) -> RecordedSource:
    """The signals of a record in physical units, or those chosen by name or number; invalid samples are missing."""
    return RecordedSource(str(path), functools.partial(_channels, path), columns)


def _channels(path: Path) -> Channels:
    try:
        import wfdb
    except ImportError as error:
        raise missing_library(path, "wfdb", "wfdb") from error
    if not path.with_suffix(".hea").exists():
        raise DataError(f"{path} has no header {path.with_suffix('.hea').name} beside it; copy both files")
    record = str(path.with_suffix(""))
    header = wfdb.rdheader(record)

    def fetch(start: int, stop: int, chosen: list[int]) -> np.ndarray:
        return wfdb.rdrecord(record, sampfrom=start, sampto=stop, channels=chosen).p_signal

    units = ["" if unit is None else unit for unit in header.units]
    return Channels(int(header.sig_len), list(header.sig_name), units, float(header.fs), fetch, dtype=np.float64)
