"""What the fused GPU kernel is told, and what it gives back."""

from typing import Any, NamedTuple

UNKNOWN = 2.0**-63  # what predictions may differ by where chunks meet, in single precision
COMPARED = UNKNOWN / 4096  # the smallest entry of a message that is compared there


class Config(NamedTuple):
    """How the work is laid out on the device."""

    lanes: int = 32  # windows of a program
    warps: int = 1
    held: bool = True  # keep the transition matrix and the packs in registers; else they are read for every row
    fused_counts: bool = False  # count transitions in the backward pass, not in one of their own; only where `held`
    splits: int = 8  # programs that share the rows of a window in that pass of its own
    tile: int = 8  # states on each side of the tile of transitions that a program of it keeps in registers


class Plan(NamedTuple):
    """What is constant in a compiled kernel."""

    kind: int
    width: int  # numbers of a row
    pack: int  # natural parameters of a state
    sums: int  # expected statistics of a state
    states: int
    left: int  # the longest margins and core
    core: int
    right: int
    row_stride: int  # distance, in the flat rows, of the next time and of the next number of a row
    number_stride: int
    gamma: int  # rows of posteriors that are asked for, or 0
    config: Config
    joined: bool = False  # windows are chunks that warmed up and whose messages are compared (see native/group.h)


class Lanes(NamedTuple):
    """Arrays that describe windows, `(W,)` int32 each, W a multiple of the lanes.

    `origin` is where the number 0 of row 0 would lie (row `left` is the first of the core), `begin` and `stop` bound
    the rows that belong to the window, `core` counts its core rows, `opens` is 1 where row `begin` opens a sequence.
    """

    origin: Any
    begin: Any
    stop: Any
    core: Any
    opens: Any


class Parameters(NamedTuple):
    """Flat parameters in float32: `(K K)`, `(K)`, `(K)`, and `(K pack)` from `scaled_packs`; and `(1)`, whether a state
    may be left for good, so that what underflow takes has to be watched (found by `run_windows`)."""

    transition: Any
    initial: Any
    start: Any
    packs: Any
    watched: Any = None


class Found(NamedTuple):
    """Results by window, the last axis W: log likelihood, first states `(K, W)`, transitions `(K, K, W)` without the
    factor A, sums `(K, sums, W)`, edge messages `(4, K, W)` (before, leaving, after, entering), a flag where underflow
    may have lost something, and posteriors of core rows `(gamma, K)` (others hold anything)."""

    log_likelihood: Any
    first: Any
    transitions: Any
    sums: Any
    edges: Any
    lost: Any
    gamma: Any
