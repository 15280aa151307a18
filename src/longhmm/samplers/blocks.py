"""The emission's coordinates as one small vector per state (or per level, where states share parameters)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np


class EmissionBlocks(NamedTuple):
    """Layout of the emission's coordinates in `n_blocks` blocks of `size` numbers each."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    n_blocks: int
    size: int

    @staticmethod
    def like(coordinates: Mapping[str, Any]) -> EmissionBlocks:
        """The layout for given coordinates; all in one block if they do not share a leading axis over states."""
        names = tuple(sorted(name for name in coordinates if name != "transition"))
        shapes = tuple(tuple(np.shape(coordinates[name])) for name in names)
        leading = {shape[:1] for shape in shapes}
        count = next(iter(leading))[0] if len(leading) == 1 and leading != {()} else 1
        total = sum(int(np.prod(shape, dtype=int)) for shape in shapes)
        return EmissionBlocks(names, shapes, count, total // count)

    def ravel(self, coordinates: Mapping[str, Any]) -> Any:
        """`(n_blocks, size)`; leading axes that all coordinates share, such as one over windows, are kept."""
        if not self.names:
            return jnp.zeros((self.n_blocks, 0))
        parts = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            value = jnp.asarray(coordinates[name])
            parts.append(value.reshape((*value.shape[: value.ndim - len(shape)], self.n_blocks, -1)))
        return jnp.concatenate(parts, axis=-1)

    def unravel(self, blocks: Any) -> dict[str, Any]:
        """The inverse of `ravel`."""
        found, at = {}, 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            width = int(np.prod(shape, dtype=int)) // self.n_blocks
            found[name] = blocks[..., at : at + width].reshape((*blocks.shape[:-2], *shape))
            at += width
        return found
