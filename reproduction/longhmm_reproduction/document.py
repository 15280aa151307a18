"""The outcome of an experiment as plain values: settings, results by method and metric, and curves."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from longhmm.target.systematic import Windows
from longhmm_reproduction.chains import Params, Segment
from longhmm_reproduction.scoring import with_errors

Score = Callable[[Params], dict[str, float]]
SHORT = ("experiment", "settings", "results")
COLLECTED = ("settings", "results", "repetitions", "curves", "extra")


class Document:
    """Collects what an experiment finds.

    `results` holds means over repetitions with standard errors; `repetitions` the values behind them, so that methods
    that share starts and windows can be compared pair by pair; `curves` the same along the run.
    """

    def __init__(self, name: str, scale: str, seed: int, settings: Mapping[str, Any]) -> None:
        self.name, self.began = name, time.perf_counter()
        self.settings: dict[str, Any] = {"scale": scale, "seed": seed, **settings}
        self.results: dict[str, dict[str, float]] = {}
        self.repetitions: dict[str, dict[str, list[float]]] = {}
        self.curves: dict[str, dict[str, Any]] = {}
        self.extra: dict[str, Any] = {}
        self.taken: list[dict[str, Any]] = []  # parts of earlier runs, and their machine if it was another one

    def add(self, method: str, segments: Sequence[Segment], final: Params, score: Score) -> None:
        """A method that ran in segments; `final` are the parameters by which it is judged, `(chain, *shape)`."""
        last = segments[-1]
        scores = [score(each) for each in chains_of(final)]
        metrics = {name: [each[name] for each in scores] for name in scores[0]}
        self.note(method, {**metrics, "seconds": [last.seconds], "observations_touched": [last.touched]})
        looks = [[score(each) for each in chains_of(segment.params)] for segment in segments]
        curve = {name: [[each[name] for each in look] for look in looks] for name in scores[0]}
        for name in ("steps", "seconds", "touched", "buffer", "exponent"):
            curve[name] = [getattr(segment, name) for segment in segments]
        self.curves[method] = curve

    def note(self, method: str, metrics: Mapping[str, Sequence[float]]) -> None:
        """Metrics of a method, one value per repetition."""
        kept = {name: [float(value) for value in values] for name, values in metrics.items()}
        self.repetitions[method] = kept
        self.results[method] = with_errors(kept)

    def join(self, part: Document) -> None:
        """Take over what another document of the same experiment has collected: of known methods, more repetitions."""
        self.settings |= {name: value for name, value in part.settings.items() if name not in ("scale", "seed")}
        self.extra.update(part.extra)
        self.taken += part.taken
        for method, metrics in part.repetitions.items():
            before = self.repetitions.get(method, {name: [] for name in metrics})
            self.note(method, {name: [*before[name], *values] for name, values in metrics.items()})
        for method, curve in part.curves.items():
            self.curves[method] = _side_by_side(self.curves[method], curve) if method in self.curves else curve

    def to_values(self) -> dict[str, Any]:
        """What was collected, as JSON values."""
        return {name: plain(getattr(self, name)) for name in COLLECTED}

    def take_values(self, values: Mapping[str, Any]) -> None:
        """The inverse of `to_values`."""
        for name in COLLECTED:
            setattr(self, name, dict(values[name]))

    def finish(self) -> dict[str, Any]:
        """Everything as JSON values."""
        self.settings |= {"machine": machine(), "total_seconds": round(time.perf_counter() - self.began, 1)}
        if self.taken:
            self.settings["taken"] = self.taken
        found = {
            "experiment": self.name,
            "settings": self.settings,
            "results": self.results,
            "repetitions": self.repetitions,
            "curves": self.curves,
            **self.extra,
        }
        return dict(plain(found))


def _side_by_side(one: dict[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Curves of more repetitions, `(look, repetition)`, all looked at after the same steps."""

    def columns(values: Any) -> np.ndarray:
        array = np.array(values, np.float64)  # None, where an exponent was not measured, becomes NaN
        return array if array.ndim == 2 else array[:, None]

    if one["steps"] != other["steps"]:
        raise ValueError("repetitions must be looked at after the same steps")
    joined = {name: np.hstack([columns(one[name]), columns(other[name])]) for name in one if name != "steps"}
    return {"steps": one["steps"], **joined}


def short(found: Mapping[str, Any]) -> dict[str, Any]:
    """Settings and results alone."""
    return {name: found[name] for name in SHORT}


def chains_of(params: Params) -> list[Params]:
    """Parameters `(chain, *shape)` as one set per chain."""
    count = len(params["transition"])
    return [{name: value[chain] for name, value in params.items()} for chain in range(count)]


def describe(windows: Windows) -> dict[str, int]:
    """Windows as plain numbers."""
    return {"half_width": windows.half_width, "windows": windows.count}


def machine() -> dict[str, Any]:
    """What the numbers were computed with."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": _processor(),
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        **{name: _version(name) for name in ("jax", "numpyro", "numpy")},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def log(text: str) -> None:
    """A line on standard error, where progress belongs."""
    print(text, file=sys.stderr, flush=True)


def plain(value: Any) -> Any:
    """Nested values as JSON has them; numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)
