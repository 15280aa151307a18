"""Whole paths of states over data of any length: the most probable one, or draws from their posterior.

A path is fixed from the end backwards, so it takes two sweeps. The first finds, for every chunk, the map from the
state that follows the chunk to the chunk's first state. Following these maps from the end of each sequence fixes the
state after every chunk, and the second sweep fills the chunks in. Memory holds a few numbers per chunk and the path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np

from longhmm.data.executor import Task, Work
from longhmm.data.sequences import Sequences
from longhmm.errors import ImpossibleObservationError
from longhmm.kernels.block_messages import transfer_blocks
from longhmm.kernels.blocks import Plan
from longhmm.kernels.edges import carried_before
from longhmm.kernels.full_pass import Progress, filter_pass
from longhmm.kernels.path_blocks import BEST, DRAWN, How, Scores, Walk, fill_blocks, map_blocks, message_blocks
from longhmm.kernels.proofs import TOLERANCE, before_each, filtered_gap, proved_blocks, scores_gap
from longhmm.messages.viterbi import viterbi_messages
from longhmm.model.hmm import HMM

SCORE_TOLERANCE = 1e-8  # scores are sums of thousands of log probabilities in double precision


class Laws(NamedTuple):
    """What many draws at the same parameters share: log laws `(K, W)` of the state before every chunk of each block,
    and whether they were found on logarithms throughout."""

    before: list[np.ndarray]
    logarithms: bool


def best_path(
    model: HMM, params: Mapping[str, Any], sequences: Sequences, progress: Progress | None = None
) -> np.ndarray:
    """The most probable path of states (Viterbi), `(T,)`, exact for every sequence."""
    paths = _Paths(model, params, sequences)
    path = paths.join(paths.best_scores(), BEST, jax.random.key(0), progress)
    assert path is not None
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
    laws: Laws | None = None,
) -> np.ndarray:
    """One path of states drawn from `P(x | all y)`, `(T,)`. `laws`, from `filtered_laws`, serve many draws."""
    laws = filtered_laws(model, params, sequences) if laws is None else laws
    path = _Paths(model, params, sequences, laws.logarithms).join(laws.before, DRAWN, key, progress)
    if path is None:
        laws = filtered_laws(model, params, sequences, logarithms=True)
        path = _Paths(model, params, sequences, True).join(laws.before, DRAWN, key, progress)
    assert path is not None
    return path


def filtered_laws(model: HMM, params: Mapping[str, Any], sequences: Sequences, *, logarithms: bool = False) -> Laws:
    """Law of the state before every chunk given what came before it."""
    return Laws(_Paths(model, params, sequences, logarithms).filtered(), logarithms)


def _refuse(model: HMM, params: Mapping[str, Any], sequences: Sequences) -> NoReturn:
    for _ in filter_pass(model, params, sequences):  # raises, and names the row
        pass
    raise ImpossibleObservationError(
        f"No path of states has a positive probability for {sequences.name}: mark impossible observations as missing "
        "(NaN), or use an emission or transitions that allow them."
    )


class _Paths:
    """Work on the blocks of some data at some parameters."""

    def __init__(self, model: HMM, params: Mapping[str, Any], sequences: Sequences, logarithms: bool = False) -> None:
        model.check_dim(sequences)
        self.model, self.params, self.sequences = model, params, sequences
        self.plan = Plan(sequences, model.n_states)
        self.how = How(model.validate(params), self.plan.shape, logarithms)

    def best_scores(self) -> list[np.ndarray]:
        """Scores before every chunk, proved or carried."""

        def carried(begin: int, previous: Scores | None) -> Iterator[tuple[int, int, Scores]]:
            carry = np.zeros(self.model.n_states) if previous is None else previous.leaving[:, -1]  # type: ignore[index]
            work = partial(transfer_blocks, self.how.params, self.plan.shape, viterbi_messages)
            indices = range(begin, self.plan.n_blocks)
            tasks = (self.plan.task(index, 0, index) for index in indices)
            found = self.sequences.executor.run(work, self.model, self.sequences, tasks)
            for index, transfer in zip(indices, found, strict=True):
                with jax.enable_x64(True):
                    before, carry = carried_before(
                        carry, self.how.params["initial"], transfer, ~self.plan.joints(index), best=True
                    )
                yield index, 0, Scores(np.asarray(before), None)

        return self._messages(BEST, scores_gap, SCORE_TOLERANCE, carried)

    def filtered(self) -> list[np.ndarray]:
        """Log laws before every chunk, proved or carried."""

        def carried(begin: int, previous: Scores | None) -> Iterator[tuple[int, int, Scores]]:
            for index, result in enumerate(filter_pass(self.model, self.params, self.sequences)):
                if index >= begin:
                    yield index, 0, Scores(result.before, None)

        return self._messages(DRAWN, filtered_gap, TOLERANCE, carried)

    def _messages(self, walk: Walk, gap: Callable[..., jax.Array], tolerance: float, carried: Any) -> list[np.ndarray]:
        def run(indices: Iterable[int], reach: int) -> Iterator[Scores]:
            tasks = (self.plan.task(index, reach, (index, reach)) for index in indices)
            for index, scores in zip(indices, self.run(tasks, message_blocks, walk), strict=True):
                if np.isneginf(scores.leaving.max(axis=0)[self.plan.spans(index)[0] > 0]).any():
                    _refuse(self.model, self.params, self.sequences)
                yield scores

        def agree(index: int, previous: Scores | None, scores: Scores) -> bool:
            assert scores.leaving is not None
            leaving = before_each(None if previous is None else previous.leaving, scores.leaving)
            with jax.enable_x64(True):
                found = np.asarray(gap(self.how.params["transition"], leaving, scores.before))
            return bool(np.all(found[self.plan.joints(index)] <= tolerance))

        return [scores.before for _, _, scores in proved_blocks(self.plan.n_blocks, run, agree, carried)]

    def run(self, tasks: Iterable[Task], work: Any, *constants: Any) -> Iterator[Any]:
        """What the tasks give, wherever the executor of the data takes them."""
        ready: Work = partial(work, self.how, *constants)
        return self.sequences.executor.run(ready, self.model, self.sequences, tasks)

    def join(
        self, before: list[np.ndarray], walk: Walk, key: jax.Array, progress: Progress | None
    ) -> np.ndarray | None:
        """The path, from what comes before every chunk; None where that has to be found on logarithms."""
        plan, seed = self.plan, np.asarray(jax.random.key_data(key)).ravel()[:2]
        following: dict[int, np.ndarray] = {}
        state = -1  # the first state of the chunk to the right
        backwards = range(plan.n_blocks - 1, -1, -1)
        tasks = (plan.task(index, 0, (index, before[index])) for index in backwards)
        found = self.run(tasks, map_blocks, walk, seed)
        for index, (maps, length, at_end, lost) in zip(backwards, found, strict=True):
            if lost:
                return None
            after = np.full(plan.lanes, -1, np.int32)
            for lane in reversed(np.flatnonzero(length)):
                after[lane] = -1 if at_end[lane] else state
                state = int(maps[after[lane], lane])
                if state < 0 and walk.drawn and not self.how.logarithms:
                    return None
            following[index] = after
        path = np.empty(plan.sequences.length, np.int8 if self.model.n_states <= 127 else np.int16)
        tasks = (plan.task(index, 0, (index, before[index], following[index])) for index in range(plan.n_blocks))
        for index, states in enumerate(self.run(tasks, fill_blocks, walk, seed)):
            start, stop = plan.bounds(index)
            path[start:stop] = states
            if progress is not None:
                progress(stop - start)
        return path
