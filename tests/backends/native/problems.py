"""Windows of ragged sequences, and how results of the kernel are compared."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from scipy.special import softmax

from longhmm.backends import native
from longhmm.backends.protocol import Messages
from longhmm.data.layout import Layout, Partition

pytestmark = pytest.mark.skipif(not native.available(), reason="the C++ kernel was not built here")
LENGTHS = (90, 5, 1, 164)
CORE, BUFFER = 7, 4


def windows(buffer: int = BUFFER, spare: int = 3) -> Layout:
    """Ragged windows of four sequences, one shorter than a core and one of a single row; the last ones are padding."""
    cells = Partition(np.cumsum([0, *LENGTHS]), CORE)
    found = replace(cells.locate(np.arange(cells.n_blocks), buffer), spans=(buffer, CORE, buffer))
    return found.padded(cells.n_blocks + spare)


def close(found: Any, expected: Any, tolerance: float) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        scale = max(float(np.max(np.abs(other), initial=0.0)), 1e-3)
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale)


def comparable(messages: Messages, layout: Layout, forward_only: bool) -> list[np.ndarray]:
    """Messages as distributions, where they mean something: not before a sequence nor behind it."""
    inside = np.flatnonzero(np.asarray(layout.left) > 0)
    inside, goes_on = inside[np.asarray(layout.core)[inside] == CORE], np.flatnonzero(np.asarray(layout.core) == CORE)
    kept = [(messages.forward_in, inside), (messages.forward_out, goes_on)]
    if not forward_only:
        kept += [(messages.backward_in, goes_on), (messages.backward_out, inside)]
    return [softmax(np.asarray(each)[at], axis=1) for each, at in kept]
