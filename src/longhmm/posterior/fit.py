"""Whether the model fits: residuals, dwell times, and the scatter of the data against the posterior's width.

A misfit counts if it is beyond chance and large enough to matter. Beyond chance: each kind of check may call 2 in 1,000
right models wrong, over all features, states and parameters at once. Large enough: at twenty million observations
everything is significant, so that each kind has a size below which answers hardly change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpyro.distributions import constraints

from longhmm.data.sequences import Sequences
from longhmm.model.emissions.base import Emission
from longhmm.model.emissions.registry import name_of
from longhmm.model.hmm import HMM
from longhmm.posterior.bias import FALSE_ALARMS, errors_allowed
from longhmm.posterior.dwell_check import Dwells, dwell_check
from longhmm.posterior.entries import entries
from longhmm.posterior.residuals import FAR, Residuals, residuals
from longhmm.posterior.sandwich import sandwich

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior

MOST_SANDWICH = 1.5  # ratio of standard deviations
MOST_AUTOCORRELATION = 0.1
MOST_DISTANCE = 0.02  # error of a probability
MOST_TAILS = 0.001  # share of observations beyond four standard deviations: sixteen times as many as there should be
MOST_HAZARD = 0.1  # relative error of the chance to leave: about that of the width of the dwell time's interval


def misfits(posterior: Posterior, sequences: Sequences, cells: int, details: dict[str, Any]) -> list[str]:
    """One sentence for every way in which the model does not fit; the numbers go into `details`."""
    params = posterior.params_at(*posterior.thinned(1)[0])  # one draw: see `residuals` and `dwell_check`
    return [
        *judge_residuals(posterior.model, residuals(posterior.model, params, sequences), details),
        *judge_dwells(posterior.model, dwell_check(posterior.model, params, sequences), details),
        *_judge_scatter(posterior, sequences, cells, details),
    ]


def judge_residuals(model: HMM, left: Residuals | None, details: dict[str, Any]) -> list[str]:
    """What residuals say against the model."""
    if left is None or not np.isfinite(left.autocorrelation).any():
        return []
    reasons = []
    tests = 3 * len(left.distance)
    feature = int(np.nanargmax(np.abs(left.autocorrelation)))
    correlation = float(left.autocorrelation[feature])
    details["autocorrelation"] = correlation
    if abs(correlation) - errors_allowed(tests) * left.autocorrelation_error[feature] > MOST_AUTOCORRELATION:
        wider = np.sqrt((1 + correlation) / (1 - correlation))  # the mean of autoregressive noise
        reasons.append(
            f"neighbouring residuals{_of(left, feature)} are correlated ({correlation:+.2f}), and intervals should be "
            f"about {wider:.1f} times as wide: take every second observation, or fewer"
        )
    for name, size, p_value, most in (
        ("residual_distance", left.distance, left.distance_p_value, MOST_DISTANCE),
        ("residual_tails", left.tails, left.tails_p_value, MOST_TAILS),
    ):
        feature = int(np.nanargmax(size))
        details[name] = float(size[feature])
        if not (p_value[feature] < FALSE_ALARMS / tests and size[feature] > most):
            continue
        if name == "residual_distance":
            reasons.append(
                f"observations{_of(left, feature)} are not distributed as the model says: its probabilities are off by "
                f"up to {100 * size[feature]:.1f} percentage points: try {_other_emission(model, left, feature)}"
            )
        elif not reasons:
            reasons.append(
                f"{100 * size[feature]:.2g} % of observations{_of(left, feature)} lie beyond {FAR:.0f} standard "
                f"deviations, where the model expects 0.006 %: try {_other_emission(model, left, feature)}"
            )
    return reasons


def judge_dwells(model: HMM, found: list[Dwells], details: dict[str, Any]) -> list[str]:
    """What dwell times say against the model."""
    if not found:
        return []
    wrong = [one for one in found if one.p_value < FALSE_ALARMS / len(found) and one.size > MOST_HAZARD]
    worst = max(wrong or found, key=lambda one: one.size)
    what = _level_name(model, worst.level)
    details.update(dwell=worst.size, dwell_p_value=worst.p_value, dwell_of=what, dwell_interval=worst.interval)
    if not wrong:
        return []
    others = f" (and those to {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    samples = "sample" if worst.longer_than == 1 else "samples"
    return [
        f"visits to {what}{others} do not last as the model says: {worst.seen:,} go on for more than "
        f"{worst.longer_than:,} {samples}, where it expects {_count(worst.expected)}; the interval of the dwell time "
        f"should be about {worst.interval:.1f} times as wide: try {_more_states(model, worst.level)}"
    ]


def _judge_scatter(posterior: Posterior, sequences: Sequences, cells: int, details: dict[str, Any]) -> list[str]:
    table = entries(posterior)
    if not table.names:
        return []
    params: Mapping[str, Any] = posterior.mean_params() if posterior.mode is None else posterior.mode
    sd = table.values.std(axis=(0, 1))
    ratios = sandwich(posterior.model, params, table.directions, sd, sequences, cells=cells)
    excess = ratios.ratio - errors_allowed(len(table.names)) * ratios.error
    worst = int(np.argmax(excess))
    ratio, name = float(ratios.ratio[worst]), table.names[worst]
    details.update(sandwich=ratio, sandwich_error=float(ratios.error[worst]), sandwich_of=name)
    if excess[worst] <= MOST_SANDWICH:
        return []
    return [f"the data scatter more than the model says: intervals of {name} should be about {ratio:.1f} times as wide"]


def _of(left: Residuals, feature: int) -> str:
    return "" if len(left.distance) == 1 else f" of feature {feature}"


def _count(expected: float) -> str:
    return f"{expected:.1f}" if expected < 10 else f"{expected:,.0f}"


def _level_name(model: HMM, level: int) -> str:
    return f"state {level}" if model.emission.untied is model.emission else f"level {level}"


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
    own = "emission" if name_of(emission) is None else _call(emission.name, emission)
    return f"lh.HMM({model.n_states + 1}, lh.Tied({own}, levels={levels})), in which two states share it"


def _call(name: str, emission: Emission) -> str:
    return f"lh.{name}({f'dim={emission.dim}' if emission.dim > 1 else ''})"
