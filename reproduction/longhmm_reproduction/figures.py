"""The figures of the experiments, one function per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.report.plots.style import INK, SOFT, colour, few_ticks, legend, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ORDER = ("buffered", "unbuffered", "iid", "buffered-stationary", "unbuffered-stationary", "default")
Found = Mapping[str, Any]


def draw(found: Found) -> Figure:
    """The figure of an experiment."""
    kinds: dict[str, Callable[[Found], Figure]] = {
        "lognormal": _lognormal,
        "ion": _ion,
        "variational": _variational,
    }
    return kinds.get(found["experiment"], _simulated)(found)


def _curve(axes: Axes, curve: Mapping[str, Any], x: str, metric: str, label: str, index: int) -> None:
    """Mean over repetitions as a line, from the least to the greatest as a band; two looks or fewer as points.

    Stationary starts are dashed: with buffers they hardly differ from the others, which have to be seen below.
    """
    values, at = np.asarray(curve[metric], float), _mean(curve[x])
    mean = values.mean(axis=1)
    style = "o-" if len(at) <= 2 else _line(label)
    axes.plot(at, mean, style, color=colour(index), label=label, markersize=4, linewidth=1.6)
    axes.fill_between(at, values.min(axis=1), values.max(axis=1), color=colour(index), alpha=0.18, linewidth=0)


def _mean(values: Any) -> np.ndarray:
    """One number per look, the mean over repetitions where there are several."""
    array = np.asarray([np.nan if value is None else value for value in values], float)
    return array if array.ndim == 1 else array.mean(axis=1)


def _line(name: str) -> str:
    return "--" if name.endswith("-stationary") else "-"


def _simulated(found: Found) -> Figure:
    curves, settings = found["curves"], found["settings"]
    figure = new_figure(13, 7.8)
    grid = figure.subplots(2, 3)
    shown = [name for name in ORDER if name in curves]
    for row, (metric, text) in enumerate(
        (
            ("predictive_loss", "log probability 10 steps ahead,\nbelow that of the truth"),
            ("transition_error", "error of transitions"),
        )
    ):
        for column, (x, label) in enumerate((("seconds", "seconds"), ("touched", "observations read"))):
            axes = grid[row, column]
            for index, name in enumerate(shown):
                _curve(axes, curves[name], x, metric, name, index)
            axes.set_xscale("log")
            if metric == "transition_error":
                axes.set_yscale("log")
            else:
                # Where stretches are few, chance may put estimates above the truth.
                axes.set_yscale("symlog", linthresh=1e-4, linscale=0.5)
                axes.set_ylim(bottom=-1e-3)
                axes.axhline(0.0, color=SOFT, linewidth=1, linestyle=":")
            tidy(axes, x=label, y=text)
    _buffers(grid[0, 2], curves)
    _trade_off(grid[1, 2], found)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncol=len(labels), frameon=False)
    repetitions = len(found["repetitions"]["buffered"]["transition_error"])
    title = f"{found['experiment']}, {settings['length']:,} observations, {repetitions} data sets"
    figure.suptitle(title, x=0.01, ha="left", color=INK)
    return figure


def _buffers(axes: Axes, curves: Mapping[str, Any]) -> None:
    """Length of the buffer and Lyapunov exponent along the run."""
    other = axes.twinx()
    curve = curves["buffered"]
    axes.step(curve["steps"], _mean(curve["buffer"]), where="pre", color=colour(0))
    other.plot(curve["steps"], _mean(curve["exponent"]), ":", color=INK)
    tidy(axes, title="buffered", x="step", y="buffer length (line)")
    axes.set_ylim(bottom=0)
    other.set_ylabel("Lyapunov exponent (dotted)", color=INK)
    other.set_ylim(top=0)
    other.spines["top"].set_visible(False)


def _trade_off(axes: Axes, found: Found) -> None:
    """Error at a constant number of observations per step, against the length of windows."""
    results = found["results"]
    if not any(name.startswith("budget-") for name in results):
        names = ["buffered", "unbuffered"]
        axes.bar(names, [results[name]["transition_error"] for name in names], color=[colour(0), colour(1)])
        tidy(axes, y="error of transitions")
        return
    for index, kind in enumerate(("buffered", "unbuffered")):
        start = f"budget-{kind}-L"
        names = [name for name in results if name.startswith(start)]
        lengths = [2 * int(name.removeprefix(start)) + 1 for name in names]
        means, errors = ([results[name][f"transition_error{end}"] for name in names] for end in ("", "_se"))
        axes.errorbar(lengths, means, errors, fmt="o-", color=colour(index))
    axes.axhline(results["default"]["transition_error"], color=colour(ORDER.index("default")), linestyle=":")
    axes.set(xscale="log", yscale="log")
    few_ticks(axes.xaxis)
    budget = found["settings"]["budget"]
    tidy(axes, title=f"{budget} observations per step", x="length of a core", y="error of transitions")


def _lognormal(found: Found) -> Figure:
    figure = new_figure(13, 4.4)
    left, middle, right = figure.subplots(1, 3)
    settings, labels = found["settings"], ("log-normal", "Gaussian")
    for axes, metric, words in (
        (left, "transition_error", "distance of transitions from the truth"),
        (middle, "distance_from_mode", "distance from the model's own mode"),
    ):
        for index, name in enumerate(("buffered", "gaussian-buffered")):
            _curve(axes, found["curves"][name], "steps", metric, labels[index], index)
        axes.axhline(settings["tolerance"], color=SOFT, linewidth=1, linestyle=":", label="tolerance")
        axes.set(xscale="log", yscale="log")
        few_ticks(axes.xaxis)
        tidy(axes, title="SG-RLD, two states", x="iterations", y=words)
    legend(left, loc="lower left")
    states = settings["states"]
    for index, which in enumerate(("lognormal", "gaussian")):
        cells = [found["results"][f"{which}-k{each}"] for each in states]
        means, errors = ([each[key] for each in cells] for key in ("predictive_log_prob", "predictive_log_prob_se"))
        right.errorbar(states, means, errors, fmt="o-", color=colour(index), label=labels[index], capsize=3)
    right.set_xticks(states)
    tidy(right, title="Held-out prediction", x="number of states", y="log probability per observation")
    legend(right, loc="lower right")
    return figure


RLD = {"buffered": "SG-RLD", "batch": "batch RLD", "default": "default"}


def _ion(found: Found) -> Figure:
    seen = found["recordings"]
    figure = new_figure(max(11.0, 3.6 * len(seen)), 11)
    above, below = np.ravel(np.asarray(figure.subfigures(2, 1, height_ratios=(1, 1))))
    grid = above.subplots(2, len(seen), squeeze=False)
    for column, (name, about) in enumerate(seen.items()):
        upper, lower = grid[:, column]
        for index, (method, label) in enumerate(RLD.items()):
            curve = found["curves"][method + about["suffix"]]
            _chains(upper, curve, "predictive_log_prob", label, index)
            _chains(lower, curve, "transition_error", label, index)
        lower.axhline(about["target_error"], color=SOFT, linewidth=1, linestyle=":", label="target")
        upper.set_xscale("log")
        lower.set(xscale="log", yscale="log")
        tidy(upper, title=f"{name}, {about['observations']:,} observations, {about['states']} states")
        tidy(lower, x="seconds")
    tidy(grid[0, 0], y="held-out log probability\nper observation")
    tidy(grid[1, 0], y="distance of transitions\nfrom the exact posterior mean")
    legend(grid[1, 0], loc="lower left")
    # That recording of which there is most to learn about segmentations.
    name = max(seen, key=lambda each: seen[each]["segmentations"]["moments"][0]["differing"])
    words = f"{name}, segmented at the same moments (states by colour; x: not as under the exact posterior mean)"
    below.suptitle(words, x=0.01, ha="left", color=INK)
    _segmentations(below.subplots(3, 2, sharex=True, sharey=True), seen[name]["segmentations"])
    return figure


def _chains(axes: Axes, curve: Mapping[str, Any], metric: str, label: str, index: int) -> None:
    """Every chain as a thin line, their median as a thick one; two looks or fewer as points."""
    values, at = np.asarray(curve[metric], float), np.asarray(curve["seconds"], float)
    style = "o-" if len(at) <= 2 else "-"
    axes.plot(at, values, color=colour(index), linewidth=0.6, alpha=0.5)
    axes.plot(at, np.median(values, axis=1), style, color=colour(index), linewidth=2, markersize=5, label=label)


def _segmentations(panels: Any, seen: Mapping[str, Any]) -> None:
    """One column per method, one row per moment; what differs from the reference is marked."""
    values, reference = np.asarray(seen["values"]), np.asarray(seen["reference"])
    times = seen["first"] + np.arange(len(values))
    moments = seen["moments"]
    for number, moment in enumerate(moments):
        rows = len(moments) // 2
        axes, path = panels[number % rows, number // rows], np.asarray(moment["path"])
        axes.plot(times, values, color="#c9ccd1", linewidth=0.5, zorder=1)
        for state in np.unique(np.concatenate([path, reference])):
            here = path == state
            axes.plot(times[here], values[here], ".", markersize=3, color=colour(int(state) + 3))
        wrong = path != reference
        axes.plot(times[wrong], values[wrong], "x", markersize=6, color=INK)
        title = f"{RLD[moment['method']]}, {moment['seconds']:.2g} s, {moment['steps']:,} steps: "
        tidy(axes, title=title + f"{moment['differing']:.2%} differ")
    for axes in panels[-1]:
        tidy(axes, x="observation")
    for axes in panels[:, 0]:
        tidy(axes, y="current, normalised")


def _variational(found: Found) -> Figure:
    pairs = found["pairs"]
    figure = new_figure(10, 4.2 * len(pairs))
    grid = np.atleast_2d(figure.subplots(len(pairs), 2))
    for (left, right), (data, seen) in zip(grid, pairs.items(), strict=True):
        left.plot(seen["gibbs"], seen["svi"], ".", color=colour(0), markersize=4)
        limit = 1.05 * max(np.abs(seen["gibbs"]).max(), np.abs(seen["svi"]).max())
        left.plot([-limit, limit], [-limit, limit], color=SOFT, linewidth=1, label="equal")
        left.set_aspect("equal", adjustable="datalim")
        left.locator_params(nbins=5)
        tidy(left, title=f"{data}: correlations of parameters", x="exact (Gibbs)", y="variational")
        legend(left, loc="upper left")
        right.plot(1 + np.arange(len(seen["sd_ratio"])), np.sort(seen["sd_ratio"]), "o", color=colour(0), markersize=4)
        right.axhline(1.0, color=SOFT, linewidth=1)
        words = "standard deviation, variational / exact"
        tidy(right, title=f"{data}: spread of parameters", x="parameter, by rising ratio", y=words)
    return figure
