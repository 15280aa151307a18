"""What all pictures share: colours that colour-blind readers can tell apart, axes, numbers, texts without formulas."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Hues after Okabe and Ito, with a contrast of at least 3 on white and on the dark ground of the page; the first four
# also differ for readers who do not see red or green.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#9A6CE0", "#A67C00", "#C2478A", "#3D8FD1", "#7A7A7A")
INK, GROUND = "#1b1f24", "#fefefe"  # what is dark and light by day; the page turns them round by night
SOFT = "#8a9099"
FONT_SIZE = 10.0
MOST_FEATURES = 12
MOST_PANELS = 12  # small multiples beyond this are too small to read


def colour(state: int) -> str:
    """The colour of a state, the same in every picture; from the ninth state on they repeat."""
    return PALETTE[state % len(PALETTE)]


def new_figure(width: float, height: float) -> Figure:
    """A figure that belongs to no window and no global state, on white: its ink is dark, whatever is behind it."""
    from longhmm.report.plots.placing import Picture

    return Picture(figsize=(width, height), layout="constrained", facecolor="white")


def panels(
    count: int, columns: int, width: float, height: float, ax: Any = None, **how: Any
) -> tuple[Figure, list[Axes]]:
    """A figure of small multiples of a size, in rows of at most so many columns, and their axes; or those of `ax`."""
    if ax is not None:
        from longhmm.report.plots.placing import axes_in

        return axes_in(ax, count)
    columns = min(count, columns)
    rows = -(-count // columns)
    figure = new_figure(width * columns, height * rows)
    grid = figure.subplots(rows, columns, squeeze=False, **how).ravel().tolist()
    for axes in grid[count:]:
        axes.set_axis_off()
    return figure, grid[:count]


def tidy(axes: Axes, *, title: str | None = None, x: str | None = None, y: str | None = None) -> None:
    """Plain axes: no box, one ink, labels as given."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SOFT)
    axes.tick_params(colors=INK, labelsize=FONT_SIZE - 1)
    if title is not None:
        axes.set_title(plain(title), loc="left", fontsize=FONT_SIZE + 1, color=INK)
    for label, put in ((x, axes.set_xlabel), (y, axes.set_ylabel)):
        if label is not None:
            put(plain(label), fontsize=FONT_SIZE, color=INK)


def legend(axes: Axes, **options: Any) -> None:
    axes.legend(frameon=False, fontsize=FONT_SIZE - 1, labelcolor=INK, **options)


def plain(text: str) -> str:
    """A text as it is: two dollar signs would otherwise start a formula."""
    return text.replace("$", r"\$")


def with_unit(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def time_axis(length: float, rate: float | None) -> tuple[float, str]:
    """Factor from samples to the unit that suits `length` samples, and the label of the axis."""
    if rate is None:
        return 1.0, "sample"
    seconds = length / rate
    for limit, factor, name in ((2e-3, 1e6, "µs"), (2.0, 1e3, "ms"), (600.0, 1.0, "s"), (36_000.0, 1 / 60, "min")):
        if seconds <= limit:
            return factor / rate, f"time ({name})"
    return 1 / 3600 / rate, "time (h)"


def few_ticks(axis: Axis) -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5 of every decade, as plain numbers; fewer over many decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    subs = (1.0, 2.0, 5.0) if np.log10(max(high, 1e-300) / max(low, 1e-300)) < 2.2 else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=10))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float, digits: int = 4) -> str:
    """A number with `digits` digits that matter; very large and very small ones with a power of ten."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    power = math.floor(math.log10(abs(rounded)))
    if -5 <= power < 7:
        return f"{rounded:,.{max(0, digits - 1 - power)}f}".replace("-", "−")
    mantissa = f"{rounded / 10.0**power:.{digits - 1}f}".replace("-", "−")
    return f"{mantissa}×10{str(power).translate(_RAISED)}"


def digits_for(low: float, high: float, least: int = 3, most: int = 7) -> int:
    """So many digits that the ends of an interval differ in the last two of them."""
    size, width = max(abs(low), abs(high)), high - low
    if not (width > 0 and math.isfinite(size)):
        return 4
    return int(min(max(math.ceil(math.log10(size / width)) + 1, least), most))


def with_sd(mean: float, sd: float) -> str:
    """`mean ± sd`, the mean to the last digit of the sd that matters."""
    if not (sd > 0 and math.isfinite(mean) and math.isfinite(sd)):
        return number(mean)
    digits = 2 + max(0, math.floor(math.log10(max(abs(mean), sd))) - math.floor(math.log10(sd)))
    return f"{number(mean, min(digits, 9))} ± {number(sd, 2)}"
