"""What the fused GPU kernel is told, and what it gives back."""

from __future__ import annotations

from typing import Any, NamedTuple


class Form(NamedTuple):
    """Kind of the rows, numbers of a row, natural parameters of a state, and expected statistics of a state."""

    kind: int
    width: int
    pack: int
    sums: int


UNKNOWN = 2.0**-63  # what predictions may differ by where chunks meet, in single precision
COMPARED = UNKNOWN / 4096  # the smallest entry of a message that is compared there


class Config(NamedTuple):
    """How the work is laid out on the device.

    Attributes:
        lanes, warps: windows and warps of a program.
        held: keep the transition matrix and the packs in registers, and write its products out; else they are read for
            every row.
        fused_counts: count transitions in the backward pass, rather than in a pass of their own; only where `held`.
        splits: programs that share the rows of a window in that pass of its own.
        tile: states on each side of the tile of transitions that a program of it keeps in registers.
    """

    lanes: int = 32
    warps: int = 1
    held: bool = True
    fused_counts: bool = False
    splits: int = 8
    tile: int = 8


class Plan(NamedTuple):
    """What is constant in a compiled kernel.

    Attributes:
        form, states: the emission, and K.
        left, core, right: the longest margins and core.
        row_stride, number_stride: distance, in the flat rows, of the next time and of the next number of a row.
        gamma: rows of posteriors that are asked for, or 0.
        config: how to run it.
        interpret: run it without a GPU, slowly.
        joined: windows are chunks that warmed up and whose messages are compared (see native/group.h).
    """

    form: Form
    states: int
    left: int
    core: int
    right: int
    row_stride: int
    number_stride: int
    gamma: int
    config: Config
    interpret: bool
    joined: bool = False


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
