"""What a family is made of decides what it is: other parameters than its own make another family, and formulas in place
of priors one whose parameters follow covariates; a drift puts it on a baseline."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

from numpyro.distributions import constraints

from longhmm.errors import ModelError
from longhmm.model.registry import EMISSIONS
from longhmm.model.regression import Regression, as_regression

Class = TypeVar("Class", bound=type)
Settle = Callable[[dict[str, Any]], dict[str, Any]]
# What an emission around another one has in common with it, whatever else it changes.
COMMON: tuple[str, ...] = (
    "name",
    "call",
    "dim",
    "support",
    "_vector",
    "factorises",
    "lags",
    "couples",
    "check",
    "fill",
)
COMMON += ("more_noise", "takes_response")


def like_its_emission(*names: str) -> Callable[[Class], Class]:
    """A class whose instances hold an `emission` and are like it in these respects, and in those of `COMMON`."""

    def like_it(around: Class) -> Class:
        for name in (*COMMON, *names):
            setattr(around, name, property(attrgetter(f"emission.{name}")))
        return around

    return like_it


class MadeOf:
    """A class whose arguments decide of what class an instance is."""

    # The registered name of the class that has other parameters, and these.
    otherwise: ClassVar[tuple[str, tuple[str, ...]]] = ("", ())
    # Whether parameters of emissions that it holds have the name of their argument in front.
    names_others: ClassVar[bool] = False
    regressions: Mapping[str, Regression] = {}  # of parameters that follow covariates
    drift: Any = None  # the baseline that it is on, if it is on one

    def __init_subclass__(cls, **options: Any) -> None:
        """What `help` shows has the arguments that `__new__` takes beside those of `__init__`."""
        super().__init_subclass__(**options)
        own = inspect.signature(cls.__init__)
        shown = list(own.parameters.values())[1:]
        taken = {each.name for each in shown}
        more = [*vars(cls).get("otherwise", ("", ()))[1]]
        if getattr(cls, "support", None) is constraints.real and cls.may_drift():
            more.append("drift")
        if not any(each.kind is each.VAR_KEYWORD for each in shown):
            also = (inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in more)
            shown += (each for each in also if each.name not in taken)
        cls.__signature__ = own.replace(parameters=shown, return_annotation=inspect.Signature.empty)  # type: ignore[attr-defined]

    def __new__(cls, *args: Any, **given: Any) -> Any:
        held = any(isinstance(each, MadeOf) and each.drift is not None for each in (*args, *given.values()))
        if held or (given.get("drift") is not None and cls.may_drift()):
            drifting: Any = EMISSIONS.classes()["drifting"]
            if not issubclass(drifting, cls):
                plain, rest, drift = drifting.apart(args, given, cls.names_others)
                return drifting(cls(*plain, **rest), drift)
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

    @classmethod
    def may_drift(cls) -> bool:
        """Whether an argument of this name is a baseline, and not something of the class's own."""
        return not cls.names_others and "drift" not in inspect.signature(cls.__init__).parameters

    def alike(self, model: Any, sequences: Any, stretches: list[Any]) -> tuple[Settle, list[Any]]:
        """Stretches of rows without what makes sequences differ, for a start; and how it comes back to parameters."""
        return lambda params: params, stretches
