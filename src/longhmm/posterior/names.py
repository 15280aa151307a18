"""What the files of a run called its columns, and their rate and unit: from the data to tables, plots and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from longhmm.model.formula import term_labels

if TYPE_CHECKING:
    import xarray as xr

    from longhmm.data.sequences import Sequences
    from longhmm.model.hmm import HMM

FEATURE_AXES = ("feature", "with_feature")


def data_facts(data: Sequences) -> dict[str, Any]:
    """Of data, what tables and plots say of them, as far as it is known."""
    known = {"rate": data.rate, "unit": data.unit, "names": _own_names(data)}
    return {"dtype": str(data.dtype)} | {name: each for name, each in known.items() if each}


def _own_names(data: Sequences) -> list[str] | None:
    """Names of columns; numbers are none, but stand for a file without a head."""
    names = data.source.names
    named = names and len(names) == data.dim and len(set(names)) == len(names) and not all(map(str.isdigit, names))
    return list(map(str, names or ())) if named else None


def labels_of(model: HMM, described: Mapping[str, Any]) -> dict[str, list[str]]:
    """Names along the axes of parameters that are not numbered from 0: terms of formulas, and features."""
    names, emission = described.get("names"), model.emission
    sizes: dict[str, int] = {}
    for parameter, each in emission.parameters(model.n_states).items():
        sizes |= dict(zip(emission.axes(parameter, model.n_states), each.shape, strict=True)) if each.is_free else {}
    fits = isinstance(names, list) and len(names) > 1
    features = {axis: list(names or ()) for axis in FEATURE_AXES if fits and sizes.get(axis) == len(names or ())}
    return {**features, **term_labels(model)}


def numbered(draws: xr.Dataset) -> xr.Dataset:
    """Draws without those names, which the run knows and files of numbers cannot hold."""
    return draws.drop_vars([name for name, each in draws.coords.items() if each.dtype.kind not in "iuf"])


def feature_names(model: HMM, described: Mapping[str, Any] | None = None, data: Sequences | None = None) -> list[str]:
    """One name per feature: that of its column, else of its stream, else "feature 2" (or "value", if it is alone)."""
    dim = model.dim if data is None else data.dim
    known: Sequence[str] | None = (described or {}).get("names")
    if data is not None:
        known = _own_names(data) or (known if known and len(known) == dim else None)
    streams = {name: each.dim for name, each in getattr(model.emission, "streams", {}).items()}
    if known is None and sum(streams.values()) == dim:
        known = [name if wide == 1 else f"{name} {i}" for name, wide in streams.items() for i in range(wide)]
    return list(known or (["value"] if dim == 1 else [f"feature {feature}" for feature in range(dim)]))


def facts_of(posterior: Any) -> dict[str, Any]:
    """What a posterior knows of its data."""
    described = posterior.settings.get("data")
    return described if isinstance(described, dict) else {}


def level_name(posterior: Any, unit: str | None = None, data: Sequences | None = None) -> str:
    """What a level is the level of, and its unit."""
    names = names_and_unit(posterior, data)[0]
    return ("level" if len(names) == 1 else f"level of {names[0]}") + (f" ({unit})" if unit else "")


def names_and_unit(posterior: Any, data: Sequences | None = None, unit: str | None = None) -> tuple[list[str], str]:
    """Names of the features of data and their unit, for labels: what files said, unless `unit` is given."""
    facts = facts_of(posterior)
    known = facts.get("unit") if data is None else data.unit
    return feature_names(posterior.model, facts, data), (known or "") if unit is None else unit
