"""A slow baseline, common to all states: what an instrument adds to every level while it warms up, dries out or leaks.

The baseline is a cubic spline of time with knots at equal distances, `b(t) = sum_i B_i(t) c_i`, of which four terms are
not 0 at any time. Its mean over time is 0, so that levels are those of the whole recording. Coefficients are a random
walk whose steps have a common variance: `c_{i+1} - c_i ~ Normal(0, tau^2)`, with `tau^2` inverse gamma of shape 1/2 and
scale `s^2 / 2`. The variance is integrated out, which leaves steps with a Cauchy distribution of many dimensions.

A random walk follows what goes away and stays away. Noise that is slow but comes back, as the flicker noise of a pore,
is followed by a baseline that returns: its coefficients are independent, `c_i ~ Normal(0, s^2)`, given that their mean
over time is 0. There s is known, so that the density has no spike at 0 and many coefficients do no harm.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from numpyro.distributions import Distribution, biject_to, constraints
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import Transform

from longhmm.errors import ModelError, check_whole
from longhmm.model.formula import Formula
from longhmm.model.parameters import Tree
from longhmm.model.summary import DataSummary
from longhmm.model.terms import Terms

if TYPE_CHECKING:
    import pandas as pd

KNOTS = 20
SCALE = 0.01  # of the steps, in standard deviations of the data
# Where there is a gain, which shares the data with it; and of the steps of the gain's logarithm. It must not be far
# below what data can tell, some hundredths: a density of as many dimensions as there are steps has a spike at 0 of
# this width, in which hardly any of its mass lies, but in which a search for the mode ends, and a sampler stays.
GAIN_SCALE = 0.1
UNIT = 10.0  # of coordinates, in these scales
DEGREE = 3
PIECES = np.array([1.0, 11.0, 11.0, 1.0]) / 24  # integrals over one interval of the terms that are not 0 there


class Clock(Formula):
    """The number of a row among all rows of a recording, which frames have for an index."""

    def __init__(self) -> None:
        self.text, self.variables, self.columns = "(row)", (), ("(row)",)

    @property
    def state(self) -> None:
        """It has nothing to learn."""
        return None

    def matrix(self, frame: pd.DataFrame) -> np.ndarray:
        return np.asarray(frame.index, np.float64)[:, None]


CLOCK = Clock()


class Drift(Tree):
    """A slow baseline for `Gaussian(drift=...)`, and for any other emission of real numbers.

    Args:
        knots: intervals of equal length into which the rows are cut. The baseline may turn about once in each.
        scale: s, of the steps between its coefficients; by default a hundredth of the standard deviation of the data,
            a tenth where there is a gain. Of a baseline that returns, the standard deviation of its coefficients.
        rows: how many rows it extends over: those of the data that are fitted, unless given. Beyond, it stays where it
            ended.
        gain: whether levels, by their distance from `about`, and noise are multiplied by a slow gain as well, whose
            logarithm is such a spline, too, with steps of a scale of a tenth.
        about: the value, or one for each feature, that a gain leaves where it is: the mean of the data that are fitted,
            unless given. About another value the same data have another baseline, and the same gain.
        returns: whether the baseline always comes back to 0 after an interval or two, rather than wander: slow noise,
            in as many intervals as it takes, of a `scale` that must be given. Not with a gain.

    >>> import longhmm as lh
    >>> lh.Gaussian(drift=lh.Drift(knots=40))
    Gaussian(drift=Drift(knots=40))
    """

    weighs: ClassVar[bool] = False  # every row has its place in time

    def __init__(
        self,
        knots: int = KNOTS,
        *,
        scale: float | None = None,
        rows: int | None = None,
        gain: bool = False,
        about: Any = None,
        returns: bool = False,
    ) -> None:
        check_whole("knots", knots, 1, ModelError)
        if scale is not None and not (np.ndim(scale) == 0 and 0 < scale < np.inf):
            raise ModelError(f"scale must be a positive number, got {scale!r}.")
        self.knots, self.scale = int(knots), None if scale is None else np.array(scale, np.float64)
        self.gain = Drift(knots, scale=GAIN_SCALE) if gain else None
        if about is not None and not (gain and np.ndim(about) < 2 and np.all(np.isfinite(about))):
            raise ModelError(f"about must be a number, or one for each feature, where there is a gain, got {about!r}.")
        self.about = None if about is None else np.atleast_1d(np.array(about, np.float64))
        if returns and (scale is None or gain):
            raise ModelError("returns needs a scale, as in Drift(100, scale=0.2, returns=True), and no gain.")
        self.returns = bool(returns)
        self.formula: Formula | None = CLOCK
        self.linear = Terms(n_covariates=1)
        if rows is not None:
            check_whole("rows", rows, 2, ModelError)
            self.linear = Terms(CLOCK.columns, [0.0], [float(rows)], (0,), 1)

    @classmethod
    def given(cls, drift: Any) -> Drift:
        """What a user means, or what was stored."""
        if isinstance(drift, Mapping):
            gain = drift.get("gain", False)
            returns = drift.get("returns", False)
            found = cls(drift["knots"], scale=drift["scale"], gain=gain, about=drift.get("about"), returns=returns)
            found.linear = Terms.rebuilt(drift["time"]) if drift["time"] is not None else found.linear
            return found
        if isinstance(drift, int | np.integer) and not isinstance(drift, bool):
            return cls(int(drift))
        if isinstance(drift, str):  # of the command line
            said = re.fullmatch(r"([1-9]\d*)(?:,scale=(\d*\.?\d+))?(,returns)?(,gain)?", drift)
            if said is None:
                raise ModelError(f"drift must be such as 20, or 20,gain, or 125,scale=0.2,returns, got {drift!r}.")
            knots, scale, returns, gain = said.groups()
            return cls(int(knots), scale=float(scale) if scale else None, returns=bool(returns), gain=bool(gain))
        if not isinstance(drift, Drift):
            raise ModelError(f"drift must be Drift(knots=...) or a number of knots, got {drift!r}.")
        return drift

    def options(self) -> dict[str, Any]:
        """Plain values that rebuild it."""
        scale = None if self.scale is None else float(self.scale)
        found = {"knots": self.knots, "scale": scale, "time": self.linear.options() if self.is_met else None}
        found.update({"returns": True} if self.returns else {})
        about = None if self.about is None else self.about.tolist()
        return found if self.gain is None else {**found, "gain": True, "about": about}

    def __repr__(self) -> str:
        scale = f"scale={self.scale:g}, " if isinstance(self.scale, np.ndarray) else ""  # not in the midst of a program
        own = f", {scale}returns=True" if self.returns else ""
        return f"Drift(knots={self.knots}{own}{'' if self.gain is None else ', gain=True'})"

    @property
    def text(self) -> str:
        return CLOCK.text

    @property
    def size(self) -> int:
        """Number of coefficients."""
        return self.knots + DEGREE

    @property
    def is_met(self) -> bool:
        """Whether it knows which rows it extends over."""
        return len(self.linear.columns) > 0

    def met(self, columns: tuple[str, ...], seen: np.ndarray) -> Drift:
        """The same for the rows of data, whose columns have been `seen` at both ends."""
        found, own = copy.copy(self), columns.index(CLOCK.columns[0])
        first, last = (float(self.linear.centre[0]), 0.0) if self.is_met else (seen[:, own].min(), seen[:, own].max())
        rows = float(self.linear.spread[0]) if self.is_met else last + 1 - first
        found.linear = Terms(CLOCK.columns, [first], [rows], (own,), len(columns))
        return found

    def on_columns(self) -> Drift:
        found = copy.copy(self)
        found.formula = None
        return found

    def resolve(self, summary: DataSummary) -> Drift:
        found = copy.copy(self)
        if self.scale is None:
            found.scale = np.array((SCALE if self.gain is None else GAIN_SCALE) * float(np.mean(summary.sd)))
        if self.gain is not None and self.about is None:
            found.about = np.array(summary.mean, np.float64)
        return found

    def coefficients(self, values: Any) -> np.ndarray:
        """`(size,)`, of the baseline nearest to values at even distances from the first row to the last, less their
        mean; as many as there are coefficients, or more."""
        place = np.linspace(0.0, self.knots, len(values))
        interval = np.minimum(place.astype(int), self.knots - 1)
        terms = np.zeros((len(values), self.size))
        np.put_along_axis(terms, interval[:, None] + np.arange(DEGREE + 1), weights(place - interval, np), axis=1)
        found = np.linalg.lstsq(terms, np.asarray(values, np.float64), rcond=None)[0]
        return np.asarray(found - shares(self.knots) @ found)

    def at(self, coefficients: jax.Array, covariates: Any) -> jax.Array:
        """`(*rows, ...)`, the baseline at rows with covariates `(*rows, C)`, from coefficients `(..., size)`."""
        if not self.is_met:
            raise ModelError("rows must be given, as in Drift(rows=10_000), where no data say how many there are.")
        coefficients, row = jnp.asarray(coefficients), jnp.asarray(covariates)[..., self.linear.own[0]]
        dtype = coefficients.dtype
        first, rows = (jnp.asarray(each, dtype)[0] for each in (self.linear.centre, self.linear.spread))
        place = jnp.clip((row.astype(dtype) - first) / rows, 0.0, 1.0) * self.knots
        interval = jnp.clip(jnp.floor(place), 0, self.knots - 1)
        terms = weights(place - interval)
        near = interval.astype(jnp.int32)[..., None] + np.arange(DEGREE + 1)
        own = jnp.moveaxis(coefficients, -1, 0)[near]  # (*rows, 4, ...)
        return jnp.sum(terms.reshape(*terms.shape, *[1] * (coefficients.ndim - 1)) * own, axis=terms.ndim - 1)


def weights(share: Any, numbers: Any = jnp) -> Any:
    """`(..., 4)`, the terms that are not 0 at a share, between 0 and 1, of an interval."""
    rest = 1.0 - share
    inner = [3 * each**3 - 6 * each**2 + 4 for each in (share, rest)]
    return numbers.stack([rest**3, *inner, share**3], axis=-1) / 6.0


def shares(knots: int) -> np.ndarray:
    """`(size,)`, of every coefficient in the mean over time."""
    found = np.zeros(knots + DEGREE)
    for interval in range(knots):
        found[interval : interval + DEGREE + 1] += PIECES / knots
    return found


class Centred(NamedTuple):
    """Coefficients of mean 0 over time, `c = reflect(0, u)`, with coordinates u of one fewer."""

    mirror: np.ndarray  # `(size,)`: a reflection leads from the first axis to what every coefficient adds to the mean
    log_volume: float  # of the map from coordinates to steps


@cache
def centred(knots: int) -> Centred:
    axis = shares(knots) / np.linalg.norm(shares(knots))
    axis[0] -= 1.0
    mirror = axis / np.linalg.norm(axis)
    steps = np.diff(reflected(np.eye(len(axis))[:, 1:].T, mirror), axis=-1)
    return Centred(mirror, float(np.linalg.slogdet(steps)[1]))


def reflected(values: Any, mirror: Any) -> Any:
    """Along the last axis; its own inverse."""
    return values - 2.0 * (values @ mirror)[..., None] * mirror


class Baseline(Constraint):
    """Coefficients of a baseline whose mean over time is 0."""

    event_dim = 1

    def __init__(self, drift: Drift) -> None:
        self.drift = drift

    def __call__(self, x: Any) -> Any:
        numbers = jnp if isinstance(x, jax.Array) else np
        mean = reflected(x, np.asarray(centred(self.drift.knots).mirror, x.dtype))[..., 0]
        return numbers.abs(mean) <= 1e-5 * numbers.abs(x).max(axis=-1)

    def __repr__(self) -> str:
        return "coefficients of a spline whose mean over time is 0"

    def tree_flatten(self) -> Any:
        return (self.drift,), (("drift",), {})

    def eq(self, other: object, static: bool = False) -> bool:
        return isinstance(other, Baseline) and other.drift is self.drift


class FromSteps(Transform):
    """From coordinates to coefficients of mean 0."""

    domain = codomain = constraints.real_vector

    def __init__(self, drift: Drift) -> None:
        self.drift = drift

    def _unit(self, like: jax.Array) -> jax.Array:
        return jnp.asarray(1.0 if self.drift.scale is None else UNIT * self.drift.scale, like.dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        found: jax.Array = reflected(jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(1, 0)]), self._mirror(x))
        return found * self._unit(x)

    def _inverse(self, y: jax.Array) -> jax.Array:
        return jnp.asarray(reflected(y, self._mirror(y)))[..., 1:] / self._unit(y)

    def _mirror(self, like: jax.Array) -> jax.Array:
        return jnp.asarray(centred(self.drift.knots).mirror, like.dtype)

    def log_abs_det_jacobian(self, x: jax.Array, y: jax.Array, intermediates: Any = None) -> jax.Array:
        volume = centred(self.drift.knots).log_volume + x.shape[-1] * jnp.log(self._unit(x))
        return jnp.broadcast_to(volume, x.shape[:-1])

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] - 1)

    def tree_flatten(self) -> Any:
        return (self.drift,), (("drift",), {})


class OfSteps(Distribution):
    """Coefficients of a baseline, with the density of their steps, which say everything where the mean is 0."""

    arg_constraints: ClassVar[dict[str, Any]] = {}
    pytree_data_fields = ("drift",)

    def __init__(self, drift: Drift, features: tuple[int, ...] = ()) -> None:
        self.drift = drift
        super().__init__(features, (drift.size,), validate_args=False)

    @property
    def support(self) -> Baseline:
        return Baseline(self.drift)


class Returning(OfSteps):
    """Coefficients that are independent and normal but for their mean over time, which is 0."""

    def log_prob(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        value = jnp.asarray(value)
        scale, count = jnp.asarray(self.drift.scale, value.dtype), value.shape[-1] - 1
        square: jax.Array = jnp.sum((value / scale) ** 2, axis=-1)
        constant: jax.Array = count * (jnp.log(scale) + 0.5 * np.log(2 * np.pi)) + centred(self.drift.knots).log_volume
        return -0.5 * square - constant

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        normal = jax.random.normal(key, (*sample_shape, *self.batch_shape, self.drift.size - 1))
        found: jax.Array = FromSteps(self.drift)(normal / UNIT)
        return found


biject_to.register(Baseline, lambda region: FromSteps(region.drift))


class RandomWalk(OfSteps):
    """Steps with a common variance, which is integrated out."""

    def log_prob(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        steps = jnp.diff(jnp.asarray(value), axis=-1)
        scale, count = jnp.asarray(self.drift.scale, steps.dtype), steps.shape[-1]
        constant: jax.Array = gammaln(0.5 * (1 + count)) - gammaln(0.5) - 0.5 * count * np.log(np.pi)
        square: jax.Array = jnp.sum((steps / scale) ** 2, axis=-1)
        return constant - count * jnp.log(scale) - 0.5 * (1 + count) * jnp.log1p(square)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        one, other = jax.random.split(key)
        shape = (*sample_shape, *self.batch_shape)
        normal = jax.random.normal(one, (*shape, self.drift.size - 1))
        steps = jnp.asarray(self.drift.scale) * normal / jnp.abs(jax.random.normal(other, shape))[..., None]
        walk = jnp.pad(jnp.cumsum(steps, axis=-1), [(0, 0)] * len(shape) + [(1, 0)])
        return walk - (walk @ jnp.asarray(shares(self.drift.knots), walk.dtype))[..., None]


def prior(drift: Drift, features: tuple[int, ...] = ()) -> Distribution | None:
    """Of the coefficients; None where no data have said yet how large they are."""
    if drift.scale is None:
        return None
    return Returning(drift, features) if drift.returns else RandomWalk(drift, features)


def drift_to_try(emission: Any) -> str:
    """A model whose levels move slowly, as a line of Python and an option; the trend is to be subtracted where none
    can."""
    if emission.support is not constraints.real or getattr(emission, "streams", None):
        return "subtract a slow baseline before the fit"
    knots = 2 * emission.drift.knots if emission.drift is not None else KNOTS
    return f"try lh.{emission.call}drift=lh.Drift({knots})), on the command line --drift {knots}"


def still(model: Any) -> Any:
    """The model without its baseline; itself where it has none."""
    if model.emission.drift is None:
        return model
    found = copy.copy(model)
    found.emission = model.emission.emission
    return found


def on_baseline(model: Any, optima: list[Any]) -> list[Any]:
    """Optima of `still(model)` as places to begin for the model: with a baseline that does not move."""
    table = model.emission.parameters(model.n_states)
    none = {
        name: np.zeros(table[name].shape) for name in ("drift", "gain")[: 1 + (model.emission.drift.gain is not None)]
    }
    return [each._replace(params={**each.params, **none}) for each in optima]
