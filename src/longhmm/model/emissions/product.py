"""Several streams of observations, each with a family of its own, independent given the state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.model.emissions.base import Emission
from longhmm.model.lowering import LINEAR, LinearLowering, Lowering
from longhmm.model.parameters import Parameter, Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary
from longhmm.model.tree import Named


@EMISSIONS.register("product")
class Product(Emission):
    """State k emits every stream independently, from the family of that stream.

    Streams take the columns of the data in order, each as many as its family has features. A column that is missing in
    a row leaves the others as they are. The parameters of a stream have its name in front: `step_concentration`.

    >>> import longhmm as lh
    >>> movement = lh.Product(step=lh.Gamma(), angle=lh.VonMises())
    >>> movement.names
    ['step_concentration', 'step_rate', 'angle_loc', 'angle_concentration']
    """

    def __init__(self, **streams: Emission) -> None:
        if not streams:
            raise ModelError("Product needs at least one stream, such as step=Gamma(), but it was given none.")
        for name, each in streams.items():
            if not isinstance(each, Emission) or each.couples or each.untied is not each:
                raise ModelError(f"The stream '{name}' must be a family such as Gamma(), but it was {each!r}.")
        self._join(Named(streams))

    def _join(self, streams: Named) -> None:
        self.streams = streams
        dim = sum(each.dim for each in streams.values())
        specs = {f"{stream}_{name}": spec for stream, each in streams.items() for name, spec in each._specs.items()}
        self._describe(dim, specs, vector=True)
        self.support = constraints.real_vector  # every stream checks its own columns

    def held(self) -> dict[str, Any]:
        return {"streams": self.streams}

    @classmethod
    def made_of(cls, parts: dict[str, Any]) -> Product:
        product = object.__new__(cls)
        product._join(parts["streams"])
        return product

    # -- the streams -------------------------------------------------------------------------------------------------

    def _each(self) -> Iterator[tuple[str, Emission, slice]]:
        begin = 0
        for name, each in self.streams.items():
            yield name, each, slice(begin, begin + each.dim)
            begin += each.dim

    @staticmethod
    def _own(stream: str, each: Emission, params: Params) -> dict[str, Any]:
        return {name: params[f"{stream}_{name}"] for name in each.names}

    @property
    def columns(self) -> list[str]:
        """The name of the stream of every column."""
        return [name for name, each, _ in self._each() for _ in range(each.dim)]

    @property
    def specifications(self) -> dict[str, Any]:
        """None of its own: they are those of its streams."""
        return {}

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
        stream, own = next(
            (stream, name.removeprefix(f"{stream}_"))
            for stream, each in self.streams.items()
            if name.startswith(f"{stream}_") and name.removeprefix(f"{stream}_") in each.names
        )
        axes = self.streams[stream].axes(own, n_states)
        return (axes[0], *(f"{stream}_{axis}" for axis in axes[1:]))

    def states_differ(self, n_states: int) -> bool:
        return any(each.states_differ(n_states) for each in self.streams.values())

    @property
    def lags(self) -> int:  # type: ignore[override]
        return max(int(each.lags) for each in self.streams.values())

    # -- the data ----------------------------------------------------------------------------------------------------

    @classmethod
    def from_data(cls, data: Any, **priors: Any) -> Emission:
        raise ModelError("The emission product needs the family of every column, such as step=gamma,angle=von-mises.")

    def resolve(self, summary: DataSummary) -> Emission:
        if len(summary.mean) != self.dim:
            raise ModelError(f"Product has {self.dim} columns, but the data have {len(summary.mean)} feature(s).")
        return Product(**{name: each.resolve(summary.of(columns)) for name, each, columns in self._each()})

    def check(self, values: np.ndarray, observed: np.ndarray, describe: Callable[[int], str]) -> None:
        self.check_dim(values.shape[1])
        for name, each, columns in self._each():
            each.check(values[:, columns], observed[:, columns], partial(_within, name, describe))

    def fill(self, dtype: Any) -> jax.Array:
        return jnp.concatenate([each.fill(dtype) for each in self.streams.values()])

    # -- densities ---------------------------------------------------------------------------------------------------

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        parts = []
        for name, each, columns in self._each():
            values = y[..., columns] if each.vector_valued else y[..., columns.start]
            parts.append(each.log_density(self._own(name, each, params), values))
        return reduce(jnp.add, parts)

    def log_likelihoods(self, params: Params, rows: Rows) -> jax.Array:
        parts = []
        for name, each, columns in self._each():
            lags = None if rows.lags is None or not each.lags else rows.lags[..., : each.lags, columns]
            own = rows._replace(values=rows.values[..., columns], observed=rows.observed[..., columns], lags=lags)
            parts.append(each.log_likelihoods(self._own(name, each, params), own))
        return reduce(jnp.add, parts)

    def log_prior(self, params: Params) -> jax.Array:
        priors = (each.log_prior(self._own(name, each, params)) for name, each in self.streams.items())
        return sum(priors, jnp.zeros(()))

    def cdf(self, params: Params, values: jax.Array) -> tuple[jax.Array, jax.Array] | None:
        found = [each.cdf(self._own(name, each, params), values[:, columns]) for name, each, columns in self._each()]
        if any(each is None for each in found):
            return None
        lower, upper = (jnp.concatenate(parts, axis=-1) for parts in zip(*found, strict=True))
        return lower, upper

    def means(self, params: Params) -> jax.Array:
        found = [each.means(self._own(name, each, params)) for name, each in self.streams.items()]
        whole = all(mean.shape[1] == each.dim for mean, each in zip(found, self.streams.values(), strict=True))
        return jnp.concatenate(found, axis=1) if whole else found[0]

    # -- draws -------------------------------------------------------------------------------------------------------

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        return self.sample_after(key, params, states, None, None)

    def sample_after(self, key: jax.Array, params: Params, states: jax.Array, lags: Any, covariates: Any) -> jax.Array:
        keys = jax.random.split(key, len(self.streams))
        parts = []
        for one, (name, each, columns) in zip(keys, self._each(), strict=True):
            before = None if lags is None or not each.lags else lags[:, : each.lags, columns]
            parts.append(each.sample_after(one, self._own(name, each, params), states, before, covariates))
        return jnp.concatenate([part.astype(jnp.result_type(float)) for part in parts], axis=1)

    def sample_prior(self, key: jax.Array, n_states: int) -> dict[str, Any]:
        keys = jax.random.split(key, len(self.streams))
        return {
            f"{stream}_{name}": value
            for one, (stream, each) in zip(keys, self.streams.items(), strict=True)
            for name, value in each.sample_prior(one, n_states).items()
        }

    @property
    def lowering(self) -> ProductLowering | None:
        own = [each.lowering for each in self.streams.values()]
        return ProductLowering(self, own) if all(isinstance(each, LinearLowering) for each in own) else None


class ProductLowering(Lowering):
    """Log densities that are linear in the statistics of all streams. Each stream has one number more, 1 where it is
    observed: what is missing contributes nothing, also to the normaliser, and other streams of the row stay."""

    kind = LINEAR
    has_base_measure = True
    partial_rows = True
    emission: Product

    def __init__(self, emission: Product, streams: list[Any]) -> None:
        width = sum(1 + each.width for each in streams)
        super().__init__(emission, width, 1 + width, 1 + width)
        self.streams = streams

    def _each(self) -> Iterator[tuple[str, Any, slice]]:
        return ((name, own, at) for own, (name, _, at) in zip(self.streams, self.emission._each(), strict=True))

    def observed_numbers(self, values: jax.Array, observed: jax.Array) -> jax.Array:
        parts = []
        for _, own, columns in self._each():
            whole = jnp.all(observed[..., columns], axis=-1)[..., None]
            filled = jnp.where(whole, values[..., columns], own.emission.fill(values.dtype))
            parts += [whole, jnp.where(whole, own.numbers(filled), 0.0)]
        numbers = jnp.concatenate([each.astype(jnp.result_type(float)) for each in parts], axis=-1)
        return jnp.where(jnp.any(observed, axis=-1)[..., None], numbers, jnp.nan)

    def natural(self, params: Params) -> jax.Array:
        parts = [own.natural(self.emission._own(name, own.emission, params)) for name, own, _ in self._each()]
        return jnp.concatenate([jnp.zeros_like(parts[0][:, :1]), *parts], axis=1)

    def log_base_measure(self, values: Any, observed: Any) -> jax.Array:
        parts = (own.log_base_measure(values[..., at], observed[..., at]) for _, own, at in self._each())
        return sum(parts, jnp.zeros(()))


def _within(stream: str, describe: Callable[[int], str], row: int) -> str:
    return f"{stream} of {describe(row)}"
