"""Descriptions as trees for compiled code: what they hold of numbers are leaves, all else is structure.

A program is compiled for a structure, so that one program serves every data set of the same shape, whatever the numbers
of priors, fixed values and scales are.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Self

import jax
import numpy as np
from numpyro.distributions import Distribution
from numpyro.distributions.constraints import Constraint

NUMBERS = "_names_of_numbers"


class Tree:
    """A class whose instances, and those of its subclasses, are trees.

    Leaves are the arrays that an instance holds, and the numbers of the priors, constraints and other trees that it
    holds; other attributes must have an equality. Those named in `derived`, and cached properties, are made anew when
    they are needed.
    """

    derived: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        jax.tree_util.register_pytree_node(cls, lambda each: each.tree_flatten(), cls.tree_unflatten)

    def held(self) -> dict[str, Any]:
        """What an instance is made of, by name."""
        made_anew = {name for name in vars(self) if isinstance(getattr(type(self), name, None), cached_property)}
        return {name: value for name, value in vars(self).items() if name not in {NUMBERS, *self.derived, *made_anew}}

    @classmethod
    def made_of(cls, parts: dict[str, Any]) -> Self:
        """The instance that holds these, unchecked."""
        made = object.__new__(cls)
        vars(made).update(parts)
        return made

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """For JAX: what holds numbers, and the structure around it."""
        parts = self.held()
        # JAX sometimes puts other things in the place of numbers: what was one is remembered.
        known = vars(self).get(NUMBERS)
        names = known or tuple(name for name, value in parts.items() if isinstance(value, HOLDS_NUMBERS))
        structure = tuple((name, value) for name, value in parts.items() if name not in names)
        return tuple(parts[name] for name in names), (names, structure)

    @classmethod
    def tree_unflatten(cls, structure: Any, numbers: tuple[Any, ...]) -> Self:
        """Inverse of `tree_flatten`, with any numbers."""
        names, rest = structure
        made = cls.made_of({**dict(zip(names, numbers, strict=True)), **dict(rest)})
        vars(made)[NUMBERS] = names
        return made


class Named(dict[Any, Any], Tree):
    """Priors, fixed values and the like by name, in the order in which they were given (which JAX loses elsewhere)."""

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        return tuple(self.values()), tuple(self)

    @classmethod
    def tree_unflatten(cls, structure: Any, numbers: tuple[Any, ...]) -> Self:
        return cls(zip(structure, numbers, strict=True))


HOLDS_NUMBERS = (Tree, Constraint, Distribution, np.ndarray, jax.Array)
