"""Recordings in the formats of instruments: channels with names and units, at a known rate."""

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from longhmm.data.formats import library, opener
from longhmm.data.formats.containers import DAMAGED, choose, hdf5_file, is_numeric
from longhmm.data.source import Columns, Source, checked_shape, column_indices, refusing
from longhmm.errors import DataError


@dataclass
class Channels:
    """What the header of a recording says."""

    length: int  # samples of every channel
    names: Sequence[str]
    units: Sequence[str]
    rate: float  # samples per second
    fetch: Callable[[int, int, list[int]], np.ndarray]  # `(stop - start, n)` from start, stop and n channels
    dtype: Any = np.float32
    lengths: list[int] | None = None  # samples of each sweep, if there are several


Header = Callable[[Path, Columns], Channels]


class RecordedSource(Source):
    """Some channels of a recording, read on demand."""

    def __init__(self, name: str, reopen: Callable[[], Channels], columns: Columns = None) -> None:
        self.name, self.reopen = name, reopen
        header: Channels = self.opened
        self._chosen = column_indices(columns, list(header.names), name)
        self.length, self.dim, self.dtype = header.length, len(self._chosen), np.dtype(header.dtype)
        self.names = tuple(str(header.names[each]) for each in self._chosen)
        units = {str(header.units[each]).strip() for each in self._chosen}
        self.rate, self.unit = float(header.rate), next(iter(units)) or None if len(units) == 1 else None
        self.lengths = header.lengths
        if self.length < 1 or self.dim < 1:
            raise DataError(f"{name} is empty (no samples); give a recording with at least one.")
        if not self.rate > 0:
            raise DataError(f"{name} has the sampling rate {self.rate:g}; the file is damaged, write it again.")

    def fetch(self, start: int, stop: int) -> np.ndarray:
        return np.asarray(self.opened.fetch(start, stop, self._chosen), self.dtype)


def recording(*endings: str) -> Callable[[Header], Header]:
    """Register what reads a header, from the path and the columns that were asked for, for files with these endings."""

    def register(header: Header) -> Header:
        @opener(*endings)
        def open_recording(path: Path, columns: Columns = None) -> RecordedSource:
            return RecordedSource(str(path), functools.partial(header, path, columns), columns)

        return header

    return register


@recording(".abf")
def _abf(path: Path, columns: Columns) -> Channels:
    """Every sweep is a sequence of its own."""
    header = library("abf", path).ABF(str(path), loadData=False)
    count, points = int(header.channelCount), int(header.dataPointCount)
    integers = header.dataPointByteSize == 2
    held = (path.stat().st_size - int(header.dataByteStart)) // int(header.dataPointByteSize)
    if held < points:
        raise DataError(f"{path} ends early, after sample {held // count} of {points // count}; copy it again")
    kind = np.dtype("<i2" if integers else "<f4")
    raw = np.memmap(path, kind, "r", int(header.dataByteStart), (points // count, count))
    gain = np.asarray(header._dataGain, np.float64) if integers else np.ones(count)
    offset = np.asarray(header._dataOffset, np.float64) if integers else np.zeros(count)

    def fetch(start: int, stop: int, chosen: list[int]) -> np.ndarray:
        return (raw[start:stop, chosen] * gain[chosen] + offset[chosen]).astype(np.float32)

    sweeps, each = int(header.sweepCount), int(header.sweepPointCount)
    lengths = [each] * sweeps if sweeps > 1 and sweeps * each == len(raw) else None
    units = ["" if unit == "?" else unit for unit in header.adcUnits]
    return Channels(len(raw), list(header.adcNames), units, float(header.dataRate), fetch, lengths=lengths)


# pyedflib refuses to open a file twice, so all sources of one file share its reader, one at a time.
_READERS: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()


def _reader(path: Path) -> Any:
    pyedflib, key = library("edf", path), str(path.resolve())
    with _LOCK:
        return _READERS.get(key) or _READERS.setdefault(key, pyedflib.EdfReader(key))


@recording(".edf", ".bdf")
def _edf(path: Path, columns: Columns) -> Channels:
    """The signals that are used must share one sampling rate."""
    file = _reader(path)
    labels = [label.strip() for label in file.getSignalLabels()]
    used = column_indices(columns, labels, str(path))
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


@opener(".nwb", datasets=True)
def open_nwb(path: Path, columns: Columns = None, dataset: str | None = None) -> RecordedSource:
    """One time series of an NWB file in its physical unit: the only one that was acquired, or the one that `dataset`
    names by its path ("acquisition/current") or the last part of that."""
    found: list[str] = []

    def visit(name: str, node: Any) -> None:
        data = node.get("data") if hasattr(node, "visititems") else None
        if data is not None and hasattr(data, "shape") and is_numeric(data):
            found.append(name)

    file = hdf5_file(path, "nwb")
    with refusing(f"{path} cannot be read", DAMAGED):  # the library finds damage only where it looks
        file.visititems(visit)
    wanted = "" if dataset is None else dataset.strip("/").removesuffix("/data")
    ends = [name for name in found if wanted in (name, name.rpartition("/")[2])]
    acquired = [name for name in found if name.startswith("acquisition/")]
    series = ends[0] if len(ends) == 1 else choose(dataset, found, acquired or found, str(path))
    return RecordedSource(f"{path}[{series}]", functools.partial(_nwb, path, series), columns)


def _nwb(path: Path, series: str) -> Channels:
    node = hdf5_file(path, "nwb")[series]
    data = node["data"]
    length, dim = checked_shape(data.shape, f"{path}[{series}]")
    scale, offset = float(data.attrs.get("conversion", 1.0)), float(data.attrs.get("offset", 0.0))
    each = np.asarray(node["channel_conversion"]) if "channel_conversion" in node else np.ones(dim)
    plain = data.dtype.kind in "biu" and scale == 1.0 and offset == 0.0 and bool((each == 1.0).all())

    def fetch(start: int, stop: int, chosen: list[int]) -> np.ndarray:
        rows = np.asarray(data[start:stop]).reshape(stop - start, dim)[:, chosen]
        return rows if plain else rows * (scale * each[chosen]) + offset

    dtype = data.dtype if plain else np.result_type(data.dtype, np.float32)
    names = [f"{series.rpartition('/')[2]}{index if dim > 1 else ''}" for index in range(dim)]
    unit = data.attrs.get("unit", "")
    units = [unit.decode() if isinstance(unit, bytes) else str(unit)] * dim
    return Channels(length, names, units, _nwb_rate(node, path, series), fetch, dtype)


def _nwb_rate(node: Any, path: Path, series: str) -> float:
    if "starting_time" in node and "rate" in node["starting_time"].attrs:
        return float(node["starting_time"].attrs["rate"])
    stamps = node.get("timestamps")
    if stamps is None or len(stamps) < 2:
        raise DataError(f"{path}[{series}] has neither a rate nor timestamps; write it with a rate")
    # Checked at the ends and in the middle: a series with gaps has no one rate.
    middle = len(stamps) // 2
    early, late = middle / (stamps[middle] - stamps[0]), (len(stamps) - 1) / (stamps[-1] - stamps[0])
    if not abs(early - late) <= 1e-3 * late:
        raise DataError(f"{path}[{series}] was not sampled evenly; resample it to a fixed rate")
    return float(late)


@recording(".hea")
def _wfdb(path: Path, columns: Columns) -> Channels:
    """In physical units; invalid samples are missing."""
    wfdb = library("wfdb", path)
    if not path.with_suffix(".hea").exists():
        raise DataError(f"{path} has no header {path.with_suffix('.hea').name} beside it; copy both files")
    record = str(path.with_suffix(""))
    header = wfdb.rdheader(record)

    def fetch(start: int, stop: int, chosen: list[int]) -> np.ndarray:
        return wfdb.rdrecord(record, sampfrom=start, sampto=stop, channels=chosen).p_signal

    units = ["" if unit is None else unit for unit in header.units]
    return Channels(int(header.sig_len), list(header.sig_name), units, float(header.fs), fetch, dtype=np.float64)
