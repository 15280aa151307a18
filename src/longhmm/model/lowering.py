"""How an emission meets the fused kernels: rows as numbers, parameters as numbers, and sums of numbers of three kinds,
from which the derivative of `sum_t sum_k gamma_t(k) log p(y_t | k)` with respect to the parameters follows (F8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.model.covariance import LOG_2PI, log_det_of, scatter_density, whitening

if TYPE_CHECKING:
    from longhmm.model.emissions import Emission

# Numbers by which the kernels know the kinds (see call.h); PRECOMPUTED: log likelihoods instead of rows.
GAUSSIAN, LINEAR, TABLE, PRECOMPUTED = range(4)

Params = Mapping[str, jax.Array]


class Lowering:
    """An emission in the representation of the kernels, with `width` numbers per row, `pack` natural parameters per
    state, and `sums` expected statistics per state."""

    kind: int  # GAUSSIAN, LINEAR or TABLE
    rows_are_values = False  # whether the numbers of a row are its values, so that data need no copy
    has_base_measure = False  # whether `log h(y)` is other than 0
    partial_rows = False  # whether its numbers also serve rows that are observed in part

    def __init__(self, emission: Emission, width: int, pack: int, sums: int) -> None:
        self.emission: Any = emission
        self.width, self.pack, self.sums = width, pack, sums

    def rows(self, values: Any, observed: Any, lags: Any = None) -> Any:
        """`(..., width)`, the numbers of rows `(..., D)`, NaN where a row is not wholly observed. NumPy's arrays are
        turned into NumPy's, computed in double precision; JAX's into JAX's, in their own."""
        if not isinstance(values, np.ndarray):
            return self.observed_numbers(jnp.asarray(values), observed)
        if self.rows_are_values:
            missing = np.array(np.nan, values.dtype if values.dtype.kind == "f" else np.float64)
            return np.where(observed.all(axis=-1, keepdims=True), values, missing)
        with jax.enable_x64(True):
            values = values.astype(np.float64) if values.dtype.kind == "f" else values
            return np.asarray(_compiled_rows(self.emission, values, observed))

    def numbers(self, values: Any) -> Any:
        """The numbers of rows `(..., D)` whose values all lie in the support."""
        return values

    def observed_numbers(self, values: jax.Array, observed: jax.Array) -> jax.Array:
        """The numbers of rows of which something may be missing, in the precision of the current scope at least."""
        whole = jnp.all(observed, axis=-1)[..., None]
        numbers = self.numbers(jnp.where(whole, values, self.emission.fill(values.dtype)))
        return jnp.where(whole, numbers.astype(jnp.result_type(numbers, jnp.result_type(float))), jnp.nan)

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

    def log_base_measure(self, values: Any, observed: Any) -> jax.Array:
        """Sum of `log h(y)` over wholly observed rows `(..., D)`: the part of the log likelihood without parameters."""
        if not self.has_base_measure:
            return jnp.zeros(())
        whole = jnp.all(observed, axis=-1)
        filled = jnp.where(whole[..., None], values, self.emission.fill(jnp.asarray(values).dtype))
        return jnp.sum(jnp.where(whole, self.emission.log_base_measure(filled), 0.0))


_compiled_rows = jax.jit(
    lambda emission, values, observed: emission.lowering.observed_numbers(jnp.asarray(values), observed)
)


class LinearLowering(Lowering):
    """Log densities `eta_k . s(y) - a_k`: natural parameters `(-a, eta)`, sums `(count, s)`."""

    kind, has_base_measure = LINEAR, True

    _widths: ClassVar[dict[Any, int]] = {}  # by the structure of an emission: tracing takes a millisecond

    def __init__(self, emission: Emission) -> None:
        structure = jax.tree.structure(emission)
        if structure not in self._widths:
            row = jax.ShapeDtypeStruct((emission.dim,), np.float32)
            self._widths[structure] = int(jax.eval_shape(emission.sufficient_statistics, row).shape[-1])  # type: ignore[attr-defined]
        width = self._widths[structure]
        super().__init__(emission, width, 1 + width, 1 + width)

    def numbers(self, values: Any) -> Any:
        return self.emission.sufficient_statistics(values)

    def natural(self, params: Params) -> jax.Array:
        eta, log_normaliser = self.emission.natural_parameters(params)
        return jnp.concatenate([-log_normaliser[:, None], eta], axis=1)


class GaussianLowering(Lowering):
    """Features, or their logarithms, that are normal given the state. Natural parameters: the log density at the mean,
    the mean, and the rows of the inverse Cholesky factor of the covariance. Sums: count, first and second moments about
    the mean at which they were taken. Where features are independent, `features(params)` are their means and standard
    deviations `(K, D)`."""

    kind = GAUSSIAN

    def __init__(self, emission: Emission, features: Callable[[Params], Any], *, logs: bool = False) -> None:
        size = 1 + emission.dim + emission.dim * (emission.dim + 1) // 2
        super().__init__(emission, emission.dim, size, size)
        self.features, self.rows_are_values, self.has_base_measure = features, not logs, logs

    def numbers(self, values: Any) -> Any:
        return values if self.rows_are_values else jnp.log(values)

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
        cross = first[:, :, None] * move[:, None, :]
        moments = second[:, np.maximum(square, square.T)] - cross - jnp.swapaxes(cross, 1, 2)
        moments = moments + count[:, :, None] * move[:, :, None] * move[:, None, :]
        return jnp.sum(scatter_density(params["covariance"], moments, count[:, 0]))
