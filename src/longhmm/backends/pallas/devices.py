"""Windows over all devices of this host: each runs its own share, and what is found is put together.

The mesh is the row of devices; what is spread lies along it in equal shares, what is everywhere lies on each of them.
With one device nothing of this happens.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from longhmm.backends.pallas.plan import Found

WINDOWS = "windows"  # the axis of the mesh
# Windows of a minibatch for each device, below which a device more saves nothing: on an H200 a step takes as long with
# 10,000 windows as with 16.
LARGE = 1 << 15


@cache
def mesh() -> Mesh:
    """All devices of this host on which compiled programs run."""
    return Mesh(np.array(jax.local_devices()), (WINDOWS,))


def along(axis: int = 0) -> PartitionSpec:
    """Spread along one axis."""
    return PartitionSpec(*[None] * axis, WINDOWS)


def spread(array: Any, axis: int = 0) -> jax.Array:
    """An array in equal shares along one axis, which must divide."""
    return jax.device_put(array, NamedSharding(mesh(), along(axis)))


def everywhere(tree: Any) -> Any:
    """Arrays on every device, so that programs that spread windows need not move them."""
    return tree if mesh().size == 1 else jax.device_put(tree, NamedSharding(mesh(), PartitionSpec()))


def found_by_window() -> Found:
    """Where the results of the fused kernel lie, if every device runs its share of the windows."""
    one, two, three = (along(axis) for axis in range(3))
    return Found(one, two, three, three, three, one, PartitionSpec())


def shares_pay(windows: int) -> bool:
    """Whether so many windows are worth spreading."""
    return mesh().size > 1 and windows >= LARGE * mesh().size
