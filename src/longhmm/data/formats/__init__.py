"""From anything that holds observations to a source: objects by their type, files by the ending of their name.

A format is one function of this folder, `open(path, columns)`, registered by `@opener(".abc")`; it takes `dataset`,
too, with `datasets=True`.
"""

import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from longhmm.data.source import ArraySource, Columns, DaskSource, SlicedSource, Source, column_indices, refusing
from longhmm.errors import DataError

OPENERS: dict[str, Callable[..., Source]] = {}
WITH_DATASETS: set[str] = set()  # endings of files in which `dataset` names an array
# The libraries that only some formats need, by the extra that installs each.
LIBRARIES = {"hdf5": "h5py", "nwb": "h5py", "parquet": "pyarrow", "abf": "pyabf", "edf": "pyedflib", "wfdb": "wfdb"}
EXAMPLE = "example:"  # before the name of a recording that comes with the package

Opener = TypeVar("Opener", bound=Callable[..., Source])


def opener(*endings: str, datasets: bool = False) -> Callable[[Opener], Opener]:
    """Register what follows, a function or a class, as the one that opens files with these endings."""

    def register(function: Opener) -> Opener:
        OPENERS.update(dict.fromkeys(endings, function))
        WITH_DATASETS.update(endings if datasets else ())
        return function

    return register


def openers() -> dict[str, Callable[..., Source]]:
    """All openers by ending, those of this folder included."""
    _formats()
    return OPENERS


@functools.cache
def _formats() -> list[Any]:
    return [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]


def supported() -> str:
    return ", ".join(sorted(openers()))


def library(extra: str, path: Any) -> Any:
    """The library of an extra; where it is not installed, a sentence says how to install it."""
    name = LIBRARIES[extra]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DataError(f"reading {path} needs {name}; install it with: pip install {name}") from error


def open_source(obj: Any, *, dataset: str | None = None, columns: Columns = None, name: str = "the array") -> Source:
    """Open an array, a table, a file or an array-like store lazily; `dataset` names the array inside a container, and
    `name` is what errors call an object that has no path."""
    if isinstance(obj, (str, Path)):
        source = _open_path(obj, dataset, columns)
        source.path = Path(obj).expanduser()
        return source
    package = type(obj).__module__.partition(".")[0]
    if package in ("zarr", "h5py"):
        return openers()[".zarr"](obj, columns, dataset, name)
    if dataset is not None:
        raise DataError(f"dataset={dataset!r} applies to .npz, Zarr and HDF5 containers, not to {name}; leave it out")
    if isinstance(obj, Source):
        return obj
    if is_dask(obj):
        return DaskSource(obj, name, columns)
    if package == "pandas":
        return _open_table(obj, columns, name)
    if isinstance(obj, np.ma.MaskedArray):
        if obj.dtype.kind != "f":
            raise DataError(f"{name} is a masked array of integers, which cannot hold NaN; pass it with mask= instead")
        return ArraySource(obj.filled(np.nan), name, columns)
    if isinstance(obj, np.ndarray):
        base: Any = obj
        while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
            base = base.base
        mapped = isinstance(base, np.memmap)  # the array, or one that it is a view of
        return SlicedSource(obj, name, columns) if mapped else ArraySource(obj, name, columns)
    if _is_lazy(obj):
        return SlicedSource(obj, name, columns)
    if not isinstance(obj, (list, tuple)) and not hasattr(obj, "__array__"):
        wanted = f"an array, a table, a list of numbers, or the path of a file ({supported()})"
        raise DataError(f"{name} must be {wanted}, but is of type {type(obj).__name__}; convert it to a NumPy array")
    remedy = "make all its rows numbers of equal count, with NaN for missing values"
    with refusing(f"{name} could not be read as one array of numbers", remedy):
        values = np.asarray(obj)
    return ArraySource(values, name, columns)


def _open_path(given: str | Path, dataset: str | None, columns: Columns) -> Source:
    if str(given).startswith(EXAMPLE):
        from longhmm import datasets

        if (part := str(given).removeprefix(f"{EXAMPLE}nanopore")) not in ("", "-tenth"):
            raise DataError(f"{given!r} does not come with longhmm; 'example:nanopore' and 'example:nanopore-tenth' do")
        recording = datasets.nanopore()
        source = ArraySource(recording.values[: 50_000 if part else None], str(given), columns)
        source.rate, source.unit = recording.rate_hz, recording.unit
        return source
    if "://" in str(given):  # only Zarr reads from an address
        return openers()[".zarr"](str(given), columns, dataset)
    path = Path(given).expanduser()
    if not path.exists():
        raise DataError(f"data file {str(path)!r} does not exist; give the path of a file that does ({supported()})")
    ending = path.suffix.lower()
    if path.is_dir() and any((path / mark).exists() for mark in ("zarr.json", ".zarray", ".zgroup")):
        ending = ".zarr"
    if path.is_dir() and ending != ".zarr":
        raise DataError(f"{path} is a folder, not a data file; pass the files in it as a list ({supported()})")
    if ending not in openers():
        raise DataError(f"{path} has the unknown ending {path.suffix!r}; convert it to one of {supported()}")
    if dataset is not None and ending not in WITH_DATASETS:
        raise DataError(f"dataset={dataset!r} applies to .npz, Zarr and HDF5 containers, not to {path}; leave it out")
    return OPENERS[ending](path, columns, *([dataset] if ending in WITH_DATASETS else []))


def is_dask(obj: Any) -> bool:
    return type(obj).__module__.partition(".")[0] == "dask" and hasattr(obj, "chunks")


def _is_lazy(obj: Any) -> bool:
    """Whether something slices like an array of NumPy's types, and is none of JAX's, which lie in memory."""
    jax = sys.modules.get("jax")  # not imported: an object can only be a JAX array where JAX has been imported already
    sliced = all(hasattr(obj, each) for each in ("shape", "dtype", "__getitem__"))
    if not sliced or (jax and isinstance(obj, jax.Array)):
        return False
    try:
        return isinstance(np.dtype(obj.dtype), np.dtype)
    except TypeError:
        return False


def _open_table(table: Any, columns: Columns, name: str) -> ArraySource:
    """A pandas Series or DataFrame, its values in one dtype, missing ones as NaN, categories by their numbers."""
    if table.ndim == 1:
        table = table.to_frame()
    numeric = [label for label, dtype in zip(table.columns, table.dtypes, strict=True) if dtype.kind in "biuf"]
    table = table.iloc[:, column_indices(columns, list(table.columns), name)]
    if any(dtype == "category" for dtype in table.dtypes):
        table = table.apply(lambda own: own.cat.codes.where(own.notna()) if own.dtype == "category" else own)
    dtypes = []
    for position, (label, dtype) in enumerate(zip(table.columns, table.dtypes, strict=True)):
        if dtype.kind not in "biuf":
            wrong = f"column {label!r} of {name} must be numeric but has dtype {dtype}"
            raise DataError(f"{wrong}; choose the observations with columns=[...] from {numeric}")
        missing = dtype.kind != "f" and bool(table.iloc[:, position].isna().any())
        dtypes.append(np.dtype(np.float64) if missing else np.dtype(getattr(dtype, "numpy_dtype", dtype)))
    if not dtypes:
        raise DataError(f"{name} is empty (no columns); pass at least one numeric column")
    common = np.result_type(*dtypes)
    source = ArraySource(table.to_numpy(common, **({"na_value": np.nan} if common.kind == "f" else {})), name)
    source.names = tuple(map(str, table.columns))
    return source
