"""How long a buffer has to be: from a tolerance and the Lyapunov exponents of the message recursion. Messages of
two starts meet at the rate of the gap on average, but slower in slow stretches, which the default rule heeds (F13)."""

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.backends.programs import quick
from longhmm.data.layout import Partition, gather, ladder
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError, check_whole
from longhmm.inference.lyapunov import log_contractions
from longhmm.model.hmm import HMM
from longhmm.model.memory import unfold
from longhmm.model.parameters import Params

RUNS, RUN_LENGTH, BURN_IN = 32, 2048, 128


class BufferEstimate(NamedTuple):
    """A buffer length and where it came from."""

    length: int  # B, rounded up a ladder so that few different shapes are compiled
    gap: float | None  # `rho_2 - rho_1`, the mean log contraction per step, negative; None where it was not measured
    needed: int  # the shortest length that meets the rule, before rounding
    capped: bool  # whether the rule asked for more than the cap


@dataclass(frozen=True)
class FixedBuffer:
    """A buffer of a given length; 0 means none."""

    length: int

    def __post_init__(self) -> None:
        check_whole("length", self.length, 0)

    def estimate(self, model: HMM, params: Params, sequences: Sequences) -> BufferEstimate:
        return BufferEstimate(self.length, None, self.length, False)


@dataclass(frozen=True)
class LyapunovBuffer:
    """A buffer long enough for the messages to forget their start.

    Args:
        tolerance: distance (L1) between the messages of two starts that counts as forgotten, `delta`.
        quantile: share of windows that must reach the tolerance; None for the paper's rule, the mean rate alone.
        repeats: how many such lengths in a row; two square the share of windows that miss the tolerance.
        longest: cap, for chains that hardly forget at all.

    Example:
        >>> import longhmm as lh
        >>> lh.LyapunovBuffer(tolerance=1e-3)
        LyapunovBuffer(tolerance=0.001, quantile=0.95, repeats=1, longest=4096)
    """

    tolerance: float = 1e-3
    quantile: float | None = 0.95
    repeats: int = 1
    longest: int = 4096

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 2:
            raise ModelError(f"tolerance must lie between 0 and 2, got {self.tolerance!r}.")
        if self.quantile is not None and not 0 < self.quantile < 1:
            raise ModelError(f"quantile must lie between 0 and 1, or be None, got {self.quantile!r}.")
        check_whole("repeats", self.repeats, 1)
        check_whole("longest", self.longest, 1)

    def estimate(self, model: HMM, params: Params, sequences: Sequences) -> BufferEstimate:
        """The length for these parameters and data, from stretches spread over the data."""
        if model.n_states == 1:
            return BufferEstimate(0, None, 0, False)
        whole, length = int(np.diff(sequences.offsets).max()), RUN_LENGTH
        while True:
            stretches = contractions(model, params, sequences, length)
            gap = float(np.mean(np.concatenate(stretches)))
            needed = self.shortest(stretches)
            # A run much longer than the buffer is needed to see its quantile; slow chains get longer runs.
            if needed * 8 <= length or length >= min(8 * self.longest, whole):
                break
            length *= 4
        # A buffer as long as the longest sequence makes every window exact, so more is never needed.
        capped = min(needed, whole) > self.longest
        needed = min(self.repeats * needed, whole)
        if capped:
            warnings.warn(
                f"The messages of this model forget so slowly (log contraction {gap:.2g} per step) that a buffer of "
                f"more than {self.longest} would be needed; the cap is used and gradients from windows are biased.",
                RuntimeWarning,
                stacklevel=2,
            )
        return BufferEstimate(min(ladder(max(needed, 1)), self.longest), gap, needed, capped)

    def shortest(self, stretches: list[np.ndarray]) -> int:
        """Smallest B that meets the rule on series of log contractions; beyond `longest` only "too long" is told."""
        target, quantile = np.log(self.tolerance / 2.0), self.quantile
        if quantile is None:
            gap = float(np.mean(np.concatenate(stretches)))
            return int(min(np.ceil(target / gap), self.longest + 1)) if gap < 0 else self.longest + 1
        sums = [np.concatenate([[0.0], np.cumsum(each)]) for each in stretches]

        def reached(length: int) -> bool:
            totals = [each[length:] - each[:-length] for each in sums if len(each) > length]
            return bool(totals) and float(np.quantile(np.concatenate(totals), quantile)) <= target

        lower, upper = 0, 1
        while not reached(upper):
            if upper == self.longest:
                return self.longest + 1
            lower, upper = upper, min(2 * upper, self.longest)
        while upper - lower > 1:
            middle = (lower + upper) // 2
            lower, upper = (lower, middle) if reached(middle) else (middle, upper)
        return upper


def contractions(model: HMM, params: Params, sequences: Sequences, length: int = RUN_LENGTH) -> list[np.ndarray]:
    """Log contractions per step along stretches of consecutive data, one frame per stretch, burn-in discarded."""
    model.check_dim(sequences)
    length = min(length, int(np.diff(sequences.offsets).max()))
    partition = Partition(sequences.offsets, length)
    count = min(RUNS, partition.n_blocks)
    chosen = np.unique(np.floor((np.arange(count) + 0.5) * partition.n_blocks / count).astype(np.int64))
    rows, windows = gather(sequences, partition.locate(chosen, 0), length, model.lags)
    with jax.enable_x64(True):
        ratios = np.asarray(_log_contractions(model, model.validate(params), rows))
    burn_in = min(BURN_IN, length // 4)
    series = [ratios[burn_in:size, lane] for lane, size in enumerate(windows.core) if size > burn_in]
    return series or [ratios[: int(windows.core[0]), 0]]


@quick
def _log_contractions(model: HMM, params: Params, rows: Rows) -> Array:
    _, model, params = unfold(model, params)
    logs = model.log_likelihoods(params, rows)
    moves, matrices = model.transitions, params["transition"]
    if moves.varies:
        matrices = jax.vmap(lambda each: moves.matrices(params[moves.parameter], each))(jnp.asarray(rows.covariates))
    if model.emission.couples:  # pairs of states: matrices of their own for every row
        matrices = matrices * jnp.exp(logs - jnp.max(logs, axis=(2, 3), keepdims=True))
        logs = jnp.zeros(logs.shape[:3], logs.dtype)
    matrices = jnp.moveaxis(matrices, 0, 3) if matrices.ndim == 4 else matrices
    return log_contractions(matrices, jnp.transpose(logs, (1, 2, 0)))
