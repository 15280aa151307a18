"""Observations against the model: residuals of one-step predictions, and histograms with their expectations."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.distributions import constraints

from longhmm.backends.tallied import Bins, tally
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.errors import DataError, ModelError, check_whole
from longhmm.inference.markov import stationary_on_host
from longhmm.model.emissions import Emission
from longhmm.model.hmm import HMM
from longhmm.model.memory import unfold
from longhmm.model.noise import noise_to_try
from longhmm.model.summary import subsample
from longhmm.posterior.diagnostics.bias import FALSE_ALARMS, Details, errors_allowed
from longhmm.posterior.diagnostics.cdf_tables import distribution_functions
from longhmm.posterior.diagnostics.drawn_path import DrawnPath, excerpts
from longhmm.posterior.diagnostics.mixed_cdf import quantiles_of
from longhmm.posterior.diagnostics.uniform import normal_distances
from longhmm.posterior.draws import Draws, central, in_float64

FAR = 4.0  # standard deviations: beyond lie the tails, 6 of 100,000 normal numbers
MOST_ROWS = 100_000
POINTS = 200  # of a QQ plot
IN_BIN = 32  # numbers in a bin where they are put in order, on average
FEWEST = 20  # pairs of neighbours from which anything is said
ROWS_AT_ONCE = 1 << 20
MOST_AUTOCORRELATION = 0.1
MOST_DISTANCE = 0.02  # error of a probability
MOST_TAILS = 0.001  # share of observations beyond four standard deviations: sixteen times as many as there should be
OFF = (
    "observations{of} are not distributed as the model says: its probabilities are off by up to {percent:.1f} "
    "percentage points"
)
BEYOND = "{percent:.2g} % of observations{of} lie beyond 4 standard deviations, where the model expects 0.006 %"

_cdf = jax.jit(lambda model, params, values: model.emission.cdf(params, values))
_log_likelihoods = jax.jit(lambda model, params, rows: model.log_likelihoods(params, rows))


class Residuals(NamedTuple):
    """Pseudo-residuals, independent standard normals if the model is right; `(D,)` by feature, NaN if few are known."""

    autocorrelation: np.ndarray  # of neighbouring residuals
    autocorrelation_error: np.ndarray  # about 1 / sqrt(n)
    distance: np.ndarray  # Kolmogorov's: by how much the model's probabilities of observations are off, at most
    distance_p_value: np.ndarray
    tails: np.ndarray  # share of residuals beyond four standard deviations
    tails_p_value: np.ndarray
    lowest: np.ndarray  # the smallest observation
    values: np.ndarray  # (n, D) the residuals, NaN where missing
    given_state: np.ndarray  # (n, D) those of the drawn states' distributions; NaN without a path


def residuals(
    model: HMM,
    params: Mapping[str, Any],
    sequences: Sequences,
    *,
    most: int = MOST_ROWS,
    seed: int = 0,
    path: DrawnPath | None = None,
) -> Residuals | None:
    """Normal quantiles of `P(y_t <= observed | y_0 .. y_{t-1})`, feature by feature, of up to `most` observations in
    stretches spread over the data; None where the emission has no distribution function. At parameters that are one
    draw of the posterior, residuals of a right model need no correction."""
    part, counts, _ = excerpt = excerpts(sequences, most)
    _, model, complete = unfold(model, model.validate(params))
    if (functions := distribution_functions(model, complete, part)) is None:
        return None
    states = None if path is None else path.remembered(excerpt.position)
    found = quantiles_of(model, complete, part, functions, seed, states)
    for each in (found.quantiles, found.given)[: 0 if counts.all() else 1 + (states is not None)]:
        each[:, ~counts] = np.nan
    numbers = _judged(np.ascontiguousarray(found.quantiles), part.offsets[1:-1])
    return Residuals(*[*numbers, found.lowest, found.quantiles.T, found.given.T])


def _judged(columns: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The numbers of features `(D, n)`, in the order of `Residuals`; sequences but the first begin at `starts`."""
    from scipy.special import bdtrc, kolmogorov, ndtr

    bins = Bins(1 << max(10, (columns.shape[1] // IN_BIN).bit_length()), FAR)
    found = tally(columns, starts, bins, FAR)
    n = found.seen
    distance = normal_distances(columns, bins, found.in_parts)
    with np.errstate(divide="ignore", invalid="ignore"):  # of features that were hardly seen
        mean = found.sum / n
        variance = found.squares / n - mean**2
        together = found.products - mean * found.of_pairs + found.pairs * mean**2
        chance = kolmogorov((n**0.5 + 0.12 + 0.11 * n**-0.5) * distance)  # as Stephens has it for finite n
        tails = (found.far / n, bdtrc(found.far - 1, n.astype(np.int64), 2 * ndtr(-FAR)))
        numbers = (together / (found.pairs * variance), found.pairs**-0.5, distance, chance, *tails)
    return np.where((found.pairs >= FEWEST) & (variance > 0), numbers, np.nan)


def quantiles(left: Residuals, feature: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The points of a QQ plot of one feature, `(n,)` each: quantiles of the standard normal distribution, the same of
    the residuals, and `(2, n)` where those of a right model lie with probability 95 % at each point."""
    from scipy.special import ndtri
    from scipy.stats import beta

    values = left.values[:, feature]
    values = np.sort(values[np.isfinite(values)])
    n = len(values)
    tails = np.arange(1, min(10, n) + 1)  # more points where a wrong emission shows first
    spaced = np.rint(np.linspace(1, n, min(POINTS, n))).astype(np.int64)
    ranks = np.unique(np.concatenate([spaced, tails, n + 1 - tails]))
    band = ndtri(beta.ppf([[0.025], [0.975]], ranks, n + 1 - ranks))
    return ndtri((ranks - 0.5) / max(n, 1)), values[ranks - 1], band


def judge_residuals(model: HMM, left: Residuals | None, details: Details) -> list[str]:
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
            f"{wider:.1f} times as wide: {noise_to_try(model.emission, left.values[:, feature])}"
        )
    for name, most, sentence in (("distance", MOST_DISTANCE, OFF), ("tails", MOST_TAILS, BEYOND)):
        sizes, p_values = getattr(left, name), getattr(left, f"{name}_p_value")
        feature = int(np.nanargmax(sizes))
        details[f"residual_{name}"] = size = float(sizes[feature])
        beyond_chance = p_values[feature] < FALSE_ALARMS / (3 * features)
        if beyond_chance and size > most and not (sentence is BEYOND and reasons):
            said = sentence.format(of=of[feature], percent=100 * size)
            reasons.append(f"{said}: try {other_emission(model, left, feature)}")
    return reasons


def other_emission(model: HMM, left: Residuals, feature: int) -> str:
    emission = model.emission.untied
    offers = {
        "NegativeBinomial": (emission.support is constraints.nonnegative_integer, "which scatters more"),
        "Gamma": (emission.support is constraints.real and left.lowest[feature] > 0, "made for positive values"),
        "StudentT": (emission.support is constraints.real and left.tails[feature] > MOST_TAILS, "with heavier tails"),
    }
    for name, (suits, why) in offers.items():
        if suits and name != emission.name and not emission.lags and not model.emission.couples:
            return f"{emission_call(name, emission)}, {why}, or more states"
    return "more states" if emission.support.is_discrete else "another emission, or more states"


def emission_call(name: str, emission: Emission) -> str:
    return f"lh.{name}({f'dim={emission.dim}' if emission.dim > 1 else ''})"


class Amplitudes(NamedTuple):
    """A histogram of one feature in B bins, and what the posterior predicts of it."""

    edges: np.ndarray  # (B + 1,)
    counts: np.ndarray  # (B,) observed values
    outside: int  # observed values beyond the first and the last edge
    expected: np.ndarray  # (B,) predicted counts, over states and draws
    lower: np.ndarray  # (B,) ends of the central interval of the predicted count over draws of the parameters
    upper: np.ndarray
    by_state: np.ndarray  # (K, B) predicted counts of each state


def amplitudes(
    posterior: Draws, data: Any, *, feature: int = 0, bins: int = 100, draws: int = 50, interval: float = 0.9
) -> Amplitudes:
    """Count observed values in bins that cover all but a thousandth of the data, in one pass, and predict the counts
    from the posterior, states weighed by their share of time in the long run."""
    check_whole("bins", bins, 1)
    sequences, model = posterior.model.opened(data), posterior.model
    if not 0 <= feature < sequences.dim:
        raise DataError(f"feature must lie between 0 and {sequences.dim - 1}, got {feature!r}.")
    if model.lags or model.emission.couples or model.emission.regressions:
        raise ModelError(f"amplitudes must be those of states alone, but {model.emission!r} depends on more.")
    edges = _edges(sequences, feature, bins)
    counts, seen = np.zeros(len(edges) - 1, np.int64), 0
    for _, block in sequences.blocks(ROWS_AT_ONCE):
        known = block.values[:, feature][block.observed[:, feature]]
        counts, seen = counts + np.histogram(known, edges)[0], seen + len(known)
    several = list(posterior.iterate(draws))
    shares = np.stack([stationary_on_host(params["transition"]) for params in several])
    by_draw = seen * shares[..., None] * [bin_probabilities(model, params, edges, feature) for params in several]
    total = by_draw.sum(axis=1)
    ends = central(total, interval)
    return Amplitudes(edges, counts, int(seen - counts.sum()), total.mean(axis=0), *ends, by_draw.mean(axis=0))


def bin_probabilities(model: HMM, params: Mapping[str, Any], edges: np.ndarray, feature: int = 0) -> np.ndarray:
    """`(K, B)`, the probability that each state gives to each bin of one feature."""
    found = in_float64(_cdf, model, params, np.repeat(edges[:, None], model.dim, axis=1))
    if found is not None:
        return np.diff(found[1][:, :, feature], axis=0).T
    if model.dim > 1:
        raise ModelError(f"{model.emission.name} has no distribution function of single features to draw.")
    discrete = model.emission.support.is_discrete
    middle = (np.ceil(edges[:-1]) if discrete else 0.5 * (edges[:-1] + edges[1:]))[:, None]
    density = np.exp(in_float64(_log_likelihoods, model, params, Rows(middle, np.ones(middle.shape, bool))))
    return np.asarray(density if discrete else density * np.diff(edges)[:, None]).T


def _edges(sequences: Sequences, feature: int, bins: int) -> np.ndarray:
    values = np.asarray(subsample(sequences), np.float64)[:, feature]
    values = values[np.isfinite(values)]
    if values.size == 0:
        raise DataError(f"feature {feature} of {sequences.name} has no observed values.")
    if sequences.dtype.kind in "iu":  # bins that are whole numbers wide
        low, high = np.floor(values.min()), np.ceil(values.max())
        width = max(1.0, np.ceil((high - low + 1) / bins))
        return low - 0.5 + width * np.arange(int(np.ceil((high - low + 1) / width)) + 1)
    low, high = np.quantile(values, [0.0005, 0.9995])
    margin = 0.05 * (high - low) or 0.5
    return np.linspace(low - margin, high + margin, bins + 1)
