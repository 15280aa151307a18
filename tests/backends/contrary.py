"""Chains that cannot go back, or hardly, with evidence that first speaks for one path and then for another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pytest

from backends.references import Reference, reference


def nearly(least: float) -> np.ndarray:
    """Two states between which the chain changes with probability `least`."""
    return np.array([[1 - least, least], [least, 1 - least]])


TRANSITIONS: dict[str, np.ndarray] = {
    "identity": np.eye(2),
    "three alone": np.eye(3),
    "no way back": np.array([[0.99, 0.01], [0.0, 1.0]]),
    "left to right": np.array([[0.9, 0.1, 0.0], [0.0, 0.95, 0.05], [0.0, 0.0, 1.0]]),
    "absorbing": np.array([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    "cycle that waits": np.array([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.1, 0.0, 0.9]]),
    "periodic": np.roll(np.eye(3), 1, axis=1),
    "two classes": np.array([[0.6, 0.4, 0, 0], [0.3, 0.7, 0, 0], [0, 0, 0.2, 0.8], [0, 0, 0.9, 0.1]]),
    "nearly 1e-12": nearly(1e-12),
    "nearly 1e-30": nearly(1e-30),
    "nearly 1e-300": nearly(1e-300),
    "nearly left to right": np.array([[0.9, 0.1, 1e-300], [1e-200, 0.95, 0.05], [1e-300, 1e-30, 1.0]]),
}
# Lengths of stretches, each with a path of its own, and by how many nats each row speaks for it.
TURNS: dict[str, tuple[tuple[int, float], ...]] = {
    "there and back": ((100, 18.0), (200, 18.0)),
    "hidden turn": ((80, 12.0), (120, 25.0), (100, 12.0)),
    "steep": ((30, 400.0), (40, 700.0), (30, 300.0), (200, 2.0)),
    "slow": ((150, 0.5), (150, 0.7)),
}


# Run always; all other combinations are left to the long run.
QUICK = [("identity", "hidden turn"), ("no way back", "there and back"), ("absorbing", "steep"), ("periodic", "steep"),
         ("nearly 1e-300", "hidden turn"), ("cycle that waits", "hidden turn")]  # fmt: skip


def cases(turns: Iterable[str], chains: Iterable[str] = tuple(TRANSITIONS)) -> list[Any]:
    """All pairs of chains and turns, as parameters of a test."""
    pairs = [(chain, turn) for chain in chains for turn in turns]
    return [pytest.param(*pair, marks=[] if pair in QUICK else pytest.mark.slow) for pair in pairs]


class Chain(NamedTuple):
    """Initial law, transition matrix, log likelihoods `(T, K)` and what follows from them."""

    initial: np.ndarray
    transition: np.ndarray
    logs: np.ndarray

    def answers(self) -> Reference:
        return reference(self.initial, self.transition, [self.logs])


def contrary(transition: np.ndarray, turns: tuple[tuple[int, float], ...], seed: int = 0) -> Chain:
    """Each stretch speaks for a path of the chain that begins anew, in another state than the last one did."""
    rng = np.random.default_rng(seed)
    n_states = len(transition)
    parts = []
    for number, (length, nats) in enumerate(turns):
        logs = 0.3 * rng.normal(size=(length, n_states))
        state = (n_states - 1 - number) % n_states
        for row in logs:
            row[state] += nats
            state = int(rng.choice(n_states, p=transition[state] / transition[state].sum()))
        parts.append(logs)
    return Chain(rng.dirichlet(np.full(n_states, 5.0)), transition, np.concatenate(parts))


def random_structure(rng: np.random.Generator) -> np.ndarray:
    """A reducible, periodic or nearly reducible matrix of two to four states."""
    n_states = int(rng.integers(2, 5))
    full = rng.dirichlet(np.ones(n_states), size=n_states)
    kind = rng.integers(6)
    if kind == 0:
        return np.eye(n_states)
    if kind == 1:
        rows = np.triu(full) + 1e-3 * np.eye(n_states)
    elif kind == 2:
        rows = np.roll(np.eye(n_states), 1, axis=1)
    elif kind == 3:
        rows = 0.8 * np.eye(n_states) + 0.2 * np.roll(np.eye(n_states), 1, axis=1)
    elif kind == 4:
        rows = np.where(rng.random(full.shape) < 0.5, 0.0, full) + 0.1 * np.eye(n_states)
    else:
        rows = np.where(np.eye(n_states) > 0, 1.0, 10.0 ** -rng.uniform(8, 300, size=full.shape))
    return rows / rows.sum(1, keepdims=True)


def random_turns(rng: np.random.Generator, length: int) -> tuple[tuple[int, float], ...]:
    cuts = np.sort(rng.integers(10, length - 10, size=int(rng.integers(1, 4))))
    lengths = np.diff([0, *cuts, length])
    return tuple((int(each), float(10 ** rng.uniform(-0.5, 2.7))) for each in lengths if each)
