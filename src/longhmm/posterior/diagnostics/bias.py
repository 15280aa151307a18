"""Whether the draws are biased: by Stein, exact draws and gradients g satisfy `E[v . g] = 0` (the mean of a parameter
f) and `E[(f - mean) v . g] = -E[v . grad f]` (its variance), v the covariance of the coordinates with f. Parameters
need few gradients, since `f + v . g` is nearly constant; logarithms of rare transitions would need many.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from longhmm.backends.stream import Progress
from longhmm.data.layout import ladder
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.inference.markov import mixing_time
from longhmm.model.hmm import HMM
from longhmm.posterior.draws import Draws, constrain_draws, entry_names, evenly_spaced, parameter_axes
from longhmm.posterior.summary import sd_errors
from longhmm.run.chains import effective_sizes
from longhmm.run.run import Run, carry_out
from longhmm.target.buffer_report import Blocks, block_scores
from longhmm.target.coordinates import Arrays, Flat, constrain
from longhmm.target.target import exact

Details = dict[str, Any]
Gradient = Callable[[Arrays], Mapping[str, np.ndarray]]

FALSE_ALARMS = 0.001  # share of right results that one kind of check may call wrong, over all parameters at once
RIGHT = {"shift": 0.0, "sd_ratio": 1.0}
MOST = {"shift": 0.1, "sd_ratio": 0.1}  # posterior sd, and relative error of the sd: beyond, biased
STEP, AT_ONCE = 1e-4, 64  # of a coordinate, for derivatives of natural parameters, and entries in one go
HALVED_DRAWS = 500  # of every chain, with half the step
MOST_SANDWICH = 1.5  # ratio of standard deviations
SHORTEST_RUN, MIXING_TIMES = 128, 8  # a block is this many times as long as the chain's memory
FEWEST_BLOCKS = 30  # blocks are shortened rather than let there be fewer


class Compared(NamedTuple):
    """Draws against what they should be, `(Q,)` by entry of the natural parameters, with Monte Carlo errors."""

    shift: np.ndarray  # mean of the draws minus the right one, in standard deviations
    shift_error: np.ndarray
    sd_ratio: np.ndarray  # standard deviation of the draws relative to the right one
    sd_ratio_error: np.ndarray
    freedom: float  # degrees of freedom of the errors


class Entries(NamedTuple):
    """All draws, flat; entries that never move are left out."""

    names: list[str]  # of the Q entries, as `Posterior.summary` has them
    values: np.ndarray  # (chain, draw, Q), natural parameters
    directions: np.ndarray  # (P, Q), covariance of every coordinate with every entry: how they move where it rises
    columns: np.ndarray  # (Q,), where each entry stands among all natural parameters


def entries(posterior: Draws) -> Entries:
    natural = {name: np.asarray(posterior.draws[name]) for name in parameter_axes(posterior.model)}
    names = [entry for name in natural for entry in entry_names(posterior.draws[name])]
    values = np.concatenate([value.reshape((*value.shape[:2], -1)) for value in natural.values()], axis=2)
    columns = np.flatnonzero(np.ptp(values, axis=(0, 1)) > 0)
    values = values[:, :, columns]
    coordinates = layout(posterior.coordinates).ravel_numpy(posterior.coordinates)
    u, f = (each.reshape(-1, each.shape[-1]) for each in (coordinates, values))
    directions = (u - u.mean(axis=0)).T @ (f - f.mean(axis=0)) / (len(f) - 1)
    return Entries([names[column] for column in columns], values, directions, columns)


def layout(coordinates: Mapping[str, np.ndarray]) -> Flat:
    """The order of coordinates `(chain, draw, ...)` in a flat vector, names sorted."""
    return Flat.like({name: value[0, 0] for name, value in coordinates.items()})


def bias(posterior: Draws, gradient: Gradient, count: int, details: Details) -> str | None:
    """What exact gradients at `count` draws say against the draws, if anything; the numbers go into `details`."""
    table, model, coordinates = entries(posterior), posterior.model, posterior.coordinates
    if not table.names:
        return None
    points, gradients = exact_gradients(coordinates, gradient, max(count, 3))
    derivatives = derivatives_along(model, layout(coordinates), points, table.columns, table.directions)
    return complaint(
        stein(table.values, table.directions, gradients, derivatives), table.names, details, "",
        "the mean of {name}, and its interval, are off by {shift:+.2f} posterior sd",
        "the interval of {name} is {sd_ratio:.2f} times as wide as it should be",
    )  # fmt: skip


def complaint(found: Compared, names: list[str], details: Details, prefix: str, *sentences: str) -> str | None:
    """A sentence on the entry whose mean, or else whose sd, is off by most beyond chance, if by enough to matter; the
    numbers of both entries go into `details`."""
    limit = errors_allowed(len(names), found.freedom)
    said = []
    for name, sentence in zip(("shift", "sd_ratio"), sentences, strict=True):
        values, errors = getattr(found, name), getattr(found, f"{name}_error")
        excess = np.abs(values - RIGHT[name]) - limit * errors
        worst = int(np.argmax(excess))
        numbers = {name: float(values[worst]), f"{name}_error": float(errors[worst]), f"{name}_of": names[worst]}
        details.update({prefix + key: value for key, value in numbers.items()})
        if excess[worst] > MOST[name]:
            said.append(sentence.format(name=names[worst], **numbers))
    return said[0] if said else None


def errors_allowed(count: int, freedom: float = np.inf) -> float:
    """Standard errors by which the worst of `count` numbers may be off by chance, in either direction (Student's t)."""
    share = FALSE_ALARMS / 2 / max(count, 1)
    return -float(ndtri(share) if np.isinf(freedom) else stdtrit(freedom, share))


def by_passes(model: HMM, sequences: Sequences, progress: Progress | None = None) -> Gradient:
    """The exact gradient of the log posterior, by one pass over all data; what it was asked before it remembers."""
    known: dict[bytes, Arrays] = {}

    def gradient(u: Arrays) -> Arrays:
        at = Flat.like(u).ravel_numpy(u).tobytes()
        if at not in known:
            known[at] = exact(model, model.validate(constrain(model, u)), sequences, u=u, progress=progress)[1].gradient
        return known[at]

    return gradient


def exact_gradients(coordinates: Arrays, gradient: Gradient, n: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Points and gradients there, `(n, P)` each, at evenly spaced draws `(chain, draw, ...)`."""
    order = layout(coordinates)
    flat = order.ravel_numpy(coordinates).reshape(-1, order.size)
    points = flat[evenly_spaced(len(flat), n)]
    return points, np.stack([order.ravel_numpy(gradient(order.unravel(point))) for point in points])


def derivatives_along(model: HMM, order: Flat, points: np.ndarray, columns: Any, directions: np.ndarray) -> np.ndarray:
    """`(n, Q)`: at each of the points `(n, P)`, by how much each entry rises along its own direction, `(P, Q)`, by
    central differences, for which the program that made the draws' natural parameters serves again."""
    found, ways = np.empty((len(points), len(columns))), STEP * directions.T / np.abs(directions).max(axis=0)[:, None]
    for first in range(0, len(columns), AT_ONCE):
        some = slice(first, first + AT_ONCE)
        ends = np.stack([points + way for way in ways[some]] + [points - way for way in ways[some]])
        natural = constrain_draws(model, order.unravel(ends)).values()
        entries = np.concatenate([value.reshape(*value.shape[:2], -1) for value in natural], axis=2)
        own = np.take_along_axis(entries, np.tile(columns[some], 2)[:, None, None], axis=2)[..., 0]
        found[:, some] = np.subtract(*np.split(own, 2)).T * np.abs(directions[:, some]).max(axis=0) / (2 * STEP)
    return found


def stein(values: np.ndarray, directions: np.ndarray, gradients: np.ndarray, derivatives: np.ndarray) -> Compared:
    """Compare draws `(chain, draw, Q)` with exact gradients `(n, P)` at evenly spaced ones of them; `directions` are
    those of `entries`, and `derivatives`, `(n, Q)`, those of the entries along them."""
    n = len(gradients)
    if n < 3 or derivatives.shape != (n, values.shape[-1]):
        raise ModelError(
            "gradients and derivatives must be arrays (n, P) and (n, Q) at three draws or more, got "
            f"{gradients.shape} and {derivatives.shape}."
        )
    flat = values.reshape(-1, values.shape[-1])
    centred = (flat - flat.mean(axis=0))[evenly_spaced(len(flat), n)]
    variance = flat.var(axis=0, ddof=1)
    newton = centred + gradients @ directions  # mean of the target minus that of the draws, if the two are linear
    shift_error = np.sqrt(newton.var(axis=0, ddof=1) / n / variance + 1.0 / effective_sizes(values))
    # Draws that are too wide make `newton` fall as `centred` rises. The slope, rather than a mean of products, has no
    # error from where the few points happen to lie.
    slope, slope_error = _slopes(centred, newton)
    # The mean derivative over all draws, from the few: where it goes with the entry, the entry's mean is known.
    tilt = _slopes(centred, derivatives)[0]
    expected = derivatives.mean(axis=0) - tilt * centred.mean(axis=0)
    spread = (derivatives - derivatives.mean(axis=0) - tilt * (centred - centred.mean(axis=0))).std(axis=0, ddof=1)
    scale = variance / expected
    ratio = (1.0 - slope) * scale
    relative = np.hypot(spread / np.sqrt(n) / expected, 2.0 * sd_errors(values))
    width = np.sqrt(np.maximum(ratio, 0.0))
    # The error of a square root, away from zero.
    width_error = np.hypot(slope_error * scale, ratio * relative) / (2 * np.maximum(width, 0.5))
    return Compared(-newton.mean(axis=0) / np.sqrt(variance), shift_error, width, width_error, n - 2)


def _slopes(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope of every column of `y` against that of `x`, and its standard error whatever the scatter looks like (HC3:
    each residual as if its point had been left out, since a few points far out pull the line towards themselves)."""
    inside = x - x.mean(axis=0)
    leverage = inside**2 / np.sum(inside**2, axis=0)
    slope = np.sum(inside * y, axis=0) / np.sum(inside**2, axis=0)
    left = (y - y.mean(axis=0) - slope * inside) / (1.0 - 1.0 / len(x) - leverage)
    return slope, np.sqrt(np.sum((inside * left) ** 2, axis=0)) / np.sum(inside**2, axis=0)


def step_bias(posterior: Draws, sequences: Sequences, details: Details) -> str | None:
    """What a short run with half the step says against the draws, if anything; the numbers go into `details`."""
    found = compare_halved(posterior, sequences)
    if found is None:
        details["half_step"] = "this sampler has no step to halve"
        return None
    return complaint(
        found, entries(posterior).names, details, "half_step_",
        "the mean of {name} lies {shift:+.2f} posterior sd from that with half the step",
        "the interval of {name} is {sd_ratio:.2f} times as wide as with half the step",
    )  # fmt: skip


def compare_halved(posterior: Draws, sequences: Sequences) -> Compared | None:
    """Run for a short while with half the step and compare; None for samplers without a step."""
    run = posterior.run or posterior.stored_run(sequences)
    run.find()
    halved = None if run.tuned is None else run.sampler.halved()
    if halved is None:
        return None
    short = replace(
        run.request, sampler=halved, draws=min(run.request.draws, HALVED_DRAWS), thin=2 * run.thin,
        seed=run.request.seed + 1, init=posterior.mean_params(), checkpoint=None, automatic=False,
    )  # fmt: skip
    chains = carry_out(Run(short, tuned=halved))  # which keeps its tuning but for the step
    other = posterior.from_chains(posterior.model, chains, sequences)
    return compared(entries(posterior).values, entries(other).values)


def compared(draws: np.ndarray, halved: np.ndarray) -> Compared:
    both = (draws, halved)
    means, sds = [each.mean(axis=(0, 1)) for each in both], [each.std(axis=(0, 1)) for each in both]
    shift_error = np.sqrt(sum(1.0 / effective_sizes(each) for each in both))
    ratio = sds[0] / sds[1]
    ratio_error = ratio * np.hypot(*(sd_errors(each) for each in both))
    return Compared((means[0] - means[1]) / sds[1], shift_error, ratio, ratio_error, np.inf)


def scored(model: HMM, params: Arrays, sequences: Sequences, blocks: int = 400) -> tuple[Blocks, np.ndarray]:
    """Stretches longer than the chain's memory, and their scores `(n, P)`."""
    wanted = max(SHORTEST_RUN, int(np.ceil(MIXING_TIMES * mixing_time(np.asarray(params["transition"]), cap=1e6))))
    length = max(1, min(ladder(wanted), sequences.length // FEWEST_BLOCKS))
    return block_scores(model, params, sequences, length, blocks=blocks)


def sandwich(some: Blocks, scores: np.ndarray, directions: np.ndarray, sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sandwich standard deviations relative to the posterior's, `(Q,)` by entry of the natural parameters, and their
    standard errors. Where noise is coloured, or states are not Markov, the posterior is too narrow by the ratio. With J
    the variance of the score and v one of the `directions`, `(P, Q)`, the variance is `v' J v`, by the delta method."""
    parts = scores @ directions / sd  # what one block contributes to each estimate, in posterior sd
    parts = parts - parts.mean(axis=0)
    # Standard error of a variance of heavy-tailed numbers, from their fourth moment.
    relative = np.sqrt(np.maximum((parts**4).mean(axis=0) / (parts**2).mean(axis=0) ** 2 - 1.0, 0.0) / len(parts))
    ratio = np.sqrt(some.cut.n_blocks * parts.var(axis=0, ddof=1))
    return ratio, 0.5 * ratio * relative


def judge_scatter(posterior: Draws, some: Blocks, scores: np.ndarray, details: Details) -> list[str]:
    table = entries(posterior)
    if not table.names:
        return []
    ratios, errors = sandwich(some, scores, table.directions, table.values.std(axis=(0, 1)))
    excess = ratios - errors_allowed(len(table.names)) * errors
    worst = int(np.argmax(excess))
    ratio, name = float(ratios[worst]), table.names[worst]
    details.update(sandwich=ratio, sandwich_error=float(errors[worst]), sandwich_of=name)
    if excess[worst] <= MOST_SANDWICH:
        return []
    # Where the data scatter beyond chance, the posterior's intervals, stretched about the mean.
    mean, ends = table.values.mean(axis=(0, 1)), np.quantile(table.values, [0.05, 0.95], axis=(0, 1))
    low, high = mean + ratios * (ends - mean)
    beyond = np.flatnonzero(excess > 1.0)
    details["corrected"] = {table.names[each]: [float(low[each]), float(high[each])] for each in beyond}
    return [
        f"the data scatter more than the model says: intervals of {name} should be about {ratio:.1f} times as wide, "
        f"{low[worst]:.4g} to {high[worst]:.4g} (90 %)"
    ]
