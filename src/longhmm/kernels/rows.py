"""Rows of data as the fused kernel wants them: numbers of the emission's form, or log likelihoods."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from longhmm.data.sequences import Block, Sequences
from longhmm.errors import ModelError
from longhmm.kernels import native
from longhmm.kernels.backends import fused
from longhmm.kernels.block_messages import Collector
from longhmm.kernels.forms import Form, form_of, lowering_of
from longhmm.model.hmm import HMM

IN_PLACE_ROWS = 1 << 22  # rows of a block that needs no copy
COPIED_ROWS = 1 << 18

# What is known of data that lie in memory and do not change: whether rows are observed in part, and sum of log h(y).
_partly: WeakKeyDictionary[Sequences, dict[Any, bool]] = WeakKeyDictionary()
_base: WeakKeyDictionary[Sequences, dict[Any, float]] = WeakKeyDictionary()


class Reader:
    """Reads and checks rows for one model at one set of parameters."""

    def __init__(self, model: HMM, sequences: Sequences, params: Mapping[str, np.ndarray]) -> None:
        model.check_dim(sequences)
        self.model, self.sequences = model, sequences
        self._given = params
        self.form = form_of(model)
        # A row that is seen in part has a density of its own, and a known state rules others out.
        if partly_observed(model, sequences) or sequences.has_states:
            self.form = Form(native.GIVEN, model.n_states, 0, 0)
        lowering = model.emission.lowering
        values = lowering is not None and lowering.rows_are_values
        self._raw = values and not sequences.has_mask and sequences.dtype.kind == "f"
        self._block: Block | None = None
        self.block_rows = IN_PLACE_ROWS if self._raw and sequences.in_memory else COPIED_ROWS

    @cached_property
    def params(self) -> dict[str, jax.Array]:
        """The parameters on the device, which only some emissions need."""
        with jax.enable_x64(True):
            return {name: jnp.asarray(value, jnp.float64) for name, value in self._given.items()}

    def read(self, start: int, stop: int) -> np.ndarray:
        """Numbers of rows `[start, stop)`, contiguous, NaN where missing; or their log likelihoods."""
        if self._raw and self.form.kind != native.GIVEN and self.sequences.in_memory:
            # NaN says by itself what is missing, and the values were checked when the data were opened.
            return np.ascontiguousarray(self.sequences.source.read(start, stop))
        block = self._block = self.sequences.read(start, stop)
        if not self.sequences.in_memory:
            self.model.check_rows(self.sequences, block.values, block.observed, start, block.states)
        if self.form.kind == native.GIVEN:
            with jax.enable_x64(True):
                logs, undefined = _logs(self.model, self.params, block.values, block.observed, block.states)
                if int(undefined) >= 0:
                    raise ModelError(
                        "params gave a log density that is not a number for "
                        f"{self.sequences.describe(start + int(undefined))}: every parameter must be finite and inside "
                        "its support."
                    )
                return np.ascontiguousarray(np.asarray(logs))
        if self._raw:
            return np.ascontiguousarray(block.values)
        return np.ascontiguousarray(lowering_of(self.model).rows(block.values, block.observed), np.float64)

    def collect(self, collect: Collector, start: int, gamma: np.ndarray) -> Any:
        """What the collector makes of the posteriors of rows from `start` on."""
        block = self.sequences.read(start, start + len(gamma))
        with jax.enable_x64(True):
            found = _collect(self.model, collect, self.params, block, gamma)
            return jax.tree.map(np.asarray, found)

    @property
    def _has_base_measure(self) -> bool:
        return self.form.kind != native.GIVEN and lowering_of(self.model).has_base_measure

    def base_measure_of(self, rows: slice) -> float:
        """Sum of `log h(y)` over some of the rows that were read last."""
        if not self._has_base_measure:
            return 0.0
        assert self._block is not None
        with jax.enable_x64(True):
            return float(_base_measure(self.model, self._block.values[rows], self._block.observed[rows]))

    def log_base_measure(self) -> float:
        """Sum of `log h(y)` over all data, which lie in memory; computed once."""
        if not self._has_base_measure:
            return 0.0
        known = _base.setdefault(self.sequences, {})
        key = (type(self.model.emission.untied), self.model.dim)
        if key not in known:
            total = 0.0
            for start in range(0, self.sequences.length, COPIED_ROWS):
                block = self.sequences.read(start, min(start + COPIED_ROWS, self.sequences.length))
                with jax.enable_x64(True):
                    total += float(_base_measure(self.model, block.values, block.observed))
            known[key] = total
        return known[key]


def fused_rows(model: HMM, sequences: Sequences, values: jax.Array) -> jax.Array | None:
    """The numbers `(T, width)` float32 of data on the device, or None where log likelihoods must be handed over."""
    form = form_of(model)
    if not fused(model.n_states) or form.kind == native.GIVEN:
        return None
    if sequences.has_states or partly_observed(model, sequences):
        return None
    if lowering_of(model).rows_are_values and values.dtype == jnp.float32:
        return values
    parts = []
    for start in range(0, sequences.length, COPIED_ROWS):
        block = sequences.read(start, min(start + COPIED_ROWS, sequences.length))
        parts.append(host_numbers(model, block.values, block.observed))
    return jnp.asarray(np.concatenate(parts))


def host_numbers(model: HMM, values: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """The numbers `(..., width)` float32 of rows on the host, NaN where they are missing."""
    return lowering_of(model).rows(values, observed).astype(np.float32)


def partly_observed(model: HMM, sequences: Sequences) -> bool:
    """Whether a row is observed in part only; data in memory are checked against the emission's support on the way."""
    emission = model.emission
    if sequences.complete and not sequences.has_states and emission.support is constraints.real:
        return False
    if not sequences.in_memory:
        return sequences.dim > 1 and (sequences.has_mask or sequences.dtype.kind == "f")
    known = _partly.setdefault(sequences, {})
    key = (emission.name, str(emission.support), emission.dim, model.n_states if sequences.has_states else 0)
    if key not in known:
        found = False
        for start in range(0, sequences.length, COPIED_ROWS):
            block = sequences.read(start, min(start + COPIED_ROWS, sequences.length))
            model.check_rows(sequences, block.values, block.observed, start, block.states)
            found = found or bool(np.any(block.observed.any(axis=1) != block.observed.all(axis=1)))
        known[key] = found
    return known[key]


@partial(jax.jit, static_argnums=0)
def _logs(
    model: HMM, params: Mapping[str, jax.Array], values: Any, observed: Any, states: Any
) -> tuple[jax.Array, jax.Array]:
    logs = model.log_likelihoods(params, jnp.asarray(values), jnp.asarray(observed), states)
    undefined = jnp.any(jnp.isnan(logs), axis=1)
    return logs, jnp.where(jnp.any(undefined), jnp.argmax(undefined), -1)


@partial(jax.jit, static_argnums=(0, 1))
def _collect(model: HMM, collect: Collector, params: Mapping[str, jax.Array], block: Any, gamma: Any) -> Any:
    return collect(model, params, block, jnp.asarray(gamma))


@partial(jax.jit, static_argnums=0)
def _base_measure(model: HMM, values: Any, observed: Any) -> jax.Array:
    return lowering_of(model).log_base_measure(jnp.asarray(values), jnp.asarray(observed))
