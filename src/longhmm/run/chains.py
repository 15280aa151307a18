"""What a run leaves behind, before it is turned into answers: draws, their worth, and what a user should know."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpyro.diagnostics import effective_sample_size
from scipy.special import ndtri
from scipy.stats import rankdata

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


def bulk_effective_size(draws: np.ndarray) -> np.ndarray:
    """`(P,)`, of `(chain, draw, P)`: split chains, rank-normalised (Vehtari and others, Bayesian Analysis 2021)."""
    half = draws.shape[1] // 2
    halves = np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])
    count = halves[..., 0].size
    if half < 4:
        return np.full(draws.shape[2], float(count))
    normal = ndtri((rankdata(halves.reshape(count, -1), axis=0) - 0.375) / (count + 0.25)).reshape(halves.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.maximum(count / effective_sample_size(normal), 1 / np.log10(count))  # of autocorrelation
    return np.where(np.ptp(normal, axis=(0, 1)) == 0, count, count / times)


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
