"""Files of arrays: NumPy (.npy, .npz), Zarr, HDF5, Parquet. Opening reads the header only (an .npz is loaded whole)."""

import functools
import io
import math
import mmap
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from longhmm.data.formats import library, opener
from longhmm.data.formats.tmaven import open_single_molecules
from longhmm.data.formats.traces import lengths_among, worth_choosing
from longhmm.data.source import ArraySource, Columns, SlicedSource, Source, column_indices, refusing, touched
from longhmm.errors import DataError

# What people call the number of samples per second, and the seconds from one sample to the next.
RATES = {"rate", "rate_hz", "fs", "sampling_rate", "sample_rate", "sampling_frequency"}
INTERVALS = {"dt", "dt_s", "sampling_interval", "sample_interval"}
_GROUPS_KEPT = 4  # decoded, since windows fall anywhere; more would approach holding the whole file
_DECODING = threading.Lock()  # a background reader and the main program may share a file
DAMAGED = "it is damaged, so copy or write it again"
NO_NPY, SAVE_AGAIN = "{} is not a readable .npy file", "write it again with numpy.save, as an array of numbers"


@opener(".npy")
def open_npy(path: Path, columns: Columns = None) -> SlicedSource:
    with refusing(NO_NPY.format(path), SAVE_AGAIN), path.open("rb") as file:
        start = file.read(12)  # magic, version, and how long the header is, in 2 bytes or 4
        short = start[6:7] == b"\x01"
        length = int.from_bytes(start[8 : 10 if short else 12], "little") - 2 * short
        shape, transposed, dtype, begin = _npy_header(start + file.read(max(0, length)))
        if dtype.hasobject:
            raise DataError(f"{path} holds Python objects; save it as an array of numbers, with NaN for missing values")
        _check_size(path, file, dtype, shape, begin)
    reopen = functools.partial(_map_npy, path, dtype, shape, begin, "F" if transposed else "C")
    return SlicedSource(np.broadcast_to(np.zeros((), dtype), shape), str(path), columns, reopen)


@functools.lru_cache(64)
def _npy_header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Shape, whether columns are stored one after the other, type, and where values begin."""
    file = io.BytesIO(header)
    version = np.lib.format.read_magic(file)
    # Version 3 differs from 2 only in the encoding of field names, which numeric arrays do not have.
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return *reader(file), file.tell()


def _map_npy(path: Path, dtype: np.dtype, shape: tuple[int, ...], begin: int, order: Any) -> np.ndarray:
    """The map, without what `numpy.memmap` looks up besides: short files are opened as often as they are read."""
    with refusing(NO_NPY.format(path), SAVE_AGAIN), path.open("rb") as file:
        _check_size(path, file, dtype, shape, begin)
        return np.ndarray(shape, dtype, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), begin, order=order)


def _check_size(path: Path, file: Any, dtype: np.dtype, shape: tuple[int, ...], begin: int) -> None:
    """A file cut short is reported when it is opened, with the last row it still holds."""
    held, row = os.fstat(file.fileno()).st_size - begin, dtype.itemsize * math.prod(shape[1:])
    if shape and held < shape[0] * row:
        early = f"after row {held // row} of {shape[0]} ({held:,} of {shape[0] * row:,} bytes)"
        raise DataError(f"{path} ends early, {early}; copy or write the file again")


@opener(".npz", datasets=True)
def open_npz(path: Path, columns: Columns = None, dataset: str | None = None) -> ArraySource:
    """One array of an .npz archive, loaded whole because its bytes are packed (use .npy for what exceeds memory)."""
    remedy = "write it again with numpy.savez, as arrays of numbers"
    with refusing(f"{path} is not a readable .npz file", remedy), np.load(path, allow_pickle=False) as archive:
        name = choose(dataset, archive.files, worth_choosing(archive), str(path))
        source = ArraySource(archive[name], f"{path}[{name}]", columns)
        source.rate, source.lengths = rate_among(archive), lengths_among(archive, source.length)
    return source


def rate_among(values: Mapping[str, Any]) -> float | None:
    """Samples per second, where one of the usual names holds it (or the time between samples), else None."""
    for name in values:
        if name in RATES | INTERVALS:
            known = np.asarray(values[name])
            if known.size == 1 and known.dtype.kind in "iuf" and (number := float(known.reshape(()))) > 0:
                return number if name in RATES else 1.0 / number
    return None


@opener(".zarr", datasets=True)
def open_zarr(store: Any, columns: Columns = None, dataset: str | None = None, name: str = "the array") -> SlicedSource:
    """An array in a Zarr directory, address, or store object; `name` is that of an open array or group, HDF5's too."""
    if any(hasattr(store, attribute) for attribute in ("shape", "visititems", "members")):
        return open_node(store, name, columns, dataset)
    import zarr

    name = str(store)
    with refusing(f"{name} is not a readable Zarr store", "give the folder that zarr wrote"):
        node = zarr.open(store if not isinstance(store, Path) else name, mode="r")
    source = open_node(node, name, columns, dataset)
    source.concurrent = True
    return source


@opener(".h5", ".hdf5", datasets=True)
def open_hdf5(path: Path, columns: Columns = None, dataset: str | None = None) -> SlicedSource:
    file = hdf5_file(path)
    return open_single_molecules(file, path, columns, dataset) or open_node(file, str(path), columns, dataset, path)


def hdf5_file(path: Path, extra: str = "hdf5") -> Any:
    h5py = library(extra, path)
    with refusing(f"{path} is not a readable HDF5 file", "it may be cut short, so copy or write it again"):
        return h5py.File(path, "r")


def _hdf5_dataset(path: Path, dataset: str) -> Any:
    return hdf5_file(path)[dataset]


def open_node(
    node: Any, name: str, columns: Columns = None, dataset: str | None = None, path: Path | None = None
) -> SlicedSource:
    """A Zarr or HDF5 array, or one array inside a group of either; with `path`, of a file that may be let go."""
    if hasattr(node, "shape") and dataset is not None:
        raise DataError(f"dataset={dataset!r} was given but {name} is itself an array; leave dataset out")
    with refusing(f"{name} cannot be read", DAMAGED):  # libraries find damage only where they look
        array, reopen, members = node, None, list[tuple[str, Any]]()
        if not hasattr(node, "shape"):
            if hasattr(node, "visititems"):
                node.visititems(lambda each, item: members.append((each, item)))
            else:
                members.extend(node.members(max_depth=None))
            arrays = {each: item for each, item in members if hasattr(item, "shape") and hasattr(item, "dtype")}
            dataset = choose(dataset, list(arrays), [each for each, item in arrays.items() if is_numeric(item)], name)
            array, reopen = node[dataset], None if path is None else functools.partial(_hdf5_dataset, path, dataset)
        source = SlicedSource(array, name if dataset is None else f"{name}[{dataset}]", columns, reopen)
        source.rate = rate_among(array.attrs)
    return source


def is_numeric(array: Any) -> bool:
    return np.dtype(array.dtype).kind in "biuf" and len(array.shape) in (1, 2)


def choose(dataset: str | None, names: list[str], candidates: list[str], source: str) -> str:
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


@opener(".parquet")
class ParquetSource(Source):
    """Numeric columns of a Parquet file; nulls are NaN, and integer columns without nulls stay integer."""

    def __init__(self, path: Path, columns: Columns = None) -> None:
        self.name, file = str(path), _parquet_file(path)
        names = [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]
        self._columns = [names[i] for i in column_indices(columns, names, self.name)]
        self.dim, self.names = len(self._columns), tuple(self._columns)
        self.dtype = np.result_type(*(_column_dtype(file, name, names, self.name) for name in self._columns))
        rows = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
        self.length = int(self._starts[-1])
        if self.length == 0:
            raise DataError(f"{self.name} is empty (no rows); pass a file with at least one observation")
        self.reopen = functools.partial(_row_groups, path, self._columns, self.dtype)

    def fetch(self, start: int, stop: int) -> np.ndarray:
        read = []
        for group, first, last in touched(self._starts, start, stop):
            rows = f"rows {self._starts[group]} to {self._starts[group + 1]} (row group {group}) of {self.name}"
            remedy = "the file may be damaged, so write or copy it again"
            with refusing(f"{rows} could not be read", remedy), _DECODING:  # each codec has its own errors
                read.append(self.opened(group)[first:last])
        return np.concatenate(read)


def _parquet_file(path: Path) -> Any:
    library("parquet", path)
    from pyarrow.parquet import ParquetFile

    remedy = "its footer may be missing because it was cut short, so copy or write it again"
    with refusing(f"{path} is not a readable Parquet file", remedy):
        return ParquetFile(path)


def _row_groups(path: Path, columns: list[str], dtype: np.dtype) -> Callable[[int], np.ndarray]:
    """What gives the values of a row group, the last few of which are kept."""
    file = _parquet_file(path)

    @functools.lru_cache(_GROUPS_KEPT)
    def decoded(group: int) -> np.ndarray:
        table = file.read_row_group(group, columns=columns)
        # Columns are taken by name: the file's order need not be the order asked for.
        return np.stack([table.column(name).to_numpy().astype(dtype, copy=False) for name in columns], axis=1)

    return decoded


def _column_dtype(file: Any, name: str, names: list[str], source: str) -> np.dtype:
    from pyarrow import types

    kinds = {each: file.schema_arrow.field(each).type for each in names}
    kind = kinds[name]
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        numeric = [other for other, k in kinds.items() if types.is_integer(k) or types.is_floating(k)]
        wrong = f"column {name!r} of {source} must be numeric but has type {kind}"
        raise DataError(f"{wrong}; choose the observations with columns=[...] from {numeric}")
    if types.is_floating(kind):
        return np.dtype(np.float64 if kind.bit_width == 64 else np.float32)
    # A null needs NaN, so an integer column stays integer only where the footer promises that it has none.
    if file.schema_arrow.field(name).nullable:
        position = [file.schema.column(i).path for i in range(len(file.schema))].index(name)
        for group in range(file.metadata.num_row_groups):
            known = file.metadata.row_group(group).column(position).statistics
            if known is None or not known.has_null_count or known.null_count > 0:
                return np.dtype(np.float64)
    return np.dtype(np.uint8) if types.is_boolean(kind) else np.dtype(kind.to_pandas_dtype())
