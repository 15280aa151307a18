"""What all tests share."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_programs() -> Iterator[None]:
    """Every compiled program holds memory maps, and a process may have only some 65,000 of them."""
    yield
    jax.clear_caches()
