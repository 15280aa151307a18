"""Several streams, each with a family of its own, independent given the state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.model.emissions import Before, Emission
from longhmm.model.lowering import LINEAR, LinearLowering, Lowering, module_of
from longhmm.model.parameters import Named, Parameter, Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary


@EMISSIONS.register("product", offered=False)
class Product(Emission):
    """State k emits every stream independently, from the family of that stream.

    Streams take the columns of the data in order, each as many as its family has features. A column that is missing in
    a row leaves the others as they are. The parameters of a stream have its name in front: `step_concentration`.

    >>> import longhmm as lh
    >>> movement = lh.Product(step=lh.Gamma(), angle=lh.VonMises())
    >>> movement.names
    ['step_concentration', 'step_rate', 'angle_loc', 'angle_concentration']
    """

    support = constraints.real_vector  # every stream checks its own columns
    _vector, _density, names_others = True, None, True

    def __init__(self, **streams: Emission) -> None:
        if not streams:
            raise ModelError("Product needs at least one stream, such as step=Gamma(), but it was given none.")
        for name, each in streams.items():
            if not isinstance(each, Emission) or each.couples or each.untied is not each:
                raise ModelError(f"The stream '{name}' must be a family such as Gamma(), but it was {each!r}.")
        self.streams = Named(streams)

    @cached_property
    def specifications(self) -> dict[str, Any]:  # type: ignore[override]
        streams = self.streams.items()
        return {f"{stream}_{name}": spec for stream, each in streams for name, spec in each.specifications.items()}

    @property
    def dim(self) -> int:  # type: ignore[override]
        return sum(each.dim for each in self.streams.values())

    def _each(self) -> Iterator[tuple[str, Emission, slice]]:
        begin = 0
        for name, each in self.streams.items():
            yield name, each, slice(begin, begin + each.dim)
            begin += each.dim

    @staticmethod
    def _own(stream: str, each: Emission, params: Params) -> dict[str, Any]:
        return {name: params[f"{stream}_{name}"] for name in each.names}

    def options(self) -> dict[str, Any]:
        return dict(self.streams)

    def __repr__(self) -> str:
        return f"Product({', '.join(f'{name}={each!r}' for name, each in self.streams.items())})"

    def parameters(self, n_states: int) -> dict[str, Parameter]:
        return {
            f"{stream}_{name}": parameter._replace(name=f"{stream}_{name}")
            for stream, each in self.streams.items()
            for name, parameter in each.parameters(n_states).items()
        }

    def axes(self, name: str, n_states: int) -> tuple[str, ...]:
        owners = {f"{stream}_{own}": (stream, own) for stream, each in self.streams.items() for own in each.names}
        stream, own = owners[name]
        axes = self.streams[stream].axes(own, n_states)
        return (axes[0], *(f"{stream}_{axis}" for axis in axes[1:]))

    @property
    def lags(self) -> int:  # type: ignore[override]
        return max(int(each.lags) for each in self.streams.values())

    def resolve(self, summary: DataSummary) -> Emission:
        return Product(**{name: each.resolve(summary.of(columns)) for name, each, columns in self._each()})

    def check(self, values: np.ndarray, observed: np.ndarray, describe: Callable[[int], str]) -> None:
        for name, each, columns in self._each():

            def within(row: int, stream: str = name) -> str:
                return f"{stream} of {describe(row)}"

            each.check(values[:, columns], observed[:, columns], within)

    def fill(self, dtype: Any) -> jax.Array:
        return jnp.concatenate([each.fill(dtype) for each in self.streams.values()])

    def log_likelihoods(self, params: Params, rows: Rows) -> jax.Array:
        parts = []
        for name, each, columns in self._each():
            lags = None if rows.lags is None or not each.lags else rows.lags[..., : each.lags, columns]
            own = rows._replace(values=rows.values[..., columns], observed=rows.observed[..., columns], lags=lags)
            parts.append(each.log_likelihoods(self._own(name, each, params), own))
        return reduce(jnp.add, parts)

    def cdf(self, params: Params, values: jax.Array) -> tuple[jax.Array, jax.Array] | None:
        found = [each.cdf(self._own(name, each, params), values[:, columns]) for name, each, columns in self._each()]
        if None in found:
            return None
        lower, upper = (jnp.concatenate(parts, axis=-1) for parts in zip(*found, strict=True))
        return lower, upper

    def means(self, params: Params) -> jax.Array:
        found = [each.means(self._own(name, each, params)) for name, each in self.streams.items()]
        whole = all(mean.shape[1] == each.dim for mean, each in zip(found, self.streams.values(), strict=True))
        return jnp.concatenate(found, axis=1) if whole else found[0]

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        return self.sample_after(key, params, states, Before(None, None, None))

    def sample_after(self, key: jax.Array, params: Params, states: jax.Array, before: Before) -> jax.Array:
        parts = []
        for one, (name, each, columns) in zip(jax.random.split(key, len(self.streams)), self._each(), strict=True):
            lags = None if before.lags is None or not each.lags else before.lags[:, : each.lags, columns]
            own = self._own(name, each, params)
            parts.append(each.sample_after(one, own, states, before._replace(lags=lags)))
        return jnp.concatenate([part.astype(jnp.result_type(float)) for part in parts], axis=1)

    @property
    def lowering(self) -> ProductLowering | None:
        own = [each.lowering for each in self.streams.values()]
        return ProductLowering(self, own) if all(isinstance(each, LinearLowering) for each in own) else None


class ProductLowering(Lowering):
    """Log densities that are linear in the statistics of all streams. Each stream has one number more, 1 where it is
    observed: what is missing contributes nothing, also to the normaliser, and other streams of the row stay."""

    kind, partial_rows = LINEAR, True
    emission: Product

    def __init__(self, emission: Product, streams: list[Any]) -> None:
        width = sum(1 + each.width for each in streams)
        super().__init__(emission, width, 1 + width, 1 + width)
        self.streams, self.has_base_measure = streams, any(each.has_base_measure for each in streams)
        terms: list[tuple[str, int]] = []
        for _, own, at in self._each():  # of a stream of several features, which has its own, the first number is idle
            terms += [("seen", at.start), *((name, at.start + column) for name, column in own.terms)]
        self.terms = tuple(terms)

    def _each(self) -> Iterator[tuple[str, Any, slice]]:
        return ((name, own, at) for own, (name, _, at) in zip(self.streams, self.emission._each(), strict=True))

    def rows(self, values: Any, observed: Any, lags: Any = None) -> Any:
        xp, parts = module_of(values), []
        whole = xp is np and observed.all()
        for _, own, columns in self._each():
            found = own.rows(values[..., columns], observed[..., columns])
            seen = ~xp.isnan(found[..., :1])
            parts += [seen.astype(found.dtype), found if whole else xp.where(seen, found, 0.0)]
        numbers = xp.concatenate(parts, axis=-1)
        return numbers if whole else xp.where(observed.any(-1, keepdims=True), numbers, np.nan)

    def natural(self, params: Params) -> jax.Array:
        parts = [own.natural(self.emission._own(name, own.emission, params)) for name, own, _ in self._each()]
        return jnp.concatenate([jnp.zeros_like(parts[0][:, :1]), *parts], axis=1)

    def log_base_measure(self, values: Any, observed: Any) -> jax.Array:
        parts = (own.log_base_measure(values[..., at], observed[..., at]) for _, own, at in self._each())
        return sum(parts, jnp.zeros(()))
