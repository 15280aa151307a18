"""Programs that run for moments only, so that compiling them is what takes time."""

from collections.abc import Callable
from typing import Any

import jax


def quick(work: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`jax.jit` without optimisation, which halves the time of compiling for a processor; not to be called from within
    another program. For what has no loop over rows, or leaves it to the kernel."""
    plain = jax.jit(work, **options)
    bare = jax.jit(work, compiler_options={"xla_backend_optimization_level": 0}, **options)
    return lambda *given, **named: (bare if jax.default_backend() == "cpu" else plain)(*given, **named)


def either(work: Callable[..., Any], **options: Any) -> dict[bool, Callable[..., Any]]:
    """Both programs of some work: the quick one, at True, for when the kernel goes through the rows."""
    return {False: jax.jit(work, **options), True: quick(work, **options)}
