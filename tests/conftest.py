"""What all tests share."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

# Programs are hardly optimised, see tests/quick_programs.py; this is read when jax is imported.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax
import pytest

import quick_programs
import shapes
from longhmm.run import compilation

quick_programs.compile_quickly()
shapes.check_joints()

# Every compiled program holds memory maps, and a process may have only some 65,000 of them; with more it crashes.
MAPS = Path("/proc/self/maps")
MOST_MAPS = 15_000  # when a module has ended
FAR_TOO_MANY, LOOK_EVERY = 40_000, 10  # within a module, looked at after every few tests
_tests = itertools.count(1)


def _many_programs(most: int, unknown: bool) -> bool:
    """Whether compiled programs should go; `unknown` where the system does not tell."""
    try:
        with MAPS.open("rb") as lines:
            return sum(1 for _ in lines) > most
    except OSError:
        return unknown


@pytest.fixture(autouse=True, scope="session")
def keep_compiled_programs() -> Iterator[None]:
    """On disk, beside those that sampling keeps, and without a bound: the next run takes a third of the time."""
    place, before = compilation.cache_directory(), jax.config.jax_compilation_cache_dir
    if place is not None and before is None:
        place.mkdir(parents=True, exist_ok=True)
        jax.config.update("jax_compilation_cache_dir", str(place))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    yield
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_programs() -> Iterator[None]:
    """Programs serve other modules too, while there is room for them."""
    yield
    if _many_programs(MOST_MAPS, unknown=True):
        jax.clear_caches()


@pytest.fixture(autouse=True)
def make_room_for_programs() -> Iterator[None]:
    """Some modules alone compile more than a process can hold."""
    yield
    if next(_tests) % LOOK_EVERY == 0 and _many_programs(FAR_TOO_MANY, unknown=False):
        jax.clear_caches()
