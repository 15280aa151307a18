"""Whole paths of states over data of any length: the most probable one, or draws from their posterior.

A path is fixed from the end backwards, so it takes two sweeps. The first finds, for every chunk, the map from the
state that follows the chunk to the chunk's first state. Following these maps from the end of each sequence fixes the
state after every chunk, and the second sweep fills the chunks in. Memory holds a few numbers per chunk and the path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

import jax
import numpy as np

from longhmm.data.executor import Task, Work
from longhmm.data.sequences import Sequences
from longhmm.errors import ImpossibleObservationError
from longhmm.kernels.blocks import Plan
from longhmm.kernels.full_pass import Progress, filter_pass
from longhmm.kernels.path_blocks import (
    BEST,
    DRAWN,
    How,
    Scores,
    Walk,
    carry_blocks,
    fill_blocks,
    map_blocks,
    score_blocks,
)
from longhmm.kernels.proofs import moved_scores, pair, proved_blocks, same_messages
from longhmm.model.hmm import HMM

SCORE_TOLERANCE = 1e-8  # scores are sums of thousands of log probabilities in double precision


def best_path(
    model: HMM, params: Mapping[str, Any], sequences: Sequences, progress: Progress | None = None
) -> np.ndarray:
    """The most probable path of states (Viterbi), `(T,)`, exact for every sequence."""
    model.check_dim(sequences)
    paths = _Paths(model, params, sequences)
    plan, transition = paths.plan, paths.how.params["transition"]

    def run(indices: Iterable[int], reach: int) -> Iterator[Scores]:
        for scores in paths.run((plan.task(index, reach, (index, reach)) for index in indices), score_blocks):
            if np.isneginf(scores.leaving.max(axis=0)).any():
                _refuse(model, params, sequences)
            yield scores

    def agree(index: int, previous: Scores | None, scores: Scores) -> bool:
        sides = pair(plan.joints(index), previous, scores, "leaving", "before")
        left, right = (moved_scores(side, transition) for side in sides)
        return same_messages(left, right, SCORE_TOLERANCE)

    def carried(begin: int, previous: Scores | None) -> Iterator[tuple[int, int, Scores]]:
        carry = np.zeros(model.n_states) if previous is None else previous.leaving[:, -1]  # type: ignore[index]
        for index in range(begin, plan.n_blocks):
            ((before, carry),) = paths.run([plan.task(index, 0, (index, carry))], carry_blocks)
            yield index, 0, Scores(before, None)

    before = [scores.before for _, _, scores in proved_blocks(plan, run, agree, carried)]
    path = paths.join(before, BEST, jax.random.key(0), progress)
    if (path < 0).any():
        _refuse(model, params, sequences)
    return path


def sampled_path(
    model: HMM,
    params: Mapping[str, Any],
    sequences: Sequences,
    key: jax.Array,
    progress: Progress | None = None,
    *,
    laws: list[np.ndarray] | None = None,
) -> np.ndarray:
    """One path of states drawn from `P(x | all y)`, `(T,)`. `laws`, from `filtered_laws`, serve many draws."""
    if laws is None:
        laws = filtered_laws(model, params, sequences)
    return _Paths(model, params, sequences).join(laws, DRAWN, key, progress)


def filtered_laws(model: HMM, params: Mapping[str, Any], sequences: Sequences) -> list[np.ndarray]:
    """Logarithm of the law of the state before every chunk given what came before it, `(K, W)` for each block."""
    return [result.before for result in filter_pass(model, params, sequences)]


def _refuse(model: HMM, params: Mapping[str, Any], sequences: Sequences) -> NoReturn:
    filtered_laws(model, params, sequences)  # raises, and names the row
    raise ImpossibleObservationError(
        f"No path of states has a positive probability for {sequences.name}: mark impossible observations as missing "
        "(NaN), or use an emission or transitions that allow them."
    )


class _Paths:
    """Work on the blocks of some data at some parameters."""

    def __init__(self, model: HMM, params: Mapping[str, Any], sequences: Sequences) -> None:
        self.model, self.sequences = model, sequences
        self.plan = Plan(sequences, model.n_states)
        self.how = How(model.validate(params), self.plan.shape)

    def run(self, tasks: Iterable[Task], work: Any, *constants: Any) -> Iterator[Any]:
        """What the tasks give, wherever the executor of the data takes them."""
        ready: Work = partial(work, self.how, *constants)
        return self.sequences.executor.run(ready, self.model, self.sequences, tasks)

    def join(self, before: list[np.ndarray], walk: Walk, key: jax.Array, progress: Progress | None) -> np.ndarray:
        """The path, from what comes before every chunk."""
        plan, seed = self.plan, np.asarray(jax.random.key_data(key))
        following: dict[int, np.ndarray] = {}
        state = -1  # the first state of the chunk to the right
        backwards = range(plan.n_blocks - 1, -1, -1)
        tasks = (plan.task(index, 0, (index, before[index])) for index in backwards)
        found = self.run(tasks, map_blocks, walk, seed)
        for index, (maps, length, at_end) in zip(backwards, found, strict=True):
            after = np.full(plan.lanes, -1, np.int32)
            for lane in reversed(np.flatnonzero(length)):
                after[lane] = -1 if at_end[lane] else state
                state = int(maps[after[lane], lane])
            following[index] = after
        path = np.empty(plan.sequences.length, np.int8 if self.model.n_states <= 127 else np.int16)
        tasks = (plan.task(index, 0, (index, before[index], following[index])) for index in range(plan.n_blocks))
        for index, states in enumerate(self.run(tasks, fill_blocks, walk, seed)):
            start, stop = plan.bounds(index)
            path[start:stop] = states
            if progress is not None:
                progress(stop - start)
        return path
