"""Where a picture goes: into a figure of its own, which notebooks show without being told to, or into given axes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from longhmm.errors import ModelError


class Picture(Figure):
    """A figure that belongs to no window, and shows itself at the end of a cell, with or without `%matplotlib`."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=100)
        return file.getvalue()


def axes_in(ax: Any, count: int) -> tuple[Figure, list[Axes]]:
    """The given axes, of which there must be one for each panel, and the figure they belong to."""
    given = np.ravel(np.array(ax, dtype=object)).tolist()
    if len(given) != count or not all(isinstance(each, Axes) for each in given):
        wanted = "a matplotlib axes" if count == 1 else f"{count} matplotlib axes, one for each panel"
        raise ModelError(f"ax must be {wanted}, got {len(given)} of {type(given[0]).__name__ if given else 'nothing'}.")
    return given[0].get_figure(root=True), given
