"""What tests of models share."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield
