"""Which function opens a file: found by the ending of its name, and registered where it is written.

A format is one function, `open(path, columns)`, or `open(path, columns, dataset)` where a file holds several arrays:

    @opener(".abc")
    def open_abc(path: Path, columns: Columns = None) -> Source: ...
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from longhmm.data.array_source import Columns
from longhmm.errors import DataError

if TYPE_CHECKING:
    from longhmm.data.sources import Source

OPENERS: dict[str, Callable[..., Any]] = {}
WITH_DATASETS: set[str] = set()  # endings of files in which `dataset` names an array
# The libraries that only some formats need, by the extra that installs each.
LIBRARIES = {"hdf5": "h5py", "nwb": "h5py", "parquet": "pyarrow", "abf": "pyabf", "edf": "pyedflib", "wfdb": "wfdb"}

Opener = TypeVar("Opener", bound=Callable[..., Any])


def opener(*endings: str, datasets: bool = False) -> Callable[[Opener], Opener]:
    """Register what follows, a function or a class, as the one that opens files with these endings."""

    def register(function: Opener) -> Opener:
        OPENERS.update(dict.fromkeys(endings, function))
        WITH_DATASETS.update(endings if datasets else ())
        return function

    return register


def supported() -> str:
    """The endings of files that can be opened, for messages."""
    return ", ".join(sorted(OPENERS))


def open_file(path: Path, columns: Columns = None, dataset: str | None = None) -> Source:
    """Open a file that exists, or a folder of Zarr's, by its ending."""
    ending = path.suffix.lower()
    if path.is_dir() and any((path / mark).exists() for mark in ("zarr.json", ".zarray", ".zgroup")):
        ending = ".zarr"
    if dataset is not None and ending not in WITH_DATASETS:
        raise DataError(f"dataset={dataset!r} applies to .npz, Zarr and HDF5 containers, not to {path}; leave it out")
    if path.is_dir() and ending != ".zarr":
        raise DataError(f"{path} is a folder, not a data file; pass the files in it as a list ({supported()})")
    if ending not in OPENERS:
        raise DataError(f"{path} has the unknown ending {path.suffix!r}; convert it to one of {supported()}")
    found: Source = OPENERS[ending](path, columns, *([dataset] if ending in WITH_DATASETS else []))
    return found


def library(extra: str, path: Any) -> Any:
    """The library of an extra; where it is not installed, a sentence says how to install it."""
    name = LIBRARIES[extra]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DataError(f"reading {path} needs {name}; install it with: pip install 'longhmm[{extra}]'") from error
