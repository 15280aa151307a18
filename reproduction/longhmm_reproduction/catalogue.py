"""Every experiment by name. Each is imported when it runs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from longhmm.run.compilation import cached_compilation

_WHERE = {
    "dd": "simulated",
    "rc": "simulated",
    "rc-hard": "simulated",
    "lognormal": "lognormal",
    "ion": "ion",
    "variational": "variational",
}
NAMES = tuple(_WHERE)
SCALES = ("tiny", "small", "paper")
IN_REPETITIONS = tuple(name for name, where in _WHERE.items() if where == "simulated")


def run(name: str, scale: str, seed: int = 0, workers: int = 1, keep: Path | None = None) -> dict[str, Any]:
    """Run one experiment: `{"experiment", "settings", "results"}`, and the curves behind them.

    Those `IN_REPETITIONS` can share them out among several processes, and keep what is finished in a folder.
    """
    module = importlib.import_module(f"longhmm_reproduction.{_WHERE[name]}")
    with cached_compilation(), _compiled_lightly(scale == "tiny"):
        return dict(module.run(name, scale, seed, *([workers, keep] if name in IN_REPETITIONS else [])))


@contextmanager
def _compiled_lightly(wanted: bool) -> Iterator[None]:
    """Where programs run for less time than it takes to compile them, let the compiler do without much of its work."""
    before = bool(jax.config.values["jax_disable_most_optimizations"])
    jax.config.update("jax_disable_most_optimizations", before or wanted)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
