"""Parameters that follow covariates: linear in the terms of a formula, on the scale of a link.

`link(theta_k(t)) = b_k0 + sum_c b_kc x_tc` in state k. The link leads from the region of the parameter to the real
numbers: the logarithm where it is positive, the logit where it lies between 0 and 1, nothing where it is real. The
parameter has the prior of its family where all columns have their means.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution, biject_to, constraints
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import Transform

from longhmm.errors import ModelError
from longhmm.model.formula import Formula
from longhmm.model.parameters import Tree, specification
from longhmm.model.support import bare
from longhmm.model.terms import Terms, one_prior

SUFFIX = "_coefficients"


class Regression(Tree):
    """What stands in place of the prior of a parameter that follows covariates; a formula alone will do, too.

    Args:
        formula: such as "~ temp + cos(hour)".
        intercept: prior of the parameter itself, not of its link, where covariates have their means; the default prior
            of the family if not given.
        slope: prior of what a standard deviation of a column adds on the scale of the link: Normal(0, 1) by default,
            and where there is no link Normal(0, s) with the standard deviation s of the prior of the parameter.

    >>> import longhmm as lh
    >>> lh.Poisson(rate=lh.Regression("~ temp"))
    Poisson(rate='~ temp')
    """

    weighs: ClassVar[bool] = True  # whether rows with rare values of its columns tell more than others

    def __init__(self, formula: str, *, intercept: Any = None, slope: Any = None) -> None:
        self.formula: Formula | None = Formula(formula)
        self.text = self.formula.text
        self.intercept = None if intercept is None else specification("intercept", intercept)
        if not isinstance(self.intercept, Distribution | None):
            raise ModelError(f"intercept must be a prior such as LogNormal(0, 1), got {intercept!r}.")
        self.slope = None if slope is None else one_prior("slope", slope)
        self.linear, self.is_met = Terms(), False

    def __repr__(self) -> str:
        return repr(self.text)

    def met(self, formula: Formula, columns: tuple[str, ...], seen: np.ndarray) -> Regression:
        """The same once its formula has met data: its columns stand among those of the model."""
        found = copy.copy(self)
        found.formula, found.is_met = formula, True
        found.linear = Terms.among(formula.columns, columns, seen)
        found.linear.check_slope(self.slope)
        return found

    def on_columns(self) -> Regression:
        """The same, to be given columns instead of what these are made of."""
        found = copy.copy(self)
        found.formula = None
        return found

    def prior(self, of_parameter: Distribution, region: Constraint) -> CoefficientPrior:
        """Of natural coefficients, given that of the parameter."""
        slope = self.slope
        if slope is None:
            sd = np.ones(()) if has_link(region) else jnp.sqrt(of_parameter.variance)
            slope = dist.Normal(0.0, jnp.asarray(sd)[..., None], validate_args=False)
        return CoefficientPrior(of_parameter, region, slope, self.linear)

    def options(self) -> dict[str, Any]:
        """Plain values that rebuild it, but for the prior of the slopes."""
        stored = None if self.formula is None else self.formula.state
        return {"formula": self.text, "resolved": {**self.linear.options(), "state": stored} if self.is_met else None}

    @classmethod
    def rebuilt(cls, options: Mapping[str, Any], slope: Any) -> Regression:
        found, stored = cls(options["formula"], slope=slope), options["resolved"]
        if stored is not None:
            found.formula, found.is_met = Formula(found.text, stored["state"]), True
            found.linear = Terms.rebuilt(stored)
        return found


def as_regression(given: Any) -> Regression | None:
    """What a formula or a `Regression` in place of a prior means; None where it is neither."""
    if isinstance(given, str) and given.lstrip().startswith("~"):
        return Regression(given)
    return given if isinstance(given, Regression) else None


def has_link(region: Constraint) -> bool:
    """Whether a parameter is not just any real number."""
    return type(bare(region)) is not type(constraints.real)


class Coefficients(Constraint):
    """Natural coefficients, any numbers; their coordinates are standard ones."""

    event_dim = 1

    def __init__(self, linear: Terms) -> None:
        self.linear = linear

    def __call__(self, x: Any) -> Any:
        xp = jnp if isinstance(x, jax.Array) else np
        return xp.all(xp.isfinite(x), axis=-1)

    def __repr__(self) -> str:
        return "coefficients"

    def tree_flatten(self) -> Any:
        return (self.linear,), (("linear",), {})

    def eq(self, other: object, static: bool = False) -> bool:
        return isinstance(other, Coefficients) and other.linear is self.linear


class Standardised(Transform):
    """From standard to natural coefficients."""

    domain = codomain = constraints.real_vector

    def __init__(self, linear: Terms) -> None:
        self.linear = linear

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.linear.natural(jnp.asarray(x))

    def _inverse(self, y: jax.Array) -> jax.Array:
        return self.linear.standard(jnp.asarray(y))

    def log_abs_det_jacobian(self, x: jax.Array, y: jax.Array, intermediates: Any = None) -> jax.Array:
        return jnp.broadcast_to(self.linear.log_volume(x.dtype), x.shape[:-1])

    def tree_flatten(self) -> Any:
        return (self.linear,), (("linear",), {})


biject_to.register(Coefficients, lambda region: Standardised(region.linear))


class CoefficientPrior(Distribution):
    """Natural coefficients, of which the parameter at the means of all columns has the prior `at_means` and every
    standard slope, or each group of them, the prior `slope`."""

    arg_constraints: ClassVar[dict[str, Any]] = {}
    pytree_data_fields = ("at_means", "region", "slope", "linear")

    def __init__(self, at_means: Distribution, region: Constraint, slope: Distribution, linear: Terms) -> None:
        self.at_means, self.region, self.slope, self.linear = at_means, region, slope, linear
        super().__init__(tuple(at_means.batch_shape), (len(linear.labels),), validate_args=False)

    @property
    def support(self) -> Coefficients:
        return Coefficients(self.linear)

    def log_prob(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        standard, link = self.linear.standard(jnp.asarray(value)), biject_to(self.region)
        middle = standard[..., 0]
        parameter = link(middle)
        logs = self.at_means.log_prob(parameter) + link.log_abs_det_jacobian(middle, parameter)
        found: jax.Array = logs + self.linear.log_prior(self.slope, standard[..., 1:])
        return found - self.linear.log_volume(standard.dtype)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        first, second = jax.random.split(key)
        middle = biject_to(self.region).inv(self.at_means.sample(first, sample_shape))
        slopes = self.linear.draw(second, self.slope, middle.shape)
        return self.linear.natural(jnp.concatenate([middle[..., None], slopes], axis=-1))
