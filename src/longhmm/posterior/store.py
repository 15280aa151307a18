"""Runs on disk: labelled arrays by xarray's own Zarr writer, everything else as JSON, nothing that could be run;
written under another name beside their place and then renamed, so that they are whole or not there at all."""

import glob
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from longhmm.data.source import one_line
from longhmm.errors import DataError

Place = str | os.PathLike[str]
DOCUMENT, ARRAYS = "longhmm.json", "arrays.zarr"
FORMAT, VERSION = "longhmm posterior", 1
# Array metadata may name any codec that is installed; only these plain compressors are ever opened.
CODECS = {"blosc", "bytes", "crc32c", "gzip", "zstd"}
DTYPES = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"}
ATTRIBUTES = {"_FillValue", "dtype"}  # what xarray itself may write beside an array


def damaged(what: str) -> DataError:
    """What to raise where a run on disk is not what was written."""
    return DataError(f"{what}; the run is damaged, restore a copy of it.")


def write_text(file: Path, text: str, remedy: str) -> None:
    """Write a file beside its place, and move it there when it is whole."""
    fresh = file.with_name(f".{file.name}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, file)
    except OSError as error:
        raise DataError(f"{file} cannot be written ({error.strerror}); {remedy}.") from None


def read_json(file: Path) -> dict[str, Any]:
    """A document on disk, which may be anything but a document."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(f"{file} cannot be read ({one_line(error)})") from None
    return found if isinstance(found, dict) else {}


def write_run(path: Place, document: Mapping[str, Any], groups: Mapping[str, xr.Dataset]) -> None:
    """Write datasets and a JSON document as the directory `path`; an older run there is replaced."""
    place = Path(path)
    if place.exists() and not _is_run(place) and not (place.is_dir() and not any(place.iterdir())):
        raise DataError(f"{place} exists and is not a saved longhmm run; choose another place, or remove it first.")
    mark = uuid.uuid4().hex[:12]
    fresh, old = (place.with_name(f".{place.name}.{kind}-{mark}") for kind in ("new", "old"))
    try:
        fresh.mkdir(parents=True)
        for name, data in groups.items():
            plain = data.drop_attrs().drop_encoding()
            plain.to_zarr(fresh / ARRAYS, group=name, mode="w", zarr_format=3, consolidated=False)
        text = json.dumps({"format": FORMAT, "version": VERSION, **document}, default=_plain, indent=1)
        with open(fresh / DOCUMENT, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            os.rename(place, old)  # a directory cannot replace one that is not empty in one step
        os.rename(fresh, place)
    except OSError as error:
        raise DataError(
            f"{place} could not be written ({error.strerror or error}); free some space or choose another place, "
            "what was there before is untouched."
        ) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        if old.exists() and not place.exists():
            os.rename(old, place)
        shutil.rmtree(old, ignore_errors=True)


def read_run(path: Place) -> tuple[dict[str, Any], dict[str, xr.Dataset]]:
    """The JSON document and the datasets of a saved run, checked before anything is opened."""
    place = Path(path)
    if not place.exists() and place.parent.is_dir():
        # A save that was killed before the new run stood in its place had moved the old one aside.
        aside = filter(_is_run, sorted(place.parent.glob(f".{glob.escape(place.name)}.old-*")))
        if old := next(aside, None):
            os.rename(old, place)
    document, groups = _read_document(place), {}
    for name in document["groups"]:
        _check_group(place / ARRAYS / name)
        try:
            loaded = xr.load_dataset(
                place / ARRAYS, engine="zarr", group=name, consolidated=False, zarr_format=3, mask_and_scale=False,
                decode_times=False,
            )  # fmt: skip
        except Exception as error:  # whatever Zarr trips over, the files are not what was written
            raise damaged(f"{place / ARRAYS / name} cannot be read ({one_line(error)})") from None
        groups[name] = loaded.drop_attrs().drop_encoding()
    return document, groups


def _read_document(place: Path) -> dict[str, Any]:
    file = place / DOCUMENT
    if not place.exists():
        raise DataError(f"{place} does not exist; pass the directory that posterior.save(...) wrote.")
    if not file.is_file():
        raise DataError(f"{place} is not a saved longhmm run (it has no {DOCUMENT}); pass one that save(...) wrote.")
    document = read_json(file)
    if document.get("format") != FORMAT:
        raise DataError(f"{file} does not describe a longhmm posterior; pass one that save(...) wrote.")
    if document.get("version") != VERSION:
        raise DataError(
            f"{place} has format version {document.get('version')!r}, but this longhmm reads version {VERSION}; "
            "use the version of longhmm that wrote it."
        )
    groups = document.get("groups")
    if not isinstance(groups, list) or not all(isinstance(name, str) and name.isidentifier() for name in groups):
        raise damaged(f"{file} must list the groups of arrays by name")
    return document


def _check_group(folder: Path) -> None:
    """Refuse arrays whose metadata could make the reader do anything but decompress plain numbers."""
    if not (folder / "zarr.json").is_file():
        raise damaged(f"{folder} is missing")
    old = next(folder.rglob(".z*"), None)  # metadata of Zarr's older format, which can hold pickled objects
    if old is not None:
        raise DataError(f"{old} is not part of a run as save(...) writes them; the run is not opened.")
    for file in sorted(folder.rglob("zarr.json")):
        try:
            metadata = json.loads(file.read_text(encoding="utf-8"))
            plain = metadata["node_type"] == "group" and file.parent == folder
            plain = plain or (
                metadata["node_type"] == "array"
                and metadata["data_type"] in DTYPES
                and {codec["name"] for codec in metadata["codecs"]} <= CODECS
                and set(metadata.get("attributes", {})) <= ATTRIBUTES
                and not metadata.get("storage_transformers")
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            plain = False
        if not plain:
            raise DataError(f"{file} does not describe plain numbers as save(...) writes them; the run is not opened.")


def _is_run(place: Path) -> bool:
    try:
        return bool(_read_document(place))
    except DataError:
        return False


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise DataError(f"settings must hold plain numbers, texts and lists to be saved, got {value!r}.")
