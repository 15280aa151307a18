"""What a run leaves behind, before it is turned into answers: draws, and what a user should know beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from longhmm.run.driver import CTRL_C, RunState
from longhmm.target.minibatch import MinibatchSource
from longhmm.target.target import Target


class Chains(NamedTuple):
    """Draws of several chains in unconstrained coordinates.

    Attributes:
        coordinates: by name, `(chain, draw, *shape)`, float64.
        stats: by name, `(chain, draw)`, one number per kept draw (for instance "log_likelihood", "finite").
        settings: everything needed to tell how the draws came about: sampler, windows, buffer, step size, thinning,
            seeds, versions; plain JSON values.
        information: `(P, P)` observed information at the mode in flat coordinates (names sorted), or None.
        mode: coordinates of the mode by name, or None.
        notes: sentences for the user, such as "another mode is as good" or "stopped by the time limit".
    """

    coordinates: dict[str, np.ndarray]
    stats: dict[str, np.ndarray]
    settings: dict[str, Any]
    information: np.ndarray | None
    mode: dict[str, np.ndarray] | None
    notes: tuple[str, ...]


def notes_on(target: Target, state: RunState, stats: Mapping[str, np.ndarray], wanted: int) -> list[str]:
    """Diverged chains, an early end, crowded windows, impossible windows."""
    found = []
    lost = int((~np.asarray(state.alive)).sum())
    if lost:
        found.append(f"run longer: {lost} chain(s) diverged and were left out; use a smaller step size")
    if state.stopped:
        found.append(stopped_note(state.stopped, state.draws, wanted))
    source = target.drawn_from
    if source is not None:
        found += crowded(source) + impossible(source, stats)
    return found


def stopped_note(why: str, draws: int, wanted: int) -> str:
    """What ended a run early."""
    return f"stopped early by {why}, with {draws} of {wanted} draws per chain"


def stopped_by_user(notes: Iterable[str]) -> bool:
    """Whether notes tell of Ctrl-C."""
    return any(note.startswith(f"stopped early by {CTRL_C}") for note in notes)


def crowded(source: MinibatchSource) -> list[str]:
    """Windows that had to be drawn closer together than the data's memory asks for."""
    scheme = source.scheme
    if not scheme.shrunk:
        return []
    return [
        f"windows are crowded: {scheme.count} windows of {source.partition.width(source.buffer)} rows do not fit into "
        f"{int(source.partition.offsets[-1]):,} rows with a mixing time between them, so that neighbours say much the "
        "same and gradients are noisier than their spread suggests; use fewer windows, or an exact sampler"
    ]


def impossible(source: MinibatchSource, stats: Mapping[str, np.ndarray]) -> list[str]:
    """Windows with observations that no state can have produced, which the gradient had to leave out."""
    counts = np.asarray(stats.get("impossible", 0))
    if not counts.any():
        return []
    total = source.scheme.count * counts.size
    return [
        f"biased: at least {int(counts.sum()):,} of {total:,} windows looked at hold observations that no state can "
        "produce at the parameters of that step, and were left out of the gradient; check the data, or start elsewhere "
        "(init)"
    ]
