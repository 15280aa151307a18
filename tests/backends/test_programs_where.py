"""Where programs run, beside a GPU that is only pretended."""

import jax
import jax.numpy as jnp
import pytest

from longhmm.backends import native
from longhmm.backends.evaluate import in_double
from longhmm.backends.pallas import windows
from longhmm.backends.programs import on_host, platform


@pytest.fixture
def beside_a_gpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(native, "available", lambda: True)


def test_the_platform_is_that_of_programs_that_are_called_here(beside_a_gpu):
    assert platform() == "gpu"
    with on_host():
        assert platform() == "cpu"
    assert platform() == "gpu"


def test_programs_in_double_precision_run_on_the_cpu_with_its_kernel(beside_a_gpu):
    assert not native.usable()
    with in_double():
        assert (platform(), native.usable(), windows.usable()) == ("cpu", True, False)
        assert jnp.ones(()).dtype == jnp.float64
    with in_double(False):
        assert (platform(), native.usable()) == ("gpu", False)


def test_without_the_kernel_they_run_where_jax_would_run_them(beside_a_gpu, monkeypatch):
    monkeypatch.setattr(native, "available", lambda: False)
    with in_double():
        assert platform() == "gpu"
        assert jnp.ones(()).dtype == jnp.float64
