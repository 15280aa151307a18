"""One run from start to finish: tune or warm up, then draw until every parameter has been seen often enough.

What a run needs to go on, after being killed or when more draws are wanted, is kept: the tuning, the states and the
draws. Nothing else influences a draw, so a run that goes on is the same run.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.progress import Bar
from longhmm.run import checkpoint, saved, tuning
from longhmm.run.chains import Chains, Stored
from longhmm.run.cluster import driver_for
from longhmm.run.driver import CTRL_C, Driver, Progressed
from longhmm.run.effective_size import bulk_effective_size
from longhmm.run.fingerprint import refusal
from longhmm.run.limit import Limit
from longhmm.run.preparation import Prepared, prepare
from longhmm.run.remarks import remarks
from longhmm.run.request import Request
from longhmm.run.warm_up import WarmUp, flat_of
from longhmm.samplers.control_variate_sgld import ControlVariateSGLD

SAVE_EVERY = 30.0  # seconds between two checkpoints
ROUNDS = 4  # how often the distance between draws is doubled to reach the wanted effective size


def find_stored(request: Request) -> Stored | None:
    """What a run with this request has left in its checkpoint, or None."""
    found = _load(request, checkpoint.NAME)
    return None if found is None else Stored(*found)


def _load(request: Request, name: str) -> checkpoint.Contents | None:
    """What the directory of the checkpoint holds under a name; refused if it was saved by a run of another problem."""
    request = request.marked()
    if request.checkpoint is None:
        return None
    assert request.mark is not None
    found = checkpoint.load(request.checkpoint, name)
    why = None if found is None else refusal(found[0].get("fingerprint"), request.mark)
    if why is not None:
        raise checkpoint.CheckpointError(
            f"The checkpoint in {request.checkpoint} belongs to another run, since {why}: choose another directory, or "
            "delete it to start over."
        )
    return found


def find_tuning(request: Request, bar: Bar, stored: Stored | None = None, limit: Limit | None = None) -> tuning.Tuning:
    """The tuning of the default sampler: as an earlier part of the run has it, or found now."""
    stored = stored or find_stored(request)
    if stored is not None and "tuning_factor" in stored.arrays:
        return tuning.from_arrays(request.model, request.sequences, stored.arrays)
    kept = _load(request, checkpoint.TUNING)
    if kept is not None:  # the run was stopped before its first checkpoint
        return tuning.from_arrays(request.model, request.sequences, kept[1])
    tune = partial(
        tuning.tune,
        request.sampler if isinstance(request.sampler, ControlVariateSGLD) else ControlVariateSGLD(),
        request.model,
        request.sequences,
        windows=request.windows,
        buffer=request.buffer,
        init=request.init,
        draws=request.draws,
        seed=request.seed,
        bar=bar,
    )
    found = (limit or Limit()).run(tune, "finding the mode")
    if request.checkpoint is not None:
        keep_tuning(request, found)
    return found


def keep_tuning(request: Request, found: tuning.Tuning) -> None:
    """Write a tuning to the directory of the checkpoint."""
    assert request.checkpoint is not None
    header = {"fingerprint": request.marked().mark}
    checkpoint.save(request.checkpoint, header, tuning.to_arrays(found), checkpoint.TUNING)


def run_session(
    request: Request,
    bar: Bar,
    found: tuning.Tuning | None = None,
    stored: Stored | None = None,
    limit: Limit | None = None,
) -> Chains:
    """Run, or go on with, what was requested.

    Args:
        found: the tuning that the default sampler needs.
        stored: the earlier part of the run; None looks for it in the checkpoint.
    """
    request = request.marked()
    stored = stored or find_stored(request)
    limit = limit or Limit(request.time_limit)
    bar.phase("getting ready")
    arrays = None if stored is None else stored.arrays
    prepared = limit.run(partial(prepare, request, found, arrays), "getting ready")
    driver = driver_for(request, prepared.estimator, limit)
    bar.phase(f"adapting {prepared.describe(request)}", total=request.chains, unit="chains")
    run = driver.start(prepared.starts, adapt=stored is None, tick=bar.advance)
    thin, rounds = prepared.thin, 0
    keeper = Keeper(request, prepared)
    if stored is not None:
        thin, rounds = stored.header["thin"], stored.header["rounds"]
        run = saved.from_arrays(stored.arrays, run, _one_record(driver, run))
    else:
        run, driver = WarmUp(request, prepared, bar, limit).go(driver, run)
        if run.stopped == CTRL_C:
            raise KeyboardInterrupt  # there is nothing to return yet
        if run.stopped:
            raise limit.over("warming up")
        keeper.save(run, thin, rounds)
    while True:
        bar.phase(prepared.describe(request), total=request.chains * (request.draws - run.draws) * thin)
        driver.advance(
            run,
            request.draws - run.draws,
            thin,
            tick=lambda steps: bar.advance(steps * request.chains),
            after_block=partial(keeper.sometimes, thin, rounds),
        )
        keeper.save(run, thin, rounds)
        if run.stopped or request.thin is not None or rounds >= ROUNDS or not run.recorded:
            break
        if bulk_effective_size(flat_of(prepared, run.draws_tree())).min() >= request.wanted_size:
            break
        # Too much alike: every second draw goes, and the rest is filled up with draws twice as far apart.
        run.recorded = [jax.tree.map(lambda each: each[:, 1::2], run.draws_tree())]
        run.stats = [{name: value[:, 1::2] for name, value in run.stats_tree().items()}]
        thin, rounds = 2 * thin, rounds + 1
    if not run.recorded:
        raise KeyboardInterrupt if run.stopped == CTRL_C else limit.over("drawing")
    return _finish(request, prepared, run, thin, keeper.all(run, thin, rounds))


class Keeper:
    """Keeps what a run needs to go on, and writes it where the user wants it, not too often."""

    def __init__(self, request: Request, prepared: Prepared) -> None:
        self.request, self.prepared, self.last = request, prepared, time.monotonic()

    def all(self, run: Progressed, thin: int, rounds: int) -> Stored:
        """Everything, as a checkpoint holds it."""
        header = {"fingerprint": self.request.mark, "thin": thin, "rounds": rounds}
        return Stored(header, {**self.prepared.arrays, **saved.to_arrays(run)})

    def save(self, run: Progressed, thin: int, rounds: int) -> None:
        """Write a checkpoint, if the user named a directory."""
        if self.request.checkpoint is not None:
            checkpoint.save(self.request.checkpoint, *self.all(run, thin, rounds))
            self.last = time.monotonic()

    def sometimes(self, thin: int, rounds: int, run: Progressed) -> None:
        """Write a checkpoint if the last one is old."""
        if time.monotonic() - self.last > SAVE_EVERY:
            self.save(run, thin, rounds)


def _one_record(driver: Driver, run: Progressed) -> Any:
    with jax.enable_x64(driver.sampler.x64):
        return driver.sampler.record(jax.tree.map(jnp.asarray, run.states[0]))


def _finish(request: Request, prepared: Prepared, run: Progressed, thin: int, stored: Stored) -> Chains:
    alive = np.asarray(run.alive)
    record = jax.tree.map(lambda each: each[alive], run.draws_tree())
    stats = {name: value[alive] for name, value in run.stats_tree().items()}
    settings = {
        "sampler": request.sampler.name,
        "chains": request.chains,
        "draws": run.draws,
        "warmup": prepared.warmup,
        "thin": thin,
        "seed": request.seed,
        "steps": run.steps,
        **prepared.settings,
    }
    found = prepared.found
    return Chains(
        prepared.expand(record),
        stats,
        settings,
        None if found is None else found.mode.information,
        None if found is None else found.mode.coordinates,
        (*prepared.notes, *remarks(request, prepared, run, stats)),
        stored,
    )
