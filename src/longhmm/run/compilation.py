"""Compiled programs are kept on disk between runs, so that the second run starts at once."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from longhmm.run.kept_programs import linked
from longhmm.version import __version__

SWITCH = "LONGHMM_COMPILATION_CACHE"  # names the directory; "0" switches it off
SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0.01,  # below, a program is not worth keeping: there are hundreds
    "jax_persistent_cache_enable_xla_caches": "none",  # whose directory would be part of the name of every program
}


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
    place = cache_directory()
    with ExitStack() as stack:
        # A home that cannot be written to costs only the second start.
        with suppress(OSError):
            if place is not None and getattr(jax.config, "jax_compilation_cache_dir", None) is None:
                own = stack.enter_context(linked(place, __version__))
                settings = SETTINGS | {"jax_compilation_cache_dir": str(own)}
                stack.callback(_set, {name: getattr(jax.config, name) for name in settings})
                _set(settings)
        yield


def _set(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    reset_cache()  # JAX decides once whether it has a cache, and goes on using the directory it has opened
