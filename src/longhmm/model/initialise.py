"""Starting points: rows of a small sample are grouped, and every state begins with one group."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from longhmm.data.sequences import Sequences, open_data
from longhmm.model.clustering import cut_at_quantiles, k_means, smoothed, standardised
from longhmm.model.emission_fit import fit_groups, preferences
from longhmm.model.emissions.base import Emission
from longhmm.model.hmm import HMM
from longhmm.model.summary import subsample_stretches

# Neighbours averaged before rows are grouped, by restart. One label or one bit says little about its state, what is
# frequent nearby says more; numbers are first taken as they are.
LABEL_WIDTHS, NUMBER_WIDTHS = (9, 33, 3, 1), (1, 1, 1, 9)
MOST_CATEGORIES = 64
IMPOSSIBLE = -20.0  # log probability that stands for a forbidden transition: clusters are noisy, so not minus infinity
KNOWN_STATE = 20.0  # what a row in the group of its known state is worth, in log probability


def initial_params(model: HMM, data: Any, *, restarts: int = 4, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Natural parameters to start from, one complete set per restart.

    Rows of a fixed subsample are grouped: of one feature, the first start cuts at quantiles (groups of equal mass);
    all others run k-means from random seeds. Then the emission is fitted to each group, and transitions are counted
    between the groups of consecutive rows. Exchangeable states come in rising order of their location.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> starts = initial_params(model, [0, 1, 0, 9, 8, 9, 1, 0] * 50, restarts=2)
        >>> starts[0]["rate"].round(1).tolist()
        [0.4, 8.7]
    """
    sequences = open_data(data)
    resolved = model.resolve(sequences)
    stretches = subsample_stretches(sequences)
    known = _known_states(sequences)
    return [_one_start(resolved, stretches, known, restart, seed) for restart in range(restarts)]


def in_rising_order(model: HMM, params: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same model with states renumbered by rising location, ties by self-transition, where no state is special."""
    if not is_exchangeable(model):
        return params
    with jax.enable_x64(True):
        location = np.asarray(model.emission.location({name: jnp.asarray(value) for name, value in params.items()}))
    order = np.lexsort((np.diag(params["transition"]), location))
    renumbered = {name: value[order] for name, value in params.items()}
    return {**renumbered, "transition": params["transition"][np.ix_(order, order)]}


def is_exchangeable(model: HMM) -> bool:
    """Whether prior, constants and initial distribution treat all states alike."""
    same_start = isinstance(model.initial, str) or np.ptp(model.initial) == 0
    return model.transitions.exchangeable and same_start and not model.emission.states_differ(model.n_states)


def _one_start(
    model: HMM, stretches: list[np.ndarray], known: list[np.ndarray], restart: int, seed: int
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([seed, restart])
    emission, levels = model.emission.untied, model.emission.state_levels(model.n_states)
    n_groups = int(levels.max()) + 1
    labels = _labels(emission, n_groups, stretches, restart, rng)
    rows, flat = np.concatenate(stretches), np.concatenate(labels)
    counts = _transition_counts(labels, n_groups)
    groups = [rows[flat == group] for group in range(n_groups)]
    states = np.concatenate(known) if known else np.full(len(rows), -1)
    overlap = np.zeros((n_groups, n_groups))
    seen = (states >= 0) & (states < model.n_states) & (flat >= 0)
    np.add.at(overlap, (levels[states[seen].astype(int)], flat[seen]), 1.0)
    if not is_exchangeable(model) or overlap.any():
        fit = KNOWN_STATE * overlap
        if emission.states_differ(n_groups):
            fit = fit + preferences(emission, n_groups, groups, rng)
        order = _assign(model, levels, counts, fit, restart, rng)
        counts = counts[np.ix_(order, order)]
        groups = [groups[group] for group in order]
    fitted = fit_groups(emission, n_groups, groups, rng)
    start = {"transition": _transition_start(model, levels, counts, rng), **fitted}
    complete = model.validate(start)
    return complete if overlap.any() else in_rising_order(model, complete)


def _known_states(sequences: Sequences) -> list[np.ndarray]:
    """Known states of the rows of the subsample, -1 where unknown; an empty list if there are none at all."""
    if not sequences.has_states:
        return []
    return [stretch[:, 0] for stretch in subsample_stretches(Sequences(sequences.parts["states"], sequences.offsets))]


def _labels(
    emission: Emission, n_groups: int, stretches: list[np.ndarray], restart: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """The group of every row, -1 where a row is missing, at least in part."""
    whole = [~np.isnan(stretch).any(axis=1) for stretch in stretches]
    everything = np.concatenate(whole)
    labels = np.full(len(everything), -1)
    if everything.any():
        discrete = emission.support.is_discrete
        categories = _categories(emission, stretches)
        widths = LABEL_WIDTHS if categories or emission.support == constraints.boolean else NUMBER_WIDTHS
        width = widths[restart % len(widths)]
        tables = [_features(stretch[keep], categories, width) for stretch, keep in zip(stretches, whole, strict=True)]
        table = np.concatenate(tables)
        if table.shape[1] == 1 and restart == 0 and not discrete:
            labels[everything] = cut_at_quantiles(table[:, 0], n_groups)
        else:
            labels[everything] = k_means(standardised(table) if not categories else table, n_groups, rng)
    return np.split(labels, np.cumsum([len(stretch) for stretch in stretches])[:-1])


def _categories(emission: Emission, stretches: list[np.ndarray]) -> int:
    """Number of categories if observations are labels without order, else 0."""
    support = emission.support
    if emission.dim > 1 or not isinstance(support, type(constraints.integer_interval(0, 1))):
        return 0
    if "probs" not in emission.names and "logits" not in emission.names:
        return 0
    largest = np.nanmax([np.nanmax(stretch, initial=0) for stretch in stretches])
    return int(largest) + 1 if largest < MOST_CATEGORIES else 0


def _features(rows: np.ndarray, categories: int, width: int) -> np.ndarray:
    if categories:
        rows = (rows[:, :1] == np.arange(categories)).astype(np.float64)
    return smoothed(rows, width) if len(rows) else rows


def _transition_counts(labels: list[np.ndarray], n_groups: int) -> np.ndarray:
    counts = np.zeros((n_groups, n_groups))
    for stretch in labels:
        before, after = stretch[:-1], stretch[1:]
        both = (before >= 0) & (after >= 0)
        np.add.at(counts, (before[both], after[both]), 1.0)
    return counts


def _transition_start(model: HMM, levels: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Counts between groups plus the prior's; states of one level share its counts but leave at different rates."""
    n_states = model.n_states
    rank = np.array([int(np.sum(levels[:state] == levels[state])) for state in range(n_states)])
    size = np.bincount(levels)[levels]
    expected = counts[np.ix_(levels, levels)] / size
    stay = np.eye(n_states, dtype=bool)
    same = (levels[:, None] == levels) & ~stay
    expected = np.where(same, 0.05 * expected, expected)
    expected[stay] = np.diag(counts[np.ix_(levels, levels)])
    # Twins would remain twins for ever: each further state of a level leaves it five times as fast.
    expected = np.where(stay, expected, expected * 5.0 ** rank[:, None] * rng.uniform(0.8, 1.25, expected.shape))
    concentration = np.minimum(model.transitions.concentration, 1.0)
    weights = np.where(model.transitions.allowed, expected + concentration + 1e-3, 0.0)
    matrix: np.ndarray = weights / weights.sum(axis=1, keepdims=True)
    for row, known in model.transitions.fixed_rows.items():
        matrix[row] = known
    return matrix


def _assign(
    model: HMM,
    levels: np.ndarray,
    counts: np.ndarray,
    fit: np.ndarray,
    restart: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """`order[level]` = group, the order that suits the transitions and `fit[level, group]` best, by swapping pairs.

    Further restarts begin with a random order, since swaps may end in a local optimum.
    """
    n_groups = len(counts)
    order = np.arange(n_groups) if restart == 0 else rng.permutation(n_groups)
    best = _score(model, levels, counts, fit, order)
    improved = True
    while improved:
        improved = False
        for one in range(n_groups):
            for other in range(one + 1, n_groups):
                swapped = order.copy()
                swapped[[one, other]] = order[[other, one]]
                score = _score(model, levels, counts, fit, swapped)
                if score > best + 1e-9:
                    order, best, improved = swapped, score, True
    return order


def _score(model: HMM, levels: np.ndarray, counts: np.ndarray, fit: np.ndarray, order: np.ndarray) -> float:
    """Log probability of the counted transitions at the best transition matrix that the model allows."""
    placed = counts[np.ix_(order, order)]
    allowed = np.zeros_like(placed, dtype=bool)
    np.logical_or.at(allowed, (levels[:, None], levels[None, :]), model.transitions.allowed)
    share = np.where(allowed, placed + 0.5, 0.0)
    probabilities = share / share.sum(axis=1, keepdims=True)
    for row, fixed in model.transitions.fixed_rows.items():
        probabilities[levels[row]] = np.bincount(levels, weights=fixed, minlength=len(placed))
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(probabilities), IMPOSSIBLE)
    return float(np.sum(placed * logs) + np.sum(fit[np.arange(len(order)), order]))
