"""Compiled programs are kept on disk between runs, so that the second run starts at once."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache

SWITCH = "LONGHMM_COMPILATION_CACHE"  # names the directory; "0" switches it off
SHORTEST = 0.01  # seconds of compilation below which a program is not worth keeping: there are hundreds of small ones


def cache_directory() -> Path | None:
    """Where compiled programs are kept, or None where that is switched off."""
    wanted = os.environ.get(SWITCH, "")
    if wanted == "0":
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(wanted) if wanted else home / "longhmm" / "compiled"


@contextmanager
def cached_compilation() -> Iterator[None]:
    """Use JAX's persistent compilation cache meanwhile, unless the user has set one up or switched it off."""
    place, settings = cache_directory(), dict[str, Any]()
    # A home that cannot be written to costs only the second start.
    with suppress(OSError):
        if place is not None and getattr(jax.config, "jax_compilation_cache_dir", None) is None:
            place.mkdir(parents=True, exist_ok=True)
            settings = {"jax_compilation_cache_dir": str(place), "jax_persistent_cache_min_compile_time_secs": SHORTEST}
    before = {name: getattr(jax.config, name) for name in settings}
    _set(settings)
    try:
        yield
    finally:
        _set(before)


def _set(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    if settings:
        reset_cache()  # JAX decides once whether it has a cache, and goes on using the directory it has opened
