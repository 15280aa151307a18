"""Compiled steps in blocks that are short enough to look at the clock in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import jax

State = TypeVar("State")
SECONDS = 0.25  # a block of steps takes about as long, or is a single step


def block_size(count: int, seconds: float) -> int:
    """Steps of the next block, after one of `count` steps that took so long: at most twice as many."""
    return max(1, min(2 * count, int(count * SECONDS / max(seconds, 1e-9))))


def in_blocks(
    run: Callable[[State, int, int], State], state: State, steps: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[tuple[State, int]]:
    """States after blocks of steps `run(state, first, count)`, with the number of steps behind each.

    What a step does must depend on its number alone, so that the blocks, which depend on the clock, change nothing.
    """
    done, count = 0, 1
    while done < steps:
        began = clock()
        with jax.enable_x64(True):
            state = jax.block_until_ready(run(state, done, count))
        done += count
        yield state, done
        count = min(block_size(count, clock() - began), steps - done)
