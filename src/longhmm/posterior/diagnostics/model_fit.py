"""Whether the model fits: every check of observations and states against it, from one draw of parameters and path."""

from longhmm.data.sequences import Sequences
from longhmm.model.drift import drift_to_try
from longhmm.model.memory import pruned
from longhmm.posterior.diagnostics.bias import Details, judge_scatter, scored
from longhmm.posterior.diagnostics.drawn_path import DrawnPath
from longhmm.posterior.diagnostics.dwell_times import dwell_times, judge_dwell_times
from longhmm.posterior.diagnostics.held_out import judge_held_out
from longhmm.posterior.diagnostics.levels_by_time import judge_by_time
from longhmm.posterior.diagnostics.observations import judge_residuals, residuals
from longhmm.posterior.diagnostics.shapes import judge_cut_off, judge_shapes
from longhmm.posterior.diagnostics.transitions_by_time import judge_transitions
from longhmm.posterior.draws import Draws

SLOW = 1e-6  # p-value of levels that change with time, below which the scatter of the data is put down to them
FITS = "the model fits"
NO_FUNCTION = (
    "dwell times, times and sequences fit; whether observations are distributed as the model says was not checked, "
    "since {} has no distribution function"
)
# What the numbers behind a verdict mean, by their names in its details, and what they should be.
CHECKS = {
    "r_hat": ("agreement of the chains (R-hat)", "at most 1.01"),
    "ess": ("effective number of draws", "at least 400"),
    "shift": ("shift of a mean, in posterior sd", "within ±0.1"),
    "sd_ratio": ("width of an interval, relative to the right one", "0.9 to 1.1"),
    "sandwich": ("scatter of the data, relative to what the posterior allows", "at most 1.5"),
    "autocorrelation": ("correlation of neighbouring residuals", "within ±0.1"),
    "residual_distance": ("error of the probabilities of observations", "at most 0.02, or not beyond chance"),
    "residual_tails": ("share of observations beyond four standard deviations", "at most 0.001"),
    "skewness": ("skewness of a state's residuals", "within ±0.15, or not beyond chance"),
    "kurtosis": ("kurtosis of a state's residuals, beyond 3", "within ±0.42, or not beyond chance"),
    "dwell": ("error of the chance to leave a state, by time since entry", "at most 0.1, or not beyond chance"),
    "change": ("change of a transition's log odds, root mean square", "at most 0.1, or not beyond chance"),
    "drift": ("change of a level, in sd, root mean square", "at most 0.1, or not beyond chance"),
    "spread": ("change of a spread, in those of squares, root mean square", "at most 0.1, or not beyond chance"),
    "held_out": ("change of the score of parts held out, root mean square", "at most 0.05, or not beyond chance"),
    "forgotten": ("share of rows before which more changed than states remember", "small"),
    "score": ("change of the log density, in its own sd, root mean square", "at most 0.1, or not beyond chance"),
}


def judge_fit(posterior: Draws, sequences: Sequences, blocks: int, details: Details) -> tuple[list[str], str]:
    """What speaks against the model, a sentence each, and what to say where nothing does."""
    model, params = posterior.model, posterior.params_at(*posterior.thinned(1)[0])
    details.update(pruned(model, params))
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
    ]
    stretches = scored(model, posterior.centre, sequences, blocks)
    reasons += judge_held_out(posterior, *stretches, details)
    scatter = judge_scatter(posterior, *stretches, details)
    if details.get("drift_p_value", 1.0) < SLOW and str(details.get("drift_of")).endswith("time"):
        scatter = [f"{each}, since levels move slowly: {drift_to_try(model.emission)}" for each in scatter]
    return [*reasons, *scatter], FITS if left is not None else NO_FUNCTION.format(model.emission.name)
