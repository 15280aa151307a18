"""Minibatches: blocks drawn at random, and their windows fetched, from memory inside compiled code or from files. Both
ways draw the same blocks for the same key, so that data give the same results wherever they lie."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.backends.evaluate import lowering_of
from longhmm.backends.pallas.windows import for_windows
from longhmm.backends.read import resident_numbers
from longhmm.backends.varying import of_windows
from longhmm.data.layout import Layout, Partition, gather, locate
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.target.systematic import INT32_LIMIT, SystematicSampling, UnequalSampling, Windows

ROWS_AT_ONCE = 1 << 20  # read on the host in one go
CONSTANTS = ("windows", "buffer", "partition", "on_device", "lags")  # of compiled code

_draw_places = jax.jit(lambda scheme, keys: jax.vmap(scheme.draw)(keys))


class Minibatch(NamedTuple):
    """Windows; inside compiled code only the one of `rows` and `numbers` that is used costs anything."""

    rows: Rows  # `(S, width, ...)`
    layout: Layout  # of the windows in `numbers`, or, without these, in `rows` laid end to end
    weights: Any  # `(S,)`, with which each one's core enters the sum over all data
    numbers: Any = None  # `(n, w)`, what the emission's lowering made of rows; None where it has none

    def in_rows(self) -> Layout:
        """The windows in `rows` laid end to end."""
        count, width = self.rows.values.shape[:2]
        return replace(self.layout, begin=jnp.arange(count, dtype=jnp.int32) * width + self.layout.left)

    def in_groups_of(self, count: int) -> Minibatch:
        """Windows that were read on the host as minibatches of `count` windows, each with its own rows, end to end."""
        windows, width = self.rows.values.shape[:2]
        begin = (np.arange(windows) % count * width + self.layout.left).astype(np.int32)
        found = self._replace(layout=replace(self.layout, begin=begin))
        return jax.tree.map(lambda each: np.reshape(each, (-1, count, *each.shape[1:])), found)


class DeviceData(NamedTuple):
    """Data held by the device, with the tables that place blocks in them; floats say by NaN what is missing."""

    rows: Rows
    offsets: Array
    block_offsets: Array
    numbers: Array | None


def to_device(sequences: Sequences, partition: Partition, model: HMM | None) -> DeviceData:
    """Put data onto the device, once, with the numbers of the model's lowering, where there is one."""
    rows = sequences.rows(0, sequences.length, 0 if model is None else model.lags)
    values, observed = rows.values, None
    if values.dtype.kind == "f":
        values = values.astype(np.float32)
        if sequences.has_mask:
            values = np.where(rows.observed, values, np.float32(np.nan))
    elif not rows.observed.all():
        observed = rows.observed
    on_device = jax.device_put(rows._replace(values=values, observed=observed))
    numbers = None if model is None else resident_numbers(model, sequences, on_device.values)
    return DeviceData(on_device, jax.device_put(partition.offsets), jax.device_put(partition.block_offsets), numbers)


def take_rows(data: DeviceData, layout: Layout, width: int) -> Rows:
    """The rows `(W, width, ...)` of windows in all data, inside compiled code."""
    times = jnp.arange(width)
    inside = times < (layout.left + layout.core + layout.right)[:, None]
    at = (layout.begin - layout.left)[:, None] + jnp.where(inside, times, 0)
    rows = jax.tree.map(lambda each: each[at], data.rows)
    values = jnp.where(inside[..., None], rows.values, 0)
    observed = ~jnp.isnan(values) if rows.observed is None else rows.observed
    states = None if rows.states is None else jnp.where(inside, rows.states, -1)
    return rows._replace(values=values, observed=observed & inside[..., None], states=states)


@jax.tree_util.register_pytree_node_class
class MinibatchSource:
    """Draws minibatches of some data by a scheme: a pytree whose leaves are the data on the device and the spacing of
    blocks, so that compiled code takes them as arguments."""

    def __init__(
        self, sequences: Sequences, windows: Windows, buffer: int, mixing_time: float, model: HMM | None = None
    ) -> None:
        self.sequences, self.windows, self.buffer = sequences, windows, buffer
        self.lags = 0 if model is None else model.lags
        self.partition = Partition(sequences.offsets, windows.core_length)
        self.scheme = SystematicSampling.plan(self.partition.n_blocks, windows, buffer, mixing_time)
        # Positions inside compiled code are 32-bit; longer data are read on the host, where they are 64-bit.
        self.on_device = sequences.in_memory and sequences.length * sequences.dim < INT32_LIMIT
        self.data = for_windows(to_device(sequences, self.partition, model), windows.count) if self.on_device else None
        self.unequal: UnequalSampling | None = None

    def with_unequal(self, unequal: UnequalSampling) -> MinibatchSource:
        """The same windows, some drawn more often than others."""
        found = copy(self)
        found.on_device = self.on_device and unequal.scheme.narrow
        found.data = self.data if found.on_device else None
        found.unequal = for_windows(jax.device_put(unequal), self.windows.count) if found.on_device else unequal
        return found

    def tree_flatten(self) -> tuple[Any, tuple[Any, ...]]:
        """What is on the device, and all else as a constant of compiled code (which must not keep the data alive)."""
        none = (None, None)
        device, host = (self.data, self.unequal), (self.sequences, self.unequal)
        constants = none if self.on_device else host, *(getattr(self, name) for name in CONSTANTS)
        return (*(device if self.on_device else none), self.scheme), constants

    @classmethod
    def tree_unflatten(cls, constants: tuple[Any, ...], leaves: Any) -> MinibatchSource:
        source = object.__new__(cls)
        vars(source).update(zip(CONSTANTS, constants[1:], strict=True))
        source.sequences, unequal = constants[0]
        source.data, on_device, source.scheme = leaves
        source.unequal = on_device if source.on_device else unequal
        return source

    def draw(self, key: Array) -> Minibatch:
        if self.data is not None:
            return _draw_on_device(self.scheme, self.windows.core_length, self.buffer, self.data, self.unequal, key)
        return jax.tree.map(lambda each: each[0], self.draw_many(key[None]))

    def draw_many(self, keys: Array) -> Minibatch:
        """What `draw` gives for each of some keys, along a leading axis, read on the host in one go."""
        scheme = self.scheme if self.unequal is None else self.unequal.scheme
        with jax.enable_x64(not scheme.narrow):
            places = np.asarray(_draw_places(scheme, keys))
        together = max(1, ROWS_AT_ONCE // self.partition.width(self.buffer))
        numbers, weights = (self.unequal or self.scheme).find(np, places.ravel())
        pieces = [
            host_rows(self.sequences, self.partition, numbers[first : first + together], self.buffer, self.lags)
            for first in range(0, numbers.size, together)
        ]
        rows, layout = jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)
        return Minibatch(rows, layout, weights).in_groups_of(places.shape[-1])


def host_rows(
    sequences: Sequences, partition: Partition, numbers: np.ndarray, buffer: int, lags: int
) -> tuple[Rows, Layout]:
    """The windows of some blocks, read on the host, floats as float32."""
    rows, layout = gather(sequences, partition.locate(numbers, buffer), partition.width(buffer), lags)
    if rows.values.dtype == np.float64:
        rows = rows._replace(values=rows.values.astype(np.float32))
    return rows, replace(layout, spans=(buffer, partition.core_length, buffer))


def with_numbers(model: HMM, minibatch: Minibatch) -> Minibatch:
    """Windows that were read on the host, also as the numbers of the emission's lowering, where it can read them."""
    rows, seen = minibatch.rows, minibatch.rows.observed.any(axis=-1)
    lowering = lowering_of(model, parts=not np.array_equal(seen, rows.observed.all(axis=-1)))
    if lowering is None or rows.states is not None:
        return minibatch
    numbers = np.asarray(lowering.rows(rows.values, rows.observed, rows.lags))
    numbers = numbers if rows.values.dtype == np.float64 else numbers.astype(np.float32)
    *outer, count, width = seen.shape
    numbers = numbers.reshape(*outer, count * width, -1)
    return minibatch._replace(numbers=of_windows(model, numbers, rows.covariates))


@partial(jax.jit, static_argnames=("core", "buffer"))
def _draw_on_device(
    scheme: SystematicSampling, core: int, buffer: int, data: DeviceData, unequal: UnequalSampling | None, key: Array
) -> Minibatch:
    places = (scheme if unequal is None else unequal.scheme).draw(key)
    drawn, weights = (unequal or scheme).find(jnp, places)
    layout = locate(jnp, data.block_offsets, data.offsets, core, drawn, buffer)
    layout = replace(jax.tree.map(lambda each: each.astype(jnp.int32), layout), spans=(buffer, core, buffer))
    found = Minibatch(take_rows(data, layout, sum(layout.spans)), layout, weights, data.numbers)
    return found if data.numbers is not None else found._replace(layout=found.in_rows())
