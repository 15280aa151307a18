"""Efficiencies of energy transfer from intensities of donor and acceptor, many molecules at a time.

With donor D and acceptor A, of which `leakage` D is light of the donor and `direct` times the intensity under direct
excitation is not transferred, `F = A - leakage D - direct A_direct` and `E = F / (F + gamma D)`.
"""

from typing import Any

import numpy as np

from longhmm.data.formats.traces import PAIR
from longhmm.data.joining import offsets_of
from longhmm.data.sequences import Sequences, open_data
from longhmm.data.source import ArraySource
from longhmm.errors import DataError

DIRECT = "acceptor_direct"
BRIGHT = 0.9  # quantile of the total intensity of a trace that stands for that of both dyes
SMOOTH = 5  # rows of the running median, so that no single frame ends a trace
OPTIONS = {"gamma": 1.0, "leakage": 0.0, "direct": 0.0, "bleached": 0.25}


def fret(
    data: Any, *, gamma: float = 1.0, leakage: float = 0.0, direct: float = 0.0, bleached: float = 0.25
) -> Sequences:
    """Efficiencies of traces with a donor and an acceptor, one column, each trace without its bleached end.

    Args:
        data: anything that `open_data` takes: columns called "donor" and "acceptor" (and "acceptor_direct" for
            `direct`), else the first two or three. Traces of one column are taken for efficiencies as they are.
        gamma: how much brighter the acceptor is seen than the donor.
        leakage: share of the donor's light in the acceptor's channel.
        direct: share of the intensity under direct excitation of the acceptor that is seen without transfer.
        bleached: a trace ends where the total intensity, or that under direct excitation, falls below this share of
            what it was for good; 0 keeps traces as they are. An acceptor that bleaches while the donor goes on looks
            like a molecule without transfer, and is cut only where its direct excitation was recorded.

    >>> traces = [np.array([[800.0, 200.0], [200.0, 800.0], [1.0, 0.0], [0.0, -2.0]])]
    >>> [float(each) for each in fret(traces, bleached=0.0).rows(0, 2).values[:, 0].round(2)]
    [0.2, 0.8]
    """
    sequences = open_data(data)
    for name, value in (("gamma", gamma), ("leakage", leakage), ("direct", direct), ("bleached", bleached)):
        if not (value > 0 if name == "gamma" else 0 <= value < 1) or not np.isfinite(value):
            limits = "a positive number" if name == "gamma" else "a share of at least 0 and below 1"
            raise DataError(f"{name} must be {limits}, got {value!r}.")
    if sequences.dim == 1:
        return sequences
    donor, acceptor, excited = _columns(sequences, needs_direct=direct > 0)
    found, lengths = [], []
    for number in range(sequences.n_sequences):
        start, stop = int(sequences.offsets[number]), int(sequences.offsets[number + 1])
        block = sequences.rows(start, stop)
        values = np.where(block.observed, block.values.astype(np.float64), np.nan)
        lights = [values[:, donor] + values[:, acceptor]] + ([] if excited is None else [values[:, excited]])
        end = min((last_bright(light, bleached) for light in lights), default=stop - start)
        moved = values[:, acceptor] - leakage * values[:, donor]
        moved = moved if excited is None else moved - direct * values[:, excited]
        total = moved + gamma * values[:, donor]
        with np.errstate(divide="ignore", invalid="ignore"):
            found.append(np.where(total > 0, moved / total, np.nan)[:end])
        lengths.append(end)
    source = ArraySource(np.concatenate(found), sequences.name)
    source.rate, source.names = sequences.rate, ("efficiency",)
    return Sequences(source, offsets_of(lengths))


def _columns(sequences: Sequences, *, needs_direct: bool) -> tuple[int, int, int | None]:
    """Which columns hold donor, acceptor, and the acceptor under direct excitation where there is one."""
    names = [name.lower() for name in sequences.source.names or ()]
    if all(name in names for name in PAIR):
        excited = names.index(DIRECT) if DIRECT in names else None
        found = (names.index(PAIR[0]), names.index(PAIR[1]), excited)
    else:
        if sequences.dim > 3:
            raise DataError(
                f"{sequences.name} has {sequences.dim} columns, none called donor and acceptor; choose these with "
                "columns=[...]"
            )
        found = (0, 1, 2 if sequences.dim == 3 else None)
    if needs_direct and found[2] is None:
        raise DataError(f"direct needs a column {DIRECT!r} beside donor and acceptor, which {sequences.name} has not")
    return found


def last_bright(light: np.ndarray, share: float) -> int:
    """Rows up to the last in which the running median of an intensity is at least a share of the bright level; at
    least one, so that every molecule keeps its number."""
    known = np.nan_to_num(light, nan=0.0)
    if share == 0:
        return len(known)
    padded = np.pad(known, SMOOTH // 2, mode="edge")
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(padded, SMOOTH), axis=1)
    bright = np.flatnonzero(smooth >= share * np.quantile(smooth, BRIGHT)) if smooth.max() > 0 else np.zeros(0, int)
    return int(bright[-1]) + 1 if bright.size else 1


def fret_options(text: str | None) -> dict[str, float] | None:
    """What the command line says, such as "gamma=1.2,leakage=0.07"; what it does not name has its default."""
    found = dict(OPTIONS)
    for part in [] if text is None else text.split(","):
        name, _, number = (each.strip() for each in part.partition("="))
        try:
            found[name] = float(number)
        except ValueError:
            found[name] = np.nan
    if len(found) > len(OPTIONS) or not np.isfinite(list(found.values())).all():
        wanted = ",".join(f"{name}={value:g}" for name, value in OPTIONS.items())
        raise DataError(f"--fret must be numbers such as {wanted}, got {text!r}.")
    return None if text is None else found
