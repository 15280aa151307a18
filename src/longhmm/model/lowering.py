"""How an emission meets the fused kernels: rows as numbers, parameters as numbers, and sums of numbers of three kinds,
from which the derivative of `sum_t sum_k gamma_t(k) log p(y_t | k)` with respect to the parameters follows (F8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.model.covariance import LOG_2PI, log_det_of, scatter_density, whitening
from longhmm.model.statistics import FUNCTIONS, Terms

if TYPE_CHECKING:
    from longhmm.model.emissions import Emission

# Numbers by which the kernels know the kinds (see call.h); PRECOMPUTED: log likelihoods instead of rows.
GAUSSIAN, LINEAR, TABLE, PRECOMPUTED = range(4)
MOST_PARTS = 16  # features of which some may be missing where the C++ kernel looks at the others

Params = Mapping[str, jax.Array]
_fill = jax.jit(lambda emission: emission.fill(np.float32))  # in one program


class Lowering:
    """An emission in the representation of the kernels, with `width` numbers per row, `pack` natural parameters per
    state, and `sums` expected statistics per state."""

    kind: int  # GAUSSIAN, LINEAR or TABLE, or of densities.py
    rows_are_values = False  # whether the numbers of a row are its values, so that data need no copy
    terms: Terms = ()  # how else they follow from values, where the C++ kernel knows that
    has_base_measure = False  # whether `log h(y)` is other than 0
    partial_rows = False  # whether its numbers also serve rows that are observed in part
    sufficient = True  # whether sums say what to expect at other parameters than those they were taken at

    def __init__(self, emission: Emission, width: int, pack: int, sums: int) -> None:
        self.emission: Any = emission
        self.width, self.pack, self.sums = width, pack, sums

    def rows(self, values: Any, observed: Any, lags: Any = None) -> Any:
        """`(..., width)`, numbers of rows `(..., D)`, NaN where missing; NumPy's arrays give NumPy's, in float64."""
        xp, values = module_of(values), as_float(values)
        if xp is np and observed.all():
            return values if self.rows_are_values else self.numbers(values.astype(np.float64))
        whole = observed if self.partial_rows else xp.all(observed, axis=-1, keepdims=True)
        filled = values if self.rows_are_values else self.numbers(self._filled(values, whole))
        return xp.where(whole, filled, np.nan)

    def write(self, found: np.ndarray, values: Any, observed: Any, lags: Any) -> None:
        """The same of NumPy's arrays into `found (n, width)`."""
        found[:] = self.rows(values, observed, lags)

    def numbers(self, values: Any) -> Any:
        """The numbers of rows `(..., D)` whose values all lie in the support."""
        return values

    def _filled(self, values: Any, seen: Any) -> Any:
        """Values in the support in place of those that are not seen, which count for nothing afterwards."""
        if not isinstance(values, np.ndarray):
            return jnp.where(seen, values, self.emission.fill(np.float32))
        flat, known = (np.broadcast_to(each, values.shape).reshape(-1, values.shape[-1]) for each in (values, seen))
        first = np.take_along_axis(flat, known.argmax(axis=0)[None], axis=0)[0]  # that is seen, of each column
        fill = first if known.any(axis=0).all() else np.asarray(_fill(self.emission))  # which needs a program
        return np.where(seen, values, fill.astype(np.float64))

    def natural(self, params: Params) -> jax.Array:
        """`(K, pack)`, the parameters of every state as the kernels read them."""
        raise NotImplementedError

    def gradient(self, params: Params, sums: jax.Array) -> dict[str, jax.Array]:
        """Derivative of the expected log density with respect to the free parameters, from `sums (K, sums)`."""
        free = {name: params[name] for name in self.emission.free_names}
        return jax.grad(lambda at: self.expected_log_density({**params, **at}, params, sums))(free)

    def expected_log_density(self, params: Params, at: Params, sums: jax.Array) -> jax.Array:
        """`sum_t sum_k gamma_t(k) log p(y_t | k)` at `params`, up to a constant; sums were taken `at` others."""
        # Where nothing was seen the product is 0: a category of probability 0 has no derivative to give.
        return jnp.sum(sums * jnp.where(sums != 0, self.natural(params), 0.0))

    def log_base_measure(self, values: Any, observed: Any) -> Any:
        """Sum of `log h(y)` over rows `(..., D)`, as far as they are served: the part without parameters."""
        if not self.has_base_measure:
            return np.zeros(())
        xp, values = module_of(values), as_float(values)
        if xp is np and observed.all():
            return np.sum(self.emission.log_base_measure(values.astype(np.float64)))
        seen = observed if self.partial_rows else xp.all(observed, axis=-1, keepdims=True)
        return xp.sum(xp.where(seen, self.emission.log_base_measure(self._filled(values, seen)), 0.0))


def module_of(values: Any) -> Any:
    """What computes with such arrays."""
    return np if isinstance(values, np.ndarray) else jnp


def as_float(y: Any) -> Any:
    """Observations as floating-point numbers, in their own precision where they have one."""
    array = y if isinstance(y, np.ndarray) else jnp.asarray(y)
    wide = np.float64 if isinstance(y, np.ndarray) else jnp.result_type(float)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(wide)


class LinearLowering(Lowering):
    """Log densities `eta_k . s(y) - a_k`: natural parameters `(-a, eta)`, sums `(count, s)`. Of several features each
    has a number more, 1 where it is observed, and `-a` of its own: what is missing contributes nothing."""

    kind = LINEAR

    def __init__(self, emission: Any) -> None:
        self.partial_rows, self.has_base_measure = emission.dim > 1, hasattr(emission, "log_base_measure")
        names = ("seen", *emission.statistics) if self.partial_rows else emission.statistics
        self.terms = tuple((name, column) for name in names for column in range(emission.dim))
        super().__init__(emission, len(self.terms), 1 + len(self.terms), 1 + len(self.terms))

    def numbers(self, values: Any) -> Any:
        xp = module_of(values)
        return xp.concatenate([FUNCTIONS[name](xp, values) for name in self.emission.statistics], axis=-1)

    def rows(self, values: Any, observed: Any, lags: Any = None) -> Any:
        if not self.partial_rows:
            return super().rows(values, observed)
        xp, values = module_of(values), as_float(values)
        whole = xp is np and observed.all()
        numbers = self.numbers(values.astype(np.float64) if whole else self._filled(values, observed))
        if not whole:
            numbers = xp.where(xp.concatenate([observed] * len(self.emission.statistics), axis=-1), numbers, 0.0)
        numbers = xp.concatenate([observed.astype(numbers.dtype), numbers], axis=-1)
        return numbers if whole else xp.where(xp.any(observed, axis=-1, keepdims=True), numbers, np.nan)

    def natural(self, params: Params) -> jax.Array:
        eta, log_normaliser = self.emission.natural_parameters(params)
        constant = [jnp.zeros_like(eta[:, :1])] if self.partial_rows else []
        return jnp.concatenate([*constant, -log_normaliser, eta], axis=1)


class GaussianLowering(Lowering):
    """Features, or their logarithms, that are normal given the state. Natural parameters: the log density at the mean,
    the mean, and the rows of the inverse Cholesky factor of the covariance. Sums: count, first and second moments about
    the mean at which they were taken. Where features are independent, `features(params)` are their means and standard
    deviations `(K, D)`."""

    kind = GAUSSIAN

    def __init__(self, emission: Emission, features: Callable[[Params], Any], *, logs: bool = False) -> None:
        dim = emission.dim
        size, self.partial_rows = 1 + dim + dim * (dim + 1) // 2, dim <= MOST_PARTS
        super().__init__(emission, dim, size, size)
        self.features, self.rows_are_values, self.has_base_measure = features, not logs, logs
        self.terms = tuple(("log", column) for column in range(dim)) if logs else ()

    def numbers(self, values: Any) -> Any:
        return values if self.rows_are_values else module_of(values).log(values)

    def natural(self, params: Params) -> jax.Array:
        dim = self.width
        if self.emission.has_full_covariance:
            mean, whiten = jnp.asarray(params["mean"]), whitening(jnp.asarray(params["covariance"]))
            constant = log_det_of(whiten, dim) - 0.5 * dim * LOG_2PI
        else:
            mean, sd = self.features(params)
            inverse, zero = 1.0 / sd, jnp.zeros_like(sd[:, 0])
            whiten = jnp.stack([inverse[:, i] if i == j else zero for i in range(dim) for j in range(i + 1)], axis=1)
            constant = jnp.sum(jnp.log(inverse), -1) - 0.5 * dim * LOG_2PI
        return jnp.concatenate([constant[:, None], mean, whiten], axis=1)

    def expected_log_density(self, params: Params, at: Params, sums: jax.Array) -> jax.Array:
        dim, full = self.width, self.emission.has_full_covariance
        mean, sd = (params["mean"], jnp.ones(())) if full else self.features(params)
        move = mean - jax.lax.stop_gradient(at["mean"] if full else self.features(at)[0])
        count, first, second = sums[:, :1], sums[:, 1 : 1 + dim], sums[:, 1 + dim :]
        if not full:
            squares = second[:, np.cumsum([0, *range(dim, 1, -1)])]
            about = squares - 2.0 * move * first + count * move * move
            return -jnp.sum(count * jnp.log(sd) + 0.5 * about / sd**2)
        square = np.zeros((dim, dim), np.int32)
        square[np.triu_indices(dim)] = np.arange(dim * (dim + 1) // 2)
        cross = (first - 0.5 * count * move)[:, :, None] * move[:, None, :]
        moments = second[:, np.maximum(square, square.T)] - cross - jnp.swapaxes(cross, 1, 2)
        return jnp.sum(scatter_density(params["covariance"], moments, count[:, 0]))
