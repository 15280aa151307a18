"""From anything that holds observations to one small interface: length, dim, dtype, read(start, stop)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from longhmm.data import csv_source, instruments, parquet_source  # noqa: F401  (they register what they open)
from longhmm.data.array_source import ArraySource, Columns, SlicedSource, column_indices, one_line
from longhmm.data.containers import open_node, open_zarr
from longhmm.data.dask_source import DaskSource, is_dask
from longhmm.data.formats import open_file, supported
from longhmm.errors import DataError

EXAMPLE = "example:"


class Source(Protocol):
    """Observations shaped (time, feature) that are read by rows; errors call them by `name`.

    Those that were opened from a file have a `path`.
    """

    @property
    def name(self) -> str: ...

    @property
    def length(self) -> int: ...

    @property
    def dim(self) -> int: ...

    @property
    def dtype(self) -> np.dtype: ...

    @property
    def in_memory(self) -> bool: ...

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` (exclusive), shape (stop - start, dim)."""
        ...


def open_source(obj: Any, *, dataset: str | None = None, columns: Columns = None, name: str = "the array") -> Source:
    """Open an array, a table, a file or an array-like store lazily.

    `dataset` names the array inside an .npz, Zarr or HDF5 container; `columns` chooses features by name or position;
    `name` is what error messages call an object that has no path.
    """
    if isinstance(obj, (str, Path)):
        source: Any = _open_path(obj, dataset, columns)
        source.path = Path(obj).expanduser()
        return source
    package = type(obj).__module__.partition(".")[0]
    if package in ("zarr", "h5py"):
        return open_node(obj, name, columns, dataset) if _is_node(obj) else open_zarr(obj, columns, dataset)
    if dataset is not None:
        raise DataError(f"dataset={dataset!r} applies to .npz, Zarr and HDF5 containers, not to {name}; leave it out")
    if callable(getattr(obj, "read", None)) and hasattr(obj, "in_memory"):
        return obj
    if is_dask(obj):
        return DaskSource(obj, name, columns)
    if package == "pandas":
        return ArraySource(_table_values(obj, columns, name), name)
    if isinstance(obj, np.ma.MaskedArray):
        return ArraySource(_filled(obj, name), name, columns)
    if isinstance(obj, np.ndarray):
        return SlicedSource(obj, name, columns) if _is_mapped(obj) else ArraySource(obj, name, columns)
    if isinstance(obj, (list, tuple)) or _is_jax_array(obj):
        return ArraySource(_as_array(obj, name), name, columns)
    if all(hasattr(obj, attribute) for attribute in ("shape", "dtype", "__getitem__")) and _is_numpy_dtype(obj.dtype):
        return SlicedSource(obj, name, columns)
    if hasattr(obj, "__array__"):
        return ArraySource(_as_array(obj, name), name, columns)
    raise DataError(
        f"{name} must be an array, a table, a list of numbers, or the path of a file ({supported()}), "
        f"but is of type {type(obj).__name__}; convert it to a NumPy array"
    )


def _open_path(given: str | Path, dataset: str | None, columns: Columns) -> Source:
    if str(given).startswith(EXAMPLE):
        return _open_example(str(given), columns)
    if "://" in str(given):  # only Zarr reads from an address
        return open_zarr(str(given), columns, dataset)
    path = Path(given).expanduser()
    if not path.exists():
        raise DataError(f"data file {str(path)!r} does not exist; give the path of a file that does ({supported()})")
    return open_file(path, columns, dataset)


def _open_example(given: str, columns: Columns) -> Source:
    """A recording that comes with the package, by name: "example:nanopore"."""
    from longhmm import datasets

    if given.removeprefix(EXAMPLE) != "nanopore":
        raise DataError(f"{given!r} is no recording that comes with longhmm; the only one is 'example:nanopore'")
    recording = datasets.nanopore()
    source = ArraySource(recording.values, given, columns)
    source.rate, source.unit = recording.rate_hz, recording.unit
    return source


def _is_node(obj: Any) -> bool:
    """Whether a Zarr or HDF5 object is an array or a group, rather than a store to be opened."""
    return hasattr(obj, "shape") or hasattr(obj, "visititems") or hasattr(obj, "members")


def _is_mapped(array: np.ndarray) -> bool:
    """Whether an array, or one it is a view of, is a memory-mapped file."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return False


def _is_jax_array(obj: Any) -> bool:
    # Looked up, not imported: an object can only be a JAX array where JAX has been imported already.
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(obj, jax.Array)


def _is_numpy_dtype(dtype: Any) -> bool:
    try:
        np.dtype(dtype)
    except TypeError:
        return False
    return True


def _as_array(obj: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(obj)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{name} could not be read as one array of numbers ({one_line(error)}); "
            "make all its rows numbers of equal count, with NaN for missing values"
        ) from error


def _filled(array: np.ma.MaskedArray, name: str) -> np.ndarray:
    if array.dtype.kind != "f":
        raise DataError(f"{name} is a masked array of integers, which cannot hold NaN; pass it with mask= instead")
    return array.filled(np.nan)


def _table_values(table: Any, columns: Columns, name: str) -> np.ndarray:
    """The values of a pandas Series or DataFrame in one dtype, missing ones as NaN."""
    if table.ndim == 1:
        table = table.to_frame()
    chosen = column_indices(columns, list(table.columns), name)
    numeric = [label for label, dtype in zip(table.columns, table.dtypes, strict=True) if dtype.kind in "biuf"]
    if chosen is not None:
        table = table.iloc[:, chosen]
    dtypes = []
    for position, (label, dtype) in enumerate(zip(table.columns, table.dtypes, strict=True)):
        if dtype.kind not in "biuf":
            raise DataError(
                f"column {label!r} of {name} must be numeric but has dtype {dtype}; "
                f"choose the observations with columns=[...] from {numeric}"
            )
        missing = dtype.kind != "f" and bool(table.iloc[:, position].isna().any())
        dtypes.append(np.dtype(np.float64) if missing else np.dtype(getattr(dtype, "numpy_dtype", dtype)))
    if not dtypes:
        raise DataError(f"{name} is empty (no columns); pass at least one numeric column")
    common = np.result_type(*dtypes)
    return table.to_numpy(dtype=common, na_value=np.nan) if common.kind == "f" else table.to_numpy(dtype=common)
