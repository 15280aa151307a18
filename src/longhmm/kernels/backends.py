"""Which kernel runs where: C++ on the CPU, Pallas on an NVIDIA GPU, the JAX reference everywhere else."""

from __future__ import annotations

from longhmm.kernels import native, pallas_windows

NATIVE, PALLAS, REFERENCE = "native", "pallas", "reference"


def windows_backend(n_states: int) -> str:
    """The kernel that compiled programs use for windows of a model with so many states."""
    if native.usable():
        return NATIVE
    if pallas_windows.usable() and pallas_windows.serves(n_states):
        return PALLAS
    return REFERENCE


def fused(n_states: int) -> bool:
    """Whether windows go through a fused kernel."""
    return windows_backend(n_states) != REFERENCE
