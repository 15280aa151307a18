"""Exact scores of single cells: what each stretch of the data adds to the gradient of the log likelihood (F9)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.data.windows import Cells
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.target.certificate import _cell_scores, _exact
from longhmm.target.coordinates import interior


def cell_scores(
    model: HMM, params: Mapping[str, Any], sequences: Sequences, core_length: int, *, cells: int = 400, seed: int = 0
) -> tuple[np.ndarray, int]:
    """Scores `(n, P)` of up to `cells` cells drawn at random, and how many cells of this length the data have.

    Coordinates are flat, names in sorted order. Buffers are so long that the scores are exact to rounding.
    """
    if core_length < 1 or cells < 1:
        raise ModelError(f"core_length and cells must be at least 1, got {core_length!r} and {cells!r}.")
    model.check_dim(sequences)
    complete = interior(model, params)
    layout = Cells(sequences.offsets, core_length)
    count = min(cells, layout.n_cells)
    rng = np.random.default_rng(seed)
    picked = np.sort(rng.choice(layout.n_cells, count, replace=False)) if count < layout.n_cells else np.arange(count)
    look = partial(_cell_scores, model, complete, sequences, layout, picked)
    return _exact(look, 16, int(np.diff(sequences.offsets).max()))[0], layout.n_cells
