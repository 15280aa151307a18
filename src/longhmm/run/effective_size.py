"""How many independent draws some correlated ones are worth (Vehtari, Gelman, Simpson, Carpenter, Bürkner 2021)."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri


def bulk_effective_size(draws: np.ndarray) -> np.ndarray:
    """Bulk effective sample size of every column of `(chain, draw, P)`: split chains, rank-normalised, `(P,)`."""
    return np.array([_effective_size(_rank_normalised(_split(draws[:, :, each]))) for each in range(draws.shape[2])])


def _split(draws: np.ndarray) -> np.ndarray:
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def _rank_normalised(draws: np.ndarray) -> np.ndarray:
    flat = draws.ravel()
    _, inverse, counts = np.unique(flat, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks = (last - 0.5 * (counts - 1))[inverse]  # ties share the mean of their ranks
    return np.asarray(ndtri((ranks - 0.375) / (flat.size + 0.25))).reshape(draws.shape)


def _effective_size(draws: np.ndarray) -> float:
    chains, length = draws.shape
    if length < 4 or np.ptp(draws) == 0:
        return float(draws.size)
    centred = draws - draws.mean(axis=1, keepdims=True)
    padded = np.fft.rfft(centred, n=2 * length, axis=1)
    covariance = np.fft.irfft(np.abs(padded) ** 2, axis=1)[:, :length] / length
    within = covariance[:, 0].mean() * length / (length - 1)
    total = within * (length - 1) / length
    if chains > 1:
        total += draws.mean(axis=1).var(ddof=1)
    correlation = 1 - (within - covariance.mean(axis=0)) / total
    correlation[0] = 1.0
    # Geyer: sums of neighbouring pairs are positive and fall; what comes after the first that is not, is noise.
    pairs = correlation[: length // 2 * 2].reshape(-1, 2).sum(axis=1)
    stop = int(np.argmax(pairs < 0)) if np.any(pairs < 0) else len(pairs)
    time = -1 + 2 * np.minimum.accumulate(pairs[:stop]).sum()
    return float(draws.size / max(time, 1 / np.log10(draws.size)))
