"""How an emission meets the fused kernels: rows as numbers, parameters as numbers, and sums back to derivatives.

Three kinds cover every exponential family here: Gaussian (of the observations, or of their logarithms), linear in the
sufficient statistics, and a table of log probabilities. A kernel sums what belongs to the kind; the derivative of
`sum_t sum_k gamma_t(k) log p(y_t | k)` with respect to the parameters follows from the sums alone (F8).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.model.covariance import LOG_2PI

if TYPE_CHECKING:
    from longhmm.model.emissions.base import Emission

# Numbers by which the kernels know the kinds (see call.h); PRECOMPUTED: log likelihoods instead of rows.
GAUSSIAN, LINEAR, TABLE, PRECOMPUTED = range(4)

Params = Mapping[str, jax.Array]
Arrays = Mapping[str, np.ndarray]


class Lowering:
    """An emission in the representation of the kernels.

    Attributes:
        kind: GAUSSIAN, LINEAR or TABLE.
        width: numbers per row.
        pack: natural parameters per state.
        sums: expected statistics per state.
        rows_are_values: whether the numbers of a row are its values, so that data need no copy.
        has_base_measure: whether `log h(y)` is other than 0.
        partial_rows: whether its numbers also serve rows that are observed in part.
    """

    kind: int
    rows_are_values = False
    has_base_measure = False
    partial_rows = False

    def __init__(self, emission: Emission, width: int, pack: int, sums: int) -> None:
        self.emission, self.width, self.pack, self.sums = emission, width, pack, sums

    def rows(self, values: Any, observed: Any) -> Any:
        """`(..., width)`, the numbers of rows `(..., D)`, NaN where a row is not wholly observed.

        NumPy's arrays are turned into NumPy's, computed in double precision; JAX's into JAX's, in their own.
        """
        if not isinstance(values, np.ndarray):
            return _rows(self.emission, values, observed)
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

    def expected_statistics(self, params: Arrays, sums: np.ndarray, centre: np.ndarray) -> tuple[Any, Any]:
        """`sum_t gamma_t(k) s(y_t - centre)`, `(K, n_stats)`, and `sum_t gamma_t(k)`, `(K,)`, from a kernel's sums.

        Only Gaussians are centred; for other families `centre` must be 0.
        """
        return sums[:, 1:], sums[:, 0]

    def log_base_measure(self, values: Any, observed: Any) -> jax.Array:
        """Sum of `log h(y)` over wholly observed rows `(..., D)`: the part of the log likelihood without parameters."""
        if not self.has_base_measure:
            return jnp.zeros(())
        emission, whole = self.emission, jnp.all(observed, axis=-1)
        filled = jnp.where(whole[..., None], values, emission.fill(jnp.asarray(values).dtype))
        logs = emission.log_base_measure(filled if emission.vector_valued else filled[..., 0])
        return jnp.sum(jnp.where(whole, logs, 0.0))


def _rows(emission: Emission, values: Any, observed: Any) -> jax.Array:
    lowering = emission.lowering
    assert lowering is not None
    return lowering.observed_numbers(jnp.asarray(values), observed)


_compiled_rows = jax.jit(_rows)


class LinearLowering(Lowering):
    """Log densities `eta_k . s(y) - a_k`: natural parameters `(-a, eta)`, sums `(count, s)`."""

    kind = LINEAR
    has_base_measure = True

    def __init__(self, emission: Emission) -> None:
        row = (emission.dim,) if emission.vector_valued else ()
        shape = jax.eval_shape(emission.sufficient_statistics, jax.ShapeDtypeStruct(row, np.float32))
        width = int(shape.shape[-1])
        super().__init__(emission, width, 1 + width, 1 + width)

    def numbers(self, values: Any) -> Any:
        return self.emission.sufficient_statistics(values if self.emission.vector_valued else values[..., 0])

    def natural(self, params: Params) -> jax.Array:
        found = self.emission.natural_parameters(params)
        assert found is not None
        return jnp.concatenate([-found[1][:, None], found[0]], axis=1)


class GaussianLowering(Lowering):
    """Features that are normal given the state.

    Natural parameters: the log density at the mean, the mean, and the rows of the inverse Cholesky factor of the
    covariance. Sums: count, first and second moments about the mean at which they were taken.
    """

    kind = GAUSSIAN
    rows_are_values = True

    def __init__(self, emission: Emission) -> None:
        size = 1 + emission.dim + emission.dim * (emission.dim + 1) // 2
        super().__init__(emission, emission.dim, size, size)

    def features(self, params: Params) -> tuple[jax.Array, jax.Array]:
        """Means and standard deviations `(K, D)`, of features that are independent."""
        raise NotImplementedError

    def whitened(self, params: Params) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Means `(K, D)`, rows of the whitening triangles `(K, D (D + 1) / 2)`, log densities at the mean `(K,)`."""
        mean, sd = self.features(params)
        inverse, dim = 1.0 / sd, mean.shape[1]
        columns = [inverse[:, i] if i == j else jnp.zeros_like(inverse[:, 0]) for i in range(dim) for j in range(i + 1)]
        return mean, jnp.stack(columns, axis=1), jnp.sum(jnp.log(inverse), -1) - 0.5 * dim * LOG_2PI

    def natural(self, params: Params) -> jax.Array:
        mean, whiten, constant = self.whitened(params)
        return jnp.concatenate([constant[:, None], mean, whiten], axis=1)

    def expected_log_density(self, params: Params, at: Params, sums: jax.Array) -> jax.Array:
        mean, sd = self.features(params)
        move, dim = mean - jax.lax.stop_gradient(self.features(at)[0]), self.width
        count, first, second = sums[:, :1], sums[:, 1 : 1 + dim], sums[:, 1 + dim :]
        squares = second[:, np.cumsum([0, *range(dim, 1, -1)])]
        about = squares - 2.0 * move * first + count * move * move
        return -jnp.sum(count * jnp.log(sd) + 0.5 * about / sd**2)

    def expected_statistics(self, params: Arrays, sums: np.ndarray, centre: np.ndarray) -> tuple[Any, Any]:
        with jax.enable_x64(True):
            mean = np.asarray(self.whitened({name: jnp.asarray(value) for name, value in params.items()})[0])
        dim, shift = mean.shape[1], mean - centre
        rows, columns = np.triu_indices(dim)
        count, about_mean, second = sums[:, :1], sums[:, 1 : 1 + dim], sums[:, 1 + dim :]
        cross = about_mean[:, rows] * shift[:, columns] + shift[:, rows] * about_mean[:, columns]
        products = second + cross + count * shift[:, rows] * shift[:, columns]
        return np.concatenate([about_mean + count * shift, self.second_moments(products)], axis=1), sums[:, 0]

    def second_moments(self, products: np.ndarray) -> np.ndarray:
        """Those of the family's sufficient statistics, from sums `(K, D (D + 1) / 2)` of products of features."""
        rows, columns = np.triu_indices(self.width)
        return products[:, rows == columns]
