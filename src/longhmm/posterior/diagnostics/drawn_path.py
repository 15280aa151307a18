"""Complete data: observations, a draw of the parameters, and a path of states drawn given both.

If the model is right, the three are together a draw of the model. Given the parameters the path is then a Markov chain,
and given the path every observation is an independent draw of its state's distribution: what is found along the path
needs no correction for what is not known of states and parameters. The most probable path would not do.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from longhmm.backends.paths import sampled_paths
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.model.memory import unfold
from longhmm.posterior.draws import evenly_spaced
from longhmm.run.generator import generator_key

MOST_ROWS = 1_000_000
PLACES = 10  # stretches of long data that are looked at
PATHS, APART = 16, 1_000_003  # paths through the same data, and between their seeds
WORK = 4_000_000  # rows times states times paths
BURN = 100  # rows at the start of each, while the distribution of the first state is a guess


class Excerpt(NamedTuple):
    """All rows, or stretches that stand for all."""

    rows: Sequences  # every piece a sequence
    counts: np.ndarray  # (n,) which rows count
    spans: list[tuple[int, int]]  # the pieces, as they lie in the data

    @property
    def position(self) -> np.ndarray:
        """`(n,)`, where rows stand in the data."""
        return np.concatenate([np.arange(*span) for span in self.spans])


def excerpts(sequences: Sequences, most: int) -> Excerpt:
    """All rows, or `most` of them in ten places; those of a smaller excerpt are among those of a larger one."""
    if sequences.length <= most:
        return Excerpt(sequences, np.ones(sequences.length, bool), [(0, sequences.length)])
    size = max(1, most // PLACES)
    starts = np.maximum(evenly_spaced(sequences.length, PLACES) - size // 2, 0)
    spans = [(start, min(start + size, sequences.length)) for start in starts.tolist()]
    found = sequences.gathered(spans)
    counts, at = np.ones(found.length, bool), 0
    for start, stop in spans:
        if start not in sequences.offsets:
            counts[at : min(at + BURN, found.offsets[np.searchsorted(found.offsets, at, side="right")])] = False
        at += stop - start
    return Excerpt(found, counts, spans)


class DrawnPath:
    """A path of states `(n,)` through an excerpt of the data, at one draw of the parameters."""

    def __init__(self, model: HMM, params: Mapping[str, Any], sequences: Sequences, *, seed: int = 0) -> None:
        self.model, self.params, self.whole = model, model.validate(params), sequences
        self.part, self.counts, _ = excerpt = excerpts(sequences, MOST_ROWS)
        self.position = excerpt.position
        self.states, self.seed = self._drawn(seed), seed

    def _drawn(self, seed: int) -> np.ndarray:
        path = next(sampled_paths(self.model, self.params, self.part, [generator_key(seed)]))
        return np.asarray(path, np.int64)

    def several(self) -> Iterator[np.ndarray]:
        """This path, and others of the same parameters and data where they are soon drawn."""
        yield self.states
        if PATHS * self.part.length * self.model.n_states <= WORK:
            yield from (self._drawn(self.seed + APART * each) for each in range(1, PATHS))

    @cached_property
    def opens(self) -> np.ndarray:
        """`(n,)`, the first rows of sequences and pieces."""
        found = np.zeros(len(self.states), bool)
        found[self.part.offsets[:-1]] = True
        return found

    def at(self, position: np.ndarray) -> np.ndarray:
        """States of the rows at these places in the data."""
        return self.states[np.searchsorted(self.position, position)]

    def remembered(self, position: np.ndarray) -> np.ndarray:
        """The same with what they remember, where observations depend on the states before them; numbers of pairs
        where they depend on one, which is not known before the first row."""
        memory, model, _ = unfold(self.model, self.params)
        found = memory.along(self.states, self.opens)
        if model.emission.couples:
            found = found + model.n_states * np.roll(found, 1)
        return found[np.searchsorted(self.position, position)]
