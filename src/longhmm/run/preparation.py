"""From a request to a sampler that is ready to run: bound to the data, with starting points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from longhmm.model.hmm import HMM
from longhmm.model.initialise import initial_params
from longhmm.run import recentring, tuning
from longhmm.run.request import Request
from longhmm.samplers.control_variate_sgld import ControlVariateSGLD, Tuned
from longhmm.target.buffer_length import FixedBuffer
from longhmm.target.coordinates import Flat, constrain, unconstrain
from longhmm.target.estimators import WindowTarget
from longhmm.target.minibatch import MinibatchSource
from longhmm.target.target import Target


@dataclass
class Prepared:
    """A sampler ready to run: its estimator, starts, default lengths, and how records become coordinates."""

    estimator: Target
    starts: list[dict[str, np.ndarray]]
    warmup: int
    thin: int
    expand: Callable[[Any], dict[str, np.ndarray]]
    settings: dict[str, Any]
    arrays: dict[str, np.ndarray]
    found: tuning.Tuning | None
    notes: list[str]

    def describe(self, request: Request) -> str:
        """What runs, for a progress bar."""
        buffer = self.settings.get("buffer")
        return request.sampler.name if buffer is None else f"{request.sampler.name}, buffer {buffer}"

    def source(self) -> MinibatchSource | None:
        """Where its windows come from; None for samplers that use all data."""
        estimator: Any = self.estimator
        plain = estimator.plain if isinstance(estimator, Tuned) else estimator
        return plain.source if isinstance(plain, WindowTarget) else None


def prepare(request: Request, found: tuning.Tuning | None, arrays: Mapping[str, np.ndarray] | None) -> Prepared:
    """Make the default sampler ready from its tuning, or bind another one at its starting points."""
    if request.sampler.name == ControlVariateSGLD.name:
        assert found is not None
        return _prepare_matched(request, found if arrays is None else recentring.from_arrays(found, arrays), arrays)
    prepared = _prepare_other(request, found, arrays)
    if found is not None:
        prepared.arrays |= tuning.to_arrays(found)
    return prepared


def _prepare_matched(request: Request, found: tuning.Tuning, arrays: Mapping[str, np.ndarray] | None) -> Prepared:
    starts = _spread(found, request)
    source = found.estimator.plain.source
    settings = {
        "step_size": found.step_size,
        "gradient_noise": found.noise,
        "windows": source.windows.count,
        "half_width": source.windows.half_width,
        "buffer": source.buffer,
        "gap": source.scheme.spacing,
        "mode_log_posterior": found.mode.log_posterior,
        "full_passes": found.mode.passes,
    }
    notes = []
    if found.mode.rival is not None:
        notes.append(
            f"another mode is as good: an independent climb ended elsewhere, {-found.mode.rival:.1f} below in log "
            "posterior on a part of the data"
        )
    warmup = int(np.ceil(tuning.WARM_UP * found.autocorrelation)) if request.warmup is None else request.warmup
    thin = int(np.ceil(found.autocorrelation)) if request.thin is None else request.thin
    kept = tuning.to_arrays(found)
    if arrays is not None:
        kept |= {name: value for name, value in arrays.items() if name.startswith("recentred_")}
    return Prepared(found.estimator, starts, warmup, thin, _offsets_of(found), settings, kept, found, notes)


def bind_matched(prepared: Prepared, found: tuning.Tuning) -> None:
    """Go on with another centre of the control variates."""
    prepared.estimator, prepared.found, prepared.expand = found.estimator, found, _offsets_of(found)


def _offsets_of(found: tuning.Tuning) -> Callable[[Any], dict[str, np.ndarray]]:
    flat = Flat.like(found.mode.coordinates)
    centre = flat.ravel_numpy(found.estimator.centre)
    factor = np.asarray(found.estimator.factor, np.float64)

    def expand(offsets: np.ndarray) -> dict[str, np.ndarray]:
        return flat.unravel(centre + np.asarray(offsets, np.float64) @ factor.T)

    return expand


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
    note_buffer(prepared)
    return prepared


def _spread(found: tuning.Tuning, request: Request) -> list[dict[str, np.ndarray]]:
    """Starts spread out like the posterior itself, so that the agreement of chains means something."""
    flat = Flat.like(found.mode.coordinates)
    centre = flat.ravel_numpy(found.mode.coordinates)
    factor = np.asarray(found.estimator.factor, np.float64)
    rng = np.random.default_rng([request.seed, 1])
    return [flat.unravel(centre + factor @ rng.normal(size=flat.size)) for _ in range(request.chains)]


def note_buffer(prepared: Prepared) -> None:
    """Keep the length of the buffer among settings and arrays, where there is one."""
    estimate = getattr(prepared.estimator, "buffer", None)
    if estimate is not None:
        prepared.settings["buffer"] = estimate.length
        prepared.arrays["buffer"] = np.asarray(estimate.length)


def _off_the_boundary(model: HMM, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    complete = model.validate(params)
    if model.transitions.varies:
        return complete
    allowed = model.transitions.allowed & model.transitions.free_rows[:, None]
    lifted = np.where(allowed, np.maximum(complete["transition"], 1e-8), complete["transition"])
    return {**complete, "transition": lifted / lifted.sum(axis=1, keepdims=True)}
