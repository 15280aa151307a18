"""Neurodata Without Borders (.nwb): HDF5 whose time series carry their rate, unit and scale, read by h5py."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

from longhmm.data.array_source import Columns, checked_shape
from longhmm.data.file_sources import choose, damaged, hdf5_file
from longhmm.data.recorded import Channels, RecordedSource
from longhmm.errors import DataError


def open_nwb(path: Path, dataset: str | None = None, columns: Columns = None) -> RecordedSource:
    """One time series of an NWB file in its physical unit: the one named, or the only one that was acquired.

    `dataset` is the path of the series ("acquisition/current"), or its last part where that is unique.
    """
    series = _chosen(path, dataset)
    return RecordedSource(f"{path}[{series}]", functools.partial(_channels, path, series), columns)


def _chosen(path: Path, dataset: str | None) -> str:
    file = hdf5_file(path, "nwb")
    found: list[str] = []
    try:
        file.visititems(lambda name, node: found.append(name) if _is_series(node) else None)
    except Exception as error:  # the library finds damage only where it looks
        raise damaged(str(path), error) from error
    if dataset is None:
        acquired = [name for name in found if name.startswith("acquisition/")]
        return choose(None, found, acquired or found, str(path))
    wanted = dataset.strip("/").removesuffix("/data")
    ends = [name for name in found if name == wanted or name.rpartition("/")[2] == wanted]
    return ends[0] if len(ends) == 1 else choose(dataset, found, found, str(path))


def _is_series(node: Any) -> bool:
    data = node.get("data") if hasattr(node, "get") and hasattr(node, "visititems") else None
    return data is not None and hasattr(data, "shape") and data.dtype.kind in "biuf" and len(data.shape) in (1, 2)


def _channels(path: Path, series: str) -> Channels:
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
    return Channels(length, names, [_text(data.attrs.get("unit", ""))] * dim, _rate(node, path, series), fetch, dtype)


def _rate(node: Any, path: Path, series: str) -> float:
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


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
