"""Where to begin with sequences of unlike brightness: by how much each seems to be multiplied.

A sequence that stays in one state for most of its rows may be taken for a dimmer or brighter one in another state, and
no small step leads from the one to the other. So many factors are tried for each.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.rows import Rows

LOOKED_AT = 256  # rows of every sequence, at most
SHIFTS = np.linspace(-1.5, 1.5, 121)  # of logarithms, that are tried
ROUNDS = 3
BINS, RARE = 200, 1e-3  # of a histogram, and the share of values that may lie anywhere
_logs = jax.jit(lambda emission, params, values, seen: emission.log_likelihoods(params, Rows(values, seen)))


def aligned(sequences: list[np.ndarray]) -> np.ndarray:
    """`(S,)`, logarithms by which sequences `(n, D)` are about multiplied. Mean sizes are a first guess, off where one
    level prevails; then each sequence is moved to where its values are most probable among those of all."""
    sizes = np.array([np.nanmean(np.abs(each)) if np.isfinite(each).any() else 0.0 for each in sequences])
    seen = sizes > 0
    logs = np.log(np.where(seen, sizes, 1.0))
    logs = np.where(seen, logs - (logs[seen].mean() if seen.any() else 0.0), 0.0)
    for _ in range(ROUNDS):
        divided = [each / np.exp(log) for each, log in zip(sequences, logs, strict=True)]
        tables = [Histogram(np.concatenate([each[:, d] for each in divided])) for d in range(divided[0].shape[1])]
        for index in np.flatnonzero(seen):
            own = divided[index]
            scores = [
                sum(table.mean_log(column / np.exp(shift)) for table, column in zip(tables, own.T, strict=True))
                - shift * own.shape[1]
                for shift in SHIFTS
            ]
            logs[index] += SHIFTS[int(np.argmax(scores))]
        logs -= logs.mean()
    return logs


class Histogram:
    """The density of many numbers, smoothed."""

    def __init__(self, values: np.ndarray) -> None:
        seen = values[np.isfinite(values)]
        low, high = np.quantile(seen, [0.001, 0.999]) if len(seen) else (0.0, 1.0)
        self.edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)
        counts = np.histogram(seen, self.edges)[0].astype(np.float64)
        kernel = np.exp(-0.5 * np.linspace(-3.0, 3.0, 13) ** 2)
        smooth = np.convolve(counts, kernel / kernel.sum(), "same")
        width = self.edges[1] - self.edges[0]
        share = smooth / max(smooth.sum(), 1.0) / width
        self.logs = np.log(np.concatenate([[0.0], share, [0.0]]) + RARE / (BINS * width))

    def mean_log(self, values: np.ndarray) -> float:
        seen = values[np.isfinite(values)]
        return float(np.mean(self.logs[np.searchsorted(self.edges, seen)])) if len(seen) else 0.0


def explained(
    model: Any, emission: Any, params: dict[str, np.ndarray], sequences: list[np.ndarray], logs: np.ndarray
) -> np.ndarray:
    """`(S,)`, those logarithms, moved by one of the shifts, at which a chain with these parameters is most likely to
    have made a sequence; as they are where rows look back at rows or states."""
    moves = model.transitions
    if emission.lags or emission.couples or moves.varies or model.memory is not None or not moves.parameter:
        return logs
    chain = np.asarray(params["transition"] if moves.dirichlet else moves.typical(params[moves.parameter]))
    own = {name: np.asarray(params[name]) for name in emission.names if name in params}
    found, longest = np.array(logs, np.float64), max(map(len, sequences))
    for index, values in enumerate(sequences):
        padded = np.pad(values, ((0, longest - len(values)), (0, 0)), constant_values=np.nan)  # one program for all
        tried = padded / np.exp(logs[index] + SHIFTS)[:, None, None]
        whole = np.isfinite(tried)
        with jax.enable_x64(True):
            density = np.asarray(_logs(emission, own, jnp.asarray(np.where(whole, tried, 0.0)), jnp.asarray(whole)))
        scores = _forward(chain, density) - SHIFTS * np.isfinite(values).sum()
        found[index] += SHIFTS[int(np.argmax(scores))]
    return found


def _forward(chain: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """`(shifts,)`, log likelihoods of rows with log densities `(shifts, n, K)`, from a uniform first state."""
    peak = logs.max(axis=-1, keepdims=True)
    likely = np.exp(logs - peak)
    total = peak[..., 0].sum(axis=1)
    message = likely[:, 0] / chain.shape[0]
    for t in range(logs.shape[1]):
        message = message if t == 0 else (message @ chain) * likely[:, t]
        scale = message.sum(axis=1, keepdims=True) + 1e-300
        message, total = message / scale, total + np.log(scale[:, 0])
    return total
