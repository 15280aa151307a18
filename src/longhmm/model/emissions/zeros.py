"""More zeros than a family has: a point mass beside a density."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import constraints

from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.emissions import Emission
from longhmm.model.emissions.gamma import Gamma
from longhmm.model.emissions.poisson import Poisson
from longhmm.model.parameters import Parameter, Params, make_parameter, specification
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary, subsample, summarise

RARELY = 0.5  # a family is not 0: below it, counts are not drawn until they are not
BLOCK, LAST = 256, 2**24  # counts that are looked at together then, and the end of all that are


@EMISSIONS.register("zero-inflated")
class ZeroInflated(Emission):
    """State k emits 0 with probability `zero` (K,), else what `emission` emits, a family of one positive number or
    count, `Gamma()` unless given. Counts may then be 0, too; in a `Hurdle` they may not. The prior of `zero` is uniform
    unless given. By its name alone, as on the command line, it is one of `Poisson()` where data are whole numbers.

    >>> import longhmm as lh
    >>> lh.ZeroInflated(lh.Gamma()).names
    ['zero', 'concentration', 'rate']
    """

    _density, dim, _vector, truncates = None, 1, False, False

    def __init__(self, emission: Emission | None = None, *, zero: Any = None) -> None:
        emission = Gamma() if emission is None else emission
        positive = constraints.positive, constraints.nonnegative_integer
        if not isinstance(emission, Emission) or emission.dim > 1 or emission.support not in positive or emission.lags:
            raise ModelError(f"{self.name} needs a family of one positive number or count, but it was {emission!r}.")
        self.emission = emission
        self.zero = specification("zero", dist.Beta(1.0, 1.0) if zero is None else zero)

    @classmethod
    def from_data(cls, data: Sequences, **priors: Any) -> Emission:
        whole = summarise(subsample(data)).n_categories is not None
        zero = priors.pop("zero", None)
        return cls((Poisson if whole else Gamma).from_data(data, **priors), zero=zero)

    @property
    def discrete(self) -> bool:
        return bool(self.emission.support.is_discrete)

    @property
    def support(self) -> Any:
        return constraints.nonnegative_integer if self.discrete else constraints.nonnegative

    @cached_property
    def specifications(self) -> dict[str, Any]:  # type: ignore[override]
        return {"zero": self.zero, **self.emission.specifications}

    def options(self) -> dict[str, Any]:
        return {"emission": self.emission, "zero": self.zero}

    def __repr__(self) -> str:
        return f"{self.name}({self.emission!r})"

    def parameters(self, n_states: int) -> dict[str, Parameter]:
        return {"zero": make_parameter("zero", self.zero, n_states, ()), **self.emission.parameters(n_states)}

    def resolve(self, summary: DataSummary) -> Emission:
        quantiles = summary.quantiles[0]
        above = quantiles[quantiles > 0]
        if len(above) and not self.discrete:  # of what is not 0
            share = len(above) / len(quantiles)
            spread = np.interp(np.linspace(0, len(above) - 1, len(quantiles)), np.arange(len(above)), above)
            mean = np.maximum(summary.mean / share, above[0])
            sd, ends = np.array([max(spread.std(), 1e-3 * spread[-1])]), spread[None, [0, -1]]
            summary = replace(summary, mean=mean, sd=sd, ends=ends, values=spread[:, None])
        return type(self)(self.emission.resolve(summary), zero=self.zero)

    def check(self, values: np.ndarray, observed: np.ndarray, describe: Callable[[int], str]) -> None:
        self.emission.check(values, observed & (values != 0), describe)

    def _at_zero(self, params: Params) -> tuple[jax.Array, jax.Array]:
        """Log probabilities `(K,)` that the family itself gives to 0 and to all else."""
        if not self.discrete:
            return jnp.full(jnp.shape(params["zero"]), -jnp.inf), jnp.zeros(jnp.shape(params["zero"]))
        logs, one = (self.emission.log_density(params, jnp.asarray(y, jnp.result_type(float))) for y in (0, 1))
        # Where 0 is all but certain rounding decides the difference from 1; it is at least what 1 has.
        return logs, jnp.maximum(jnp.log(-jnp.expm1(jnp.minimum(logs, -1e-30))), one)

    def log_likelihoods(self, params: Params, rows: Rows) -> jax.Array:
        y, observed = jnp.asarray(rows.values), jnp.asarray(rows.observed)
        none = observed & (y == 0)
        filled = jnp.where(none, jnp.ones((), y.dtype), y)
        logs = self.emission.log_likelihoods(params, rows._replace(values=filled, observed=observed & ~none))
        zero = jnp.asarray(params["zero"])
        at_zero, above = self._at_zero(params)
        else_zero = jnp.log(zero) if self.truncates else jnp.logaddexp(jnp.log(zero), jnp.log1p(-zero) + at_zero)
        other = jnp.log1p(-zero) + logs - (above if self.truncates else 0.0)
        return jnp.where(none, else_zero, jnp.where(observed, other, 0.0))

    def cdf(self, params: Params, values: jax.Array) -> tuple[jax.Array, jax.Array] | None:
        none = values[:, None, :] == 0
        found = self.emission.cdf(params, jnp.where(values == 0, 1, values))
        if found is None:
            return None
        zero, at_zero = (jnp.asarray(each)[:, None] for each in (params["zero"], jnp.exp(self._at_zero(params)[0])))
        if self.truncates:
            found = tuple((each - at_zero) / (1.0 - at_zero) for each in found)  # type: ignore[assignment]
        lower, upper = (zero + (1.0 - zero) * each for each in found)
        first = zero if self.truncates else zero + (1.0 - zero) * at_zero
        return jnp.where(none, 0.0, lower), jnp.where(none, first, upper)

    def means(self, params: Params) -> jax.Array:
        share = 1.0 - jnp.asarray(params["zero"])[:, None]
        above = jnp.exp(self._at_zero(params)[1])[:, None] if self.truncates else 1.0
        return share * self.emission.means(params) / above

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        which, first, others = jax.random.split(key, 3)
        values = self.emission.sample(first, params, states)
        if self.truncates and self.discrete:
            values = self._counted(others, params, states, values)
        none = jax.random.uniform(which, values.shape) < jnp.asarray(params["zero"])[states][:, None]
        return jnp.where(none, jnp.zeros((), values.dtype), values)

    def _counted(self, key: jax.Array, params: Params, states: jax.Array, values: jax.Array) -> jax.Array:
        """Counts given that they are not 0: drawn until they are not, or, where 0 is all but certain, by their
        probabilities, from 1 on until further counts add nothing. What was drawn from the counts so far gives way to
        one of the next block with that block's share of all so far, so that no sum need be known before.
        """
        above = self._at_zero(params)[1]
        often, smallest = (above >= np.log(RARELY))[states], float(np.finfo(np.dtype(above.dtype)).eps)

        def again(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            drawn, key = carry
            key, one = jax.random.split(key)
            return jnp.where(drawn == 0, self.emission.sample(one, params, states), drawn), key

        values, key = jax.lax.while_loop(lambda at: jnp.any((at[0][:, 0] == 0) & often), again, (values, key))
        none = values[:, 0] == 0
        Walk = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]

        def further(carry: Walk) -> Walk:
            drawn, key, first, passed, _ = carry
            key, one = jax.random.split(key)
            counts = first + jnp.arange(BLOCK, dtype=above.dtype)
            logs = jax.vmap(lambda count: self.emission.log_density(params, count))(counts)
            sums = passed + jnp.cumsum(jnp.exp(logs - above), axis=0)
            at = jax.random.uniform(one, drawn.shape, above.dtype) * sums[-1][states]
            places = jax.vmap(lambda each: jnp.searchsorted(each, at, side="right"), 1)(sums)
            place = jnp.minimum(jnp.take_along_axis(places, states[None], 0)[0], BLOCK - 1)
            return jnp.where(at < passed[states], drawn, counts[place]), key, first + BLOCK, sums[-1], sums[-1] - passed

        def unfinished(carry: Walk) -> jax.Array:
            _, _, first, passed, added = carry
            more = (added > smallest * passed) | (passed < smallest)  # as before a second mode
            return jnp.any(none & more[states]) & (first < LAST)

        start = jnp.ones(states.shape, above.dtype), key, jnp.ones((), above.dtype), jnp.zeros_like(above), above
        drawn = jax.lax.while_loop(unfinished, further, start)[0]
        return jnp.where(none[:, None], drawn[:, None].astype(values.dtype), values)


@EMISSIONS.register("hurdle")
class Hurdle(ZeroInflated):
    """State k emits 0 with probability `zero` (K,), else what `emission` emits given that it is not 0."""

    truncates = True
