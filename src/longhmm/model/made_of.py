"""What a family is made of decides what it is: other parameters than its own make another family."""

from __future__ import annotations

from typing import Any, ClassVar

from longhmm.errors import ModelError
from longhmm.model.registry import EMISSIONS


class MadeOf:
    """A class whose arguments decide of what class an instance is."""

    # The registered name of the class that has other parameters, and these.
    otherwise: ClassVar[tuple[str, tuple[str, ...]]] = ("", ())

    def __new__(cls, *args: Any, **given: Any) -> Any:
        name, others = vars(cls).get("otherwise", ("", ()))
        if all(given.get(other) is None for other in others):
            return super().__new__(cls)
        other: Any = EMISSIONS.classes()[name]
        if not issubclass(other, cls):
            return other.instead(*args, **given)
        mixed = [own for own in cls.regions if given.get(own) is not None]  # type: ignore[attr-defined]
        if mixed:
            raise ModelError(f"{cls.__name__} has either {' and '.join(others)} or {mixed[0]}, but it was given both.")
        return super().__new__(other)
