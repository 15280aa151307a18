"""Chunks of data as arguments of the C++ kernel, for calls from Python: rows, places and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.data.windows import Cells
from longhmm.kernels import native
from longhmm.kernels.edges import UNIFORM_SHARE
from longhmm.kernels.forms import Form, packs
from longhmm.kernels.rows import Reader
from longhmm.messages.markov import stationary_law
from longhmm.model.hmm import HMM


class Chunks(NamedTuple):
    """Some chunks, ready for a call.

    Attributes:
        arguments: what every call is given (see native/call.h).
        first_row: row of the data at which the rows of the call begin.
        start, stop: rows of the data that the chunks own.
    """

    arguments: dict[str, Any]
    first_row: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many they are."""
        return int(self.arguments["windows"])


class ChunkCalls:
    """Prepares calls for the chunks of some data at checked parameters."""

    def __init__(self, model: HMM, params: Mapping[str, np.ndarray], sequences: Sequences, cells: Cells) -> None:
        self.reader, self.cells = Reader(model, sequences, params), cells
        self.form: Form = self.reader.form
        self.transition = np.ascontiguousarray(params["transition"], np.float64)
        law = stationary_law(self.transition)
        state_packs = np.zeros((model.n_states, 0))
        if self.form.kind != native.GIVEN:
            with jax.enable_x64(True):
                arrays = {name: np.asarray(value, np.float64) for name, value in params.items()}
                state_packs = np.ascontiguousarray(np.asarray(_packs(model, arrays)))
        self._constants = {
            "width": self.form.width,
            "kind": self.form.kind,
            "pack": self.form.pack,
            "states": model.n_states,
            "chains": 1,
            "points": 1,
            "transition": self.transition,
            "initial": np.ascontiguousarray(params["initial"], np.float64),
            "start": (1 - UNIFORM_SHARE) * law + UNIFORM_SHARE / len(law),
            "packs": state_packs,
        }

    def chunks(self, begin: int, stop: int, reach: int, *, behind: bool = True) -> Chunks:
        """Chunks `[begin, stop)` with `reach` rows before each and, unless `behind` is False, as many behind it."""
        place = self.cells.locate(np.arange(begin, stop), reach)
        own = place.start + place.core_start
        core = (place.core_stop - place.core_start).astype(np.int32)
        left, right = place.core_start.astype(np.int32), (place.length - place.core_stop).astype(np.int32)
        right = right if behind else np.zeros_like(right)
        first_row, last_row = int(place.start[0]), int(own[-1] + core[-1] + right[-1])
        rows = self.reader.read(first_row, last_row)
        arguments = {
            **self._constants,
            "rows": rows,
            "wide_rows": int(rows.dtype == np.float64),
            "windows": stop - begin,
            "left": left,
            "core": core,
            "right": right,
            "at_start": np.ascontiguousarray(place.at_start, np.int32),
            "begin": np.ascontiguousarray(own - first_row, np.int64),
            "max_left": int(left.max()),
            "max_core": int(core.max()),
            "max_right": int(right.max()),
            "threads": native.threads(),
        }
        return Chunks(arguments, first_row, int(own[0]), int(own[-1] + core[-1]))


_packs = jax.jit(packs, static_argnums=0)
