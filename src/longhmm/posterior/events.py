"""Which state each observation comes from: paths, probabilities, visits, and files in the formats of the field."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.backends.block import Own
from longhmm.backends.paths import best_path
from longhmm.backends.stream import stream
from longhmm.data.preprocess import Preprocessing
from longhmm.data.sequences import Sequences
from longhmm.errors import DataError, ModelError, check_whole
from longhmm.posterior.draws import Draws, central, check_rate, labelled
from longhmm.posterior.store import Place
from longhmm.posterior.summary import levels
from longhmm.run.cluster import on_cluster

if TYPE_CHECKING:
    import pandas as pd

EVENTS_AT_ONCE, ROWS_AT_ONCE = 1 << 14, 1 << 20


class Decoding(Draws):
    """Draws that say which state each observation comes from."""

    def decode(self, data: Any, *, draws: int | None = None, client: Any = None) -> np.ndarray:
        """The most probable path of states (Viterbi): `(T,)` at the posterior mean, or `(draws, T)`, one per draw.

        Many sequences are laid end to end, in order. How much the paths of several draws differ shows what the
        uncertainty of the parameters does to the decoding; it does not include the uncertainty of the path itself.
        With a `client` of a Dask cluster, its workers pass over the data.
        """
        sequences = on_cluster(self.model.opened(data), client)
        if draws is None:
            return best_path(self.model, self.mean_params(), sequences)
        return np.stack([best_path(self.model, params, sequences) for params in self.iterate(draws)])

    def state_probabilities(
        self, data: Any, *, draws: int = 20, causal: bool = False, out: Any = None, client: Any = None
    ) -> np.ndarray:
        """`P(x_t = k | all y)`, `(T, K)` float32, averaged over `draws` evenly spaced draws.

        Args:
            data: anything that `open_data` takes; many sequences are laid end to end.
            causal: True conditions on the observations up to t only.
            out: where to put the result if it is too long for memory: the name of an .npy file to make, or an array.
            client: a `dask.distributed.Client`, whose workers then pass over the data.
        """
        sequences = on_cluster(self.model.opened(data), client)
        total = array_for(out, (sequences.length, self.model.n_states))
        for number, params in enumerate(self.iterate(draws)):
            for start, part in stream(self.model, params, sequences, reduce=_narrow, forward_only=causal):
                own = total[start : start + len(part)]
                np.add(own, part, out=own) if number else np.copyto(own, part)
        total /= len(self.thinned(draws))
        return total

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
        sequence; `start_s` and `end_s` in seconds where the rate is known; `state`; `level`, the emission's location in
        the units of the data, with the ends of its central interval, `level_lower` and `level_upper`. An event never
        runs from one sequence into the next.

        Args:
            rate: samples per second; by default what the file says.
            path: states `(T,)`, if they were decoded already; otherwise the most probable path at the posterior mean.
            interval: probability of the interval of the level, over draws of the parameters.
            preprocessing: what was done to a recording to make `data` of it. Samples, rate and levels are then those of
                the recording: with every n-th sample kept, an event covers n times as many samples of the file.
        """
        import pandas as pd

        sequences = self.model.opened(data)
        every = 1 if preprocessing is None else preprocessing.decimate
        rate = sequences.rate and sequences.rate * every if rate is None else rate
        check_rate(rate)
        states = self.decode(sequences) if path is None else np.asarray(path)
        if states.shape != (sequences.length,):
            raise DataError(f"path must hold one state for each of {sequences.length} rows, got {states.shape}.")
        starts = visit_starts(states, sequences.offsets)
        number = np.searchsorted(sequences.offsets, starts, side="right") - 1
        table: dict[str, np.ndarray] = {"sequence": number}
        for name, rows in (("start", starts), ("end", np.append(starts[1:], sequences.length))):
            table[name] = (rows - sequences.offsets[number]) * every
        if rate is not None:
            table |= {f"{name}_s": table[name] / rate for name in ("start", "end")}
        table["state"] = states[starts].astype(np.int64)
        for name, level in levels(self, interval=interval, preprocessing=preprocessing).items():
            table[str(name)] = level.to_numpy()[table["state"]]
        return pd.DataFrame(table)


def visit_starts(path: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Where visits to states begin along a path; a sequence begins with a visit of its own."""
    return np.union1d(np.flatnonzero(path[1:] != path[:-1]) + 1, offsets[:-1])


def _narrow(own: Own) -> tuple[int, np.ndarray]:
    assert own.probabilities is not None
    return own.start, own.probabilities.astype(np.float32)


def array_for(out: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The float32 array of this shape that a result goes into: a new one, a new .npy file, or `out` itself."""
    if out is None:
        return np.empty(shape, np.float32)
    if isinstance(out, str | os.PathLike):
        if Path(out).suffix != ".npy":
            raise DataError(f"out must be an array or the name of an .npy file, got {str(out)!r}.")
        return np.lib.format.open_memmap(out, mode="w+", dtype=np.float32, shape=shape)
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != np.float32:
        raise DataError(f"out must be a float32 array of shape {shape} or the name of an .npy file, got {type(out)}.")
    return out


def dwell_histogram(posterior: Draws, events: pd.DataFrame) -> pd.DataFrame:
    """Decoded dwell times in bins of equal width on a logarithmic axis, ten per decade, state by state.

    Visits cut off by the ends of a sequence are left out: how long they lasted is not known.

    Columns: `state`; `lower`, `upper`, ends of the bin in samples, as `events` (of `Posterior.events`) counts them:
    lengths with `lower < length <= upper`; `count` of decoded visits; `expected`, `expected_lower` and
    `expected_upper`, what the model leads to expect of as many visits, as mean and central interval over the draws.
    """
    whole, states = complete_visits(events), range(posterior.model.n_states)
    lengths = (whole["end"] - whole["start"]).to_numpy()
    longest = int(lengths.max(initial=1))
    # Whole numbers of samples, about equally spaced on a logarithmic axis; (0, 1] is the first bin.
    grid = np.unique(np.floor(10 ** (np.arange(np.log10(longest) * 10) / 10) + 1e-9).astype(np.int64))
    edges = np.concatenate([[0], grid[grid < longest], [longest]])
    counts = np.stack([np.histogram(lengths[whole["state"] == state], edges + 0.5)[0] for state in states])
    # The bin (a, b] has probability P(length > a) - P(length > b).
    draws, moves = posterior.stacked(posterior.n_chains * posterior.n_draws), posterior.model.transitions
    expected = -counts.sum(axis=1, keepdims=True) * np.diff(moves.survival(draws, edges))
    bins = np.broadcast_to(edges, (len(counts), len(edges)))
    table = {"lower": bins[:, :-1], "upper": bins[:, 1:], "count": counts, "expected": expected.mean(axis=0)}
    table["expected_lower"], table["expected_upper"] = central(expected, 0.9)
    return labelled(table, {}, ("state", "bin")).to_dataframe().reset_index().drop(columns="bin")


def complete_visits(events: pd.DataFrame) -> pd.DataFrame:
    """The events whose beginning and end were both seen."""
    changes = events["sequence"].to_numpy()[1:] != events["sequence"].to_numpy()[:-1]
    return events[~(np.append(True, changes) | np.append(changes, True))]


def idealised(events: pd.DataFrame, *, out: Place | None = None) -> np.ndarray:
    """`(T,)` float32: the level of every sample, sequences end to end.

    Args:
        events: a table of events, as `Posterior.events` returns it.
        out: the name of an .npy file to make, for recordings too long for memory.
    """
    ends = np.append(0, np.cumsum(events["end"] - events["start"]))
    trace, values = array_for(out, (int(ends[-1]),)), events["level"].to_numpy(np.float32)
    for first in range(0, len(events), EVENTS_AT_ONCE):
        edges = ends[first : first + EVENTS_AT_ONCE + 1]
        trace[edges[0] : edges[-1]] = np.repeat(values[first : first + EVENTS_AT_ONCE], np.diff(edges))
    return trace


def write_dwt(file: Place, events: pd.DataFrame, rate: float | None, spread: np.ndarray | None = None) -> None:
    """QuB's list of dwells: one segment per sequence, a line "class, milliseconds" per visit, classes from 0.

    Args:
        events: a table of events, as `Posterior.events` returns it.
        rate: samples per second.
        spread: `(K,)` standard deviation of the observations in each state, for the header; zeros if left out.
    """
    if rate is None or not rate > 0:
        raise ModelError(f"rate must be a positive number of samples per second to write a .dwt file, got {rate!r}.")
    step, start = 1e3 / rate, 0.0
    by_state = events.groupby("state")["level"].first()
    sds = np.zeros(int(by_state.index.max()) + 1) if spread is None else np.asarray(spread)
    classes = " ".join(f"{by_state.get(state, 0.0):.6f} {sd:.6f}" for state, sd in enumerate(sds))
    with open(file, "w", encoding="ascii", newline="\r\n") as stream:
        for number, part in events.groupby("sequence", sort=True):
            stream.write(
                f"Segment: {int(number) + 1} Dwells: {len(part)} Sampling(ms): {step:.10g} Start(ms): {start:.10g} "
                f"ClassCount: {len(sds)} {classes}\n"
            )
            length = part["end"] - part["start"]
            for state, samples in zip(part["state"], length, strict=True):
                stream.write(f"{state}\t{samples * step:.10g}\n")
            stream.write("\n")
            start += float(length.sum()) * step


def write_bed(file: Place, events: pd.DataFrame, *, names: list[str] | None = None, bin_size: int = 1) -> None:
    """Genome browsers' format: chromosome, start (inclusive), end (exclusive), name and score of every visit.

    Args:
        names: the chromosome of every sequence; "seq0", "seq1" and so on if left out.
        bin_size: base pairs per observation.
    """
    check_whole("bin_size", bin_size, 1)
    with open(file, "w", encoding="utf-8", newline="\n") as stream:
        for sequence, start, end, state in events[["sequence", "start", "end", "state"]].to_numpy().tolist():
            chromosome = f"seq{sequence}" if names is None else names[sequence]
            stream.write(f"{chromosome}\t{start * bin_size}\t{end * bin_size}\tstate{state}\t0\n")


def write_events(file: Place, events: pd.DataFrame) -> None:
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
        raise DataError(f"writing {path} needs pyarrow; install it with: pip install pyarrow") from error
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror or error}); choose another place.") from None


def spread_by_state(recording: Sequences, path: np.ndarray, n_states: int, decimate: int = 1) -> np.ndarray:
    """`(K,)`, standard deviation of the first feature of the samples that were kept, by decoded state."""
    kept = Preprocessing(decimate=decimate).apply(recording)
    moments, shift = np.zeros((3, n_states)), np.nan
    for start, block in kept.blocks(ROWS_AT_ONCE):
        seen = block.observed[:, 0]
        values, states = block.values[seen, 0].astype(np.float64), path[start : start + len(seen)][seen]
        if np.isnan(shift) and len(values):  # keeps the digits of a small spread around a large mean
            shift = float(np.median(values))
        moments += [np.bincount(states, (values - shift) ** power, minlength=n_states) for power in range(3)]
    mean, square = moments[1:] / np.maximum(moments[0], 1)
    return np.asarray(np.sqrt(np.maximum(square - mean**2, 0.0)))
