"""What finding a path does with one block of rows, by the C++ kernel; `path_blocks` has the same in JAX.

Chunks lie side by side in vector lanes, threads take groups of them, and rows become likelihoods on the way.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.kernels import native
from longhmm.kernels.blocks import Plan
from longhmm.kernels.edges import UNIFORM_SHARE
from longhmm.kernels.forms import packs
from longhmm.kernels.rows import Reader
from longhmm.messages.markov import stationary_law
from longhmm.model.hmm import HMM


def serves(model: HMM) -> bool:
    """Whether the kernel can find paths for a model."""
    return native.available() and model.n_states <= native.MOST_STATES


class FusedPaths:
    """Work on the blocks of a plan at checked parameters.

    Args:
        drawn: paths are drawn from their posterior with the random numbers of `key` (two words); otherwise the best.
        logarithms: draw on logarithms throughout, where plain numbers have turned out to underflow.
    """

    def __init__(
        self,
        model: HMM,
        params: dict[str, np.ndarray],
        plan: Plan,
        *,
        drawn: bool,
        logarithms: bool = False,
        key: np.ndarray | None = None,
    ) -> None:
        self.model, self.plan, self.drawn, self.logarithms = model, plan, drawn, logarithms
        self.key = np.zeros(2, np.uint32) if key is None else key
        self.reader = Reader(model, self.sequences, params)
        form, n = self.reader.form, model.n_states
        transition, initial = (np.ascontiguousarray(params[name], np.float64) for name in ("transition", "initial"))
        # Every state that is possible in truth is possible in the guess.
        start = (1 - UNIFORM_SHARE) * stationary_law(transition) + UNIFORM_SHARE / n
        state_packs = np.zeros((n, 0))
        if form.kind != native.GIVEN:
            with jax.enable_x64(True):
                arrays = {name: jnp.asarray(value, jnp.float64) for name, value in params.items()}
                state_packs = np.ascontiguousarray(np.asarray(_packs(model, arrays)))
        self._model = {
            **{"width": form.width, "kind": form.kind, "pack": form.pack, "states": n, "chains": 1, "points": 1},
            **{"transition": transition, "initial": initial, "start": start, "packs": state_packs},
        }

    @property
    def sequences(self) -> Sequences:
        """The data."""
        return self.plan.sequences

    def messages(self, index: int, reach: int) -> tuple[np.ndarray, np.ndarray]:
        """Log messages before every chunk of a block, from `reach` rows to its left, and at its end; `(K, W)` each."""
        call, count, first_row = self._call(index, reach)
        before, leaving = (np.zeros((count, self.model.n_states)) for _ in range(2))
        self._run(call, first_row, before=before, leaving=leaving)
        return self._lanes(before), self._lanes(leaving)

    def maps(self, index: int, before: np.ndarray) -> tuple[np.ndarray, bool]:
        """First state of every chunk for each state that may follow it, `(K + 1, W)`, -1 where no path leads there;
        and whether plain numbers underflowed. The last row: nothing follows."""
        call, count, first_row = self._call(index, 0)
        maps = np.zeros((count, self.model.n_states + 1), np.uint8)
        done = self._run(call, first_row, log_before=_rows(before, count), maps=maps)
        return self._lanes(_states(maps)), done.careful > 0

    def fill(self, index: int, before: np.ndarray, following: np.ndarray) -> np.ndarray:
        """States of the rows of a block, given the state that follows each chunk; -1 where there is no path."""
        call, count, first_row = self._call(index, 0)
        start, stop = self.plan.bounds(index)
        states = np.zeros(stop - start, np.uint8)
        after = np.ascontiguousarray(following[:count], np.int32)
        self._run(
            call, first_row, log_before=_rows(before, count), following=after, states=states, origin=start - first_row
        )
        return _states(states).astype(np.int8 if self.model.n_states <= 127 else np.int16)

    def _call(self, index: int, reach: int) -> tuple[dict[str, Any], int, int]:
        cells = np.arange(index * self.plan.lanes, min((index + 1) * self.plan.lanes, self.plan.cells.n_cells))
        place = self.plan.cells.locate(cells, reach)
        first_row, last_row = int(place.start[0]), int(place.start[-1] + place.core_stop[-1])
        rows = self.reader.read(first_row, last_row)
        left = place.core_start.astype(np.int32)
        core = (place.core_stop - place.core_start).astype(np.int32)
        call = {
            **self._model,
            **{"rows": rows, "wide_rows": int(rows.dtype == np.float64), "windows": len(cells)},
            **{"left": left, "core": core, "right": np.zeros(len(cells), np.int32)},
            **{"max_left": int(left.max()), "max_core": int(core.max()), "max_right": 0},
            "at_start": np.ascontiguousarray(place.at_start, np.int32),
            "begin": np.ascontiguousarray(place.start + place.core_start - first_row, np.int64),
            "threads": native.threads(),
        }
        return call, len(cells), first_row

    def _run(self, call: dict[str, Any], first_row: int, **arguments: Any) -> native.Paths:
        flags = {"drawn": int(self.drawn), "logarithms": int(self.logarithms)}
        return native.find_paths(call, self.key, row_number=first_row, **flags, **arguments)

    def _lanes(self, found: np.ndarray) -> np.ndarray:
        """Chunks last, and as many of them as a full block has."""
        return np.pad(found.T, ((0, 0), (0, self.plan.lanes - len(found))))


def _rows(before: np.ndarray, count: int) -> np.ndarray:
    return np.ascontiguousarray(before[:, :count].T, np.float64)


def _states(found: np.ndarray) -> np.ndarray:
    return np.where(found == native.NO_STATE, -1, found.astype(np.int16))


_packs = jax.jit(packs, static_argnums=0)
