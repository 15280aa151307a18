"""The repetitions of an experiment one after the other, or side by side in processes that share the cores out."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from longhmm.run.compilation import cached_compilation
from longhmm_reproduction.document import Document


def run_repetitions(do: Callable[[int], Document], seeds: Sequence[int], workers: int = 1) -> Iterator[Document]:
    """What `do` finds for each seed, in their order; with several workers it has to be picklable."""
    if workers == 1:
        yield from map(do, seeds)
        return
    context = multiprocessing.get_context("spawn")  # JAX must not be forked
    places: Any = context.Queue()
    for place in share_out(workers):
        places.put(place)
    with ProcessPoolExecutor(workers, context, _settle, (places,)) as pool:
        yield from pool.map(partial(_do, do), seeds)


def share_out(workers: int) -> list[list[int]]:
    """As many cores for each worker, at least one; an empty list where processes cannot be tied to cores."""
    if not hasattr(os, "sched_getaffinity"):
        return [[]] * workers
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // workers)
    return [[cores[(worker * each + core) % len(cores)] for core in range(each)] for worker in range(workers)]


def _settle(places: Any) -> None:
    """Stay on one's own cores, so that times compare."""
    place = places.get()
    if place:
        os.sched_setaffinity(0, place)


def _do(do: Callable[[int], Document], seed: int) -> Document:
    with cached_compilation():
        return do(seed)
