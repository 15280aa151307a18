"""Statistics s(y) that log densities are linear in, by name: the C++ kernel makes them itself from raw data."""

from collections.abc import Callable
from typing import Any

# In the order in which the kernel knows them (see call.h), by NumPy or JAX; `seen` is 1 of every value that is there.
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "seen": lambda xp, y: xp.ones_like(y),
    "value": lambda xp, y: y,
    "log": lambda xp, y: xp.log(y),
    "cos": lambda xp, y: xp.cos(y),
    "sin": lambda xp, y: xp.sin(y),
}
Terms = tuple[tuple[str, int], ...]  # numbers of a row: a function, and the column whose values it is taken of
