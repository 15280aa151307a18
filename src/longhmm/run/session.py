"""One run from start to finish: tune or warm up, then draw until every parameter has been seen often enough.

What a run needs to go on after being killed is kept in a checkpoint: the tuning, the states and the draws. Nothing else
influences a draw, so a resumed run is the same run.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.errors import LongHMMError
from longhmm.gradients.api import constrain, unconstrain
from longhmm.gradients.buffer_length import FixedBuffer, LyapunovBuffer
from longhmm.gradients.estimators import BoundEstimator
from longhmm.gradients.flat import Flat
from longhmm.gradients.schemes import Windows
from longhmm.model.hmm import HMM
from longhmm.model.initialise import initial_params
from longhmm.progress import Bar
from longhmm.run import checkpoint, saved, tuning
from longhmm.run.chains import Chains
from longhmm.run.driver import CTRL_C, Driver, Progressed
from longhmm.run.effective_size import bulk_effective_size
from longhmm.samplers.contract import Sampler
from longhmm.samplers.matched_langevin import MatchedLangevin

SAVE_EVERY = 30.0  # seconds between two checkpoints
ROUNDS = 4  # how often the distance between draws is doubled to reach the wanted effective size
WARM_UP_PHASES = 5  # buffer and gap are measured anew after each


@dataclass
class Request:
    """What the user asked for."""

    model: HMM
    sequences: Sequences
    sampler: Sampler
    windows: Windows | None
    buffer: LyapunovBuffer | FixedBuffer | None
    chains: int
    draws: int
    warmup: int | None
    thin: int | None
    init: Mapping[str, Any] | None
    seed: int
    time_limit: float | None
    checkpoint: str | os.PathLike[str] | None
    wanted_size: float

    def fingerprint(self) -> str:
        """Tells runs apart whose draws would differ; the number of draws and the time limit do not matter."""
        look = self.sequences.read(0, min(self.sequences.length, 1000))
        parts = [repr(self.model), repr(self.model.transitions.concentration.tolist()), self.sequences.length]
        parts += [hashlib.sha256(np.ascontiguousarray(look.values).tobytes()).hexdigest(), repr(self.sampler)]
        parts += [repr(self.windows), repr(self.buffer), self.chains, self.warmup, self.thin, self.seed]
        return hashlib.sha256(json.dumps(parts, default=repr).encode()).hexdigest()


@dataclass
class Prepared:
    """A sampler ready to run: its estimator, starts, default lengths, and how records become coordinates."""

    estimator: BoundEstimator
    starts: list[dict[str, np.ndarray]]
    warmup: int
    thin: int
    expand: Callable[[Any], dict[str, np.ndarray]]
    settings: dict[str, Any]
    arrays: dict[str, np.ndarray]
    found: tuning.Tuning | None
    notes: list[str]


def find_tuning(request: Request, bar: Bar) -> tuning.Tuning:
    """The tuning of the default sampler: as the checkpoint has it, or found now."""
    stored = checkpoint.load(request.checkpoint) if request.checkpoint is not None else None
    if stored is not None and "tuning_factor" in stored[1]:
        return tuning.from_arrays(request.model, request.sequences, stored[1])
    bar.phase("climbing to the mode", unit="rows")
    return tuning.tune(
        request.sampler if isinstance(request.sampler, MatchedLangevin) else MatchedLangevin(),
        request.model,
        request.sequences,
        windows=request.windows,
        buffer=request.buffer,
        init=request.init,
        seed=request.seed,
        progress=bar.advance,
    )


def run_session(request: Request, bar: Bar, found: tuning.Tuning | None = None) -> Chains:
    """Run, or go on with, what was requested; `found` is the tuning that the default sampler needs."""
    stored = checkpoint.load(request.checkpoint) if request.checkpoint is not None else None
    mark = request.fingerprint()
    if stored is not None and stored[0]["fingerprint"] != mark:
        raise checkpoint.CheckpointError(
            f"The checkpoint in {request.checkpoint} belongs to a run with other data or settings: choose another "
            "directory, or delete it to start over."
        )
    deadline = None if request.time_limit is None else time.monotonic() + request.time_limit
    prepared = prepare(request, found, None if stored is None else stored[1])
    driver = Driver(request.sampler, request.model, prepared.estimator, request.seed)
    run = driver.start(prepared.starts)
    thin, rounds = prepared.thin, 0
    saver = Saver(request, mark, prepared)
    if stored is not None:
        thin, rounds = stored[0]["thin"], stored[0]["rounds"]
        run = saved.from_arrays(stored[1], run, _one_record(driver, run))
    else:
        run, driver = warm_up(request, prepared, driver, run, bar, deadline)
        if run.stopped == CTRL_C:
            raise KeyboardInterrupt  # there is nothing to return yet
        if run.stopped:
            raise LongHMMError(
                f"time_limit must leave time for the warm-up, but {request.time_limit:g} seconds had passed before the "
                "first draw: allow more time, or a shorter warm-up."
            )
        saver.now(run, thin, rounds)
    while True:
        bar.phase(_text(request, prepared), total=request.chains * (request.draws - run.draws) * thin)
        driver.advance(
            run,
            request.draws - run.draws,
            thin,
            tick=lambda steps: bar.advance(steps * request.chains),
            after_block=partial(saver.sometimes, thin, rounds),
            deadline=deadline,
        )
        saver.now(run, thin, rounds)
        if run.stopped or request.thin is not None or rounds >= ROUNDS or not run.recorded:
            break
        flat = Flat.like(prepared.starts[0]).ravel_numpy(prepared.expand(run.draws_tree()))
        if bulk_effective_size(flat).min() >= request.wanted_size:
            break
        # Too much alike: every second draw goes, and the rest is filled up with draws twice as far apart.
        run.recorded = [jax.tree.map(lambda each: each[:, 1::2], run.draws_tree())]
        run.stats = [{name: value[:, 1::2] for name, value in run.stats_tree().items()}]
        thin, rounds = 2 * thin, rounds + 1
    return _finish(request, prepared, run, thin)


class Saver:
    """Writes checkpoints where the user wants them, not too often."""

    def __init__(self, request: Request, mark: str, prepared: Prepared) -> None:
        self.request, self.mark, self.prepared, self.last = request, mark, prepared, time.monotonic()

    def now(self, run: Progressed, thin: int, rounds: int) -> None:
        """Save, if the user named a directory."""
        if self.request.checkpoint is None:
            return
        header = {"fingerprint": self.mark, "thin": thin, "rounds": rounds}
        checkpoint.save(self.request.checkpoint, header, {**self.prepared.arrays, **saved.to_arrays(run)})
        self.last = time.monotonic()

    def sometimes(self, thin: int, rounds: int, run: Progressed) -> None:
        """Save if the last time was long ago."""
        if time.monotonic() - self.last > SAVE_EVERY:
            self.now(run, thin, rounds)


def prepare(request: Request, found: tuning.Tuning | None, arrays: Mapping[str, np.ndarray] | None) -> Prepared:
    """Make the default sampler ready from its tuning, or bind another one at its starting points."""
    if request.sampler.name == MatchedLangevin.name:
        assert found is not None
        return _prepare_matched(request, found)
    prepared = _prepare_other(request, found, arrays)
    if found is not None:
        prepared.arrays |= tuning.to_arrays(found)
    return prepared


def _prepare_matched(request: Request, found: tuning.Tuning) -> Prepared:
    flat = Flat.like(found.mode.coordinates)
    centre = flat.ravel_numpy(found.estimator.control.centre)
    factor = np.asarray(found.estimator.factor, np.float64)
    starts = _spread(found, request)
    source = found.estimator.control.plain.source
    settings = {
        "step_size": found.step_size,
        "gradient_noise": found.noise,
        "windows": source.windows.count,
        "half_width": source.windows.half_width,
        "buffer": source.buffer,
        "gap": source.rotation.gap,
        "mode_log_posterior": found.mode.log_posterior,
        "full_passes": found.mode.passes,
    }
    notes = []
    if found.mode.rival is not None:
        notes.append(
            f"another mode is as good: an independent climb ended elsewhere, {-found.mode.rival:.1f} below in log "
            "posterior on a part of the data"
        )
    warmup = int(np.ceil(20 * found.autocorrelation)) if request.warmup is None else request.warmup
    thin = int(np.ceil(found.autocorrelation)) if request.thin is None else request.thin

    def expand(offsets: np.ndarray) -> dict[str, np.ndarray]:
        return flat.unravel(centre + np.asarray(offsets, np.float64) @ factor.T)

    return Prepared(found.estimator, starts, warmup, thin, expand, settings, tuning.to_arrays(found), found, notes)


def _prepare_other(request: Request, tuned: tuning.Tuning | None, arrays: Mapping[str, np.ndarray] | None) -> Prepared:
    model, sequences = request.model, request.sequences
    starts: list[dict[str, np.ndarray]]
    if arrays is not None:
        bound_at = {name.removeprefix("bound_"): value for name, value in arrays.items() if name.startswith("bound_")}
        starts = [bound_at] * request.chains
    elif tuned is not None:
        starts = _spread(tuned, request)
        bound_at = tuned.mode.coordinates
    else:
        guesses = (
            [dict(request.init)] * request.chains
            if request.init is not None
            else initial_params(model, sequences, restarts=request.chains, seed=request.seed)
        )
        starts = [unconstrain(model, _off_the_boundary(model, guess)) for guess in guesses]
        bound_at = starts[0]
    buffer = request.buffer if arrays is None or "buffer" not in arrays else FixedBuffer(int(arrays["buffer"]))
    estimator = request.sampler.estimator(request.windows, buffer).bind(model, sequences, constrain(model, bound_at))
    usual = 1000 if tuned is None else 50  # a tuned start is in the posterior already
    warmup = usual if request.warmup is None else request.warmup
    thin = 1 if request.thin is None else request.thin

    def expand(record: Any) -> dict[str, np.ndarray]:
        return {name: np.asarray(value, np.float64) for name, value in record.items()}

    found = {f"bound_{name}": np.asarray(value) for name, value in bound_at.items()}
    prepared = Prepared(estimator, starts, warmup, thin, expand, {}, found, tuned, [])
    _note_buffer(prepared)
    return prepared


def _spread(found: tuning.Tuning, request: Request) -> list[dict[str, np.ndarray]]:
    """Starts spread out like the posterior itself, so that the agreement of chains means something."""
    flat = Flat.like(found.mode.coordinates)
    centre = flat.ravel_numpy(found.mode.coordinates)
    factor = np.asarray(found.estimator.factor, np.float64)
    rng = np.random.default_rng([request.seed, 1])
    return [flat.unravel(centre + factor @ rng.normal(size=flat.size)) for _ in range(request.chains)]


def _note_buffer(prepared: Prepared) -> None:
    estimate = getattr(prepared.estimator, "buffer", None)
    if estimate is not None:
        prepared.settings["buffer"] = estimate.length
        prepared.arrays["buffer"] = np.asarray(estimate.length)


def _off_the_boundary(model: HMM, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    complete = model.validate(params)
    allowed = model.transitions.allowed & model.transitions.free_rows[:, None]
    lifted = np.where(allowed, np.maximum(complete["transition"], 1e-8), complete["transition"])
    return {**complete, "transition": lifted / lifted.sum(axis=1, keepdims=True)}


def warm_up(
    request: Request, prepared: Prepared, driver: Driver, run: Progressed, bar: Bar, deadline: float | None
) -> tuple[Progressed, Driver]:
    """Steps that are thrown away; a sampler on windows measures buffer and gap anew as the parameters move."""
    moving = hasattr(prepared.estimator, "buffer")
    phases = WARM_UP_PHASES if moving else 1
    for phase in range(phases):
        steps = prepared.warmup * (phase + 1) // phases - prepared.warmup * phase // phases
        bar.phase(f"warming up, {_text(request, prepared)}", total=request.chains * steps)
        if steps:
            driver.advance(
                run, steps, 1, record=False, tick=lambda n: bar.advance(n * request.chains), deadline=deadline
            )
        if moving and run.stopped is None:
            here = jax.tree.map(lambda each: np.asarray(each, np.float64), dict(run.states[0].coordinates))
            policy = request.sampler.estimator(request.windows, request.buffer)
            prepared.estimator = policy.bind(request.model, request.sequences, constrain(request.model, here))
            prepared.arrays |= {f"bound_{name}": value for name, value in here.items()}
            _note_buffer(prepared)
            driver = Driver(request.sampler, request.model, prepared.estimator, request.seed)
    return run, driver


def _text(request: Request, prepared: Prepared) -> str:
    buffer = prepared.settings.get("buffer")
    return request.sampler.name if buffer is None else f"{request.sampler.name}, buffer {buffer}"


def _one_record(driver: Driver, run: Progressed) -> Any:
    with jax.enable_x64(driver.x64):
        kernel, state = driver.kernel, run.states[0]
        return state.coordinates if kernel.record is None else kernel.record(jax.tree.map(jnp.asarray, state))


def _finish(request: Request, prepared: Prepared, run: Progressed, thin: int) -> Chains:
    notes = list(prepared.notes)
    alive = np.asarray(run.alive)
    if not alive.all():
        notes.append(f"run longer: {int((~alive).sum())} chain(s) diverged and were left out; use a smaller step size")
    if run.stopped:
        notes.append(f"stopped early by {run.stopped}, with {run.draws} of {request.draws} draws per chain")
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
        tuple(notes),
    )
