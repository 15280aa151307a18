"""Whether the model fits: residuals, dwell times, and the scatter of the data against the posterior's width.

A misfit counts if it is beyond chance and large enough to matter. Beyond chance: each kind of check may call 2 in 1,000
right models wrong, over all features, states and parameters at once. Large enough: at twenty million observations
everything is significant, so that each kind has a size below which answers hardly change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpyro.distributions import constraints

from longhmm.data.sequences import Sequences
from longhmm.inference.markov import mixing_time
from longhmm.model.emissions.base import Emission
from longhmm.model.hmm import HMM
from longhmm.model.registry import EMISSIONS
from longhmm.posterior.diagnostics.bias import FALSE_ALARMS, entries, errors_allowed
from longhmm.posterior.diagnostics.dwell_times import DwellTimes
from longhmm.posterior.diagnostics.observations import Residuals
from longhmm.posterior.draws import Draws
from longhmm.target.buffer_report import block_scores

MOST_SANDWICH = 1.5  # ratio of standard deviations
MOST_AUTOCORRELATION = 0.1
MOST_DISTANCE = 0.02  # error of a probability
MOST_TAILS = 0.001  # share of observations beyond four standard deviations: sixteen times as many as there should be
MOST_HAZARD = 0.1  # relative error of the chance to leave: about that of the width of the dwell time's interval
SHORTEST_RUN, MIXING_TIMES = 128, 8  # a block is this many times as long as the chain's memory
FEWEST_BLOCKS = 30  # blocks are shortened rather than let there be fewer
OFF = (
    "observations{of} are not distributed as the model says: its probabilities are off by up to {percent:.1f} "
    "percentage points"
)
BEYOND = "{percent:.2g} % of observations{of} lie beyond 4 standard deviations, where the model expects 0.006 %"


def judge_residuals(model: HMM, left: Residuals | None, details: dict[str, Any]) -> list[str]:
    """What residuals say against the model."""
    if left is None or not np.isfinite(left.autocorrelation).any():
        return []
    features, reasons = len(left.distance), []
    of = [f" of feature {feature}" if features > 1 else "" for feature in range(features)]
    feature = int(np.nanargmax(np.abs(left.autocorrelation)))
    correlation, error = float(left.autocorrelation[feature]), left.autocorrelation_error[feature]
    details["autocorrelation"] = correlation
    if abs(correlation) - errors_allowed(3 * features) * error > MOST_AUTOCORRELATION:
        wider = np.sqrt((1 + correlation) / (1 - correlation))  # the mean of autoregressive noise
        reasons.append(
            f"neighbouring residuals{of[feature]} are correlated ({correlation:+.2f}), and intervals should be about "
            f"{wider:.1f} times as wide: take every second observation, or fewer"
        )
    for name, most, sentence in (("distance", MOST_DISTANCE, OFF), ("tails", MOST_TAILS, BEYOND)):
        sizes, p_values = getattr(left, name), getattr(left, f"{name}_p_value")
        feature = int(np.nanargmax(sizes))
        details[f"residual_{name}"] = size = float(sizes[feature])
        beyond_chance = p_values[feature] < FALSE_ALARMS / (3 * features)
        if beyond_chance and size > most and not (sentence is BEYOND and reasons):
            said = sentence.format(of=of[feature], percent=100 * size)
            reasons.append(f"{said}: try {_other_emission(model, left, feature)}")
    return reasons


def judge_dwell_times(model: HMM, found: list[DwellTimes], details: dict[str, Any]) -> list[str]:
    """What dwell times say against the model."""
    if not found:
        return []
    wrong = [one for one in found if one.p_value < FALSE_ALARMS / len(found) and one.size > MOST_HAZARD]
    worst = max(wrong or found, key=lambda one: one.size)
    what = f"{'state' if model.emission.untied is model.emission else 'level'} {worst.level}"
    details.update(dwell=worst.size, dwell_p_value=worst.p_value, dwell_of=what, dwell_interval=worst.interval)
    if not wrong:
        return []
    others = f" (and those to {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    samples = "sample" if worst.longer_than == 1 else "samples"
    expected = f"{worst.expected:.1f}" if worst.expected < 10 else f"{worst.expected:,.0f}"
    return [
        f"visits to {what}{others} do not last as the model says: {worst.seen:,} go on for more than "
        f"{worst.longer_than:,} {samples}, where it expects {expected}; the interval of the dwell time "
        f"should be about {worst.interval:.1f} times as wide: try {_more_states(model, worst.level)}"
    ]


def sandwich(
    model: HMM,
    params: Mapping[str, Any],
    directions: np.ndarray,
    sd: np.ndarray,
    sequences: Sequences,
    blocks: int = 400,
) -> tuple[np.ndarray, np.ndarray]:
    """Sandwich standard deviations relative to the posterior's, `(Q,)` by entry of the natural parameters, and their
    standard errors: the variance of the score, from blocks longer than the chain's memory, against its curvature.

    If the model is right, the information in the curvature of the log likelihood and the variance of its score agree.
    If the noise is coloured, or the states are not Markov, the scores of neighbouring observations are correlated, the
    score varies more than the curvature says, and the posterior is too narrow by the ratio.

    With J the variance of the score and v the posterior covariance of the coordinates with a parameter (one of the
    `directions`, `(P, Q)`), its sandwich variance is `v' J v`: the delta method, in which the posterior covariance
    stands for the inverse information. `params` are those at the mode or at the posterior mean.
    """
    memory = mixing_time(np.asarray(params["transition"]), cap=1e6)
    wanted = max(SHORTEST_RUN, int(np.ceil(MIXING_TIMES * memory)))
    length = max(1, min(wanted, sequences.length // FEWEST_BLOCKS))
    scores, n_blocks = block_scores(model, params, sequences, length, blocks=blocks)
    parts = scores @ directions / sd  # what one block contributes to each estimate, in posterior sd
    parts = parts - parts.mean(axis=0)
    # Standard error of a variance of heavy-tailed numbers, from their fourth moment.
    relative = np.sqrt(np.maximum((parts**4).mean(axis=0) / (parts**2).mean(axis=0) ** 2 - 1.0, 0.0) / len(parts))
    ratio = np.sqrt(n_blocks * parts.var(axis=0, ddof=1))
    return ratio, 0.5 * ratio * relative


def judge_scatter(posterior: Draws, sequences: Sequences, blocks: int, details: dict[str, Any]) -> list[str]:
    table = entries(posterior)
    if not table.names:
        return []
    sd = table.values.std(axis=(0, 1))
    ratios, errors = sandwich(posterior.model, posterior.centre, table.directions, sd, sequences, blocks=blocks)
    excess = ratios - errors_allowed(len(table.names)) * errors
    worst = int(np.argmax(excess))
    ratio, name = float(ratios[worst]), table.names[worst]
    details.update(sandwich=ratio, sandwich_error=float(errors[worst]), sandwich_of=name)
    if excess[worst] <= MOST_SANDWICH:
        return []
    return [f"the data scatter more than the model says: intervals of {name} should be about {ratio:.1f} times as wide"]


def _other_emission(model: HMM, left: Residuals, feature: int) -> str:
    """An emission that may describe observations with such residuals."""
    emission = model.emission.untied
    offers = {
        "NegativeBinomial": (emission.support is constraints.nonnegative_integer, "which scatters more"),
        "Gamma": (emission.support is constraints.real and left.lowest[feature] > 0, "made for positive values"),
        "StudentT": (emission.support is constraints.real and left.tails[feature] > MOST_TAILS, "with heavier tails"),
    }
    for name, (suits, why) in offers.items():
        if suits and name != emission.name:
            return f"{_call(name, emission)}, {why}, or more states"
    return "more states" if emission.support.is_discrete else "another emission, or more states"


def _more_states(model: HMM, level: int) -> str:
    """The same model with one more state on a level, as a line of code."""
    emission = model.emission.untied
    levels = tuple(sorted([*model.emission.state_levels(model.n_states).tolist(), level]))
    own = "emission" if EMISSIONS.name_of(type(emission)) is None else _call(emission.name, emission)
    return f"lh.HMM({model.n_states + 1}, lh.Tied({own}, levels={levels})), in which two states share it"


def _call(name: str, emission: Emission) -> str:
    return f"lh.{name}({f'dim={emission.dim}' if emission.dim > 1 else ''})"
