"""Chains cut into tiny chunks, for tests of passes: which forget, which do not, and how they are cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from backends.references import given_model
from longhmm.backends import read, stream
from longhmm.backends.block import Own

K, T, CHUNK, PER_BLOCK = 3, 400, 8, 4
MODEL = given_model(K)


def cut(patch: pytest.MonkeyPatch, *, chunk: int = CHUNK, per_block: int = PER_BLOCK, overlaps: Any = (8, 40)) -> None:
    """Chunks and blocks of a few rows, and how far chunks start early."""
    for name in ("CHUNK", "LEAST_CHUNK"):
        patch.setattr(read, name, chunk)
    for name in ("COPIED_ROWS", "IN_PLACE_ROWS"):
        patch.setattr(read, name, chunk * per_block)
    patch.setattr(stream, "OVERLAPS", overlaps)


def rows_of(blocks: Iterator[Own]) -> np.ndarray:
    """The probabilities of all rows; blocks must come in order."""
    rows, position = [], 0
    for own in blocks:
        assert own.start == position and own.probabilities is not None
        position = own.stop
        rows.append(own.probabilities)
    return np.concatenate(rows)


IDENTITY = np.eye(K)
CYCLE = np.roll(np.eye(K), 1, axis=1)
LEFT_TO_RIGHT = np.array([[0.99, 0.01, 0.0], [0.0, 0.99, 0.01], [0.0, 0.0, 1.0]])
SLOW = 0.9997 * np.eye(K) + 0.0001
HARDLY_EVER = (1 - 3e-12) * np.eye(K) + 1e-12


def weak(seed: int, size: float) -> np.ndarray:
    return size * np.random.default_rng(seed).normal(size=(T, K))


def evidence(*pieces: tuple[int, int, float]) -> np.ndarray:
    """Log likelihoods in favour of one state: (how many times, which state, how many nats each time)."""
    logs = np.zeros((sum(piece[0] for piece in pieces), K))
    position = 0
    for times, state, nats in pieces:
        logs[position : position + times, state] = nats
        position += times
    return logs


def late_evidence() -> np.ndarray:
    """Nothing for several blocks, then a clear sign of state 2: whoever forgets it is wrong from the first time on."""
    return evidence((360, 0, 0.0), (40, 2, 3.0))


def three_turns() -> np.ndarray:
    """Evidence that is overturned again and again, always by pieces longer than a chunk and its overlap."""
    return evidence((96, 0, 5.0), (96, 1, 4.0), (96, 0, 6.0), (96, 1, 5.1), (16, 2, 1.0))


def deceptive_boundaries() -> np.ndarray:
    """The rows around some boundaries say the opposite of what their surroundings say, by hundreds of nats."""
    logs = np.zeros((T, K))
    pieces = [(0, 112, 9.7), (112, 120, -125.0), (120, 216, 118.75 / 12), (216, 224, -118.75), (224, 232, -0.625)]
    for start, stop, nats in pieces:
        logs[start:stop, 1] = nats
    logs[232:, 1] = 905.0 / (T - 232)
    return logs


HARD = {
    "identity": (IDENTITY, weak(1, 0.1)),
    "identity, strong": (IDENTITY, weak(2, 30.0)),
    "identity, nothing seen": (IDENTITY, np.zeros((T, K))),
    "identity, late": (IDENTITY, late_evidence()),
    "identity, middle": (IDENTITY, evidence((150, 0, 0.0), (100, 1, 2.0), (150, 0, 0.0))),
    "identity, halves": (IDENTITY, evidence((200, 0, 5.0), (200, 1, 5.0001))),
    "identity, three turns": (IDENTITY, three_turns()),
    "identity, deceptive boundaries": (IDENTITY, deceptive_boundaries()),
    "cycle": (CYCLE, weak(3, 1.0)),
    "cycle, halves": (CYCLE, evidence((200, 0, 5.0), (200, 1, 5.1))),
    "left to right": (LEFT_TO_RIGHT, weak(4, 0.5)),
    "left to right, turns": (LEFT_TO_RIGHT, evidence((150, 0, 4.0), (150, 1, 8.0), (100, 0, 20.0))),
    "slow": (SLOW, weak(5, 1e-3)),
    "slow, halves": (SLOW, evidence((200, 0, 5.0), (200, 1, 5.0))),
    "slow, late": (SLOW, late_evidence()),
    "hardly ever": (HARDLY_EVER, weak(6, 0.3)),
    "hardly ever, halves": (HARDLY_EVER, evidence((200, 0, 5.0), (200, 1, 5.0001))),
    "hardly ever, three turns": (HARDLY_EVER, three_turns()),
}
# Thousands of nats: messages whose smallest entries no linear number can hold.
HARD["identity, vast turn"] = (IDENTITY, evidence((100, 0, 10.0), (200, 1, 10.0), (100, 2, 1.0)))
HARD["identity, vast and deceptive"] = (
    IDENTITY,
    evidence((96, 1, 30.0), (8, 1, -250.0), (32, 1, 30.0), (8, 1, -250.0), (256, 0, 0.0)),
)
FORGETS_BY_SEEING = {"slow, halves", "hardly ever, halves", "hardly ever, three turns"}


def quiet_beginnings() -> np.ndarray:
    """A clear sign of a state in the middle of every chunk; at the beginning, too, but for one chunk of each block.

    Messages from the left are soon right. Those from the right are wrong within the block, and right at its ends.
    """
    logs = np.zeros((T, K))
    times = np.arange(T)
    chunk, offset = times // CHUNK, times % CHUNK
    logs[times, chunk % 3] = 60.0
    logs[(offset > 5) | ((chunk % 4 == 2) & (offset < 4))] = 0.0
    return logs
