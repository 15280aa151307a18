"""What a run leaves behind, before it is turned into answers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Chains(NamedTuple):
    """Draws of several chains in unconstrained coordinates.

    Attributes:
        coordinates: by name, `(chain, draw, *shape)`, float64.
        stats: by name, `(chain, draw)`, one number per kept draw (for instance "log_likelihood", "finite").
        settings: everything needed to tell how the draws came about: sampler, windows, buffer, step size, thinning,
            seeds, versions; plain JSON values.
        information: `(P, P)` observed information at the mode in flat coordinates (names sorted), or None.
        mode: coordinates of the mode by name, or None.
        notes: sentences for the user, such as "another mode is as good" or "stopped by the time limit".
    """

    coordinates: dict[str, np.ndarray]
    stats: dict[str, np.ndarray]
    settings: dict[str, Any]
    information: np.ndarray | None
    mode: dict[str, np.ndarray] | None
    notes: tuple[str, ...]
