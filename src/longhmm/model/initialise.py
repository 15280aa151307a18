"""Starting points: rows of a small sample are grouped, and every state begins with one group."""

import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from numpyro.distributions import constraints

from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.model.emission_fit import fit_groups, preferences
from longhmm.model.emissions import Emission
from longhmm.model.hmm import HMM
from longhmm.model.summary import subsample_rows
from longhmm.model.support import bare
from longhmm.model.transitions.renumbering import ordered, orders

# Neighbours averaged before rows are grouped, by restart. One label or one bit says little about its state, what is
# frequent nearby says more; numbers are first taken as they are.
LABEL_WIDTHS, NUMBER_WIDTHS = (9, 33, 3, 1), (1, 1, 1, 9)
SCALED = {type(each) for each in (constraints.nonnegative_integer, constraints.nonnegative, constraints.positive)}
MOST_CATEGORIES = 64
LLOYD_STEPS = 30
SAME_LOCATION = 1e-9  # relative to the spread of locations: below, two locations are tied
IMPOSSIBLE = -20.0  # log probability that stands for a forbidden transition: clusters are noisy, so not minus infinity
_location = jax.jit(lambda emission, params: emission.location(params))
KNOWN_STATE = 20.0  # what a row in the group of its known state is worth, in log probability


def initial_params(model: HMM, data: Any, *, restarts: int = 4, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Natural parameters to start from, one complete set per restart.

    Rows of a fixed subsample are grouped: of one feature, the first start cuts at quantiles (groups of equal mass);
    all others run k-means from random seeds, every second one on logarithms where values are positive. Then the
    emission is fitted to each group, and transitions are counted between the groups of consecutive rows. Exchangeable
    states come in rising order of their location.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> starts = initial_params(model, [0, 1, 0, 9, 8, 9, 1, 0] * 50, restarts=2)
        >>> starts[0]["rate"].round(1).tolist()
        [0.4, 8.7]
    """
    model, sequences = model.meet(data)
    resolved = model.resolve(sequences)
    settle, stretches = resolved.emission.alike(resolved, sequences, subsample_rows(sequences, model.lags))
    return [settle(_one_start(resolved, stretches, np.random.default_rng([seed, r]), r)) for r in range(restarts)]


def in_rising_order(model: HMM, params: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same model with states renumbered by rising location, ties by self-transition, where no state is special."""
    return permute(model, params, state_order(model, params)) if exchangeable(model) else params


def permute(model: HMM, params: Mapping[str, Any], order: Any) -> dict[str, np.ndarray]:
    """Natural parameters with states renumbered: new state s is old state `order[s]`; leading axes are kept."""
    order = checked(model, order)
    lead, moves = np.ndim(params["transition"]) - 2, model.transitions
    own = {"transition": np.take(np.take(params["transition"], order, lead), order, lead + 1)}
    if moves.parameter in params and (moves.exchangeable or moves.symmetries):
        own[moves.parameter] = moves.renumbered(np.asarray(params[moves.parameter]), order)
    return permuted(model, params, order, own, lead)


def permuted(model: HMM, arrays: Any, order: np.ndarray, own: Any, axis: int) -> dict[str, Any]:
    """All but the transitions' `own` goes by levels on its first axis, which are the states unless these are tied."""
    levels = model.emission.state_levels(model.n_states)
    moved = np.full(levels.max() + 1, -1)
    moved[levels] = levels[order]
    if not np.array_equal(moved[levels], levels[order]):
        got = f"got {order.tolist()} for levels {tuple(levels.tolist())}"
        raise ModelError(f"order must send states that share a level to states that share one, {got}.")
    orders = dict.fromkeys(arrays, moved) | {"initial": order}
    fixed = {name: arrays[name] for name in model.emission.shared if name in arrays} | dict(own)
    return {name: fixed[name] if name in fixed else np.take(arrays[name], orders[name], axis) for name in arrays}


def checked(model: HMM, order: Any) -> np.ndarray:
    if sorted(np.asarray(order).tolist()) != list(range(model.n_states)):
        raise ModelError(f"order must be a permutation of the {model.n_states} states, got {list(order)}.")
    return np.asarray(order)


def exchangeable(model: HMM) -> bool:
    """Whether nothing in the model tells its states apart: priors, constants, forbidden transitions, first states."""
    same_start = isinstance(model.initial, str) or bool(np.ptp(np.asarray(model.initial)) < 1e-12)
    return same_start and model.transitions.exchangeable and not model.emission.states_differ(model.n_states)


def state_order(model: HMM, params: Mapping[str, Any]) -> np.ndarray:
    """`(K,)`: state `order[s]` of `params` gets the number s; the identity where states are not exchangeable."""
    if not exchangeable(model):
        return np.arange(model.n_states)
    arrays, emission = {name: np.asarray(each) for name, each in params.items()}, model.emission.untied
    with jax.enable_x64(True):
        name = emission.mean_name
        location = np.asarray(arrays[name] if name else _location(emission, arrays))
    levels = model.emission.state_levels(model.n_states)
    location = location.reshape(int(levels.max()) + 1, -1)[levels, 0]
    tie = SAME_LOCATION * (float(np.ptp(location)) or 1.0)
    return ordered(model, np.round(location / tie), np.diag(np.asarray(params["transition"])))


def _one_start(model: HMM, stretches: list[Rows], rng: np.random.Generator, restart: int) -> dict[str, np.ndarray]:
    emission, levels = model.emission.untied, model.emission.state_levels(model.n_states)
    n_groups = int(levels.max()) + 1
    labels = _labels(emission, n_groups, [stretch.values for stretch in stretches], restart, rng)
    counts, flat = _transition_counts(labels, n_groups), np.concatenate(labels)
    rows: Rows = jax.tree.map(lambda *each: np.concatenate(each), *stretches)
    groups: list[Rows] = [
        jax.tree.map(lambda each, own=flat == group: each[own], rows._replace(states=None)) for group in range(n_groups)
    ]
    overlap = np.zeros((n_groups, n_groups))
    if rows.states is not None:
        seen = (rows.states >= 0) & (rows.states < model.n_states) & (flat >= 0)
        np.add.at(overlap, (levels[rows.states[seen]], flat[seen]), 1.0)
    if not exchangeable(model) or orders(model) or overlap.any():
        fit = KNOWN_STATE * overlap
        if emission.states_differ(n_groups):
            fit = fit + preferences(emission, groups, rng)
        order = assign(model, levels, counts, fit, restart, rng)
        counts = counts[np.ix_(order, order)]
        groups = [groups[group] for group in order]
    start, moves = fit_groups(emission, groups, rng), model.transitions
    complete = model.validate({moves.parameter: moves.start(_expected(levels, counts, rng)), **start})
    return complete if overlap.any() else in_rising_order(model, complete)


def _labels(
    emission: Emission, n_groups: int, stretches: list[np.ndarray], restart: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """The group of every row, -1 where a row is missing, at least in part."""
    whole = [~np.isnan(stretch).any(axis=1) for stretch in stretches]
    everything = np.concatenate(whole)
    labels = np.full(len(everything), -1)
    if everything.any():
        categories = _categories(emission, stretches)
        widths = LABEL_WIDTHS if categories or emission.support == constraints.boolean else NUMBER_WIDTHS
        tables = [stretch[keep] for stretch, keep in zip(stretches, whole, strict=True)]
        if categories:
            tables = [(rows[:, :1] == np.arange(categories)).astype(np.float64) for rows in tables]
        elif restart % 2 and type(bare(emission.support)) in SCALED:
            tables = [on_logarithms(rows) for rows in tables]
        table = np.concatenate([smoothed(rows, widths[restart % len(widths)]) for rows in tables if len(rows)])
        if table.shape[1] == 1 and restart == 0 and not emission.support.is_discrete:
            labels[everything] = cut_at_quantiles(table[:, 0], n_groups)
        else:
            labels[everything] = k_means(table if categories else standardised(table), n_groups, rng)
    return np.split(labels, np.cumsum([len(stretch) for stretch in stretches])[:-1])


def _categories(emission: Emission, stretches: list[np.ndarray]) -> int:
    """Number of categories if observations are labels without order, else 0."""
    interval = isinstance(emission.support, type(constraints.integer_interval(0, 1)))
    if emission.dim > 1 or not interval or not {"probs", "logits"} & set(emission.names):
        return 0
    largest = np.nanmax([np.nanmax(stretch, initial=0) for stretch in stretches])
    return int(largest) + 1 if largest < MOST_CATEGORIES else 0


def standardised(rows: np.ndarray) -> Any:
    """Every column with mean 0 and standard deviation 1; a constant one becomes 0."""
    centred = rows - rows.mean(axis=0)
    sd = centred.std(axis=0)
    return centred / np.where(sd > 1e-12 * np.abs(rows).max(axis=0, initial=0.0), np.where(sd > 0, sd, 1.0), np.inf)


def on_logarithms(rows: np.ndarray) -> Any:
    """Logarithms of what is not negative: states whose levels are ratios apart are as far apart as each other."""
    return np.log(np.maximum(rows, rows[rows > 0].min(initial=1.0) / 2))


def smoothed(table: np.ndarray, width: int) -> np.ndarray:
    """Moving averages over `width` neighbouring rows, fewer at the ends: what is frequent nearby."""
    if len(table) < width:
        return np.broadcast_to(table.mean(axis=0), table.shape)
    share = np.convolve(np.ones(len(table)), np.ones(width), "same")
    return np.stack([np.convolve(column, np.ones(width), "same") / share for column in table.T], axis=1)


def cut_at_quantiles(column: np.ndarray, n_groups: int) -> np.ndarray:
    """Labels of groups of equal mass, in rising order; fewer groups where values are tied."""
    edges = np.quantile(column, np.arange(1, n_groups) / n_groups)
    return np.searchsorted(edges, column, side="right" if n_groups > 1 and edges[0] == column.min() else "left")


def k_means(rows: np.ndarray, n_groups: int, rng: np.random.Generator) -> Any:
    """Labels by Lloyd's iteration from k-means++ seeds; a group may be empty if there are too few distinct rows."""
    from scipy.cluster.vq import kmeans2

    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", UserWarning)  # an empty group is no reason to worry
        return kmeans2(np.ascontiguousarray(rows), n_groups, iter=LLOYD_STEPS, minit="++", seed=rng)[1]


def _transition_counts(labels: list[np.ndarray], n_groups: int) -> np.ndarray:
    counts = np.zeros((n_groups, n_groups))
    for stretch in labels:
        before, after = stretch[:-1], stretch[1:]
        both = (before >= 0) & (after >= 0)
        np.add.at(counts, (before[both], after[both]), 1.0)
    return counts


def _expected(levels: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> Any:
    """Counts `(K, K)` from those between groups; states of one level share its counts but leave at different rates."""
    rank = np.array([int(np.sum(levels[:state] == levels[state])) for state in range(len(levels))])
    own, stay = counts[np.ix_(levels, levels)], np.eye(len(levels), dtype=bool)
    same = (levels[:, None] == levels) & ~stay
    expected = np.where(stay, own, np.where(same, 0.05, 1.0) * own / np.bincount(levels)[levels])
    # Identical states would remain so for ever: the last of a level leaves it five times as fast as the first.
    faster = 5.0 ** (rank / np.maximum(np.bincount(levels)[levels] - 1, 1))
    return np.where(stay, expected, expected * faster[:, None] * rng.uniform(0.8, 1.25, expected.shape))


def assign(
    model: HMM, levels: np.ndarray, counts: np.ndarray, fit: np.ndarray, restart: int, rng: np.random.Generator
) -> np.ndarray:
    """`order[level]` = group, the order that suits the transitions and `fit[level, group]` best, by swapping pairs;
    from a random one in further restarts, since swaps may end in a local optimum."""
    n_groups = len(counts)
    order = np.arange(n_groups) if restart == 0 else rng.permutation(n_groups)
    best, before = order_score(model, levels, counts, fit, order), -np.inf
    while best > before:
        before = best
        for one, other in zip(*np.triu_indices(n_groups, 1), strict=True):
            swapped = order.copy()
            swapped[[one, other]] = order[[other, one]]
            score = order_score(model, levels, counts, fit, swapped)
            if score > best + 1e-9:
                order, best = swapped, score
    return order


def order_score(model: HMM, levels: np.ndarray, counts: np.ndarray, fit: np.ndarray, order: np.ndarray) -> float:
    """Log probability of the counted transitions at the best transition matrix that the model allows."""
    placed = counts[np.ix_(order, order)]
    allowed = np.zeros_like(placed, dtype=bool)
    np.logical_or.at(allowed, (levels[:, None], levels[None, :]), model.transitions.direct)
    share = np.where(allowed, placed + 0.5, 0.0)
    probabilities = share / share.sum(axis=1, keepdims=True)
    for row, fixed in model.transitions.fixed_rows.items():
        probabilities[levels[row]] = np.bincount(levels, weights=fixed, minlength=len(placed))
    logs = np.log(np.maximum(probabilities, np.exp(IMPOSSIBLE)))
    return float(np.sum(placed * logs) + np.sum(fit[np.arange(len(order)), order]))
