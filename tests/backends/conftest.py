"""Fixtures of the tests of backends."""

import pytest

from backends.chains import cut
from longhmm.backends import native


@pytest.fixture
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    cut(monkeypatch)


# The reference takes several times as long; where there is no kernel it is all there is.
@pytest.fixture(params=["cpp", pytest.param("reference", marks=[pytest.mark.slow] if native.available() else [])])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Streams by the C++ kernel and by JAX."""
    if request.param == "cpp" and not native.available():
        pytest.skip("the C++ kernel was not built here")
    if request.param == "reference":
        monkeypatch.setattr(native, "available", lambda: False)
    return request.param
