"""Array files: NumPy (.npy, .npz), Zarr and HDF5. Opening reads the header only (an .npz is loaded whole)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from longhmm.data.array_source import ArraySource, Columns, SlicedSource, one_line
from longhmm.data.formats import library, opener
from longhmm.errors import DataError

# What people call the number of samples per second, and the seconds from one sample to the next.
RATES = {"rate", "rate_hz", "fs", "sampling_rate", "sample_rate", "sampling_frequency"}
INTERVALS = {"dt", "dt_s", "sampling_interval", "sample_interval"}


@opener(".npy")
def open_npy(path: Path, columns: Columns = None) -> SlicedSource:
    """A memory-mapped .npy file."""
    return SlicedSource(_map_npy(path), str(path), columns, reopen=functools.partial(_map_npy, path))


def _map_npy(path: Path) -> np.ndarray:
    try:
        _check_npy_size(path)
        return np.lib.format.open_memmap(path, mode="r")
    except DataError:
        raise
    except (ValueError, OSError, EOFError, SyntaxError, TypeError, OverflowError, TokenError) as error:
        raise DataError(
            f"{path} is not a readable .npy file ({one_line(error)}); "
            "write it again with numpy.save, as an array of numbers"
        ) from error


def _check_npy_size(path: Path) -> None:
    """A file cut short must be reported when it is opened, with the last row it still holds."""
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        # Version 3 differs from 2 only in the encoding of field names, which numeric arrays do not have.
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = reader(file)
        held = path.stat().st_size - file.tell()
    if dtype.hasobject:
        raise DataError(f"{path} holds Python objects; save it as an array of numbers, with NaN for missing values")
    row = dtype.itemsize
    for size in shape[1:]:
        row *= size
    if shape and held < shape[0] * row:
        raise DataError(
            f"{path} ends early, after row {held // row} of {shape[0]} ({held:,} of {shape[0] * row:,} bytes); "
            "copy or write the file again"
        )


@opener(".npz", datasets=True)
def open_npz(path: Path, columns: Columns = None, dataset: str | None = None) -> ArraySource:
    """One array of an .npz archive, loaded whole because its bytes are packed (use .npy for what exceeds memory)."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            name = choose(dataset, archive.files, _worth_choosing(archive), str(path))
            source = ArraySource(archive[name], f"{path}[{name}]", columns)
            source.rate = rate_among({key: archive[key] for key in archive.files if key in RATES | INTERVALS})
            return source
    except DataError:
        raise
    except Exception as error:  # a damaged archive trips NumPy, zipfile or the decompressor, each in its own way
        raise DataError(
            f"{path} is not a readable .npz file ({one_line(error)}); "
            "write it again with numpy.savez, as arrays of numbers"
        ) from error


def _worth_choosing(archive: Any) -> list[str]:
    """Names of the arrays with an axis of time; single numbers beside them describe the recording."""
    return [name for name in archive.files if archive[name].ndim] or list(archive.files)


def rate_among(values: Mapping[str, Any]) -> float | None:
    """Samples per second, where one of the usual names holds it (or the time between samples), else None."""
    for name, value in values.items():
        known = np.asarray(value)
        if known.size == 1 and known.dtype.kind in "iuf" and float(known.reshape(())) > 0:
            number = float(known.reshape(()))
            return number if name in RATES else 1.0 / number
    return None


@opener(".zarr", datasets=True)
def open_zarr(store: Any, columns: Columns = None, dataset: str | None = None) -> SlicedSource:
    """An array in a Zarr directory, address, or store object."""
    import zarr

    name = str(store)
    try:
        node = zarr.open(store if not isinstance(store, Path) else name, mode="r")
    except Exception as error:  # each kind of store has its own errors
        raise DataError(
            f"{name} is not a readable Zarr store ({one_line(error)}); give the folder that zarr wrote"
        ) from error
    source = open_node(node, name, columns, dataset)
    source.concurrent = True
    return source


@opener(".h5", ".hdf5", datasets=True)
def open_hdf5(path: Path, columns: Columns = None, dataset: str | None = None) -> SlicedSource:
    """A dataset of an HDF5 file: the one named, or the only numeric one."""
    node = hdf5_file(path)
    chosen = choose(dataset, *_arrays_in(node, str(path)), str(path))
    reopen = functools.partial(_hdf5_dataset, path, chosen)
    try:
        source = SlicedSource(node[chosen], f"{path}[{chosen}]", columns, reopen=reopen)
        source.rate = _rate_of(node[chosen])
    except DataError:
        raise
    except Exception as error:
        raise damaged(str(path), error) from error
    return source


def hdf5_file(path: Path, extra: str = "hdf5") -> Any:
    """An HDF5 file, opened for reading; `extra` brings the library along."""
    h5py = library(extra, path)
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DataError(
            f"{path} is not a readable HDF5 file ({one_line(error)}); it may be cut short, so copy or write it again"
        ) from error


def _hdf5_dataset(path: Path, dataset: str) -> Any:
    return hdf5_file(path)[dataset]


def open_node(node: Any, name: str, columns: Columns = None, dataset: str | None = None) -> SlicedSource:
    """A Zarr or HDF5 array, or one array inside a group of either."""
    if hasattr(node, "shape"):
        if dataset is not None:
            raise DataError(f"dataset={dataset!r} was given but {name} is itself an array; leave dataset out")
        source = SlicedSource(node, name, columns)
        source.rate = _rate_of(node)
        return source
    chosen = choose(dataset, *_arrays_in(node, name), name)
    source = SlicedSource(node[chosen], f"{name}[{chosen}]", columns)
    source.rate = _rate_of(node[chosen])
    return source


def _rate_of(node: Any) -> float | None:
    """The sampling rate among the attributes of an array, if it is there."""
    return rate_among({name: node.attrs[name] for name in node.attrs if name in RATES | INTERVALS})


def _arrays_in(group: Any, source: str) -> tuple[list[str], list[str]]:
    """Names of all arrays below a group, and of those that could be observations: numeric with one or two axes."""
    try:
        members: list[tuple[str, Any]] = []
        if hasattr(group, "visititems"):
            group.visititems(lambda name, item: members.append((name, item)))
        else:
            members.extend(group.members(max_depth=None))
        arrays = [(name, item) for name, item in members if hasattr(item, "shape") and hasattr(item, "dtype")]
        numeric = [name for name, item in arrays if np.dtype(item.dtype).kind in "biuf" and len(item.shape) in (1, 2)]
    except Exception as error:  # damaged in a place that is met only now
        raise damaged(source, error) from error
    return [name for name, _ in arrays], numeric


def damaged(source: str, error: Exception) -> DataError:
    """The error for a file that opens, but has something wrong inside."""
    return DataError(f"{source} cannot be read ({one_line(error)}); it is damaged, so copy or write it again")


def choose(dataset: str | None, names: list[str], candidates: list[str], source: str) -> str:
    """The array that was asked for, or the only candidate."""
    if dataset is not None:
        wanted = dataset.strip("/")
        if wanted not in names:
            raise DataError(f"{source} has no array named {dataset!r}; dataset= must be one of {sorted(names)}")
        return wanted
    if not candidates:
        raise DataError(f"{source} holds no numeric array of one or two dimensions (it holds {sorted(names)}); add one")
    if len(candidates) > 1:
        raise DataError(f"{source} holds several arrays; choose one with dataset=, from {sorted(candidates)}")
    return candidates[0]
