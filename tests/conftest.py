"""What all tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

# Compiling takes most of the time of most tests, so that programs are hardly optimised; read when jax is imported.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax
import pytest

import shapes
from longhmm.run import compilation

shapes.check_joints()

# Every compiled program holds memory maps, and a process may have only some 65,000 of them.
MAPS = Path("/proc/self/maps")
MOST_MAPS = 15_000


def _many_programs() -> bool:
    """Whether compiled programs should go; True where the system does not tell."""
    try:
        with MAPS.open("rb") as lines:
            return sum(1 for _ in lines) > MOST_MAPS
    except OSError:
        return True


@pytest.fixture(autouse=True, scope="session")
def keep_compiled_programs() -> Iterator[None]:
    """On disk, where sampling keeps its own: the next run of the tests takes a third of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "SHORTEST", 0.05)
        with compilation.cached_compilation():
            yield


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_programs() -> Iterator[None]:
    """Programs serve other modules too, while there is room for them."""
    yield
    if _many_programs():
        jax.clear_caches()
