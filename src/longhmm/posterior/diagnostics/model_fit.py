"""Whether the model fits: every check of observations and states against it, from one draw of parameters and path."""

from longhmm.data.sequences import Sequences
from longhmm.posterior.diagnostics.bias import Details, judge_scatter
from longhmm.posterior.diagnostics.drawn_path import DrawnPath
from longhmm.posterior.diagnostics.dwell_times import dwell_times, judge_dwell_times
from longhmm.posterior.diagnostics.levels_by_time import judge_by_time
from longhmm.posterior.diagnostics.observations import judge_residuals, residuals
from longhmm.posterior.diagnostics.shapes import judge_cut_off, judge_shapes
from longhmm.posterior.diagnostics.transitions_by_time import judge_transitions
from longhmm.posterior.draws import Draws

FITS = "the model fits"
NO_FUNCTION = (
    "dwell times, times and sequences fit; whether observations are distributed as the model says was not checked, "
    "since {} has no distribution function"
)


def judge_fit(posterior: Draws, sequences: Sequences, blocks: int, details: Details) -> tuple[list[str], str]:
    """What speaks against the model, a sentence each, and what to say where nothing does."""
    model, params = posterior.model, posterior.params_at(*posterior.thinned(1)[0])
    path = DrawnPath(model, params, sequences)
    left = residuals(model, params, sequences, path=path)
    # What is cut off or changes with time comes first: other checks see it as well, and cannot say what it is.
    reasons = [
        *judge_cut_off(path),
        *judge_by_time(path, None if left is None else left.given_state, details),
        *judge_residuals(model, left, details),
        *judge_shapes(path, left, details),
        *judge_transitions(path, details),
        *judge_dwell_times(model, dwell_times(path), details),
        *judge_scatter(posterior, sequences, blocks, details),
    ]
    return reasons, FITS if left is not None else NO_FUNCTION.format(model.emission.name)
