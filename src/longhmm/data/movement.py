"""Movement from places: how far each step goes, and by how much it turns."""

from typing import Any

import numpy as np

from longhmm.errors import DataError


def steps_and_angles(x: Any, y: Any) -> np.ndarray:
    """`(T, 2)` from coordinates `(T,)`: the distance to the next place, and the angle in (-pi, pi] by which the way
    turns at this one, positive to the left. NaN where the places that it takes are missing, at the ends, or where the
    animal did not move; for `Product(step=Gamma(), angle=VonMises())`.

    >>> steps_and_angles([0, 1, 1, 1], [0, 0, 2, 2]).round(4).tolist()
    [[1.0, nan], [2.0, 1.5708], [0.0, nan], [nan, nan]]
    """
    first, second = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise DataError(f"x and y must be coordinates of one length, got shapes {first.shape} and {second.shape}.")
    moves = np.diff(first + 1j * second)
    found = np.full((len(first), 2), np.nan)
    found[:-1, 0] = np.abs(moves)
    turns = moves[1:] * np.conj(moves[:-1])
    found[1:-1, 1] = np.where(np.abs(turns) > 0, np.angle(turns), np.nan)
    return found
