"""Trees of arrays, numbers and longhmm's own objects as JSON beside named arrays, and back; never pickled.

Samplers, windows, buffers, what tuning found, and the states and draws of a run all go this way. Nothing but
allow-listed names is ever called, beside classes that the caller trusts, such as that of the user's own sampler.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import jax
import numpy as np

from longhmm import samplers
from longhmm.errors import ModelError

CLASSES = {
    "Alternating": "longhmm.samplers.langevin_moves",
    "Constant": "longhmm.samplers.schedules",
    "CountControl": "longhmm.target.control_variate",
    "CoxIngersollRoss": "longhmm.samplers.langevin_moves",
    "FixedBuffer": "longhmm.target.buffer_length",
    "GaussianMetric": "longhmm.samplers.langevin_moves",
    "Identity": "longhmm.samplers.preconditioning",
    "Importance": "longhmm.target.systematic",
    "InverseInformation": "longhmm.samplers.preconditioning",
    "Joint": "longhmm.samplers.sgrld",
    "LyapunovBuffer": "longhmm.target.buffer_length",
    "Mirror": "longhmm.samplers.langevin_moves",
    "PolynomialDecay": "longhmm.samplers.schedules",
    "Preconditioned": "longhmm.samplers.langevin_moves",
    "Tuned": "longhmm.samplers.control_variate_tuning",
    "Windows": "longhmm.target.systematic",
}
FUNCTIONS = {"stationary_start": "longhmm.target.buffered", "uniform_start": "longhmm.target.buffered"}
Arrays = dict[str, np.ndarray]


def to_plain(value: Any, arrays: Arrays | None = None, at: str = "", known: Iterable[type] = ()) -> Any:
    """A value as JSON values; its arrays go into `arrays`, by where they stand. A `ModelError` for what is not known.

    Args:
        arrays: None refuses arrays.
        at: where the value stands in a larger tree.
        known: classes beside longhmm's own.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (np.ndarray, np.generic, jax.Array)) and arrays is not None:
        arrays[at] = np.asarray(value)
        return {"array": at}

    def inside(names: Iterable[Any], parts: Iterable[Any]) -> list[Any]:
        where = f"{at}/" if at else ""
        return [to_plain(part, arrays, f"{where}{name}", known) for name, part in zip(names, parts, strict=True)]

    kind, name = type(value), getattr(value, "__name__", type(value).__name__)
    if callable(value) and value is _find(FUNCTIONS, name):
        return {"function": name}
    if kind in known or kind is _find(CLASSES, name):
        names = _names(kind)
        parts = inside(names, (getattr(value, each) for each in names))
        return {"class": name, "with": dict(zip(names, parts, strict=True))}
    if kind in (list, tuple):
        return inside(range(len(value)), value)
    if isinstance(value, Mapping) and all(isinstance(each, str) for each in value):
        return {"mapping": dict(zip(value, inside(value, value.values()), strict=True))}
    raise ModelError(f"a stored value must be plain or one of longhmm's own, got {value!r}.")


def from_plain(plain: Any, arrays: Mapping[str, np.ndarray] | None = None, known: Iterable[type] = ()) -> Any:
    """The inverse of `to_plain`; lists come back as tuples."""
    if isinstance(plain, list):
        return tuple(from_plain(each, arrays, known) for each in plain)
    if not isinstance(plain, dict):
        return plain
    if arrays is not None and isinstance(plain.get("array"), str) and plain["array"] in arrays:
        return arrays[plain["array"]]
    if isinstance(plain.get("mapping"), dict):
        return {name: from_plain(value, arrays, known) for name, value in plain["mapping"].items()}
    if "function" in plain and _find(FUNCTIONS, plain["function"]) is not None:
        return _find(FUNCTIONS, plain["function"])
    if isinstance(plain.get("with"), dict):
        kind: Any = next((each for each in known if each.__name__ == plain.get("class")), None)
        kind = kind or _find(CLASSES, plain.get("class"))
        if kind is not None and set(plain["with"]) <= set(_names(kind)):
            return kind(**{name: from_plain(value, arrays, known) for name, value in plain["with"].items()})
    raise ModelError(f"a stored value must have a known name and known arguments, got {plain!r}.")


def _names(kind: Any) -> tuple[str, ...]:
    """Of the parts of a dataclass or NamedTuple."""
    return tuple(each.name for each in fields(kind)) if is_dataclass(kind) else tuple(kind._fields)


def _find(places: dict[str, str], name: Any) -> Any:
    if not isinstance(name, str):
        return None
    if places is CLASSES and name in samplers.REGISTERED:  # users may have registered their own
        return getattr(samplers, name)
    return getattr(importlib.import_module(places[name]), name) if name in places else None
