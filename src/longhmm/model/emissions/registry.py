"""The families by name: what the command line, storage and scikit-learn may ask for.

A family registers itself where it is defined, with `@register("student-t")`, in a file of that name in this folder.
Nothing else has to be told of a new one. Asking for names alone imports no family, so that help answers at once.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from longhmm.errors import DataError, ModelError

if TYPE_CHECKING:
    from longhmm.data.sequences import Sequences
    from longhmm.model.emissions.base import Emission

Class = TypeVar("Class", bound=type)
NO_FAMILIES = ("base", "distribution", "family", "registry", "tied")  # files that are no family to be asked for
_registered: dict[str, Any] = {}


class Guess(NamedTuple):
    """The name of a family that may suit some data, and the reason."""

    name: str
    reason: str


def register(name: str) -> Callable[[Class], Class]:
    """Make a class known under this name."""

    def under_name(family: Class) -> Class:
        _registered[name] = family
        return family

    return under_name


def families() -> dict[str, type[Emission]]:
    """All registered classes by name, those of this folder included."""
    for name in _files():
        importlib.import_module(f"{__package__}.{name}")
    return dict(_registered)


def names() -> list[str]:
    """What a user may write instead of a class."""
    files = {name.replace("_", "-") for name in _files()}
    return sorted((files | set(_registered)) - set(NO_FAMILIES))


def name_of(emission: Emission) -> str | None:
    """The name of an emission's class; None for a user's own that was not registered."""
    return next((name for name, family in families().items() if family is type(emission)), None)


def from_name(name: str, data: Sequences, **priors: Any) -> Emission:
    """The emission that a user means who gives the name of its family, and priors or fixed values."""
    if name not in names():
        raise ModelError(f"emission must be an Emission or one of {', '.join(names())}, got {name!r}.")
    family = families()[name]
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


def _files() -> list[str]:
    return [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])]
