"""The buffer report: bias, variance and cost by buffer length at given parameters, against exact scores of blocks (what
each adds to the gradient of the log likelihood, F9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.backends.evaluate import chunk_statistics, lower
from longhmm.backends.programs import quick
from longhmm.backends.protocol import Boundary, Wanted
from longhmm.data.layout import Partition, gather, ladder
from longhmm.data.sequences import Sequences
from longhmm.data.shown import buffers_html
from longhmm.errors import ModelError, check_whole
from longhmm.inference.markov import stationary_on_host
from longhmm.model.hmm import HMM
from longhmm.model.memory import unfold
from longhmm.model.parameters import Params
from longhmm.target.buffer_length import BufferEstimate, LyapunovBuffer
from longhmm.target.buffered import StartDistribution, first_message, stationary_start, windows_of
from longhmm.target.coordinates import Flat, interior, scores
from longhmm.target.minibatch import Minibatch, with_numbers
from longhmm.target.systematic import Windows

BATCH_ENTRIES = 1 << 21  # numbers in one (window, time, state) array
HEAD = "buffer    bias/sd        +-   noise   typical      mean  share   cost"
AGREEMENT = 1e-10  # two starts that differ by less, relative to the scores' size, have been forgotten


@dataclass(frozen=True)
class BufferReportRow:
    """One buffer length B."""

    buffer: int
    # The shift of posterior means that the buffer error causes, in posterior standard deviations, of the worst
    # coordinate: `N |mean error| / sqrt(N var(score))`; it grows like the square root of the data.
    bias: float
    bias_error: float  # its standard error, from the blocks looked at
    noise: float  # variance of a minibatch gradient relative to that of exact scores, of the worst coordinate
    typical_error: float  # geometric mean over blocks of the size of a score's error; falls at the Lyapunov rate
    mean_error: float  # size of the mean error over blocks; falls more slowly, at the moment exponent
    share: float  # of windows whose message at the core is within the tolerance of the exact one
    cost: float  # observations read per window, relative to the core alone

    def __str__(self) -> str:
        return (
            f"{self.buffer:>6} {self.bias:>10.2e} {self.bias_error:>9.1e} {self.noise:>7.3f} "
            f"{self.typical_error:>9.1e} {self.mean_error:>9.1e} {self.share:>6.1%} {self.cost:>6.1f}"
        )


@dataclass(frozen=True)
class BufferReport:
    """Bias, noise and cost of buffer lengths, and the one that the Lyapunov rule chooses; print it for a table."""

    rows: tuple[BufferReportRow, ...]
    chosen: BufferEstimate
    tolerance: float
    n_blocks: int
    blocks_used: int

    def __str__(self) -> str:
        gap = "not measured" if self.chosen.gap is None else f"{self.chosen.gap:.3g} per step"
        used = f"{self.blocks_used:,} of {self.n_blocks:,} blocks"
        foot = f"Lyapunov gap {gap}; chosen buffer {self.chosen.length}; {used}."
        return "\n".join([HEAD, *map(str, self.rows), foot])

    _repr_html_ = buffers_html

    def plot(self, path: str | None = None, *, ax: Any = None) -> Any:
        """Draw bias and typical error against the buffer length; saved to `path`, or returned as a figure."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4.2), layout="constrained") if ax is None else ax.get_figure(root=True)
        axes = figure.subplots() if ax is None else ax
        lengths, bias, typical = np.array([(row.buffer, row.bias, row.typical_error) for row in self.rows]).T
        # A value of zero has no place on a logarithmic scale and is left out.
        axes.plot(lengths, np.where(bias > 0, bias, np.nan), "o-", label="bias of posterior means, in sd")
        axes.plot(lengths, np.where(typical > 0, typical, np.nan), "s--", label="typical error of a block's score")
        gap = self.chosen.gap
        if gap is not None and typical[0] > 0:
            rate = typical[0] * np.exp(gap * (lengths - lengths[0]))
            axes.plot(lengths, rate, ":", color="0.4", label=f"Lyapunov rate, {gap:.2g} per step")
            axes.set_ylim(bottom=typical[typical > 0].min() / 3)
        axes.axvline(self.chosen.length, color="tab:red", linewidth=1, label=f"chosen: {self.chosen.length}")
        axes.set(yscale="log", xlabel="buffer length (observations)", title="Buffer report")
        axes.legend(frameon=False)
        if path is None:
            return figure
        figure.savefig(path, dpi=150)
        return None


def buffer_report(
    model: HMM,
    params: Params,
    data: Any,
    *,
    windows: Windows | None = None,
    buffers: Sequence[int] | None = None,
    rule: LyapunovBuffer | None = None,
    start: StartDistribution = stationary_start,
    blocks: int = 2000,
    seed: int = 0,
) -> BufferReport:
    """Compare the scores of buffered windows with exact ones, at given parameters.

    Args:
        windows: half-width of the windows (their count does not matter here).
        buffers: lengths to compare; by default 0 and a ladder past the one the rule chooses.
        rule: the rule and tolerance by which a buffer would be chosen.
        start: distribution of the state before a window.
        blocks: how many blocks to look at, spread over the data; all if there are fewer.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 3.0]}
        >>> states, counts = lh.simulate(model, params, length=5000, seed=1)
        >>> report = lh.buffer_report(model, params, counts, blocks=200)
        >>> report.rows[0].bias > report.rows[-1].bias
        True
    """
    model, sequences = model.meet(data)
    windows, rule = windows or Windows(), rule or LyapunovBuffer()
    model.check_dim(sequences)
    complete = interior(model, params)
    chosen = rule.estimate(model, complete, sequences)
    if buffers is None:
        lengths = [0]
        while lengths[-1] < 2 * max(chosen.length, 2):
            lengths.append(ladder(lengths[-1] + 1))
        buffers = lengths
    if not len(buffers) or min(buffers) < 0:
        raise ModelError(f"buffers must be lengths of at least 0, got {list(buffers)!r}.")
    some = Blocks.some(model, complete, sequences, windows.core_length, blocks, seed)
    exact, entering = some.exact(max(max(buffers), chosen.length, 8))
    count, scale, cut = len(exact), np.sqrt(some.cut.n_blocks), some.cut
    spread = exact.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    rows = []
    for buffer in map(int, buffers):
        # One shape, and one compiled program, for all lengths.
        found, messages = some.scores(buffer, start, cut.width(max(buffers)))
        error = (found - exact) / spread
        mean = error.mean(axis=0)
        worst = int(np.argmax(np.abs(mean)))
        sampling = error[:, worst].std() / np.sqrt(count) if count < cut.n_blocks else 0.0  # nothing was left out
        rows.append(
            BufferReportRow(
                buffer=buffer,
                bias=float(scale * abs(mean[worst])),
                bias_error=float(scale * sampling),
                noise=float(np.max(found.var(axis=0) / spread**2)),
                typical_error=float(np.exp(np.mean(np.log(np.maximum(np.linalg.norm(error, axis=1), 1e-300))))),
                mean_error=float(np.linalg.norm(mean)),
                share=float(np.mean(np.abs(messages - entering).sum(axis=1) <= rule.tolerance)),
                cost=(windows.core_length + 2 * buffer) / windows.core_length,
            )
        )
    return BufferReport(tuple(rows), chosen, rule.tolerance, cut.n_blocks, count)


def block_scores(
    model: HMM, params: Params, sequences: Sequences, core_length: int, *, blocks: int = 400, seed: int = 0
) -> tuple[Blocks, np.ndarray]:
    """Up to `blocks` random blocks, and their scores `(n, P)`, exact to rounding."""
    model.check_dim(sequences)
    some = Blocks.some(model, interior(model, params), sequences, core_length, blocks, seed)
    return some, some.exact(max(16, core_length // 8))[0]  # long blocks are those of long memory


class Blocks(NamedTuple):
    """Some of the blocks into which data are cut, at checked parameters."""

    model: HMM
    params: Params
    sequences: Sequences
    cut: Partition
    numbers: np.ndarray

    @staticmethod
    def some(model: HMM, params: Params, sequences: Sequences, core_length: int, blocks: int, seed: int) -> Blocks:
        check_whole("blocks", blocks, 1)
        cut = Partition(sequences.offsets, core_length)
        numbers = np.arange(cut.n_blocks)
        if blocks < cut.n_blocks:
            numbers = np.sort(np.random.default_rng(seed).choice(cut.n_blocks, blocks, replace=False))
        return Blocks(model, params, sequences, cut, numbers)

    def exact(self, shortest: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores with buffers so long that two different starts give the same ones."""
        buffer, uniform = ladder(4 * shortest), np.full(self.model.n_states, 1.0 / self.model.n_states)
        first = stationary_start if self.model.transitions.varies else stationary_on_host(self.params["transition"])
        while True:
            found, entering = self.scores(buffer, first)
            apart = np.abs(found - self.scores(buffer, uniform)[0]).max()
            if apart <= AGREEMENT * max(1.0, np.abs(found).max()) or buffer >= np.diff(self.sequences.offsets).max():
                return found, entering
            buffer *= 4

    def scores(self, buffer: int, start: Any, width: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Scores `(n, P)` and the distributions entering the blocks `(n, K)`, in float64, in bounded batches of windows
        that are padded to `width` times, by default as many as core and buffers have."""
        model, numbers = self.model, self.numbers
        width = min(width or self.cut.width(buffer), int(np.diff(self.sequences.offsets).max()))
        batch = int(np.clip(BATCH_ENTRIES // (width * model.n_states), 1, len(numbers)))
        moves, found = model.given_initial(self.params) is None, []
        before, start = (None, start) if callable(start) else (start, stationary_start)
        with jax.enable_x64(True):
            for first in range(0, len(numbers), batch):
                some = numbers[first : first + batch]
                padded = np.concatenate([some, np.repeat(some[-1:], batch - len(some))])
                rows, layout = gather(self.sequences, self.cut.locate(padded, buffer), width, model.lags)
                layout = replace(layout, spans=(0, width, 0))  # the same program for all lengths
                minibatch = with_numbers(model, Minibatch(rows, layout, np.ones(batch)))
                both = _batch_scores(model, start, moves, before, dict(self.params), minibatch)
                found.append([np.asarray(each)[: len(some)] for each in both])
        of_blocks, entering = (np.concatenate(each) for each in zip(*found, strict=True))
        return of_blocks, entering


@partial(quick, static_argnames=("start", "moves"))
def _batch_scores(
    model: HMM, start: Any, moves: bool, before: Any, params: Params, minibatch: Minibatch
) -> tuple[Array, Array]:
    """Scores, and the distribution of the state just before each core, given the rows of its window before it."""
    coordinates, start = model.unconstrain(params), start if before is None else before
    of_blocks = scores(model, coordinates, windows_of(model, params, minibatch, start=start), initial_moves=moves)
    memory, longer, complete = unfold(model, params)
    (potentials, _), layout = lower(longer, complete, minibatch.rows), minibatch.in_rows()
    wanted = Wanted(per_chunk=True, forward_only=True, messages=True)
    begin = memory.start(params, first_message(start, params))
    found = chunk_statistics(potentials, layout, wanted, Boundary(start=begin))
    assert found.messages is not None
    distribution = jax.nn.softmax(found.messages.forward_in, axis=1)
    # Nothing comes before a core that opens a sequence, whatever the start.
    distribution = jnp.where(((layout.left == 0) & (layout.opens > 0))[:, None], 0.0, distribution)
    return Flat.like(coordinates).ravel(of_blocks), distribution
