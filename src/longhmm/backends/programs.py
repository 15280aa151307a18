"""Where programs run; and those that run for moments only, so that compiling them is what takes time."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np

# Without LLVM's optimisation, and without XLA's newer generator of fused loops, which takes twice as long as the older.
SPARED: Any = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def platform() -> str:
    """Of programs that are called here: "cpu", "gpu", or another."""
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    return jax.default_backend() if chosen is None else str(getattr(chosen, "platform", chosen))


def on_host() -> AbstractContextManager[Any]:
    """Small programs run on the CPU, also beside a GPU, where every step of theirs would be a launch of its own."""
    there = platform() != "cpu" and "cpu" in (jax.config.jax_platforms or "cpu")  # type: ignore[attr-defined]
    return jax.default_device(jax.local_devices(backend="cpu")[0]) if there else nullcontext()


def here(program: Callable[..., Any], *given: Any) -> Any:
    """What a small program gives there, in double precision, as arrays of NumPy."""
    with jax.enable_x64(True), on_host():
        return jax.tree.map(np.asarray, program(*given))


def quick(work: Callable[..., Any], level: int = 0, **options: Any) -> Callable[..., Any]:
    """`jax.jit` with less optimisation, which quarters the time of compiling for a processor; not to be called from
    within another program. For what leaves rows to the kernel; with `level` 1 loops run about as fast as ever."""
    plain = jax.jit(work, **options)
    bare = jax.jit(work, compiler_options=SPARED | {"xla_backend_optimization_level": level}, **options)

    def run(*given: Any, **named: Any) -> Any:
        nonlocal bare
        try:
            return (bare if platform() == "cpu" else plain)(*given, **named)
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error):
                raise
        bare = plain  # another version of XLA
        return plain(*given, **named)

    return run


def either(work: Callable[..., Any], **options: Any) -> dict[bool, Callable[..., Any]]:
    """Both programs of some work: the quick one, at True, for when the kernel goes through the rows."""
    return {False: jax.jit(work, **options), True: quick(work, **options)}
