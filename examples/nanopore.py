"""Find single molecules in a real recording: a nanopore whose current drops while a polymer is inside.

Run it with `python examples/nanopore.py`. It fits two states to half a million samples by expectation maximisation,
decodes them, and leaves a table of events and a picture in `runs/nanopore-picture`. (`make demo` draws from the
posterior instead, from the command line, and writes a page.)

Which model? Several were tried, and the count of blockades depends on it: two Gaussians give 434, two Student's t with
fitted degrees of freedom 438, with 4 degrees of freedom 408, three Gaussians 441. An independent analysis of this file
counts 418, with a mean residence of 0.057 ms. Two Student's t are used here because their log likelihood is 2,657 above
that of two Gaussians: samples lie between the levels, probably caught by the filter on the way, and to reach them the
blocked Gaussian widens to a standard deviation of 12.6 pA around 50.7 pA, where Student's t stays at 48.3 pA with a
scale of 6.4 pA. (Three Gaussians have a higher likelihood still, but split the open level in two.) The noise is
correlated between neighbouring samples, which none of these models describes: formal uncertainties would be too small.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from rich.console import Console
from rich.table import Table

import longhmm as lh
from longhmm.datasets import Recording

NAMES = ("blocked", "open")  # states come in rising order of their level
COLOURS = ("#d1495b", "#30638e")
LEVEL_COLOUR = "#111111"


class Events(NamedTuple):
    """Runs of one state: samples [start, end), the state, and the median current inside."""

    start: np.ndarray
    end: np.ndarray
    state: np.ndarray
    level: np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description="Find blockades in the nanopore recording that comes with longhmm.")
    parser.add_argument("--out", type=Path, default=Path("runs/nanopore-picture"), help="folder for the results")
    parser.add_argument("--picture", type=Path, help="a second copy of the picture")
    options = parser.parse_args()
    began = time.monotonic()
    console = Console()

    recording = lh.datasets.nanopore()
    console.print(f"{recording.description}: {len(recording.values):,} samples at {recording.rate_hz / 1000:g} kHz")
    model = lh.HMM(n_states=2, emission=lh.StudentT())
    fit = lh.fit_em(model, recording.values, restarts=3, seed=0)
    path = lh.decode(model, fit.params, recording.values)
    events = find_events(path, recording.values)
    rows = summarise(fit.params, path, events, recording.rate_hz)

    console.print(as_table(rows))
    blockades = int(np.sum(events.state == 0))
    console.print(
        f"[bold]{blockades} blockades[/bold]; EM {'converged' if fit.converged else 'stopped'} after "
        f"{fit.n_iterations} iterations at log likelihood {fit.log_likelihood:,.1f}"
    )
    options.out.mkdir(parents=True, exist_ok=True)
    table, picture = (options.out / name for name in ("events.csv", "nanopore.png"))
    write_events(table, events, recording.rate_hz)
    draw(picture, recording, fit.params, path, events)
    if options.picture:
        options.picture.parent.mkdir(parents=True, exist_ok=True)
        options.picture.write_bytes(picture.read_bytes())
    for what, where in (("Events", table), ("Picture", picture)):
        console.print(f"{what:8}{where}", highlight=False, soft_wrap=True)
    console.print(f"Done in {time.monotonic() - began:.0f} s")


def find_events(path: np.ndarray, current: np.ndarray) -> Events:
    """Cut the decoded path where its state changes."""
    cuts = np.flatnonzero(np.diff(path)) + 1
    start, end = np.concatenate([[0], cuts]), np.concatenate([cuts, [len(path)]])
    level = np.array([np.median(current[a:b]) for a, b in zip(start, end, strict=True)])
    return Events(start, end, path[start], level)


def summarise(params: dict[str, np.ndarray], path: np.ndarray, events: Events, rate_hz: float) -> list[list[str]]:
    """One row per state: level, width, share of time, mean stay, number of visits."""
    rows = []
    for state, name in enumerate(NAMES):
        visits = events.state == state
        stay_ms = 1e3 * np.mean((events.end - events.start)[visits]) / rate_hz
        occupancy = np.mean(path == state)
        level, scale, df = (float(params[key][state]) for key in ("loc", "scale", "df"))
        rows.append(
            [name, f"{level:.1f}", f"{scale:.1f}", f"{df:.1f}", f"{occupancy:.2%}", f"{stay_ms:.3f}", f"{visits.sum()}"]
        )
    return rows


HEADER = ("state", "level (pA)", "scale (pA)", "df", "occupancy", "dwell (ms)", "visits")


def as_table(rows: list[list[str]]) -> Table:
    table = Table(title="Two levels of current")
    for column, title in enumerate(HEADER):
        table.add_column(title, justify="left" if column == 0 else "right")
    for row in rows:
        table.add_row(*row)
    return table


def write_events(file: Path, events: Events, rate_hz: float) -> None:
    """`start` inclusive and `end` exclusive, in samples; `level` in pA."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["start", "end", "start_s", "end_s", "state", "level"])
        for start, end, state, level in zip(*events, strict=True):
            writer.writerow([start, end, f"{start / rate_hz:.6f}", f"{end / rate_hz:.6f}", state, f"{level:.3f}"])


def draw(file: Path, recording: Recording, params: dict[str, np.ndarray], path: np.ndarray, events: Events) -> None:
    """A stretch of the trace, one molecule close up, and all samples as a histogram with the fitted densities."""
    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure = plt.figure(figsize=(12, 6.4), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(3, 1.15))
    wide, close, amplitudes = (figure.add_subplot(grid[where]) for where in ((0, 0), (1, 0), (slice(None), 1)))
    blocked = np.flatnonzero(events.state == 0)
    first = int(events.start[blocked[0]]) - 500
    draw_trace(wide, recording, params, path, slice(first, first + 7_500), dots=False)
    wide.set_title(f"{len(blocked)} blockades in one second: fifteen milliseconds of them", loc="left")
    # The first visit that lasts about as long as the average one.
    typical = next(index for index in blocked if 25 <= events.end[index] - events.start[index] <= 35)
    middle = int(events.start[typical] + events.end[typical]) // 2
    draw_trace(close, recording, params, path, slice(middle - 75, middle + 75), dots=True)
    close.set_title("One molecule, sample by sample", loc="left")
    draw_amplitudes(amplitudes, recording, params, path)
    figure.savefig(file, dpi=130)
    plt.close(figure)


def draw_trace(
    axes: Axes, recording: Recording, params: dict[str, np.ndarray], path: np.ndarray, part: slice, *, dots: bool
) -> None:
    """Samples in the colour of their state, and the level of that state as a line."""
    current, states = recording.values[part], path[part]
    milliseconds = 1e3 * (np.arange(part.start, part.stop) - part.start) / recording.rate_hz
    axes.plot(milliseconds, current, color="#c9ccd1", linewidth=0.7 if dots else 0.4, zorder=1)
    for state, colour in enumerate(COLOURS):
        here = states == state
        axes.plot(milliseconds[here], current[here], ".", color=colour, markersize=5 if dots else 1.3, zorder=2)
    axes.step(milliseconds, params["loc"][states], where="mid", color=LEVEL_COLOUR, linewidth=1.4, zorder=3)
    axes.set(xlabel="time (ms)", ylabel="current (pA)", xlim=(0, milliseconds[-1]), ylim=(15, 170))


def draw_amplitudes(axes: Axes, recording: Recording, params: dict[str, np.ndarray], path: np.ndarray) -> None:
    """Counts on a logarithmic scale, and what the model expects, state by state."""
    edges = np.arange(15.0, 170.5, 1.0)
    axes.hist(
        recording.values, edges, orientation="horizontal", histtype="stepfilled", color="#dfe1e5", label="samples"
    )
    levels = np.linspace(15.0, 170.0, 800)
    for state, (name, colour) in enumerate(zip(NAMES, COLOURS, strict=True)):
        expected = np.sum(path == state) * student_t_density(
            levels, *(params[key][state] for key in ("df", "loc", "scale"))
        )
        axes.plot(expected, levels, color=colour, linewidth=2, label=f"{name}, {params['loc'][state]:.1f} pA")
    axes.set(xscale="log", xlim=(0.7, 1e5), ylim=(15, 170), xlabel="samples per pA", ylabel="current (pA)")
    axes.set_title("All samples, fitted densities", loc="left")
    axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1.0, 0.58))


def student_t_density(y: np.ndarray, df: float, loc: float, scale: float) -> np.ndarray:
    """The density of the emission, from its own definition."""
    emission = lh.StudentT()
    params = {"df": np.array([df]), "loc": np.array([loc]), "scale": np.array([scale])}
    return np.exp(np.asarray(emission.log_density(params, y)))[:, 0]


if __name__ == "__main__":
    main()
