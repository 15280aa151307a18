"""Emissions and transitions by name: what the command line, storage and scikit-learn may ask for.

A class registers itself where it is defined, with `@EMISSIONS.register("student-t")`: in a file of that name in the
folder of its kind, in a package that declares an entry point of that name in the registry's group, or anywhere else.
Nothing else has to be told of it. Asking for names alone imports nothing, so that help answers at once.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from functools import cached_property
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from longhmm.errors import DataError, ModelError

if TYPE_CHECKING:
    from longhmm.data.sequences import Sequences
    from longhmm.model.emissions.base import Emission

Class = TypeVar("Class", bound=type)
_REGISTERED_CLASS = re.compile(r"^@\w+\.register\(.*\)\n(?:@.*\n)*class (\w+)", re.MULTILINE)


class Registry:
    """The classes of one kind: `kind` names the folder beside this file, `others` its files that register none."""

    def __init__(self, kind: str, others: tuple[str, ...]) -> None:
        self._package, self._group, self._others = f"longhmm.model.{kind}", f"longhmm.{kind}", others
        self._folder = Path(__file__).parent / kind
        self._files = [each.name for each in pkgutil.iter_modules([str(self._folder)])]
        self._registered: dict[str, Any] = {}

    @cached_property
    def _plugins(self) -> EntryPoints:
        return entry_points(group=self._group)

    def register(self, name: str) -> Callable[[Class], Class]:
        """Make a class known under this name."""

        def under_name(each: Class) -> Class:
            self._registered[name] = each
            return each

        return under_name

    def classes(self) -> dict[str, Any]:
        """All classes by name, those of the folder and of other packages included."""
        for name in self._files:
            importlib.import_module(f"{self._package}.{name}")
        for plugin in self._plugins:
            plugin.load()
        return dict(self._registered)

    def names(self) -> list[str]:
        """What a user may write instead of a class."""
        files = {name.replace("_", "-") for name in self._files}
        return sorted((files | self._plugins.names | set(self._registered)) - set(self._others))

    def modules(self) -> dict[str, str]:
        """The modules of the classes by the classes' own names; those of the folder are read, not imported."""
        found = {each.__name__: each.__module__ for each in self._registered.values()}
        for name in self._files:
            text = (self._folder / f"{name}.py").read_text(encoding="utf-8")
            found |= dict.fromkeys(_REGISTERED_CLASS.findall(text), f"{self._package}.{name}")
        return found

    def name_of(self, known: type) -> str | None:
        """The name of a class; None for a user's own that was not registered."""
        return next((name for name, each in self.classes().items() if each is known), None)


EMISSIONS = Registry("emissions", ("base", "distribution", "family", "product", "tied"))
TRANSITIONS = Registry("transitions", ())


def accepted(each: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Those of the arguments that a class has."""
    known = inspect.signature(each).parameters
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    return {name: value for name, value in given.items() if anything or name in known}


class Guess(NamedTuple):
    """The name of a family that may suit some data, and the reason."""

    name: str
    reason: str


def emission_from_name(name: str, data: Sequences, **priors: Any) -> Emission:
    """The emission that a user means who gives the name of its family, and priors or fixed values; or the families of
    several streams, as in "step=gamma,angle=von-mises"."""
    names = EMISSIONS.names()
    streams = dict(each.partition("=")[::2] for each in name.split(",")) if "=" in name else {"": name}
    for family_name in streams.values():
        if family_name not in names:
            raise ModelError(f"emission must be an Emission or one of {', '.join(names)}, got {family_name!r}.")
    classes = EMISSIONS.classes()
    if "" not in streams:
        return classes["product"](**{stream: classes[each](**_of(stream, priors)) for stream, each in streams.items()})
    family: type[Emission] = classes[name]
    try:
        return family.from_data(data, **priors)
    except TypeError:
        known = ", ".join(family.from_data(data).names)
        raise ModelError(
            f"priors must name a parameter of the emission {name} ({known}), got {', '.join(sorted(priors))}."
        ) from None


def _of(stream: str, priors: dict[str, Any]) -> dict[str, Any]:
    """The priors of one stream, without its name."""
    own = f"{stream}_"
    return {name.removeprefix(own): prior for name, prior in priors.items() if name.startswith(own)}


def guess_emission(data: Sequences) -> Guess:
    """Which family suits the data, judged by their type: a place to begin."""
    from longhmm.model.summary import Sample, subsample

    sample = Sample(subsample(data))
    if sample.known.size == 0:
        raise DataError(f"{data.name} has no values to look at; choose other columns.")
    suits = [(name, family.suits(sample)) for name, family in EMISSIONS.classes().items()]
    best = max(((name, suit) for name, suit in suits if suit is not None), key=lambda each: each[1].strength)
    return Guess(best[0], best[1].reason)
