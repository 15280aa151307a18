"""Coordinates by name to one flat vector and back, names in sorted order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np


class Flat(NamedTuple):
    """The order and the shapes of coordinates in a flat vector."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @staticmethod
    def like(coordinates: Mapping[str, Any]) -> Flat:
        """The layout of given coordinates (only their shapes matter)."""
        return Flat(tuple((name, tuple(np.shape(coordinates[name]))) for name in sorted(coordinates)))

    @property
    def size(self) -> int:
        """Number of coordinates, P."""
        return sum(int(np.prod(shape, dtype=int)) for _, shape in self.shapes)

    def ravel(self, coordinates: Mapping[str, Any]) -> Any:
        """To a vector `(P,)`; leading axes that all coordinates share are kept."""
        parts = []
        for name, shape in self.shapes:
            value = jnp.asarray(coordinates[name])
            parts.append(value.reshape((*value.shape[: value.ndim - len(shape)], -1)))
        return jnp.concatenate(parts, axis=-1)

    def ravel_numpy(self, coordinates: Mapping[str, Any]) -> np.ndarray:
        """The same on the host, in float64 whatever the scope."""
        parts = [(np.asarray(coordinates[name], np.float64), len(shape)) for name, shape in self.shapes]
        return np.concatenate([part.reshape((*part.shape[: part.ndim - own], -1)) for part, own in parts], axis=-1)

    def unravel(self, vector: Any) -> dict[str, Any]:
        """From a vector `(..., P)`."""
        found, at = {}, 0
        for name, shape in self.shapes:
            size = int(np.prod(shape, dtype=int))
            found[name] = vector[..., at : at + size].reshape((*vector.shape[:-1], *shape))
            at += size
        return found
