"""Scores of held-out blocks: how probable each part of the recording is, given all the others.

Without a block the posterior moves by about one Newton step, from u to `u - C g / (1 - w)`, with C the covariance of
the coordinates, g the block's score (the gradient of its log likelihood) and w its share of the rows: the infinitesimal
jackknife, for which nothing is fitted again. There every row of the block is scored by `log p(y_t | rows before it)`,
and so is one that is simulated in its place, from the same prediction. If the model is right, the two are exchangeable
given what came before. So their difference is symmetric about zero, row by row, however slowly states change, and sums
of differences, in units of the root of their sum of squares, have no heavier tails than normal numbers.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.programs import quick
from longhmm.data.layout import ladder
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.emissions import Before
from longhmm.model.hmm import HMM
from longhmm.model.memory import unfold
from longhmm.posterior.diagnostics.bias import FALSE_ALARMS, Details, layout
from longhmm.posterior.draws import Draws, in_float64
from longhmm.posterior.predict import predictions
from longhmm.run.generator import seed_words
from longhmm.target.buffer_report import Blocks
from longhmm.target.coordinates import Arrays, Flat, constrain, unconstrain

TENTHS = 10  # blocks, or as many as there are sequences
MOST_SEQUENCES = 30  # beyond, neighbours are put together
FEWEST = 20  # rows in a block
MOST_SIZE = (
    0.05  # of a mean log score by block, in sd of single ones, root mean square: it goes with the square of a shift
)


class Scored(NamedTuple):
    """Stretches of the data, and their scores `(n, P)`."""

    some: Blocks
    scores: np.ndarray


class HeldOut(NamedTuple):
    """One block under the posterior given the others."""

    name: str
    rows: int  # that were scored
    score: float  # log density of a row given those before it, on average
    expected: float  # the same of rows that are simulated in their place
    squares: float  # sum over rows of squared differences between the two
    share: float  # of all rows that were held out


def blocks(scored: Scored) -> Iterator[tuple[str, np.ndarray]]:
    """Names of blocks, and which of the scored stretches are theirs: tenths of the recording, none across the end of a
    sequence unless there are many."""
    sequences, lies = scored.some.sequences, scored.some.cut.locate(scored.some.numbers, 0)
    offsets, begin = sequences.offsets, np.asarray(lies.begin)
    joined = sequences.n_sequences > MOST_SEQUENCES
    number = np.zeros(len(begin), np.int64) if joined else np.searchsorted(offsets, begin, side="right") - 1
    length = np.array([sequences.length]) if joined else np.diff(offsets)
    parts = np.ceil(TENTHS * length / sequences.length).astype(np.int64)
    part = parts[number] * (begin - offsets[number]) // length[number]
    for each, of in np.unique(np.stack([number, part]), axis=1).T.tolist():
        mine = np.flatnonzero((number == each) & (part == of))
        first, last = int(begin[mine[0]]), int(begin[mine[-1]] + lies.core[mine[-1]]) - 1
        if not joined and sequences.n_sequences > 1:
            first, last = first - int(offsets[each]), last - int(offsets[each])
            within = "" if parts[each] == 1 else f"rows {first:,} to {last:,} of "
            yield f"{within}sequence {each}", mine
        else:
            yield f"rows {first:,} to {last:,}", mine


def without(scored: Scored, covariance: np.ndarray, mine: np.ndarray) -> Arrays:
    """Natural parameters about which the posterior of all other rows lies, by one step from where scores were taken."""
    some = scored.some
    flat = Flat.like(u := unconstrain(some.model, some.params))
    share = _rows(scored, mine) / some.sequences.length
    step = covariance @ scored.scores[mine].sum(axis=0) / (1.0 - share)
    return constrain(some.model, flat.unravel(flat.ravel_numpy(u) - step))


def held_out(scored: Scored, covariance: np.ndarray, seed: int = 0) -> list[HeldOut]:
    """Every block that has enough rows; none for emissions that cannot be simulated row by row."""
    several, model = list(blocks(scored)), scored.some.model
    if model.emission.couples or len(several) < 2:
        return []
    part, owner = _excerpt(scored, [mine for _, mine in several])
    longest, found = int(np.bincount(owner[owner >= 0]).max()), []
    rows = part.rows(0, part.length, unfold(model, scored.some.params)[1].lags)
    for number, (name, mine) in enumerate(several):
        own = np.flatnonzero(owner == number)
        try:
            params = without(scored, covariance, mine)
            pair = row_scores(model, params, part, rows, own, longest, seed + number)
        except (ModelError, NotImplementedError):  # it has no way to draw observations
            return []
        score, simulated = pair[:, np.isfinite(pair).all(axis=0)]
        if len(score) >= FEWEST:
            squares, share = float(np.sum((score - simulated) ** 2)), len(own) / scored.some.sequences.length
            found.append(HeldOut(name, len(score), float(score.mean()), float(simulated.mean()), squares, share))
    return found


def row_scores(
    model: HMM, params: Arrays, part: Sequences, every: Rows, own: np.ndarray, longest: int, seed: int = 0
) -> np.ndarray:
    """`(2, n)`, log densities of some of the rows given those before them, and of rows simulated in their place, NaN
    where nothing was observed; up to `longest` rows share a program."""
    _, model, complete = unfold(model, model.validate(params))
    chances = np.concatenate([each.states for each in predictions(model, complete, part)])[own]
    uniform = np.random.default_rng(seed).random((len(own), 1))
    states = np.minimum(np.sum(np.cumsum(chances, axis=1) <= uniform, axis=1), model.n_states - 1)
    rows: Rows = jax.tree.map(lambda each: each[own], every)
    kind = np.float64 if rows.values.dtype.kind == "f" else np.int64  # what is simulated may not fit into the file's
    size = ladder(longest)
    padded = rows._replace(values=rows.values.astype(kind)).padded(size)
    filled = (np.resize(each, (size, *each.shape[1:])) for each in (states, chances))
    key = jax.random.wrap_key_data(jax.device_put(seed_words(seed)))  # as jax.random.key, without its programs
    found = in_float64(_row_scores, model, complete, padded, *filled, key)[:, : len(own)]
    return np.where(rows.observed.any(axis=1), found, np.nan)


@quick
def _row_scores(
    model: HMM, params: Any, rows: Rows, states: jax.Array, chances: jax.Array, key: jax.Array
) -> jax.Array:
    lags = jnp.zeros((len(states), 0, model.dim)) if rows.lags is None else rows.lags
    drawn = model.emission.sample_after(key, params, states, Before(states, lags, rows.covariates))
    drawn = drawn.reshape(rows.values.shape).astype(rows.values.dtype)
    both = (model.log_likelihoods(params, rows._replace(values=values)) for values in (rows.values, drawn))
    return jnp.stack([jax.scipy.special.logsumexp(each, axis=1, b=chances) for each in both])


def judge_held_out(posterior: Draws, some: Blocks, scores: np.ndarray, details: Details) -> list[str]:
    """Whether some blocks are less probable, given the others, than others are: at most one sentence."""
    flat = layout(posterior.coordinates).ravel_numpy(posterior.coordinates)
    covariance = np.atleast_2d(np.cov(flat.reshape(-1, flat.shape[-1]), rowvar=False))
    every = held_out(Scored(some, scores), covariance)
    if len(every) < 2:
        return []
    p_value, size, worst, off = compared(every)
    details.update(held_out=size, held_out_p_value=p_value, held_out_of=every[worst].name)
    details["held_out_scores"] = {each.name: [each.score, each.expected] for each in every}
    if p_value >= FALSE_ALARMS or size <= MOST_SIZE:
        return []
    name, less = every[worst].name, "less" if off < 0 else "more"
    return [
        f"{name} {'is' if name.startswith('sequence') else 'are'} {less} probable, given all others, than the rest, by "
        f"{abs(off):.2f} sd of a row's log score: look there for what is different, or fit parts of the data apart"
    ]


def compared(every: list[HeldOut]) -> tuple[float, float, int, float]:
    """Differences of blocks from their mean: the p-value over all of them at once, their root mean square beyond chance
    in sd of a row's score, which is farthest off, and by how much."""
    from scipy.special import chdtrc, ndtr

    rows, squares, share = (np.array([getattr(each, name) for each in every]) for name in ("rows", "squares", "share"))
    excess = np.array([each.score - each.expected for each in every])
    excess = excess - np.average(excess, weights=rows)
    # Their mean has an error of its own, large where one of them has outliers. And the parameters that are left are not
    # those of the truth, which all rows of a block see alike.
    part = rows / rows.sum()
    variance = np.maximum(squares, squares * (1.0 - 2.0 * part) + part**2 * squares.sum())
    errors = rows * excess / np.sqrt(variance * (1.0 + share / (1.0 - share)))
    worst = int(np.argmax(np.abs(errors)))
    together, alone = chdtrc(len(every) - 1, np.sum(errors**2)), 2 * len(every) * ndtr(-abs(errors[worst]))
    typical = squares.sum() / rows.sum()  # squared difference of two scores: twice the variance of one
    beyond = max(float(np.average(excess**2, weights=rows) - (len(every) - 1) * typical / rows.sum()), 0.0)
    scale = np.sqrt(typical / 2)
    return (
        float(min(1.0, 2 * min(together, alone))),
        float(np.sqrt(beyond) / scale),
        worst,
        float(excess[worst] / scale),
    )


def _rows(scored: Scored, mine: np.ndarray) -> int:
    return int(scored.some.cut.locate(scored.some.numbers[mine], 0).core.sum())


def _excerpt(scored: Scored, blocks: list[np.ndarray]) -> tuple[Sequences, np.ndarray]:
    """All data, or the scored stretches with as many rows before each, where the filter forgets how it began; and which
    block every row belongs to, -1 where to none."""
    some = scored.some
    lies = some.cut.locate(some.numbers, some.cut.core_length)
    starts, begins, stops = (np.asarray(each) for each in (lies.begin - lies.left, lies.begin, lies.begin + lies.core))
    first = np.flatnonzero(np.append(True, starts[1:] > stops[:-1]))  # others go on where the one before ends
    spans = [(int(starts[one]), int(stops[after - 1])) for one, after in pairwise([*first.tolist(), len(starts)])]
    whole = len(some.numbers) == some.cut.n_blocks
    position = np.arange(some.sequences.length) if whole else np.concatenate([np.arange(*span) for span in spans])
    stretch = np.maximum(np.searchsorted(begins, position, side="right") - 1, 0)
    block = np.zeros(len(begins), np.int64)
    for number, mine in enumerate(blocks):
        block[mine] = number
    inside = (position >= begins[stretch]) & (position < stops[stretch])
    return some.sequences if whole else some.sequences.gathered(spans), np.where(inside, block[stretch], -1)
