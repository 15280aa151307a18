"""Rows of data for a backend: read, checked, and made into the numbers of the emission's lowering where it has one."""

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from longhmm.backends import native
from longhmm.backends.counts import of_counts
from longhmm.backends.evaluate import kind_of, lowering_of
from longhmm.backends.varying import RowMoves, distinct_rows, narrow
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.model.lowering import Lowering

# Rows of a chunk, near enough to stay; half, if each has a matrix. Where it is a power of 2, lanes crowd one another.
CHUNK, LEAST_CHUNK = 1216, 64
COPIED_ROWS = 208 * CHUNK  # rows of a block that is copied: as many chunks as fill lanes and threads
COPIED_NUMBERS = 16 * COPIED_ROWS  # that come back of it: more memory than stays with the process costs as much again
SHARE = 1 << 14  # rows that are looked at, or turned into numbers, at a time
IN_PLACE_ROWS = 1 << 22  # rows of a block that needs no copy

# What is known of data that lie in memory and do not change: whether rows are observed in part, and sum of log h(y).
_known: WeakKeyDictionary[Sequences, dict[Any, float]] = WeakKeyDictionary()


class Read(NamedTuple):
    """Rows of the data from `start` on, filled up to a `size` that programs share."""

    start: int
    size: int
    rows: Rows | None  # for emissions without a lowering (of these data), or where they were asked for
    numbers: Any = None  # of the emission's lowering
    memory: Any = None  # must be kept as long as the numbers are used
    moves: Any = None  # numbers of their transitions, where these vary; see `Numbers`
    log_base_measure: float = 0.0  # sum of `log h(y)` over the rows asked for, where it is not known of all data


class Reader:
    """Reads rows of some data for one model."""

    def __init__(self, model: HMM, sequences: Sequences, *, table: bool = False) -> None:
        model.check_dim(sequences)
        self.model, self.sequences = model, sequences
        lowering: Any = lowering_for(model, sequences) or (of_counts(model, sequences) if table else None)
        self.lowering, self.kind = lowering, kind_of(model.emission, lowering)
        whole = (sequences.in_memory or sequences.mapped) and not sequences.has_mask and sequences.dtype.kind == "f"
        self.moves = RowMoves(model, sequences) if lowering is not None and model.transitions.varies else None
        several = 2 if self.moves is not None and self.moves.table is None else 1  # halves, if each row has a matrix
        self.chunk = min(chunk_length(sequences), CHUNK // several)
        self.in_place = whole and bool(lowering and (lowering.rows_are_values or (lowering.terms and native.usable())))

    def block_rows(self, *, copied: bool) -> int:
        """How many rows a block should have; `copied`: as many probabilities come back."""
        whole = IN_PLACE_ROWS if self.in_place else COPIED_ROWS
        return min(COPIED_ROWS, COPIED_NUMBERS // self.model.n_states) if copied else whole

    def read(self, start: int, stop: int, size: int, own: tuple[int, int], *, borrow: bool, whole: bool) -> Read:
        """Rows `[start, stop)` filled up to `size`; with `borrow` the C++ kernel reads the caller's memory. `own`: the
        rows among them whose base measure is asked for. `whole`: observations beside their numbers."""
        rows, base, moves = None, 0.0, None if self.moves is None else self.moves.beside(None, start, stop, size)
        if self.in_place and borrow and not whole:
            numbers = self.sequences.source.read(start, stop)
            if not self.sequences.in_memory:
                self.sequences.check(start, {"values": numbers})
                base = self._look_at(numbers, start, own)
        else:
            block = self.sequences.rows(start, stop, self.model.lags)
            if not self.sequences.in_memory:
                self.model.check_rows(self.sequences, block.values, block.observed, start, block.states)
            rows = block.padded(size) if self.lowering is None or whole else None
            if self.lowering is None:
                return Read(start, size, rows)
            numbers = _values(block) if borrow and self.lowering.terms else _numbers(self.lowering, block)
            if self.lowering.has_base_measure and not self.sequences.in_memory:
                shares = _shares(own[0] - start, own[1] - start)
                base = float(sum(self.lowering.log_base_measure(block.values[i], block.observed[i]) for i in shares))
        if borrow:
            memory = np.ascontiguousarray(numbers)
            return Read(start, size, rows, native.borrowed(memory, self.lowering.terms), memory, moves, base)
        numbers = np.pad(numbers, ((0, size - len(numbers)), (0, 0)), constant_values=np.nan)
        return Read(start, size, rows, numbers, None, moves, base)

    def _look_at(self, values: np.ndarray, start: int, own: tuple[int, int]) -> float:
        """Refuse values of a file that functions are taken of where these have none; the base measure of `own` rows."""
        base = 0.0
        for i in _shares(0, len(values)) if self.lowering.terms else ():
            observed = ~np.isnan(values[i])
            self.model.check_rows(self.sequences, values[i], observed, start + i.start)
            inside = slice(max(own[0] - start - i.start, 0), max(own[1] - start - i.start, 0))
            if self.lowering.has_base_measure:
                base += float(self.lowering.log_base_measure(values[i][inside], observed[inside]))
        return base

    def numbers(self, start: int, stop: int) -> np.ndarray:
        """Numbers `(n, width)` of rows of the emission's lowering, NaN where missing."""
        return _numbers(self.lowering, self.sequences.rows(start, stop, self.model.lags))

    def log_base_measure(self) -> float:
        """Sum of `log h(y)` over all data, where they lie in memory; computed once."""
        lowering = self.lowering
        if lowering is None or not lowering.has_base_measure or not self.sequences.in_memory:
            return 0.0
        known, key = _known.setdefault(self.sequences, {}), jax.tree.structure(self.model.emission)
        if key not in known:
            with jax.enable_x64(True):
                blocks = self.sequences.blocks(SHARE)
                known[key] = float(sum(lowering.log_base_measure(*rows[:2]) for _, rows in blocks))
        return known[key]


def _shares(start: int, stop: int) -> list[slice]:
    return [slice(i, min(i + SHARE, stop)) for i in range(start, stop, SHARE)]


def chunk_length(sequences: Sequences) -> int:
    """Long enough that the overlap costs little, short enough that every lane of every thread has a chunk."""
    return min(max(sequences.length // (8 * native.threads()), LEAST_CHUNK), CHUNK)


def lowering_for(model: HMM, sequences: Sequences) -> Lowering | None:
    """The lowering of the emission, where it serves these data: a known state rules others out."""
    few = model.transitions.varies and distinct_rows(model.transitions, sequences) is not None
    lowering = None if sequences.has_states else lowering_of(model, parts=True, few=few)
    if lowering is not None and model.emission.support is constraints.real:
        return lowering  # whatever they hold
    parts = partly_observed(model, sequences)  # looks at data in memory, whatever comes of it
    return None if sequences.has_states else lowering or lowering_of(model, parts=parts, few=few)


def partly_observed(model: HMM, sequences: Sequences) -> bool:
    """Whether a row is observed in part only; data in memory are checked against the emission's support on the way."""
    if not sequences.in_memory:
        return sequences.dim > 1 and (sequences.has_mask or sequences.dtype.kind == "f")
    known = _known.setdefault(sequences, {})
    key = (jax.tree.structure(model.emission), model.n_states if sequences.has_states else 0)
    if key not in known:
        known[key] = check_all(model, sequences)
    return bool(known[key])


def _values(rows: Rows) -> np.ndarray:
    """Values as they are, NaN where missing."""
    values = rows.values if rows.values.dtype.kind == "f" else rows.values.astype(np.float64)
    return values if rows.observed.all() else np.where(rows.observed, values, np.nan)


def _numbers(lowering: Lowering, rows: Rows) -> np.ndarray:
    """A share of the rows at a time: what is made on the way stays in the cache."""
    if lowering.rows_are_values:
        return np.asarray(lowering.rows(rows.values, rows.observed, rows.lags))
    found = np.empty((len(rows.values), lowering.width))
    for start in range(0, len(found), SHARE):
        own = (None if each is None else each[start : start + SHARE] for each in (*rows[:2], rows.lags))
        lowering.write(found[start : start + SHARE], *own)
    return found


def check_all(model: HMM, sequences: Sequences) -> bool:
    """Look at all data once: refuse what the emission cannot have produced; True if a row is observed in part."""
    found = False
    for start, block in sequences.blocks(SHARE if sequences.in_memory else COPIED_ROWS):
        model.check_rows(sequences, block.values, block.observed, start, block.states)
        seen = block.observed
        found = found or not (seen.all() or np.array_equal(seen.any(axis=1), seen.all(axis=1)))
    return found


def resident_numbers(model: HMM, sequences: Sequences, values: jax.Array) -> Any:
    """The numbers `(T, width)` float32 of data on the device, or None where log likelihoods must be computed."""
    reader = Reader(model, sequences)
    if reader.lowering is None:
        return None
    as_they_are = reader.lowering.rows_are_values and values.dtype == jnp.float32
    numbers = values if as_they_are else jax.device_put(reader.numbers(0, sequences.length).astype(np.float32))
    return numbers if reader.moves is None else narrow(reader.moves.beside(numbers, 0, sequences.length))
