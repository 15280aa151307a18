"""Traces of single molecules in plain text (.dat): a table of numbers with a donor and an acceptor for every molecule.

Three layouts are told apart by the numbers themselves, as ebFRET and vbFRET write them:

    number, donor, acceptor           molecules one below the other, each row with the number of its molecule
    donor, acceptor, donor, ...       molecules side by side, perhaps below a row of their labels
    time, donor, acceptor, ...        the same, with a column of times before it
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from longhmm.data.formats import OPENERS, opener
from longhmm.data.source import ArraySource, Columns, Source, column_indices, refusing
from longhmm.errors import DataError

PAIR = ("donor", "acceptor")
EVEN = 1e-3  # relative scatter of time steps that count as equal
LOOKED_AT = 4096  # bytes from which text is told from other files


def joined(
    parts: Sequence[np.ndarray], names: Sequence[str], name: str, columns: Columns, rate: float | None = None
) -> ArraySource:
    """One source of many traces `(T, D)`, each a sequence of its own; rows at the end of which nothing is left of a
    molecule, all 0 or missing, are padding and left out."""
    kept = [part[: _filled(part)] for part in parts]
    kept = [part for part in kept if len(part)]
    if not kept:
        raise DataError(f"{name} holds no trace with any values; give a file with at least one molecule")
    source = ArraySource(np.concatenate(kept)[:, column_indices(columns, list(names), name)], name)
    source.names = tuple(names[each] for each in column_indices(columns, list(names), name))
    source.lengths, source.rate = [len(part) for part in kept], rate
    return source


def _filled(part: np.ndarray) -> int:
    """Rows up to the last in which there is anything."""
    some = np.flatnonzero(np.any(np.isfinite(part) & (part != 0), axis=1))
    return int(some[-1]) + 1 if some.size else 0


def rate_of(times: Sequence[np.ndarray]) -> float | None:
    """Rows per second, where the times of all traces rise by one step; whole numbers from row to row only count."""
    steps = np.concatenate([np.diff(each) for each in times])
    if steps.size == 0 or not np.all(steps > 0) or np.ptp(steps) > EVEN * steps.mean() or np.all(steps == 1):
        return None
    return float(1.0 / np.median(steps))


def lengths_among(values: Mapping[str, Any], rows: int) -> list[int] | None:
    """Rows of each trace, where an array called "lengths" cuts so many rows, else None."""
    found = np.asarray(values["lengths"]) if "lengths" in values else np.zeros(0)
    cuts = found.ndim == 1 and found.dtype.kind in "iu" and found.size > 0 and found.min() > 0 and found.sum() == rows
    return [int(each) for each in found] if cuts else None


def worth_choosing(archive: Any) -> list[str]:
    """Arrays with an axis of time: single numbers beside them, and lengths that cut the only one, describe them."""
    found = [name for name in archive.files if archive[name].ndim] or list(archive.files)
    others = [name for name in found if name != "lengths"]
    return others if len(others) == 1 and lengths_among(archive, len(np.atleast_1d(archive[others[0]]))) else found


@opener(".dat")
def open_dat(path: Path, columns: Columns = None) -> Source:
    """Text with the traces of molecules; anything else with this ending belongs to a header beside it (WFDB)."""
    with path.open("rb") as file:
        head = file.read(LOOKED_AT)
    if path.with_suffix(".hea").exists() or b"\0" in head or not head.strip():
        return OPENERS[".hea"](path, columns)
    with (
        refusing(f"{path} is not a table of numbers", "give columns of donor and acceptor, numbers only"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")  # an empty file is no table, either
        table = np.loadtxt(path, np.float64, comments=("#", "%"), delimiter="," if b"," in head else None, ndmin=2)
    parts, rate = molecules(table, str(path))
    return joined(parts, PAIR, str(path), columns, rate)


def molecules(table: np.ndarray, name: str) -> tuple[list[np.ndarray], float | None]:
    """The traces `(T, 2)` in a table, and rows per second where it has times."""
    width, rate, first = table.shape[1], None, table[:, 0]
    if width == 1:
        raise DataError(f"{name} has one column, but needs a donor and an acceptor; save efficiencies as .csv or .npy")
    if width == 3 and not np.all(np.diff(first) > 0):
        if np.any(first != np.rint(first)):
            raise DataError(f"{name} must have numbers of molecules or rising times in its first column of three")
        return [table[first == number, 1:] for number in dict.fromkeys(first.tolist())], None
    if width % 2:
        if len(table) > 1 and not np.all(np.diff(first) > 0):
            raise DataError(f"{name} has {width} columns, but needs pairs of donor and acceptor after rising times")
        table, rate = table[:, 1:], rate_of([first])
    labels = table[0].reshape(-1, 2)
    if np.all(labels[:, 0] == labels[:, 1]) and np.all(labels == np.rint(labels)) and np.all(labels > 0):
        table = table[1:]  # both columns of a molecule begin with its label
    return list(table.reshape(len(table), -1, 2).swapaxes(0, 1)), rate
