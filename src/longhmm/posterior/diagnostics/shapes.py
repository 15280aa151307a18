"""Whether observations in each state have the shape that the model says: skewness and kurtosis of residuals given the
drawn state, which are independent standard normals if it is right, and values that pile up where they are cut off."""

from typing import NamedTuple

import numpy as np
from numpyro.distributions import constraints
from scipy.special import ndtr

from longhmm.posterior.diagnostics.bias import FALSE_ALARMS, Details
from longhmm.posterior.diagnostics.drawn_path import DrawnPath, excerpts
from longhmm.posterior.diagnostics.edges import at_changes
from longhmm.posterior.diagnostics.observations import MOST_ROWS, MOST_TAILS, Residuals, other_emission
from longhmm.posterior.diagnostics.steady import worst

FEWEST = 200  # residuals of a state
# Beyond a kurtosis of 3.42 the interval of a spread should be 1.1 times as wide; a skewness of 0.15 moves means of
# states that overlap by about one posterior sd at 20,000 observations.
MOST = {"kurtosis": 0.42, "skewness": 0.15}
EQUAL = 5  # observations; of numbers with seven digits hardly two are equal by chance


class Moment(NamedTuple):
    """Skewness, or kurtosis beyond 3, of the residuals of a state."""

    name: str
    state: int
    feature: int
    p_value: float
    value: float


def judge_shapes(path: DrawnPath, left: Residuals | None, details: Details) -> list[str]:
    """At most one sentence on residuals given the state."""
    if left is None or not (every := moments(path, left)):
        return []
    sizes = [(each.p_value, abs(each.value) / MOST[each.name]) for each in every]
    pick = worst(sizes, FALSE_ALARMS, 1.0)
    for name in MOST:
        shown = max((each for each in every if each.name == name), key=lambda each: abs(each.value))
        details.update({name: shown.value, f"{name}_of": f"state {shown.state}"})
    if pick is None:
        return []
    name, state, feature, _, value = every[pick]
    what = f"residuals{f' of feature {feature}' if left.values.shape[1] > 1 else ''} in state {state}"
    if name == "kurtosis" and value > 0:
        left = left._replace(tails=np.full(len(left.tails), np.inf))
    position = excerpts(path.whole, MOST_ROWS).position
    other = at_changes(path, left.given_state[:, feature], position) or other_emission(path.model, left, feature)
    if name == "skewness":
        return [f"{what} are skewed (skewness {value:+.2f}, where the model expects 0): try {other}"]
    return [
        f"{what} have {'heavier' if value > 0 else 'lighter'} tails than the model's (kurtosis {3 + value:.1f}, where "
        f"it expects 3), and intervals of spreads should be about {np.sqrt(max(1 + value / 2, 0.0)):.1f} times as "
        f"wide: try {other}"
    ]


def moments(path: DrawnPath, left: Residuals) -> list[Moment]:
    """Of every state and feature with enough residuals."""
    states, found = path.at(excerpts(path.whole, MOST_ROWS).position), []
    for state, feature in np.ndindex(path.model.n_states, left.values.shape[1]):
        column = left.given_state[:, feature]
        mine = column[(states == state) & np.isfinite(column)]
        if len(mine) < FEWEST:
            continue
        centred, n = mine - mine.mean(), len(mine)
        second, third, fourth = (np.mean(centred**power) for power in (2, 3, 4))
        skewness, kurtosis = float(third / second**1.5), float(fourth / second**2 - 3)
        found.append(Moment("skewness", state, feature, skewness_p_value(skewness, n), skewness))
        found.append(Moment("kurtosis", state, feature, kurtosis_p_value(kurtosis, n), kurtosis))
    return found


# Of n normal numbers, in either direction. Without SciPy's statistics, which take half a second to import.


def skewness_p_value(skewness: float, n: int) -> float:
    """By Johnson's unbounded curve with the variance and the kurtosis that skewnesses have (D'Agostino, 1970)."""
    variance = 6 * (n - 2) / ((n + 1) * (n + 3))
    kurtosis = 3 * (n**2 + 27 * n - 70) * (n + 1) * (n + 3) / ((n - 2) * (n + 5) * (n + 7) * (n + 9))
    wide = np.sqrt(2 * kurtosis - 2) - 1
    normal = np.arcsinh(skewness / np.sqrt(2 * variance / (wide - 1))) / np.sqrt(np.log(wide) / 2)
    return float(2 * ndtr(-abs(normal)))


def kurtosis_p_value(beyond: float, n: int) -> float:
    """By a cube root with the mean, variance and skewness that kurtoses have (Anscombe and Glynn, 1983)."""
    variance = 24 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3) * (n + 5))
    spread = np.sqrt(6 * (n + 3) * (n + 5) / (n * (n - 2) * (n - 3)))
    skewness = 6 * (n**2 - 5 * n + 2) / ((n + 7) * (n + 9)) * spread
    freedom = 6 + 8 / skewness * (2 / skewness + np.sqrt(1 + 4 / skewness**2))
    scaled = (beyond + 6 / (n + 1)) / np.sqrt(variance)
    root = np.cbrt((1 - 2 / freedom) / (1 + scaled * np.sqrt(2 / (freedom - 4))))
    normal = (1 - 2 / (9 * freedom) - root) / np.sqrt(2 / (9 * freedom))
    return float(2 * ndtr(-abs(normal)))


def judge_cut_off(path: DrawnPath) -> list[str]:
    """Observations that equal the largest or the smallest of all, where no distribution has a step."""
    if path.model.emission.support is not constraints.real:
        return []
    part = excerpts(path.whole, MOST_ROWS).rows
    rows = part.rows(0, part.length)
    for feature in range(part.dim):
        known = rows.values[rows.observed[:, feature], feature]
        for name, end in (("largest", np.max), ("smallest", np.min)) if len(known) else ():
            count = int(np.sum(known == end(known)))
            if count >= EQUAL and count > MOST_TAILS * len(known) and count < len(known):
                of = f" of feature {feature}" if part.dim > 1 else ""
                return [
                    f"{100 * count / len(known):.2g} % of observations{of} equal the {name} value, {end(known):.4g}, "
                    "where the model expects one: they are cut off there, and states near it are biased"
                ]
    return []
