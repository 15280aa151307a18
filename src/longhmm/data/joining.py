"""Making one source out of many, and of the masks, states and covariates that run alongside."""

import numbers
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from longhmm.data.formats import is_dask, open_source
from longhmm.data.source import ArraySource, Columns, DaskSource, Source, column_indices, touched
from longhmm.errors import DataError

_FILES_OPEN = 64  # operating systems commonly allow about a thousand to a program
_COUNTING = threading.Lock()


class ConcatenatedSource(Source):
    """Lazy sources end to end; a position finds its part by search in `starts`, and few parts are open at a time."""

    def __init__(self, parts: Sequence[Source]) -> None:
        self.parts = list(parts)
        self.starts = offsets_of([part.length for part in self.parts])
        self.length, self.dim, self.names = int(self.starts[-1]), self.parts[0].dim, self.parts[0].names
        for number, part in enumerate(self.parts):
            if part.dim != self.dim:
                first = f"sequence 0 ({self.parts[0].name}) has {self.dim}"
                unlike = f"sequence {number} ({part.name}) has {part.dim} features but {first}"
                raise DataError(f"{unlike}; give every sequence the same features, for example with columns=[...]")
        self.dtype = np.result_type(*{part.dtype for part in self.parts})
        rates, units = {part.rate for part in self.parts}, {part.unit for part in self.parts}
        self.rate = rates.pop() if len(rates) == 1 else None
        self.unit = units.pop() if len(units) == 1 else None
        self.name = self.parts[0].name + (f" and {len(self.parts) - 1} more" if len(self.parts) > 1 else "")
        self._last_used: OrderedDict[int, None] = OrderedDict()

    def fetch(self, start: int, stop: int) -> np.ndarray:
        read = []
        for number, first, last in touched(self.starts, start, stop):
            read.append(self.parts[number].read(first, last))
            with _COUNTING:
                self._last_used[number] = None
                self._last_used.move_to_end(number)
                if len(self._last_used) > _FILES_OPEN:
                    self.parts[self._last_used.popitem(last=False)[0]].close()
        return np.concatenate(read, dtype=self.dtype)


def is_many(data: Any) -> bool:
    """Whether `data` lists sequences rather than numbers; the first entry decides."""
    if not isinstance(data, (list, tuple)):
        return False
    if not data:
        raise DataError("data lists no sequences (an empty list); pass at least one sequence")
    first = data[0]
    return not (isinstance(first, (numbers.Number, np.generic)) or getattr(first, "shape", None) == ())


def cut(lengths: Any, source: Source) -> np.ndarray:
    """Offsets of the sequences into which `lengths` cuts one source (None: as many as its file says)."""
    if lengths is None:
        return offsets_of(source.lengths or [source.length])
    wrong = "lengths must be a list of positive whole numbers, but is"
    try:
        sizes = np.asarray(lengths)
    except ValueError:  # lists of different lengths inside
        raise DataError(f"{wrong} {lengths!r:.60}; mend it") from None
    smallest = sizes.min() if sizes.dtype.kind in "iu" and sizes.size else None
    if sizes.ndim != 1 or smallest is None or smallest < 1:
        held = f"{sizes.dtype} of shape {sizes.shape}" + ("" if smallest is None else f", smallest {smallest}")
        raise DataError(f"{wrong} {held}; drop empty sequences")
    total = int(sizes.sum())
    if total != source.length:
        raise DataError(f"lengths must sum to the {source.length} rows of {source.name} but sum to {total}; mend them")
    return offsets_of(sizes)


def offsets_of(lengths: Any) -> np.ndarray:
    """Where sequences of these lengths begin, and the end of the last."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def strip_masks(items: list[Any], columns: Columns) -> tuple[list[Any], list[Any] | None]:
    """Split masked arrays into their values and their masks (None for what is no masked array)."""
    values, masks = list(items), list[Any]([None] * len(items))
    for number, item in enumerate(items):
        if isinstance(item, np.ma.MaskedArray):
            mask = np.ma.getmaskarray(item)
            if mask.ndim == 2:
                mask = mask[:, column_indices(columns, range(mask.shape[1]), f"masked array {number}")]
            values[number], masks[number] = item.data, mask
    return values, masks if any(mask is not None for mask in masks) else None


def join(items: list[Any], what: str, dataset: str | None = None, columns: Columns = None) -> tuple[Source, np.ndarray]:
    """One source over all items, and the offsets where each begins."""
    title = f"{what} of {len(items)} sequences"
    plain = all(type(item) is np.ndarray and item.ndim in (1, 2) and len(item) for item in items)
    alike = plain and len({(item.dtype, item.shape[1:]) for item in items}) == 1 and items[0].dtype.kind in "biuf"
    if dataset is None and alike:  # the common case, made fast
        return ArraySource(np.concatenate(items), title, columns), offsets_of([len(item) for item in items])
    if any(is_dask(item) for item in items):
        import dask.array

        if not all(is_dask(item) for item in items):
            raise DataError(f"{title} must hold Dask arrays only, or none, but mixes them with others; make them alike")
        widths = {item.shape[1:] for item in items}
        if len(widths) > 1:
            raise DataError(f"{title} must all have the same features, but are shaped {sorted(widths)} beyond time")
        whole: Any = dask.array.concatenate(items, axis=0)  # whose chunks stay where they are
        return DaskSource(whole, title, columns), offsets_of([len(item) for item in items])
    named = ((f"sequence {number} of {what}", item) for number, item in enumerate(items))
    parts = [open_source(item, dataset=dataset, columns=columns, name=name) for name, item in named]
    joined, lengths = ConcatenatedSource(parts), [length for part in parts for length in part.lengths or [part.length]]
    in_memory = [part.values for part in parts if isinstance(part, ArraySource)]
    if len(in_memory) == len(parts):
        return ArraySource(np.concatenate(in_memory), title, like=joined), offsets_of(lengths)
    return joined, offsets_of(lengths)


def alongside(
    given: Any, what: str, source: Source, offsets: np.ndarray, dims: tuple[int, ...], unmarked: int = 0
) -> Source:
    """Open a mask, states or covariates that must run alongside the data, and see that they fit row by row, with as
    many columns as `dims` allow (if empty, any). `unmarked` stands for a whole sequence given as None."""
    wanted = np.diff(offsets)
    if is_many(given):
        if len(given) != len(wanted):
            raise DataError(f"{what} lists {len(given)} sequences but {source.name} has {len(wanted)}; give as many")
        found, starts = join(_same_width(list(given), wanted, source.dim, unmarked), what)
        wrong = np.flatnonzero(np.diff(starts) != wanted)
        if wrong.size:
            i = int(wrong[0])
            rows = f"the {wanted[i]} rows of its data but has {starts[i + 1] - starts[i]}"
            raise DataError(f"{what} of sequence {i} must have {rows}; give one row for each observation")
    else:
        found = open_source(given, name=what)
    if found.length != source.length or (dims and found.dim not in dims):
        shapes = " or ".join(str((source.length,) if dim == 1 else (source.length, dim)) for dim in sorted(set(dims)))
        fitting = f"{shapes or f'({source.length}, any)'} to match {source.name}"
        held = (found.length, found.dim)
        raise DataError(f"{what} must have shape {fitting} but has shape {held}; give one row for each observation")
    if dims and np.dtype(found.dtype).kind not in "iu":
        kind = "integers, with -1 for unknown" if what == "states" else "True (missing) or False"
        raise DataError(f"{what} must hold {kind}, but {found.name} has dtype {found.dtype}; convert it")
    return found


def _same_width(entries: list[Any], lengths: np.ndarray, dim: int, unmarked: int) -> list[Any]:
    """Fill in None, and widen one-feature entries where others tell features apart."""
    if not any(entry is None for entry in entries) and len({np.ndim(entry) for entry in entries}) == 1:
        return entries
    filled = [np.full(n, unmarked, np.int8) if e is None else e for e, n in zip(entries, lengths, strict=True)]
    if all(np.ndim(entry) < 2 for entry in filled):
        return filled
    return [np.repeat(np.asarray(e)[:, None], dim, axis=1) if np.ndim(e) == 1 else e for e in filled]
