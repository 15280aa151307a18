"""The buffer report: bias, variance and cost by buffer length at given parameters, against the exact gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.evaluate import choose, chunk_statistics, lower
from longhmm.backends.protocol import Wanted
from longhmm.data.layout import Cells, gather
from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.target.buffer_length import BufferEstimate, LyapunovBuffer, round_up
from longhmm.target.coordinates import interior, scores
from longhmm.target.estimators import StartLaw, WindowStatistics, stationary_start, uniform_start
from longhmm.target.minibatch import Minibatch, with_numbers
from longhmm.target.systematic import Windows

BATCH_ENTRIES = 1 << 21  # numbers in one (window, time, state) array
AGREEMENT = 1e-10  # two starts that differ by less, relative to the scores' size, have been forgotten


@dataclass(frozen=True)
class BufferReportRow:
    """One buffer length.

    Attributes:
        buffer: B.
        bias: shift of posterior means that the buffer error causes, in posterior standard deviations, the worst
            coordinate: `N |mean error| / sqrt(N var(score))`; it grows like the square root of the data.
        bias_error: its standard error, from the cells looked at.
        noise: variance of a minibatch gradient relative to that of exact scores, the worst coordinate.
        typical_error: geometric mean over cells of the size of the error of a cell's score; falls at the Lyapunov rate.
        mean_error: size of the mean error over cells; falls more slowly, at the moment exponent.
        share: share of windows whose message at the core is within the tolerance of the exact one.
        cost: observations read per window, relative to the core alone.
    """

    buffer: int
    bias: float
    bias_error: float
    noise: float
    typical_error: float
    mean_error: float
    share: float
    cost: float


@dataclass(frozen=True)
class BufferReport:
    """Bias, noise and cost of buffer lengths, with the length that the Lyapunov rule chooses.

    Print it for a table; `plot()` draws it.
    """

    rows: tuple[BufferReportRow, ...]
    chosen: BufferEstimate
    tolerance: float
    n_cells: int
    cells_used: int

    def __str__(self) -> str:
        head = (
            f"{'buffer':>6} {'bias/sd':>10} {'+-':>9} {'noise':>7} {'typical':>9} {'mean':>9} {'share':>6} {'cost':>6}"
        )
        lines = [
            f"{row.buffer:>6} {row.bias:>10.2e} {row.bias_error:>9.1e} {row.noise:>7.3f} {row.typical_error:>9.1e} "
            f"{row.mean_error:>9.1e} {row.share:>6.1%} {row.cost:>6.1f}"
            for row in self.rows
        ]
        gap = "not measured" if self.chosen.gap is None else f"{self.chosen.gap:.3g} per step"
        tail = f"Lyapunov gap {gap}; chosen buffer {self.chosen.length}; {self.cells_used:,} of {self.n_cells:,} cells."
        return "\n".join([head, *lines, tail])

    def plot(self, path: str | None = None) -> Any:
        """Draw bias and typical error against the buffer length; saved to `path`, or returned as a figure."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4.2), layout="constrained")
        axes = figure.subplots()
        lengths = np.array([row.buffer for row in self.rows])
        # A value of zero has no place on a logarithmic scale and is left out.
        for name, label, style in (
            ("bias", "bias of posterior means, in sd", "o-"),
            ("typical_error", "typical error of a cell's score", "s--"),
        ):
            values = np.array([getattr(row, name) for row in self.rows])
            axes.plot(lengths, np.where(values > 0, values, np.nan), style, label=label)
        if self.chosen.gap is not None and self.rows[0].typical_error > 0:
            start = self.rows[0]
            axes.plot(
                lengths,
                start.typical_error * np.exp(self.chosen.gap * (lengths - start.buffer)),
                ":",
                color="0.4",
                label=f"Lyapunov rate, {self.chosen.gap:.2g} per step",
            )
            smallest = min((row.typical_error for row in self.rows if row.typical_error > 0), default=1e-12)
            axes.set_ylim(bottom=smallest / 3)
        axes.axvline(self.chosen.length, color="tab:red", linewidth=1, label=f"chosen: {self.chosen.length}")
        axes.set(yscale="log", xlabel="buffer length (observations)", title="Buffer report")
        axes.legend(frameon=False)
        if path is None:
            return figure
        figure.savefig(path, dpi=150)
        return None


def buffer_report(
    model: HMM,
    params: Mapping[str, Any],
    data: Any,
    *,
    windows: Windows | None = None,
    buffers: Sequence[int] | None = None,
    rule: LyapunovBuffer | None = None,
    start: StartLaw = stationary_start,
    cells: int = 2000,
    seed: int = 0,
) -> BufferReport:
    """Compare the scores of buffered windows with exact ones, at given parameters.

    Args:
        windows: half-width of the windows (their count does not matter here).
        buffers: lengths to compare; by default 0 and a ladder past the one the rule chooses.
        rule: the rule and tolerance by which a buffer would be chosen.
        start: law of the state before a window.
        cells: how many cells to look at, spread over the data; all if there are fewer.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 3.0]}
        >>> states, counts = lh.simulate(model, params, length=5000, seed=1)
        >>> report = lh.buffer_report(model, params, counts, cells=200)
        >>> report.rows[0].bias > report.rows[-1].bias
        True
    """
    sequences = open_data(data)
    model.check_dim(sequences)
    complete = interior(model, params)
    windows = windows or Windows()
    rule = rule or LyapunovBuffer()
    chosen = rule.estimate(model, complete, sequences)
    if buffers is None:
        ladder = [0]
        while ladder[-1] < 2 * max(chosen.length, 2):
            ladder.append(round_up(ladder[-1] + 1))
        buffers = ladder
    if not len(buffers) or min(buffers) < 0:
        raise ModelError(f"buffers must be lengths of at least 0, got {list(buffers)!r}.")
    if cells < 1:
        raise ModelError(f"cells must be at least 1, got {cells!r}.")
    layout = Cells(sequences.offsets, windows.core_length)
    count = min(cells, layout.n_cells)
    rng = np.random.default_rng(seed)
    picked = np.sort(rng.choice(layout.n_cells, count, replace=False)) if count < layout.n_cells else np.arange(count)

    look = partial(_cell_scores, model, complete, sequences, layout, picked)
    exact, laws = _exact(look, max(max(buffers), chosen.length, 8), int(np.diff(sequences.offsets).max()))
    spread = exact.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    rows = []
    widest = layout.width(max(buffers))  # one shape, and one compiled program, for all lengths
    for buffer in buffers:
        found, entering = look(int(buffer), start, widest)
        error = (found - exact) / spread
        size = np.linalg.norm(error, axis=1)
        mean, sampling = error.mean(axis=0), error.std(axis=0) / np.sqrt(count)
        if count == layout.n_cells:
            sampling = np.zeros_like(sampling)  # nothing was left out
        worst = int(np.argmax(np.abs(mean)))
        scale = np.sqrt(layout.n_cells)
        rows.append(
            BufferReportRow(
                buffer=int(buffer),
                bias=float(scale * abs(mean[worst])),
                bias_error=float(scale * sampling[worst]),
                noise=float(np.max(found.var(axis=0) / spread**2)),
                typical_error=float(np.exp(np.mean(np.log(np.maximum(size, 1e-300))))),
                mean_error=float(np.linalg.norm(mean)),
                share=float(np.mean(np.abs(entering - laws).sum(axis=1) <= rule.tolerance)),
                cost=(windows.core_length + 2 * buffer) / windows.core_length,
            )
        )
    return BufferReport(tuple(rows), chosen, rule.tolerance, layout.n_cells, count)


def cell_scores(
    model: HMM, params: Mapping[str, Any], sequences: Sequences, core_length: int, *, cells: int = 400, seed: int = 0
) -> tuple[np.ndarray, int]:
    """Scores `(n, P)` of up to `cells` cells drawn at random, and how many cells of this length the data have.

    Coordinates are flat, names in sorted order. Buffers are so long that the scores are exact to rounding.
    """
    if core_length < 1 or cells < 1:
        raise ModelError(f"core_length and cells must be at least 1, got {core_length!r} and {cells!r}.")
    model.check_dim(sequences)
    complete = interior(model, params)
    layout = Cells(sequences.offsets, core_length)
    count = min(cells, layout.n_cells)
    rng = np.random.default_rng(seed)
    picked = np.sort(rng.choice(layout.n_cells, count, replace=False)) if count < layout.n_cells else np.arange(count)
    look = partial(_cell_scores, model, complete, sequences, layout, picked)
    return _exact(look, 16, int(np.diff(sequences.offsets).max()))[0], layout.n_cells


Look = Callable[..., tuple[np.ndarray, np.ndarray]]


def _exact(look: Look, shortest: int, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores with buffers so long that two different starts give the same ones."""
    buffer = round_up(4 * shortest)
    while True:
        found, laws = look(buffer, stationary_start)
        other, _ = look(buffer, uniform_start)
        if np.abs(found - other).max() <= AGREEMENT * max(1.0, np.abs(found).max()) or buffer >= longest:
            return found, laws
        buffer *= 4


def _cell_scores(
    model: HMM,
    params: Mapping[str, np.ndarray],
    sequences: Sequences,
    layout: Cells,
    picked: np.ndarray,
    buffer: int,
    start: StartLaw,
    width: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Scores `(cells, P)` and the laws entering each core `(cells, K)`, in float64, in batches of bounded size.

    Windows are padded to `width` times, by default as many as core and buffers have.
    """
    width = min(width or layout.width(buffer), int(np.diff(sequences.offsets).max()))
    batch = int(np.clip(BATCH_ENTRIES // (width * model.n_states), 1, len(picked)))
    all_scores, all_laws = [], []
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(value) for name, value in params.items()}
        moves = model.given_initial(params) is None
        statistics = WindowStatistics(start)
        for first in range(0, len(picked), batch):
            chosen = picked[first : first + batch]
            padded = np.concatenate([chosen, np.repeat(chosen[-1:], batch - len(chosen))])
            rows, windows = gather(sequences, layout.locate(padded, buffer), width, model.lags)
            windows = replace(windows, spans=(0, width, 0))  # the same program for all lengths
            minibatch = with_numbers(model, Minibatch(rows, windows, np.ones(batch)))
            found, laws = _batch_scores(model, statistics, moves, arrays, minibatch)
            all_scores.append(np.asarray(found)[: len(chosen)])
            all_laws.append(np.asarray(laws)[: len(chosen)])
    return np.concatenate(all_scores), np.concatenate(all_laws)


@partial(jax.jit, static_argnames=("statistics", "moves"))
def _batch_scores(
    model: HMM,
    statistics: WindowStatistics,
    moves: bool,
    params: Mapping[str, jax.Array],
    minibatch: Minibatch,
) -> tuple[jax.Array, jax.Array]:
    found = scores(model, model.unconstrain(params), statistics(model, params, minibatch), initial_moves=moves)
    flat = jnp.concatenate([jnp.reshape(found[name], (found[name].shape[0], -1)) for name in sorted(found)], axis=1)
    return flat, _entering(model, params, minibatch, statistics.first_message(params))


def _entering(model: HMM, params: Mapping[str, jax.Array], minibatch: Minibatch, start: Any) -> jax.Array:
    """Distribution of the state just before each core, given the rows of its window before it, `(W, K)`."""
    potentials, layout = lower(model, params, minibatch.rows), minibatch.in_rows()
    backend = choose(potentials.lowered.kind, model.n_states, model.transitions.varies, params["transition"].dtype)
    wanted = Wanted(per_chunk=True, forward_only=True, messages=True)
    found = chunk_statistics(backend, potentials, params["initial"], layout, start=start, wanted=wanted)
    assert found.messages is not None
    distribution = jax.nn.softmax(found.messages.forward_in, axis=1)
    # Nothing comes before a core that opens a sequence, whatever the start.
    return jnp.where(((layout.left == 0) & (layout.opens > 0))[:, None], 0.0, distribution)
