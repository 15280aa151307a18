"""What a run leaves behind, before it is turned into answers: draws, their worth, and what a user should know."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpyro.diagnostics import gelman_rubin
from scipy.special import ndtri

from longhmm.run.driver import RunState
from longhmm.target.minibatch import MinibatchSource
from longhmm.target.target import Target


class Chains(NamedTuple):
    """Draws of several chains in unconstrained coordinates."""

    coordinates: dict[str, np.ndarray]  # by name, `(chain, draw, *shape)`, float64
    stats: dict[str, np.ndarray]  # by name, `(chain, draw)`, such as "log_likelihood" and "finite"
    settings: dict[str, Any]  # plain JSON values that tell how the draws came about: sampler, seeds, versions
    information: np.ndarray | None  # `(P, P)`, observed at the mode in flat coordinates (names sorted)
    mode: dict[str, np.ndarray] | None  # its coordinates by name
    notes: tuple[str, ...]  # sentences for the user, such as "stopped by the time limit"


# What draws `(chain, draw, P)` are worth, `(P,)` each (Vehtari and others, Bayesian Analysis 2021): every chain counts
# as two, its halves, and ranks stand for values, so that no moment need exist.


def effective_sizes(draws: np.ndarray) -> np.ndarray:
    """Effective number of draws for the mean."""
    return _sizes(_halves(draws))


def bulk_effective_size(draws: np.ndarray) -> np.ndarray:
    """Effective number of draws for the bulk of the distribution."""
    return _sizes(_normal(_halves(draws)))


def tail_effective_size(draws: np.ndarray) -> np.ndarray:
    """Effective number of draws for that of two quantiles, of 5 and of 95 %, for which it is smaller."""
    ends = np.quantile(draws, (0.05, 0.95), axis=(0, 1))
    return np.minimum(*map(_sizes, [_halves(draws <= quantile).astype(np.float64) for quantile in ends]))


def r_hat(draws: np.ndarray) -> np.ndarray:
    """How much wider all chains are than each, by values or by distances from the median; one chain counts as two."""
    halves = _halves(draws if len(draws) > 1 else _halves(draws))
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.maximum(gelman_rubin(_normal(halves)), gelman_rubin(_normal(folded)))


def _halves(draws: np.ndarray) -> np.ndarray:
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def _normal(draws: np.ndarray) -> np.ndarray:
    """Normal quantiles of the ranks among all; equal values share the mean of theirs."""
    flat = draws.reshape(-1, draws.shape[2])
    pairs = zip(np.sort(flat, axis=0).T, flat.T, strict=True)
    ends = [[np.searchsorted(ordered, column, side) for side in ("left", "right")] for ordered, column in pairs]
    ranks = (np.sum(ends, axis=1).T + 1) / 2
    return np.asarray(ndtri((ranks - 0.375) / (len(flat) + 0.25)).reshape(draws.shape))


def _sizes(chains: np.ndarray) -> np.ndarray:
    """Draws over their autocorrelation time, by the initial monotone sequence of sums of neighbouring lags (Geyer)."""
    length, count = chains.shape[1], chains[..., 0].size
    if length < 4:
        return np.full(chains.shape[2], float(count))
    means = chains.mean(axis=1)
    spectrum = np.fft.rfft(chains - means[:, None], 2 * length, axis=1)
    covariances = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :length].mean(axis=0) / length
    with np.errstate(divide="ignore", invalid="ignore"):
        drop = covariances[0] * length / (length - 1) - covariances
        lags = 1 - drop / (covariances[0] + means.var(axis=0, ddof=1))
    lags[0] = 1
    even = lags[: length - 2 : 2]
    sums = even + lags[1 : length - 1 : 2]
    sums[-1] = -1  # there is an end
    ends = np.argmax(~(sums > 0), axis=0)  # the first pair that is left out, but for its even lag
    kept = np.sum(np.minimum.accumulate(sums) * (np.arange(len(sums))[:, None] < ends), axis=0)
    last = np.maximum(np.take_along_axis(even, ends[None], axis=0)[0], 0)
    times = np.maximum(2 * kept - 1 + last, 1 / np.log10(count))
    return np.where(np.ptp(chains, axis=(0, 1)) == 0, count, count / times)


def notes_on(target: Target, state: RunState, stats: Mapping[str, np.ndarray], wanted: int) -> list[str]:
    found, lost = [], state.alive.count(False)
    if lost:
        found.append(f"run longer: {lost} chain(s) diverged and were left out; use a smaller step size")
    if state.stopped:
        found.append(stopped_note(state.stopped, state.draws, wanted))
    return found + ([] if target.source is None else notes_on_windows(target.source, stats))


def stopped_note(why: str, draws: int, wanted: int) -> str:
    return f"stopped early by {why}, with {draws} of {wanted} draws per chain"


def notes_on_windows(source: MinibatchSource, stats: Mapping[str, np.ndarray]) -> list[str]:
    """Windows closer together than the data's memory asks for, and some that the gradient had to leave out."""
    scheme, found = source.scheme, []
    if scheme.shrunk:
        found.append(
            f"windows are crowded: {scheme.count} windows of {source.partition.width(source.buffer)} rows do not fit "
            f"into {int(source.partition.offsets[-1]):,} rows with a mixing time between them, so that neighbours say "
            "much the same and gradients are noisier than their spread suggests; use fewer windows, or an exact sampler"
        )
    counts = np.asarray(stats.get("impossible", 0))
    if counts.any():
        found.append(
            f"biased: at least {int(counts.sum()):,} of {scheme.count * counts.size:,} windows looked at hold "
            "observations that no state can produce at the parameters of that step, and were left out of the gradient; "
            "check the data, or start elsewhere (init)"
        )
    return found
