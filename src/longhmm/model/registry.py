"""Emissions, transitions and samplers by name, for the command line, storage and scikit-learn. A class registers itself
where it is defined, as `@EMISSIONS.register("student-t")`: in the folder of its kind, in a package with an entry point
of that name, or anywhere else. Asking for names alone imports nothing, so that help answers at once."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from functools import cached_property
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from longhmm.errors import ModelError

if TYPE_CHECKING:
    from longhmm.data.sequences import Sequences
    from longhmm.model.emissions import Emission

Class = TypeVar("Class", bound=type)
_DECLARED = re.compile(r'^@\w+\.register\("([\w-]+)"(.*)\)\n(?:@.*\n)*class (\w+)', re.MULTILINE)


class Registry:
    """The classes of one kind, which is the place of their folder in the package."""

    def __init__(self, kind: str) -> None:
        self._package, self._group = f"longhmm.{kind}", f"longhmm.{kind.rpartition('.')[2]}"
        self._folder = Path(__file__).parents[1].joinpath(*kind.split("."))
        self._registered: dict[str, Any] = {}
        self._offered: set[str] = set()

    @cached_property
    def _plugins(self) -> EntryPoints:
        return entry_points(group=self._group)

    @cached_property
    def _declared(self) -> list[tuple[str, str, str, bool]]:
        """Name, class, module, and whether it is offered, of those in the folder: read, not imported."""
        return [
            (name, own, f"{self._package}.{path.stem}".removesuffix(".__init__"), "offered=False" not in how)
            for path in sorted(self._folder.glob("*.py"))
            for name, how, own in _DECLARED.findall(path.read_text(encoding="utf-8"))
        ]

    def register(self, name: str, *, offered: bool = True) -> Callable[[Class], Class]:
        """Make a class known under this name; `offered` to users who give a name instead of a class."""

        def under_name(each: Class) -> Class:
            self._registered[name] = each
            self._offered |= {name} if offered else set()
            return each

        return under_name

    def classes(self) -> dict[str, Any]:
        """All classes by name, those of the folder and of other packages included."""
        for _, _, module, _ in self._declared:
            importlib.import_module(module)
        for plugin in self._plugins:
            plugin.load()
        return dict(self._registered)

    def names(self) -> list[str]:
        """What a user may write instead of a class."""
        return sorted({name for name, *_, offered in self._declared if offered} | self._plugins.names | self._offered)

    def modules(self) -> dict[str, str]:
        """The modules of the classes by the classes' own names."""
        found = {each.__name__: each.__module__ for each in self._registered.values()}
        return found | {own: module for _, own, module, _ in self._declared}

    def find(self, own: str) -> Any:
        """The class of this name of its own, imported if need be; None where there is none."""
        known = [each for each in self._registered.values() if each.__name__ == own]
        where = None if known else self.modules().get(own)
        return getattr(importlib.import_module(where), own) if where else known[-1] if known else None

    def name_of(self, known: type) -> str | None:
        """The name of a class; None for a user's own that was not registered."""
        return next((name for name, each in self.classes().items() if each is known), None)


EMISSIONS = Registry("model.emissions")
TRANSITIONS = Registry("model.transitions")


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
    from longhmm.model.summary import subsample, summarise

    summary = summarise(subsample(data))
    suits = [(name, family.suits(summary)) for name, family in EMISSIONS.classes().items()]
    best = max(((name, suit) for name, suit in suits if suit is not None), key=lambda each: each[1][0])
    return Guess(best[0], best[1][1])
