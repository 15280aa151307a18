"""The same run with half the step: what changes is the error of finite steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from longhmm.progress import Bar
from longhmm.run import recentring, tuning
from longhmm.run.chains import Chains, Stored
from longhmm.run.request import Request
from longhmm.run.session import run_session
from longhmm.samplers.control_variate_sgld import ControlVariateSGLD
from longhmm.samplers.schedules import Scaled, as_schedule

DRAWS = 500  # of every chain


def rerun_halved(request: Request, stored: Stored, init: Mapping[str, Any], bar: Bar) -> Chains | None:
    """A short run with half the step of a finished one; None for samplers that have no step size of their own.

    The default sampler keeps its mode, curvature and noise; others start at `init`, natural parameters.
    """
    short = replace(request, draws=min(request.draws, DRAWS), init=init, checkpoint=None, time_limit=None)
    short = replace(short, wanted_size=0.0, seed=request.seed + 1, mark=None)
    if isinstance(request.sampler, ControlVariateSGLD):
        found = recentring.from_arrays(
            tuning.from_arrays(request.model, request.sequences, stored.arrays), stored.arrays
        )
        return run_session(short, bar, halved(found))
    if "step_size" not in {each.name for each in fields(request.sampler)} or hasattr(request.sampler, "inverse_mass"):  # type: ignore[arg-type]
        return None
    sampler: Any = request.sampler
    slower = replace(sampler, step_size=Scaled(as_schedule(sampler.step_size), 0.5))
    thin = 2 * int(stored.header["thin"])
    return run_session(replace(short, sampler=slower, thin=thin), bar)


def halved(found: tuning.Tuning) -> tuning.Tuning:
    """The same tuning with half the step, its injected noise matched anew."""
    step = found.step_size
    injected = np.asarray(found.estimator.noise_factor, np.float64)
    # C C^T = I - h / (2 - h) V, solved for V.
    noise = (np.eye(len(injected)) - injected @ injected.T) * (2 - step) / step
    factor = tuning.noise_factor(noise, step / 2).astype(np.float32)
    estimator = replace(found.estimator, noise_factor=factor, step_size=np.float32(step / 2))
    return found._replace(estimator=estimator, step_size=step / 2, autocorrelation=(2 - step / 2) / (step / 2))
