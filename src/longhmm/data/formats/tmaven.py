"""The HDF5 of tMAVEN: in a group with the format "SMD", `data/raw` holds traces (molecule, time, colour), and
`tMAVEN/pre_list` and `post_list` where each begins and ends, its photobleaching."""

from pathlib import Path
from typing import Any

import numpy as np

from longhmm.data.formats.traces import PAIR, joined
from longhmm.data.source import ArraySource, Columns, refusing
from longhmm.errors import DataError


def open_single_molecules(
    file: Any, path: Path, columns: Columns = None, dataset: str | None = None
) -> ArraySource | None:
    """The traces of the group that `dataset` names, or of the only one; None where that is no such group."""
    found = list[str]()

    def visit(name: str, node: Any) -> None:
        form = node.attrs.get("format", "") if hasattr(node, "visititems") else ""
        form = form.decode() if isinstance(form, bytes) else form
        if isinstance(form, str) and form.lower() == "smd" and "data/raw" in node:
            found.append(name)

    with refusing(f"{path} cannot be read", "it is damaged, so copy or write it again"):
        file.visititems(visit)
        if not found or (dataset is not None and dataset.strip("/") not in found):
            return None
        if dataset is None and len(found) > 1:
            raise DataError(f"{path} holds several sets of molecules; choose one with dataset=, from {sorted(found)}")
        group = found[0] if dataset is None else dataset.strip("/")
        return joined(*_cut(file[group], f"{path}[{group}]"), f"{path}[{group}]", columns)


def _cut(group: Any, name: str) -> tuple[list[np.ndarray], list[str]]:
    """Traces from where tMAVEN says that they begin to where they end, and the names of their columns."""
    raw = np.asarray(group["data/raw"], np.float64)
    if raw.ndim != 3:
        raise DataError(f"{name} must hold traces by molecule, time and colour, but has shape {raw.shape}")
    count, length, colours = raw.shape
    first, last = np.zeros(count, int), np.full(count, length)
    if "tMAVEN/pre_list" in group and "tMAVEN/post_list" in group:
        first, last = (np.asarray(group[f"tMAVEN/{each}_list"], int) for each in ("pre", "post"))
    if len(first) != count or len(last) != count or np.any(first < 0) or np.any(last > length):
        raise DataError(f"{name} must say of {count} molecules where they begin and end; write it again with tMAVEN")
    names = [*PAIR, *(f"colour {each}" for each in range(2, colours))][:colours]
    return [raw[each, first[each] : last[each]] for each in range(count)], names
