"""Minibatches: cells drawn at random, and their windows fetched, from memory inside compiled code or from files.

Both ways draw the same cells for the same key, so that data give the same results wherever they lie.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.data.windows import Cells, WindowBatch, gather, locate
from longhmm.gradients.arcs import Arcs
from longhmm.gradients.schemes import INT32_LIMIT, Rotation, Windows
from longhmm.kernels import devices, pallas_windows
from longhmm.kernels.compiled_call import Placed
from longhmm.kernels.fused_windows import place
from longhmm.kernels.rows import fused_rows
from longhmm.model.hmm import HMM

ROWS_AT_ONCE = 1 << 20  # read on the host in one go


class Minibatch(NamedTuple):
    """Windows, and the weight `(S,)` with which each one's core enters the sum over all data.

    `placed` says where the same windows lie in the data, for the fused kernel; None where they must be copied. Inside
    compiled code only the one that is used costs anything.
    """

    windows: WindowBatch
    weights: Any
    placed: Placed | None = None


class DeviceData(NamedTuple):
    """Data held by the device, with the tables that place cells in them."""

    values: jax.Array
    observed: jax.Array | None
    states: jax.Array | None
    offsets: jax.Array
    cell_offsets: jax.Array
    rows: jax.Array | None


def to_device(sequences: Sequences, cells: Cells, model: HMM | None) -> DeviceData:
    """Put data that lie in memory onto the device, once; floats as float32, with NaN for what is missing.

    With a model, also the numbers that the fused kernel reads, where it can.
    """
    block = sequences.read(0, sequences.length)
    floating = block.values.dtype.kind == "f"
    values, observed = block.values, None
    if floating:
        values = block.values.astype(np.float32)
        if sequences.has_mask:
            values = np.where(block.observed, values, np.float32(np.nan))
    elif not block.observed.all():
        observed = jnp.asarray(block.observed)
    states = None if block.states is None else jnp.asarray(block.states)
    on_device = jnp.asarray(values)
    rows = None if model is None else fused_rows(model, sequences, on_device)
    return DeviceData(on_device, observed, states, jnp.asarray(cells.offsets), jnp.asarray(cells.cell_offsets), rows)


def take_windows(data: DeviceData, cells: jax.Array, core_length: int, buffer: int) -> WindowBatch:
    """The windows of some cells, inside compiled code."""
    index = locate(jnp, data.cell_offsets, data.offsets, core_length, cells, buffer)
    times = jnp.arange(core_length + 2 * buffer)
    inside = times < index.length[:, None]
    rows = index.start[:, None] + jnp.where(inside, times, 0)
    values = jnp.where(inside[..., None], data.values[rows], 0)
    if data.observed is not None:
        observed = data.observed[rows]
    elif jnp.issubdtype(values.dtype, jnp.floating):
        observed = ~jnp.isnan(values)
    else:
        observed = jnp.ones(values.shape, bool)
    states = None if data.states is None else jnp.where(inside, data.states[rows], -1)
    return WindowBatch(
        values,
        observed & inside[..., None],
        states,
        index.length.astype(jnp.int32),
        index.core_start.astype(jnp.int32),
        index.core_stop.astype(jnp.int32),
        index.at_start,
    )


@jax.tree_util.register_pytree_node_class
class MinibatchSource:
    """Draws minibatches of some data by a scheme; `draw(key)` gives the same windows wherever the data lie.

    A pytree whose only leaves are the data on the device, so that compiled code takes them as arguments.
    """

    def __init__(
        self, sequences: Sequences, windows: Windows, buffer: int, mixing_time: float, model: HMM | None = None
    ) -> None:
        self.sequences, self.windows, self.buffer = sequences, windows, buffer
        self.cells = Cells(sequences.offsets, windows.core_length)
        self.rotation = Rotation.plan(self.cells.n_cells, windows, buffer, mixing_time)
        # Positions inside compiled code are 32-bit; longer data are read on the host, where they are 64-bit.
        self.on_device = sequences.in_memory and sequences.length * sequences.dim < INT32_LIMIT
        self.data = _where_used(to_device(sequences, self.cells, model), windows) if self.on_device else None
        self.arcs: Arcs | None = None

    def with_arcs(self, arcs: Arcs) -> MinibatchSource:
        """The same windows, some drawn more often than others."""
        leaves, constants = self.tree_flatten()
        found = self.tree_unflatten(constants, leaves)
        found.on_device = self.on_device and arcs.narrow
        found.sequences, found.data = self.sequences, self.data if found.on_device else None
        found.arcs = _where_used(arcs.to_device(), self.windows) if found.on_device else arcs
        return found

    def tree_flatten(self) -> tuple[tuple[DeviceData | None, Arcs | None], tuple[Any, ...]]:
        """What is on the device, and all else as a constant of compiled code (which must not keep the data alive)."""
        device, host = (
            ((self.data, self.arcs), (None, None)) if self.on_device else ((None, None), (self.sequences, self.arcs))
        )
        return device, (*host, self.windows, self.buffer, self.cells, self.rotation, self.on_device)

    @classmethod
    def tree_unflatten(
        cls, constants: tuple[Any, ...], leaves: tuple[DeviceData | None, Arcs | None]
    ) -> MinibatchSource:
        """The inverse of `tree_flatten`."""
        source = object.__new__(cls)
        source.sequences, source.arcs, *rest = constants
        source.windows, source.buffer, source.cells, source.rotation, source.on_device = rest
        source.data, on_device = leaves
        source.arcs = on_device if source.on_device else source.arcs
        return source

    def draw(self, key: jax.Array) -> Minibatch:
        """A minibatch of `windows.count` windows."""
        if self.data is not None:
            core_length = self.windows.core_length
            return _draw_on_device(self.rotation, core_length, self.buffer, self.data, self.arcs, key)
        return jax.tree.map(lambda each: each[0], self.draw_many(key[None]))

    def draw_many(self, keys: jax.Array) -> Minibatch:
        """What `draw` gives for each of some keys, along a leading axis, read on the host in one go."""
        rotation = self.rotation if self.arcs is None else self.arcs.rotation
        with jax.enable_x64(rotation.n_cells >= INT32_LIMIT):
            places = np.asarray(_draw_places(rotation, keys))
        together = max(1, ROWS_AT_ONCE // self.cells.width(self.buffer))
        numbers, weights = _cells_at(np, self.rotation, self.arcs, places.ravel())
        pieces = [
            self.take(numbers[first : first + together], weights[first : first + together])
            for first in range(0, numbers.size, together)
        ]
        found = jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)
        return jax.tree.map(lambda each: each.reshape(*places.shape, *each.shape[1:]), found)

    def take(self, cells: np.ndarray, weights: np.ndarray) -> Minibatch:
        """The windows of given cells, read on the host."""
        return Minibatch(host_windows(self.sequences, self.cells, cells, self.buffer), weights)


def _where_used(tree: Any, windows: Windows) -> Any:
    """Arrays on every device, where windows are spread over all of them."""
    return devices.everywhere(tree) if pallas_windows.usable() and devices.shares_pay(windows.count) else tree


def host_windows(sequences: Sequences, cells: Cells, numbers: np.ndarray, buffer: int) -> WindowBatch:
    """The windows of some cells, read on the host, floats as float32."""
    windows = gather(sequences, cells.locate(numbers, buffer), cells.width(buffer))
    if windows.values.dtype == np.float64:
        windows = windows._replace(values=windows.values.astype(np.float32))
    return windows


def _cells_at(xp: Any, rotation: Rotation, arcs: Arcs | None, places: Any) -> tuple[Any, Any]:
    """Cells and their weights: every place is a cell, unless cells have arcs."""
    if arcs is not None:
        return arcs.find(xp, places)
    return places, xp.full(places.shape, rotation.weight, xp.float32)


@partial(jax.jit, static_argnames=("rotation",))
def _draw_places(rotation: Rotation, keys: jax.Array) -> jax.Array:
    return jax.vmap(rotation.draw)(keys)


@partial(jax.jit, static_argnames=("rotation", "core_length", "buffer"))
def _draw_on_device(
    rotation: Rotation, core_length: int, buffer: int, data: DeviceData, arcs: Arcs | None, key: jax.Array
) -> Minibatch:
    places = (rotation if arcs is None else arcs.rotation).draw(key)
    cells, weights = _cells_at(jnp, rotation, arcs, places)
    placed = None
    if data.rows is not None:
        placed = place(data.rows, locate(jnp, data.cell_offsets, data.offsets, core_length, cells, buffer))
    return Minibatch(take_windows(data, cells, core_length, buffer), weights, placed)
