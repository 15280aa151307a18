"""Compiled programs are kept on disk between runs, so that the second run starts at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax

SWITCH = "LONGHMM_COMPILATION_CACHE"


@contextmanager
def cached_compilation() -> Iterator[None]:
    """Use JAX's persistent compilation cache meanwhile, unless the user has set one up or switched it off.

    The environment variable LONGHMM_COMPILATION_CACHE names the directory; "0" switches it off.
    """
    wanted = os.environ.get(SWITCH, "")
    if wanted == "0" or getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        yield
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = Path(wanted) if wanted else home / "longhmm" / "compiled"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to costs only the second start
        yield
        return
    settings = {"jax_compilation_cache_dir": str(place), "jax_persistent_cache_min_compile_time_secs": 0.2}
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
