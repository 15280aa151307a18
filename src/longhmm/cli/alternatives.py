"""Models that `longhmm compare` ranks: every number of states with each kind of noise and each baseline."""

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from longhmm.cli.options import modelling

if TYPE_CHECKING:
    from longhmm.model.hmm import HMM

Noises = Annotated[list[str] | None, modelling("--noise", help="As of `fit`, or none; repeat it to compare several.")]
Drifts = Annotated[list[int] | None, modelling("--drift", min=0, help="Knots, or 0; repeat it to compare several.")]


def alternatives(
    numbers: Sequence[int], noise: list[str] | None, drift: list[int] | None, build: Callable[..., "HMM"]
) -> dict[str, "HMM"]:
    """By name, what `build(n_states, noise=..., drift=...)` makes."""
    found = {}
    for n, own, knots in itertools.product(numbers, noise or ["none"], drift or [0]):
        white = own == "none"
        said = [f"{n} state{'s' if n > 1 else ''}", "" if white else own, f"drift {knots}" if knots else ""]
        found[", ".join(filter(None, said))] = build(n, noise=None if white else own, drift=knots or None)
    return found
