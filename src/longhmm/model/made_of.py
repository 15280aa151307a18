"""What a family is made of decides what it is: other parameters than its own make another family, and formulas in place
of priors one whose parameters follow covariates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from longhmm.errors import ModelError
from longhmm.model.registry import EMISSIONS
from longhmm.model.regression import Regression, as_regression


class MadeOf:
    """A class whose arguments decide of what class an instance is."""

    # The registered name of the class that has other parameters, and these.
    otherwise: ClassVar[tuple[str, tuple[str, ...]]] = ("", ())
    # Whether parameters of emissions that it holds have the name of their argument in front.
    names_others: ClassVar[bool] = False
    regressions: Mapping[str, Regression] = {}  # of parameters that follow covariates

    def __new__(cls, *args: Any, **given: Any) -> Any:
        name, others = vars(cls).get("otherwise", ("", ()))
        kind: Any = cls
        if any(given.get(other) is not None for other in others):
            kind = EMISSIONS.classes()[name]
            if not issubclass(kind, cls):
                return kind.instead(*args, **given)
            mixed = [own for own in cls.regions if given.get(own) is not None]  # type: ignore[attr-defined]
            if mixed:
                said = f"either {' and '.join(others)} or {mixed[0]}"
                raise ModelError(f"{cls.__name__} has {said}, but it was given both.")
        follows = any(as_regression(each) or getattr(each, "regressions", None) for each in (*args, *given.values()))
        by_formula: Any = EMISSIONS.classes()["by-formula"] if follows else None
        if by_formula is None or issubclass(by_formula, cls):
            return super().__new__(kind)
        return by_formula.around(kind, args, given)
