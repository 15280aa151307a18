"""Names for the axes of parameters, so that draws can be picked by state, feature or level instead of by position."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from longhmm.model.hmm import HMM
from longhmm.model.parameters import coordinate_shapes, free_names

SAMPLE_DIMS = ("chain", "draw")


def parameter_dims(model: HMM) -> dict[str, tuple[str, ...]]:
    """Names of the axes of every inferred parameter: states (or levels) first, then features and the like."""
    table = model.emission.parameters(model.n_states)
    found: dict[str, tuple[str, ...]] = {"transition": ("state", "to_state")}
    moves = model.transitions
    if moves.varies:
        found[moves.parameter] = tuple(f"{moves.parameter}_{axis}" for axis in range(len(moves.shape)))
    for name in free_names(table):
        found[name] = model.emission.axes(name, model.n_states)
    return found


def parameter_shapes(model: HMM) -> dict[str, tuple[int, ...]]:
    """Shape of every inferred parameter in natural space, in the order of `parameter_dims`."""
    table = model.emission.parameters(model.n_states)
    shapes: dict[str, tuple[int, ...]] = {"transition": (model.n_states, model.n_states)}
    if model.transitions.varies:
        shapes[model.transitions.parameter] = model.transitions.shape
    return {**shapes, **{name: table[name].shape for name in free_names(table)}}


def coordinate_dims(model: HMM) -> dict[str, tuple[str, ...]]:
    """Names of the axes of every set of unconstrained coordinates."""
    natural, shapes = parameter_dims(model), parameter_shapes(model)
    found: dict[str, tuple[str, ...]] = {"transition": ("transition_coordinate",)}
    for name, shape in coordinate_shapes(model.emission.parameters(model.n_states)).items():
        same = tuple(shape) == tuple(shapes[name])
        tail = tuple(f"{name}_coordinate{index or ''}" for index in range(len(shape) - 1))
        found[name] = natural[name] if same else (natural[name][0], *tail)
    return found


def labelled(
    arrays: Mapping[str, np.ndarray], dims: Mapping[str, tuple[str, ...]], lead: tuple[str, ...]
) -> xr.Dataset:
    """Arrays as a dataset whose axes are named and numbered from 0; `lead` names their leading axes."""
    named = {name: ((*lead, *dims.get(name, ())), np.asarray(value)) for name, value in arrays.items()}
    sizes: dict[str, int] = {}
    for axes, value in named.values():
        sizes.update(zip(axes, value.shape, strict=True))
    return xr.Dataset(named, coords={axis: np.arange(size) for axis, size in sizes.items()})


def entry_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """`name[0, 1]` for every entry of an array, in C order; the bare name for a single number."""
    if not shape:
        return [name]
    return [f"{name}[{', '.join(map(str, index))}]" for index in np.ndindex(*shape)]
