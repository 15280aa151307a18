"""Recordings whose visits have lengths of one's own: what a hidden Markov model cannot describe."""

from collections.abc import Callable

import numpy as np


def visits_of_given_lengths(
    lengths: Callable[[np.random.Generator, int], int], levels: tuple[float, float], length: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Two levels by turns with unit normal noise, each visit as long as `lengths(rng, state)`: values and states."""
    rng, parts, total = np.random.default_rng(seed), [], 0
    while total < length:
        state = len(parts) % 2
        parts.append(np.full(lengths(rng, state), state))
        total += len(parts[-1])
    path = np.concatenate(parts)[:length]
    return (np.asarray(levels)[path] + rng.normal(size=length)).astype(np.float32), path
