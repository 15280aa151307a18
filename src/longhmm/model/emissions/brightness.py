"""Sequences whose scale differs: molecules of unlike brightness, cells of unlike size, sensors of unlike gain.

In sequence s every observation is `g_s` times what the emission says, levels and noise alike. The logarithms of the
factors have a common variance, `log g_s ~ Normal(0, tau^2)` with `tau^2` inverse gamma of shape 1/2 and scale
`s^2 / 2`, and their mean is 0, so that levels are those of a sequence of the typical (geometric mean) brightness. The
variance is integrated out, which leaves a Cauchy distribution of many dimensions; given the factors it is inverse gamma
again, from which `Posterior.brightness` draws it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from numpyro.distributions import Distribution, biject_to, constraints
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import Transform

from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.errors import DataError, ModelError
from longhmm.model.alignment import LOOKED_AT, aligned, explained
from longhmm.model.drift import reflected
from longhmm.model.emissions import Before, Emission
from longhmm.model.emissions.around import Around
from longhmm.model.formula import Formula
from longhmm.model.made_of import Settle, like_its_emission
from longhmm.model.parameters import Parameter, Params, Pending, Tree
from longhmm.model.registry import EMISSIONS
from longhmm.model.terms import Terms

if TYPE_CHECKING:
    import pandas as pd

NAME = "log_brightness"
SCALE = 0.1  # s, of the standard deviation of the logarithm: in the prior tau is above 0.15 with probability 1/2


class Sequence(Formula):
    """The number of the sequence that a row belongs to, among those of the data first met."""

    def __init__(self, ends: Any = ()) -> None:
        self.text, self.variables = "(sequence)", ()
        self.ends = tuple(int(each) for each in ends)  # the first row of every sequence, then the end of the last
        self.columns = ("(sequence)",) if self.ends else ()

    @property
    def state(self) -> Any:
        return list(self.ends)

    def learned(self, frame: pd.DataFrame) -> Sequence:
        return Sequence(frame.attrs["ends"])

    def on(self, sequences: Sequences) -> Sequence:
        if not np.array_equal(self.ends, sequences.origin + sequences.offsets):
            raise DataError(
                f"data must be the {len(self.ends) - 1} sequences whose brightness was fitted, {self.ends[-1]:,} rows, "
                f"got {sequences.n_sequences} with {sequences.length:,} rows in {sequences.name}: nothing says how "
                "bright other sequences are."
            )
        return self

    def matrix(self, frame: pd.DataFrame) -> np.ndarray:
        rows = np.asarray(frame.index, np.int64)
        return np.asarray(np.searchsorted(self.ends, rows, side="right") - 1.0)[:, None]


class Factors(Tree):
    """One factor for every sequence; stands where regressions stand, and sees the number of the sequence."""

    weighs: ClassVar[bool] = False  # every row has its sequence

    def __init__(self, ends: Any, scale: float, linear: Terms | None = None) -> None:
        self.formula: Sequence | None = Sequence(ends)
        self.ends, self.text, self.scale = self.formula.ends, self.formula.text, np.array(scale, np.float64)
        known = Terms(self.formula.columns, [0.0], [1.0], (0,), 1) if self.ends else Terms(n_covariates=1)
        self.linear = linear or known

    @property
    def is_met(self) -> bool:
        return len(self.ends) > 0

    @property
    def size(self) -> int:
        """Number of sequences."""
        return len(self.ends) - 1

    def met(self, learned: Formula, columns: tuple[str, ...]) -> Factors:
        """The same for the sequences of data."""
        ends = getattr(learned, "ends", self.ends)
        if len(ends) < 3:
            raise ModelError("Brightness needs two or more sequences: of one alone it cannot be told from its levels.")
        own = (columns.index(learned.columns[0]),)
        return Factors(ends, float(self.scale), Terms(learned.columns, [0.0], [1.0], own, len(columns)))

    def on_columns(self) -> Factors:
        found = copy.copy(self)
        found.formula = None
        return found

    def at(self, logs: Any, covariates: Any) -> jax.Array:
        """`(*rows, 1)`, the logarithms of the factors of rows with covariates `(*rows, C)`."""
        if not self.is_met:
            raise ModelError("lengths must be given, as in Brightness(..., lengths=[100, 80]), where no data say them.")
        number = jnp.asarray(covariates)[..., self.linear.own[0]]
        return jnp.asarray(logs)[number.astype(jnp.int32)][..., None]


class AboutZero(Constraint):
    """Numbers whose mean is 0."""

    event_dim = 1

    def __call__(self, x: Any) -> Any:
        numbers = jnp if isinstance(x, jax.Array) else np
        return numbers.abs(x.mean(axis=-1)) <= 1e-5 * numbers.abs(x).max(axis=-1)

    def __repr__(self) -> str:
        return "numbers whose mean is 0"

    def tree_flatten(self) -> Any:
        return (), ((), {})

    def eq(self, other: object, static: bool = False) -> bool:
        return isinstance(other, AboutZero)


class Centred(Transform):
    """From coordinates u, one fewer, to `reflect(0, u)`: a reflection, which leads from the first axis to the mean, and
    leaves volumes as they are."""

    domain, codomain = constraints.real_vector, AboutZero()

    def __call__(self, x: jax.Array) -> jax.Array:
        padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(1, 0)])
        return jnp.asarray(reflected(padded, _mirror(padded)))

    def _inverse(self, y: jax.Array) -> jax.Array:
        return jnp.asarray(reflected(y, _mirror(y)))[..., 1:]

    def log_abs_det_jacobian(self, x: jax.Array, y: jax.Array, intermediates: Any = None) -> jax.Array:
        return jnp.zeros(x.shape[:-1], x.dtype)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] - 1)

    def tree_flatten(self) -> Any:
        return (), ((), {})


biject_to.register(AboutZero, lambda region: Centred())


def _mirror(like: jax.Array) -> jax.Array:
    axis = np.full(like.shape[-1], like.shape[-1] ** -0.5)
    axis[0] -= 1.0
    return jnp.asarray(axis / np.linalg.norm(axis), like.dtype)


class CommonSpread(Distribution):
    """Logarithms of factors, with mean 0 and a common variance, which is integrated out."""

    arg_constraints: ClassVar[dict[str, Any]] = {}
    pytree_data_fields = ("scale",)

    def __init__(self, scale: Any, size: int) -> None:
        self.scale = scale
        super().__init__((), (size,), validate_args=False)

    @property
    def support(self) -> AboutZero:
        return AboutZero()

    def log_prob(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        logs = jnp.asarray(value)
        count, scale = logs.shape[-1] - 1, jnp.asarray(self.scale, logs.dtype)
        constant: jax.Array = gammaln(0.5 * (1 + count)) - gammaln(0.5) - 0.5 * count * np.log(np.pi)
        square: jax.Array = jnp.sum((logs / scale) ** 2, axis=-1)
        return constant - count * jnp.log(scale) - 0.5 * (1 + count) * jnp.log1p(square)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        one, other = jax.random.split(key)
        normal = jax.random.normal(one, (*sample_shape, *self.event_shape))
        tau = jnp.asarray(self.scale) / jnp.abs(jax.random.normal(other, sample_shape))
        return tau[..., None] * (normal - normal.mean(axis=-1, keepdims=True))


def spreads(logs: np.ndarray, scale: float, seed: int = 0) -> np.ndarray:
    """`(...)`, draws of tau, each given a draw of the logarithms of factors `(..., S)`."""
    square = np.sum(logs**2, axis=-1)
    shape = 0.5 * logs.shape[-1]  # 1/2, and 1/2 for each of S - 1 logarithms
    drawn = np.random.default_rng(seed).gamma(shape, size=square.shape)
    return np.asarray(np.sqrt(0.5 * (scale**2 + square) / drawn))


@EMISSIONS.register("brightness", offered=False)
@like_its_emission("sees_transitions", "streams", "means", "cdf", "values")
class Brightness(Around):
    """In sequence s, `y_t / g_s` follows an emission, with the factor `g_s = exp(log_brightness[s])`.

    Levels and noise are multiplied alike. Factors are about 1 (their geometric mean), and how much they differ is
    learned; `Posterior.brightness()` shows both. Answers are about the sequences that were fitted, in their order: of
    others nothing says how bright they are, so that they cannot be held out to compare models.

    Args:
        emission: of real numbers, for a sequence of typical brightness.
        scale: of the prior of the spread, the standard deviation of the logarithms of factors, which is beyond 1.5
            times this number with probability 1/2.
        lengths: rows of every sequence: those of the data that are fitted, unless given.

    >>> import longhmm as lh
    >>> lh.Brightness(lh.Gaussian()).names
    ['mean', 'sd', 'log_brightness']
    """

    changes = "factors"

    def __new__(cls, *args: Any, **given: Any) -> Brightness:
        return object.__new__(cls)  # whatever it is made of, and of nothing where it is copied for a worker

    def __init__(self, emission: Emission, *, scale: float = SCALE, lengths: Any = None) -> None:
        if not isinstance(emission, Emission) or isinstance(emission, Brightness):
            raise ModelError(f"emission must be one without a brightness of its own, got {emission!r}.")
        if emission.support is not constraints.real or emission.regressions:
            raise ModelError(f"emission must be of any real numbers, without formulas or drift, got {emission!r}.")
        if not (np.ndim(scale) == 0 and 0 < scale < np.inf):
            raise ModelError(f"scale must be a positive number, got {scale!r}.")
        self.emission = emission
        if isinstance(lengths, Mapping):  # as stored
            self.factors = Factors(lengths["ends"], scale, Terms.rebuilt(lengths["terms"]))
            return
        rows = np.zeros(0, int) if lengths is None else np.asarray(lengths)
        if lengths is not None and (rows.ndim != 1 or len(rows) < 2 or rows.dtype.kind not in "iu" or rows.min() < 1):
            raise ModelError(f"lengths must be the numbers of rows of two or more sequences, got {lengths!r}.")
        self.factors = Factors([0, *np.cumsum(rows)] if len(rows) else (), scale)

    def options(self) -> dict[str, Any]:
        known = {"ends": list(self.factors.ends), "terms": self.factors.linear.options()}
        found = {"emission": self.emission, "scale": float(self.factors.scale)}
        return {**found, "lengths": known} if self.factors.is_met else found

    def __repr__(self) -> str:
        return f"Brightness({self.emission!r})"

    @cached_property
    def specifications(self) -> dict[str, Any]:  # type: ignore[override]
        return {**self.emission.specifications, NAME: self._own.prior or Pending(AboutZero())}

    @property
    def _own(self) -> Parameter:
        factors = self.factors
        prior = CommonSpread(factors.scale, factors.size) if factors.is_met else None
        return Parameter(NAME, (max(factors.size, 0),), prior, None, AboutZero())

    def parameters(self, n_states: int) -> dict[str, Parameter]:
        return {**self.emission.parameters(n_states), NAME: self._own}

    @property
    def shared(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*self.emission.shared, NAME)

    def axes(self, name: str, n_states: int) -> tuple[str, ...]:
        return ("sequence",) if name == NAME else self.emission.axes(name, n_states)

    @cached_property
    def regressions(self) -> Mapping[str, Any]:  # type: ignore[override]
        """What sees columns beside the values: the number of the sequence."""
        return {NAME: self.factors}

    @property
    def labels(self) -> dict[str, list[str]]:
        return {}

    @property
    def is_resolved(self) -> bool:
        return self.emission.is_resolved and self.factors.is_met

    def met(self, learned: Mapping[str, Formula], columns: tuple[str, ...], seen: np.ndarray) -> Brightness:
        return self._with(self.emission, self.factors.met(learned[self.factors.text], columns))

    def on_columns(self) -> Brightness:
        return self._with(self.emission, self.factors.on_columns())

    def _typical(self, params: Params, rows: Rows) -> Rows:
        """Rows as they would be in a sequence of typical brightness."""
        if rows.covariates is None:
            return rows
        factor = jnp.exp(self.factors.at(params[NAME], rows.covariates))
        lags = None if rows.lags is None else _divided(jnp.asarray(rows.lags), factor[..., None, :])
        return rows._replace(values=_divided(jnp.asarray(rows.values), factor), lags=lags)

    def log_likelihoods(self, params: Params, rows: Rows) -> jax.Array:
        found = self.emission.log_likelihoods(params, self._typical(params, rows))
        if rows.covariates is None:
            return found
        # Densities of what was divided, for all numbers that have a say: of a row that looks back, all or none.
        seen = jnp.ones(rows.values.shape, bool) if rows.observed is None else jnp.asarray(rows.observed)
        if rows.lags is not None and self.lags:
            whole = jnp.all(seen, axis=-1) & ~jnp.any(jnp.isnan(jnp.asarray(rows.lags)), axis=(-2, -1))
            seen = jnp.broadcast_to(whole[..., None], seen.shape)
        lost = jnp.sum(jnp.where(seen, self.factors.at(params[NAME], rows.covariates), 0.0), axis=-1)
        return found - lost.reshape(*lost.shape, *[1] * (found.ndim - lost.ndim))

    def cdf_of_rows(self, params: Params, rows: Rows) -> tuple[jax.Array, jax.Array] | None:
        return self.emission.cdf_of_rows(params, self._typical(params, rows))

    def sample_after(self, key: jax.Array, params: Params, states: jax.Array, before: Before) -> jax.Array:
        factor = jnp.exp(self.factors.at(params[NAME], before.covariates))
        lags = before.lags if before.lags is None else before.lags / factor[..., None, :]
        return factor * self.emission.sample_after(key, params, states, before._replace(lags=lags))

    def alike(self, model: Any, sequences: Any, stretches: list[Rows]) -> tuple[Settle, list[Rows]]:
        """Levels are sought once every sequence has been divided by what it seems to be multiplied with; then each is
        moved to where the states that were found explain it best."""
        own = self.factors.linear.own[0]
        spans = [(start, min(stop, start + LOOKED_AT)) for start, stop in pairwise(sequences.offsets.tolist())]
        looks = [sequences.rows(*span) for span in spans if span[1] > span[0]]
        values = [np.where(each.observed, each.values, np.nan).astype(np.float64) for each in looks]
        numbers, first = [int(each.covariates[0, own]) for each in looks], aligned(values)

        def of_all(logs: np.ndarray) -> np.ndarray:
            found = np.zeros(self.factors.size)
            found[numbers] = logs
            return np.asarray(found - found.mean())

        def settle(params: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {**params, NAME: of_all(explained(model, self.emission, params, values, first))}

        factors = [np.exp(np.asarray(self.factors.at(of_all(first), each.covariates))) for each in stretches]
        pairs = zip(stretches, factors, strict=True)
        return settle, [each._replace(values=each.values / own, covariates=None) for each, own in pairs]

    def fit(self, groups: list[np.ndarray]) -> dict[str, np.ndarray] | None:
        """Of the emission alone: brightness is found with everything else."""
        found = self.emission.fit(groups)
        return None if found is None else {**found, NAME: np.zeros(self.factors.size)}


def _divided(values: jax.Array, factor: jax.Array) -> jax.Array:
    """NaN, a missing value, stays NaN, without a slope that is NaN."""
    none = jnp.isnan(values)
    return jnp.where(none, values, jnp.where(none, 0.0, values) / factor)
