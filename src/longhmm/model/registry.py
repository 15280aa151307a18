"""Classes by name: what the command line, storage and scikit-learn may ask for.

A class registers itself where it is defined, with `@register("student-t")`, in a file of that name in a folder that the
registry knows. Nothing else has to be told of a new one. Asking for names alone imports nothing, so that help answers
at once.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)
_REGISTERED_CLASS = re.compile(r"^@register\(.*\)\n(?:@.*\n)*class (\w+)", re.MULTILINE)


class Registry:
    """The classes of one kind.

    Args:
        folder: of the files that register one.
        package: the folder's name as a package.
        others: files in it that do not.
    """

    def __init__(self, folder: Path, package: str, others: tuple[str, ...]) -> None:
        self._folder, self._package, self._others = folder, package, others
        self._registered: dict[str, Any] = {}

    def register(self, name: str) -> Callable[[Class], Class]:
        """Make a class known under this name."""

        def under_name(each: Class) -> Class:
            self._registered[name] = each
            return each

        return under_name

    def classes(self) -> dict[str, Any]:
        """All classes by name, those of the folder included."""
        for name in self._files():
            importlib.import_module(f"{self._package}.{name}")
        return dict(self._registered)

    def names(self) -> list[str]:
        """What a user may write instead of a class."""
        files = {name.replace("_", "-") for name in self._files()}
        return sorted((files | set(self._registered)) - set(self._others))

    def modules(self) -> dict[str, str]:
        """The modules of the classes by the classes' own names; those of the folder are read, not imported."""
        found = {each.__name__: each.__module__ for each in self._registered.values()}
        for name in self._files():
            text = (self._folder / f"{name}.py").read_text(encoding="utf-8")
            found |= dict.fromkeys(_REGISTERED_CLASS.findall(text), f"{self._package}.{name}")
        return found

    def name_of(self, instance: Any) -> str | None:
        """The name of an instance's class; None for a user's own that was not registered."""
        return next((name for name, each in self.classes().items() if each is type(instance)), None)

    def _files(self) -> list[str]:
        return [module.name for module in pkgutil.iter_modules([str(self._folder)])]
