"""Many sequences as one index space, with missing values and partially known states."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from longhmm.data.array_source import ArraySource, Columns, SlicedSource
from longhmm.data.dask_source import DaskSource, HeldRows
from longhmm.data.executor import HERE, Executor
from longhmm.data.joining import ConcatenatedSource, alongside, cut, either, is_many, join, strip_masks
from longhmm.data.rows import Rows
from longhmm.data.sources import Source, open_source
from longhmm.errors import DataError

# Values checked at a time, so that looking at data in memory never needs a second copy of them.
_CHECKED_AT_ONCE = 1 << 20


class Block(NamedTuple):
    """Consecutive observations.

    `values[t, d]` in the dtype of the data, NaN left in place; `observed[t, d]` is False where missing (NaN or
    masked); `states[t]` is the known state, -1 where unknown, and None if no states were given at all.
    """

    values: np.ndarray
    observed: np.ndarray
    states: np.ndarray | None


class Sequences:
    """Positions 0 to `length`: sequence `i` is [offsets[i], offsets[i+1]). Made by `open_data`.

    `mask` (nonzero = missing) has one feature or as many as the data, `states` has one, `covariates` any number; they
    are sources themselves, so that they may be as long as the data. What lies in memory is checked here, once; the rest
    whenever it is read.
    `rate` (samples per second) and `unit` are what the files say, or None. `executor` runs passes over all of it.
    """

    executor: Executor = HERE

    def __init__(
        self,
        source: Source,
        offsets: np.ndarray,
        mask: Source | None = None,
        states: Source | None = None,
        covariates: Source | None = None,
    ) -> None:
        self.source = source
        self.offsets = np.asarray(offsets, np.int64)
        self.length, self.dim, self.dtype, self.name = source.length, source.dim, np.dtype(source.dtype), source.name
        self.rate: float | None = getattr(source, "rate", None)
        self.unit: str | None = getattr(source, "unit", None)
        self.n_sequences = len(self.offsets) - 1
        self._mask, self._states, self._covariates = mask, states, covariates
        self.has_mask, self.has_states = mask is not None, states is not None
        self.n_covariates = 0 if covariates is None else covariates.dim
        parts = [part for part in (source, mask, states, covariates) if part is not None]
        self.in_memory = all(isinstance(part, ArraySource) for part in parts)
        # One memory map, and nothing beside it: scattered rows can be taken from it in one call.
        self.mapped = isinstance(source, SlicedSource) and source.mapped and len(parts) == 1
        # Whether another process can read the data by itself, once it knows of them.
        self.portable = not any(isinstance(part, DaskSource) for part in parts)
        # True where every value is known to be there: in memory, with no mask and no NaN.
        self.complete = self.in_memory and mask is None
        if self.in_memory:
            rows = max(1, _CHECKED_AT_ONCE // self.dim)
            for start in range(0, self.length, rows):
                values, missing, known = self.raw(start, min(start + rows, self.length))
                self.complete &= self._check(start, values, missing, known)

    def read(self, start: int, stop: int) -> Block:
        """Positions `start` to `stop` (exclusive), whether or not they lie in one sequence; nothing else is read."""
        values, mask, states = self.raw(start, stop)
        if not self.in_memory:
            self._check(start, values, mask, states)
        return _block(values, mask, states)

    def rows(self, start: int, stop: int, lags: int = 0) -> Rows:
        """The same positions with as many rows before each as `lags` says, and covariates."""
        context = min(lags, start)
        block = self.read(start - context, stop)
        own = slice(context, None)
        states = None if block.states is None else block.states[own]
        before = None
        if lags:
            positions = np.arange(start, stop)
            first = self.offsets[np.searchsorted(self.offsets, positions, side="right") - 1]
            seen = np.where(block.observed, block.values, np.nan).astype(np.float64)
            before = np.full((stop - start, lags, self.dim), np.nan)
            for lag in range(1, lags + 1):
                known = positions - lag >= first
                before[known, lag - 1] = seen[(positions - lag - (start - context))[known]]
        return Rows(block.values[own], block.observed[own], states, before, self.covariates(start, stop))

    def covariates(self, start: int, stop: int) -> np.ndarray | None:
        """Covariates of the positions `start` to `stop` (exclusive), float64; None where there are none."""
        if self._covariates is None:
            return None
        found = self._covariates.read(start, stop).astype(np.float64)
        if not _all_finite(found):
            row, column = np.argwhere(~np.isfinite(found))[0]
            raise DataError(
                f"covariates must be finite, but covariate {column} is {found[row, column]} at "
                f"{self.describe(start + int(row))}: fill it in, or leave that row out"
            )
        return found

    def read_many(self, spans: list[tuple[int, int]]) -> Iterator[Block]:
        """What `read` gives for each span; from a Dask array all are fetched together."""
        if not isinstance(self.source, DaskSource) or self.has_mask or self.has_states:
            yield from (self.read(*span) for span in spans)
            return
        for (start, _), values in zip(spans, self.source.read_many(spans), strict=True):
            self._check(start, values, None, None)
            yield _block(values, None, None)

    def lazy(self, start: int, stop: int) -> dict[str, Any]:
        """Rows of what another process cannot read by itself, as Dask arrays, for `holding`."""
        names = ("source", "_mask", "_states", "_covariates")
        parts = {name: getattr(self, name) for name in names}
        return {name: part.lazy(start, stop) for name, part in parts.items() if isinstance(part, DaskSource)}

    def holding(self, start: int, parts: dict[str, np.ndarray]) -> Sequences:
        """The same data with rows from `start` on at hand, as `lazy` named them."""
        same = copy.copy(self)
        for name, values in parts.items():
            setattr(same, name, HeldRows(getattr(self, name), start, values))
        return same

    def take(self, positions: np.ndarray) -> Block:
        """The observations at any positions, for data in memory or mapped; the block has the shape of `positions`.

        Data in memory were checked on opening. What comes from a map is not checked here: infinite values are the
        caller's to refuse.
        """
        if self.mapped:
            assert isinstance(self.source, SlicedSource)
            return _block(self.source.take(positions), None, None)
        parts = (self.source, self._mask, self._states)
        values, mask, states = (part.values[positions] if isinstance(part, ArraySource) else None for part in parts)
        if values is None or not self.in_memory:
            raise DataError(f"{self.name} is not in memory; use read(start, stop), which takes consecutive positions")
        return _block(values, mask, states)

    def sequence_of(self, position: int | np.ndarray) -> int | np.ndarray:
        """Number of the sequence that holds a position (or each of several)."""
        where = np.asarray(position)
        if where.size and not (where.min() >= 0 and where.max() < self.length):
            raise DataError(f"position {position} is outside {self.name}, which has positions 0 to {self.length - 1}")
        found = np.searchsorted(self.offsets, where, side="right") - 1
        return int(found) if found.ndim == 0 else found

    def describe(self, position: int) -> str:
        """A position as the user knows it, such as "row 17 of sequence 3 (file.npy)"."""
        sequence = int(self.sequence_of(position))
        name = self.source.part_at(position).name if isinstance(self.source, ConcatenatedSource) else self.name
        row = int(position) - int(self.offsets[sequence])
        return f"row {row} of {name}" if self.n_sequences == 1 else f"row {row} of sequence {sequence} ({name})"

    def run_by(self, executor: Executor) -> Sequences:
        """The same data, over which another executor runs the passes."""
        same = copy.copy(self)
        same.executor = executor
        return same

    def __getstate__(self) -> dict[str, Any]:
        # Who works through the data here is of no use elsewhere.
        return {name: value for name, value in self.__dict__.items() if name != "executor"}

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        plural = "s" if self.n_sequences > 1 else ""
        extras = ["in memory" if self.in_memory else "read on demand"]
        extras += ["with mask"] * self.has_mask + ["with states"] * self.has_states
        return (
            f"Sequences({self.name}: {self.n_sequences:,} sequence{plural}, {self.length:,} observations, "
            f"dim {self.dim}, {self.dtype}, {', '.join(extras)})"
        )

    def raw(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        """Values, mask and known states as they are stored, unchecked; None where there are none."""
        mask = None if self._mask is None else self._mask.read(start, stop)
        states = None if self._states is None else self._states.read(start, stop)
        return self.source.read(start, stop), mask, states

    def _check(self, start: int, values: np.ndarray, mask: np.ndarray | None, states: np.ndarray | None) -> bool:
        """Refuses what data cannot be; says whether every value is there."""
        self._check_mask(mask, start)
        complete = self._check_values(values, mask, start)
        self._check_states(states, start)
        return complete

    def _check_values(self, values: np.ndarray, mask: np.ndarray | None, start: int) -> bool:
        if _all_finite(values):
            return True
        infinite = np.isinf(values)
        if mask is not None:
            infinite &= mask == 0
        if infinite.any():
            row, feature = np.argwhere(infinite)[0]
            position = start + int(row)
            raise DataError(
                f"{self.name} has an infinite value at position {position} ({self.describe(position)}), "
                f"feature {feature}; replace it by NaN to mark it as missing"
            )
        return not np.isnan(values).any()

    def _check_mask(self, mask: np.ndarray | None, start: int) -> None:
        if mask is not None and (wrong := (mask != 0) & (mask != 1)).any():
            row, feature = np.argwhere(wrong)[0]
            raise DataError(
                f"mask must hold True (missing) or False, but has {mask[row, feature]} at position {start + int(row)} "
                f"({self.describe(start + int(row))}); pass a boolean array"
            )

    def _check_states(self, states: np.ndarray | None, start: int) -> None:
        if states is not None and (wrong := (states < -1) | (states > np.iinfo(np.int32).max)).any():
            row = int(np.argmax(wrong))
            raise DataError(
                f"states must be -1 (unknown) or a state counted from 0, but is {states[row, 0]} at position "
                f"{start + row} ({self.describe(start + row)}); mark unknown states with -1"
            )


def _all_finite(values: np.ndarray) -> bool:
    """Whether no value is NaN or infinite: a sum is not finite if one of its terms is not, and costs little."""
    if values.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()))


def _block(values: np.ndarray, mask: np.ndarray | None, states: np.ndarray | None) -> Block:
    observed = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(values.shape, bool)
    if mask is not None:
        observed &= mask == 0
        if values.dtype.kind == "f" and (infinite := np.isinf(values)).any():
            # Allowed because it is masked, but it would spoil sums: infinity times zero is NaN.
            values = np.where(infinite, values.dtype.type(np.nan), values)
    return Block(values, observed, None if states is None else states[..., 0].astype(np.int32))


def open_data(
    data: Any,
    *,
    mask: Any = None,
    states: Any = None,
    covariates: Any = None,
    lengths: Any = None,
    dataset: str | None = None,
    columns: Columns = None,
) -> Sequences:
    """Open observations, lazily where they lie in files, as one or many sequences.

    `data` is anything `open_source` takes, or a list of such things (many sequences; a list of numbers is one).
    `mask` is True where an observation is missing, shaped (time,) or (time, feature), or a list like `data`;
    `states` holds known states (-1 = unknown), shaped (time,), or a list like `data`; `covariates`, shaped (time,) or
    (time, covariate), or a list like `data`, run alongside; `lengths` cuts one array into sequences of these lengths;
    `dataset` and `columns` choose within files and tables. NaN is missing, too, but not among covariates.
    """
    if isinstance(data, Sequences):
        if any(option is not None for option in (mask, states, covariates, lengths, dataset, columns)):
            raise DataError(
                f"{data.name} is open already; give mask, states, covariates, lengths, dataset and columns on opening"
            )
        return data
    many = is_many(data)
    if many and lengths is not None:
        raise DataError("lengths cuts one array into sequences, but data is a list of sequences; leave lengths out")
    items, own_masks = strip_masks(list(data) if many else [data], columns)
    if many:
        source, offsets = join(items, "the list", dataset, columns)
    else:
        source = open_source(items[0], dataset=dataset, columns=columns)
        offsets = cut(lengths, source)
    mask_source = None if mask is None else alongside(mask, "mask", source, offsets, (1, source.dim))
    if own_masks is not None:
        title = "the mask of the masked array"
        own = alongside(own_masks if many else own_masks[0], title, source, offsets, (1, source.dim))
        mask_source = own if mask_source is None else either(own, mask_source)
    states_source = None if states is None else alongside(states, "states", source, offsets, (1,), unmarked=-1)
    covariate_source = None if covariates is None else alongside(covariates, "covariates", source, offsets, ())
    return Sequences(source, offsets, mask_source, states_source, covariate_source)
