"""A part of long data that stands for all of it: stretches spread evenly, cut where sequences end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from longhmm.data.sequences import Sequences, open_data

COUNT = 10  # places that are looked at
BURN = 100  # rows at the start of each, while the distribution of the first state is a guess


class Stretches(NamedTuple):
    """Some rows of longer data.

    Attributes:
        sequences: the rows; every piece is a sequence of its own.
        burn: `(pieces,)`, first rows of each to leave out, as the distribution of their first state is unknown.
    """

    sequences: Sequences
    burn: np.ndarray

    def rows(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """For each row of `[start, stop)`: its place in its piece, and whether it is to be looked at."""
        position = np.arange(start, stop)
        number = np.searchsorted(self.sequences.offsets, position, side="right") - 1
        place = position - self.sequences.offsets[number]
        return place, place >= self.burn[number]


def stretches(sequences: Sequences, most: int) -> Stretches:
    """All rows, or, where there are more, `most` of them in `COUNT` stretches."""
    if sequences.length <= most:
        return Stretches(sequences, np.zeros(sequences.n_sequences, np.int64))
    size = max(1, most // COUNT)
    pieces, masks, states, burn = [], [], [], []
    for index in range(COUNT):
        start = max(0, (2 * index + 1) * sequences.length // (2 * COUNT) - size // 2)
        stop = min(start + size, sequences.length)
        block = sequences.rows(start, stop)
        inside = sequences.offsets[(sequences.offsets > start) & (sequences.offsets < stop)] - start
        pieces += np.split(np.asarray(block.values), inside)
        masks += np.split(~block.observed, inside)
        if block.states is not None:
            states += np.split(block.states, inside)
        burn += [0 if start in sequences.offsets else BURN] + [0] * len(inside)
    return Stretches(open_data(pieces, mask=masks, states=states or None), np.array(burn))
