"""The decoded path as visits to states: a table, traces and lists in the formats of the field."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.data.preprocess import Preprocessing
from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import DataError, ModelError
from longhmm.posterior.decode import Decoding, array_for
from longhmm.posterior.draws import check_rate
from longhmm.posterior.summary import levels

if TYPE_CHECKING:
    import pandas as pd

EVENTS_AT_ONCE = 1 << 14
ROWS_AT_ONCE = 1 << 20


class Segmenting(Decoding):
    """Draws that cut data into visits to states."""

    def events(
        self,
        data: Any,
        *,
        rate: float | None = None,
        path: np.ndarray | None = None,
        interval: float = 0.9,
        preprocessing: Preprocessing | None = None,
    ) -> pd.DataFrame:
        """One row per visit to a state: when it began and ended, which state, and at what level.

        Columns: `sequence`; `start` (inclusive) and `end` (exclusive) in samples, counted from the start of the
        sequence; `start_s` and `end_s` in seconds where `rate` is given; `state`; `level`, the emission's location in
        the units of the data, with the ends of its central interval, `level_lower` and `level_upper`. An event never
        runs from one sequence into the next.

        Args:
            rate: samples per second.
            path: states `(T,)`, if they were decoded already; otherwise the most probable path at the posterior mean.
            interval: probability of the interval of the level, over draws of the parameters.
            preprocessing: what was done to a recording to make `data` of it. Samples, rate and levels are then those of
                the recording: with every n-th sample kept, an event covers n times as many samples of the file.
        """
        import pandas as pd

        check_rate(rate)
        sequences = open_data(data)
        states = self.decode(sequences) if path is None else np.asarray(path)
        if states.shape != (sequences.length,):
            raise DataError(
                f"path must hold one state for each of {sequences.length} observations, got {states.shape}."
            )
        changes = np.flatnonzero(states[1:] != states[:-1]) + 1
        starts = np.union1d(changes, sequences.offsets[:-1]).astype(np.int64)
        ends = np.append(starts[1:], sequences.length)
        number = np.searchsorted(sequences.offsets, starts, side="right") - 1
        origin = sequences.offsets[number]
        every = 1 if preprocessing is None else preprocessing.decimate
        table: dict[str, np.ndarray] = {
            "sequence": number,
            "start": (starts - origin) * every,
            "end": (ends - origin) * every,
        }
        if rate is not None:
            table["start_s"], table["end_s"] = table["start"] / rate, table["end"] / rate
        table["state"] = states[starts].astype(np.int64)
        for name, values in levels(self, interval=interval, preprocessing=preprocessing).items():
            table[str(name)] = values.to_numpy()[table["state"]]
        return pd.DataFrame(table)


def idealised(events: pd.DataFrame, *, column: str = "level", out: str | os.PathLike[str] | None = None) -> np.ndarray:
    """`(T,)` float32: the level of every sample, sequences end to end.

    Args:
        events: a table of events, as `Posterior.events` returns it.
        column: which of its columns; "level_lower" and "level_upper" give the ends of the interval of the level.
        out: the name of an .npy file to make, for recordings too long for memory.
    """
    lengths = (events["end"] - events["start"]).to_numpy()
    shape = (int(lengths.sum()),)
    trace = np.empty(shape, np.float32) if out is None else array_for(os.fspath(out), shape)
    values = events[column].to_numpy(np.float32)
    at = 0
    for first in range(0, len(events), EVENTS_AT_ONCE):
        part = slice(first, first + EVENTS_AT_ONCE)
        piece = np.repeat(values[part], lengths[part])
        trace[at : at + len(piece)] = piece
        at += len(piece)
    return trace


def write_dwt(
    file: str | os.PathLike[str], events: pd.DataFrame, rate: float | None, spread: np.ndarray | None = None
) -> None:
    """QuB's list of dwells: one segment per sequence, a line "class, milliseconds" per visit, classes from 0.

    Args:
        events: a table of events, as `Posterior.events` returns it.
        rate: samples per second.
        spread: `(K,)` standard deviation of the observations in each state, for the header; zeros if left out.
    """
    if rate is None or not rate > 0:
        raise ModelError(f"rate must be a positive number of samples per second to write a .dwt file, got {rate!r}.")
    step = 1e3 / rate
    by_state = events.groupby("state")["level"].first()
    count = int(by_state.index.max()) + 1 if spread is None else len(spread)
    sds = np.zeros(count) if spread is None else np.asarray(spread)
    classes = " ".join(f"{by_state.get(k, 0.0):.6f} {sds[k]:.6f}" for k in range(count))
    start = 0.0
    with open(file, "w", encoding="ascii", newline="\r\n") as stream:
        for number, part in events.groupby("sequence", sort=True):
            stream.write(
                f"Segment: {int(number) + 1} Dwells: {len(part)} Sampling(ms): {step:.10g} Start(ms): {start:.10g} "
                f"ClassCount: {count} {classes}\n"
            )
            length = (part["end"] - part["start"]).to_numpy()
            for state, samples in zip(part["state"], length, strict=True):
                stream.write(f"{state}\t{samples * step:.10g}\n")
            stream.write("\n")
            start += float(length.sum()) * step


def write_bed(
    file: str | os.PathLike[str], events: pd.DataFrame, *, names: list[str] | None = None, bin_size: int = 1
) -> None:
    """Genome browsers' format: chromosome, start (inclusive), end (exclusive), name and score of every visit.

    Args:
        names: the chromosome of every sequence; "seq0", "seq1" and so on if left out.
        bin_size: base pairs per observation.
    """
    if bin_size < 1:
        raise ModelError(f"bin_size must be at least 1, got {bin_size!r}.")
    with open(file, "w", encoding="utf-8", newline="\n") as stream:
        for sequence, start, end, state in events[["sequence", "start", "end", "state"]].to_numpy().tolist():
            chromosome = f"seq{sequence}" if names is None else names[sequence]
            stream.write(f"{chromosome}\t{start * bin_size}\t{end * bin_size}\tstate{state}\t0\n")


def write_events(file: str | os.PathLike[str], events: pd.DataFrame) -> None:
    """A table of events as CSV, TSV or Parquet, by the ending of the name."""
    path, separators = Path(file), {".csv": ",", ".tsv": "\t"}
    kind = path.suffix.lower()
    if kind not in (*separators, ".parquet"):
        raise DataError(f"{path} has the unknown ending {path.suffix!r}; use .csv, .tsv or .parquet.")
    try:
        if kind == ".parquet":
            events.to_parquet(path, index=False, engine="pyarrow")
        else:
            events.to_csv(path, index=False, sep=separators[kind], float_format="%.10g")
    except ImportError as error:
        raise DataError(f"writing {path} needs pyarrow; install it with: pip install 'longhmm[parquet]'") from error
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror or error}); choose another place.") from None


def spread_by_state(
    recording: Sequences, path: np.ndarray, n_states: int, preprocessing: Preprocessing | None = None
) -> np.ndarray:
    """`(K,)`, standard deviation of the first feature of the samples that were kept, by decoded state."""
    every = 1 if preprocessing is None else preprocessing.decimate
    moments, at, shift = np.zeros((3, n_states)), 0, np.nan
    for first, last in zip(recording.offsets[:-1], recording.offsets[1:], strict=True):
        for start in range(int(first), int(last), ROWS_AT_ONCE * every):
            block = recording.rows(start, min(start + ROWS_AT_ONCE * every, int(last)))
            values, seen = block.values[::every, 0].astype(np.float64), block.observed[::every, 0]
            states, at = path[at : at + len(values)][seen], at + len(values)
            if np.isnan(shift) and seen.any():  # keeps the digits of a small spread around a large mean
                shift = float(np.median(values[seen]))
            centred = values[seen] - shift
            moments += [np.bincount(states, centred**power, minlength=n_states) for power in range(3)]
    count, total, squares = moments
    mean = total / np.maximum(count, 1)
    return np.sqrt(np.maximum(squares / np.maximum(count, 1) - mean**2, 0.0))
