"""Digests by which data are known again: of their values, masks, known states and the ends of their sequences.

Data in memory, and files up to `WHOLE` bytes, are digested in full, so that no change is missed. Longer files are known
by their size, the time of their last change, and blocks of values spread over them; other long data by blocks alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.data.source import Source

WHOLE = 1 << 30  # bytes of values in files up to which all of them are digested: about a second
BLOCKS, BLOCK_ROWS = 64, 4096  # of longer ones
AT_ONCE = 1 << 20  # values digested at a time
WORDS = {"values": "values", "mask": "mask", "states": "known states", "covariates": "covariates"}


def digest(sequences: Sequences) -> dict[str, str]:
    """What tells these data from others, by the words in which a user would say it."""
    whole = sees_all(sequences)
    digests = {name: hashlib.sha256() for name in WORDS}
    for start, stop in _spans(sequences, whole):
        for name, rows in sequences.stored(start, stop).items():
            same = rows != 0 if name == "mask" else rows.astype(np.int64) if name == "states" else rows
            digests[name].update(np.ascontiguousarray(same).data)
    found = {
        "shape": f"{sequences.length} rows of {sequences.dim}",
        "type": str(sequences.dtype),
        **{WORDS[name]: sha.hexdigest() for name, sha in digests.items()},
        "ends of the sequences": hashlib.sha256(sequences.offsets.tobytes()).hexdigest(),
    }
    if not whole:
        found |= _of_files(files(sequences.source))
    return found


def sees_all(sequences: Sequences) -> bool:
    """Whether the digest is one of every value."""
    return sequences.in_memory or sequences.length * sequences.dim * sequences.dtype.itemsize <= WHOLE


def files(source: Source) -> list[Path]:
    """The files or folders on this machine that a source reads from, as far as they are known."""
    if source.parts:
        return [path for part in source.parts for path in files(part)]
    return [source.path] if source.path is not None and source.path.exists() else []


def _spans(sequences: Sequences, whole: bool) -> Iterator[tuple[int, int]]:
    length, rows = sequences.length, max(1, AT_ONCE // sequences.dim)
    if whole:
        yield from ((start, min(start + rows, length)) for start in range(0, length, rows))
        return
    for start in np.unique(np.linspace(0, max(length - BLOCK_ROWS, 0), BLOCKS).astype(np.int64)):
        yield int(start), min(int(start) + BLOCK_ROWS, length)


def _of_files(paths: list[Path]) -> dict[str, str]:
    sizes, times = [], []
    for path in paths:
        inside = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
        seen = [each.stat() for each in inside]
        sizes.append(sum(each.st_size for each in seen))
        times.append(max((each.st_mtime_ns for each in seen), default=0))
    return {"size": " ".join(map(str, sizes)), "time of change": " ".join(map(str, times))}
