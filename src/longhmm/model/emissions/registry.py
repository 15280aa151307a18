"""The families of emissions by name (see `longhmm.model.registry`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from longhmm.errors import DataError, ModelError
from longhmm.model.registry import Registry

if TYPE_CHECKING:
    from longhmm.data.sequences import Sequences
    from longhmm.model.emissions.base import Emission

_registry = Registry(
    Path(__file__).parent, "longhmm.model.emissions", ("base", "distribution", "family", "registry", "tied")
)
register, families, names, name_of = _registry.register, _registry.classes, _registry.names, _registry.name_of
modules = _registry.modules


class Guess(NamedTuple):
    """The name of a family that may suit some data, and the reason."""

    name: str
    reason: str


def from_name(name: str, data: Sequences, **priors: Any) -> Emission:
    """The emission that a user means who gives the name of its family, and priors or fixed values."""
    if name not in names():
        raise ModelError(f"emission must be an Emission or one of {', '.join(names())}, got {name!r}.")
    family: type[Emission] = families()[name]
    try:
        return family.from_data(data, **priors)
    except TypeError:
        known = ", ".join(family.from_data(data).names)
        raise ModelError(
            f"priors must name a parameter of the emission {name} ({known}), got {', '.join(sorted(priors))}."
        ) from None


def guess(data: Sequences) -> Guess:
    """Which family suits the data, judged by their type: a place to begin."""
    from longhmm.model.summary import Sample, subsample

    sample = Sample(subsample(data))
    if sample.known.size == 0:
        raise DataError(f"{data.name} has no values to look at; choose other columns.")
    suits = [(name, family.suits(sample)) for name, family in families().items()]
    best = max(((name, suit) for name, suit in suits if suit is not None), key=lambda each: each[1].strength)
    return Guess(best[0], best[1].reason)
