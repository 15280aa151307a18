"""What the named families share: default priors that wait for the data."""

from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution
from numpyro.distributions.constraints import Constraint

from longhmm.model.emissions import Emission
from longhmm.model.emissions.distribution import Builder, Density, check_inside
from longhmm.model.lowering import LinearLowering, Lowering
from longhmm.model.parameters import Named, Pending, full_shape, make_parameter, specification
from longhmm.model.summary import DataSummary


class Family(Emission):
    """An emission whose parameters all have default priors. `regions` says where each parameter lives. A parameter that
    is given no prior gets its default from `default_priors` when the data are known. `builder` is the NumPyro
    distribution, for families without a density, draws or means of their own. A family whose log densities are `eta_k .
    s(y) - a_k + log h(y)`, and which gives these parts, has a lowering."""

    builder: ClassVar[Builder | None] = None
    regions: ClassVar[dict[str, Constraint]]
    statistics: ClassVar[tuple[str, ...]] = ()  # s(y) of a feature; see model/statistics.py

    def __init__(self, dim: int = 1, *, vector: bool = False, **priors: Any) -> None:
        specs = {
            name: Pending(region) if priors[name] is None else specification(name, priors[name])
            for name, region in self.regions.items()
        }
        self._describe(dim, specs, vector=vector)
        if (builder := type(self).builder) is not None:
            self._density = Density(builder, tuple(specs), (), self.dim, vector, self.support)
        # At the number of states that explicit per-state priors imply.
        tails, shapes = self.tails(2), {name: full_shape(spec) for name, spec in specs.items()}
        implied = [shape[0] for name, shape in shapes.items() if len(shape) == len(tails[name]) + 1 and shape[0] > 1]
        for name, spec in specs.items():
            parameter = make_parameter(name, spec, [2, *implied][-1], tails[name])
            if not isinstance(spec, Pending) and parameter.support is not self.regions[name]:
                check_inside(parameter, self.regions[name], type(self).__name__)

    def options(self) -> dict[str, Any]:
        return {"dim": self.dim}

    def tails(self, n_states: int) -> dict[str, tuple[int, ...]]:
        """The shape of one state's value of every parameter: one number per feature unless a family says otherwise."""
        return {name: (self.dim,) if self.dim > 1 else () for name in self.specifications}

    def with_features(self, x: Any) -> jax.Array:
        """Values or parameters with their features axis, also where there is one feature only."""
        array = jnp.asarray(x)
        return array if self.dim > 1 else array[..., None]

    def per_feature(self, numbers: np.ndarray) -> Any:
        """Numbers (D,) in the shape of one state's value: a plain number where there is one feature only."""
        return numbers if self.dim > 1 else float(numbers[0])

    def scale_prior(self, sd: np.ndarray) -> Distribution:
        """Log-normal around a third of the spread of the data; its density vanishes at 0, so no state can collapse."""
        return dist.LogNormal(self.per_feature(np.log(sd / 3.0)), 1.5)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        """Weakly informative priors on the scale of the data."""
        raise NotImplementedError

    def resolve(self, summary: DataSummary) -> Emission:
        """What the constructor made of the priors that were given stays as it is."""
        if self.is_resolved:
            return self
        with jax.enable_x64(True):  # so that the numbers of the priors are kept in full
            priors, given = self.default_priors(summary), self.specifications
            new = {name: specification(name, priors[name]) for name in given if isinstance(given[name], Pending)}
        made: Emission = object.__new__(type(self))
        vars(made).update({name: value for name, value in vars(self).items() if name not in self.made_anew})
        made.specifications = Named({**given, **new})
        return made

    @cached_property
    def lowering(self) -> Lowering | None:
        return LinearLowering(self) if self.statistics else None
