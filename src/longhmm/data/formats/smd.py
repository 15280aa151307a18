"""Single-molecule datasets (SMD) in JSON: a list of traces, each with an index and named columns of values.

Greenfeld et al., BMC Bioinformatics 16:3 (2015). The index holds the times of the rows, in seconds; one that counts the
rows says nothing about time.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from longhmm.data.formats import opener
from longhmm.data.formats.traces import joined, rate_of
from longhmm.data.source import ArraySource, Columns, refusing
from longhmm.errors import DataError


@opener(".json", ".gz")
def open_smd(path: Path, columns: Columns = None) -> ArraySource:
    """Every trace of the dataset as a sequence, with the columns that all of them have."""
    if path.suffix.lower() == ".gz" and Path(path.stem).suffix.lower() != ".json":
        raise DataError(f"{path} must be a single-molecule dataset, .json or .json.gz; unpack other files first")
    with refusing(f"{path} is not readable JSON", "it may be cut short, so copy or write it again"):
        raw = path.read_bytes()
        document = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    traces = document.get("data") if isinstance(document, dict) else None
    traces = [traces] if isinstance(traces, dict) else traces  # as some programs write a list of one
    if not isinstance(traces, list) or not all(isinstance(each, dict) and _columns(each) for each in traces):
        raise DataError(f"{path} is not a single-molecule dataset; it must have traces with 'values' under 'data'")
    if not traces:
        raise DataError(f"{path} holds no traces; give a dataset with at least one")
    names = [name for name in traces[0]["values"] if all(name in each["values"] for each in traces)]
    with refusing(f"the traces of {path} could not be read", "give every column of a trace as many numbers"):
        parts = [np.array([_numbers(each["values"][name]) for name in names], np.float64).T for each in traces]
        times = [_numbers(each["index"]) for each in traces if each.get("index") is not None]
    return joined(parts, names, str(path), columns, rate_of(times) if times else None)


def _columns(trace: dict[str, Any]) -> bool:
    return isinstance(trace.get("values"), dict) and bool(trace["values"])


def _numbers(given: Any) -> np.ndarray:
    """A column; null is missing, and some programs write a row of one column as a list within a list."""
    return np.array([np.nan if each is None else each for each in np.ravel(np.array(given, object))], np.float64)
