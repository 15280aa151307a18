"""How an emission meets the fused kernel: observations as numbers, parameters as packs, sums back to derivatives.

Three forms cover every exponential family here: Gaussian (of the observations, or of their logarithms), linear in the
sufficient statistics, and a table of log probabilities. The kernel sums what belongs to the form; the derivative of
`sum_t sum_k gamma_t(k) log p(y_t | k)` with respect to the parameters follows from the sums alone (F8).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.kernels.native import GAUSSIAN, GIVEN, LINEAR, TABLE
from longhmm.kernels.statistics import free_emission
from longhmm.model.categories import Categorical
from longhmm.model.emissions import Emission
from longhmm.model.gaussian import Gaussian
from longhmm.model.hmm import HMM
from longhmm.model.multivariate_normal import LOG_2PI, precision, scatter_slope, whitening
from longhmm.model.positive import LogNormal
from longhmm.model.tied import Tied

Params = Mapping[str, jax.Array]


class Form(NamedTuple):
    """The shape of an emission in the kernel.

    Attributes:
        kind: GAUSSIAN, LINEAR, TABLE or GIVEN (log likelihoods are handed over).
        width: numbers per row.
        pack: numbers per state.
        sums: sums per state.
    """

    kind: int
    width: int
    pack: int
    sums: int


def form_of(model: HMM) -> Form:
    """The form of a model's emission; GIVEN where it has no form of its own."""
    emission = _inner(model.emission)
    dim = emission.dim
    if isinstance(emission, Gaussian | LogNormal):
        triangle = dim * (dim + 1) // 2
        return Form(GAUSSIAN, dim, 1 + dim + triangle, 1 + dim + triangle)
    if isinstance(emission, Categorical):
        count = emission.n_categories or 1
        return Form(TABLE, 1, count, count)
    if emission.is_exponential_family:
        shape = jax.eval_shape(emission.sufficient_statistics, jax.ShapeDtypeStruct(_row_shape(emission), np.float32))
        width = int(shape.shape[-1])
        return Form(LINEAR, width, 1 + width, 1 + width)
    return Form(GIVEN, model.n_states, 0, 0)


def numbers(model: HMM, values: Any) -> Any:
    """The numbers of rows `(..., D)` as the kernel reads them; `values` must lie in the support, NaN where missing."""
    emission = _inner(model.emission)
    if isinstance(emission, Gaussian | Categorical):
        return values
    if isinstance(emission, LogNormal):
        return jnp.log(values)
    return emission.sufficient_statistics(values if emission.vector_valued else values[..., 0])


def packs(model: HMM, params: Params) -> jax.Array:
    """`(K, pack)`, the parameters of every state as the kernel reads them."""
    emission = _inner(model.emission)
    if isinstance(emission, Gaussian | LogNormal):
        mean, whiten, constant = _gaussian(emission, params)
        found = jnp.concatenate([constant[:, None], mean, whiten], axis=1)
    elif isinstance(emission, Categorical):
        # The logarithm of 0 is what it should be: minus infinity, an impossible category.
        found = jnp.log(jnp.asarray(params["probs"]))
    else:
        eta, normaliser = _natural(emission, params)
        found = jnp.concatenate([-normaliser[:, None], eta], axis=1)
    return _by_state(model.emission, found)


def slopes(model: HMM, params: Params, sums: jax.Array) -> dict[str, jax.Array]:
    """Derivative of the expected log density with respect to the free natural parameters, from `sums (K, sums)`."""
    free = free_emission(model, params)
    emission = _inner(model.emission)
    if isinstance(emission, Gaussian) and emission.covariance_kind == "full":
        found = _full_gaussian_slopes(params["covariance"], _by_level(model.emission, sums))
        return {name: found[name] for name in free}
    return jax.grad(lambda at: expected_log_density(model, params, {**params, **at}, sums))(free)


def _full_gaussian_slopes(covariance: jax.Array, sums: jax.Array) -> dict[str, jax.Array]:
    """Of means and covariances: `P f` and `1/2 (P S P - n P)`, P the precision, f and S the moments about the mean."""
    dim = covariance.shape[-1]
    precise = precision(covariance)
    count, first, second = sums[:, 0], sums[:, 1 : 1 + dim], sums[:, 1 + dim :]
    square = np.zeros((dim, dim), np.int32)
    square[np.triu_indices(dim)] = np.arange(dim * (dim + 1) // 2)
    moments = second[:, np.maximum(square, square.T)]
    return {
        "mean": jnp.sum(precise * first[:, None, :], axis=2),
        "covariance": scatter_slope(precise, moments, count),
    }


def sufficient_sums(
    model: HMM, params: Mapping[str, np.ndarray], sums: np.ndarray, centre: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`sum_t gamma_t(k) s(y_t - centre)`, `(K, n_stats)`, and `sum_t gamma_t(k)`, `(K,)`, from the kernel's sums.

    Only Gaussians are centred; for other families `centre` must be 0.
    """
    emission = _inner(model.emission)
    if isinstance(emission, Categorical):
        return sums, sums.sum(axis=1)
    if not isinstance(emission, Gaussian | LogNormal):
        return sums[:, 1:], sums[:, 0]
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(value) for name, value in params.items()}
        mean = np.asarray(_by_state(model.emission, _gaussian(emission, arrays)[0]))
    dim = mean.shape[1]
    count, about_mean, second = sums[:, 0], sums[:, 1 : 1 + dim], sums[:, 1 + dim :]
    shift = mean - centre
    first = about_mean + count[:, None] * shift
    rows, columns = np.triu_indices(dim)
    products = (
        second
        + about_mean[:, rows] * shift[:, columns]
        + shift[:, rows] * about_mean[:, columns]
        + count[:, None] * shift[:, rows] * shift[:, columns]
    )
    if isinstance(emission, Gaussian) and emission.covariance_kind == "full":
        return np.concatenate([first, products], axis=1), count
    squares = products[:, rows == columns]
    if isinstance(emission, Gaussian) and emission.covariance_kind == "spherical":
        squares = squares.sum(axis=1, keepdims=True)
    return np.concatenate([first, squares], axis=1), count


def log_base_measure(model: HMM, values: Any, observed: Any) -> jax.Array:
    """Sum of `log h(y)` over rows `(..., D)` that were seen: the part of the log likelihood without parameters."""
    emission = _inner(model.emission)
    if isinstance(emission, Gaussian | Categorical):
        return jnp.zeros(())
    whole = jnp.all(observed, axis=-1)
    filled = jnp.where(whole[..., None], values, emission._fill(jnp.asarray(values).dtype))
    logs = emission.log_base_measure(filled if emission.vector_valued else filled[..., 0])
    assert logs is not None
    return jnp.sum(jnp.where(whole, logs, 0.0))


def expected_log_density(model: HMM, at: Params, params: Params, sums: jax.Array) -> jax.Array:
    """`sum_t sum_k gamma_t(k) log p(y_t | k)` as a function of `params`, up to a constant; sums were taken at `at`."""
    emission = _inner(model.emission)
    if not isinstance(emission, Gaussian | LogNormal):
        return jnp.sum(_finite_product(sums, packs(model, params)))
    # Features by themselves; the sums hold their first and second moments about the mean at which they were taken.
    mean, deviation = _features(emission, params)
    centre, dim = jax.lax.stop_gradient(_features(emission, at)[0]), mean.shape[1]
    sums = _by_level(model.emission, sums)
    count, first, second = sums[:, :1], sums[:, 1 : 1 + dim], sums[:, 1 + dim :]
    squares = second[:, np.cumsum([0, *range(dim, 1, -1)])]
    move = mean - centre
    about = squares - 2.0 * move * first + count * move * move
    return -jnp.sum(count * jnp.log(deviation) + 0.5 * about / deviation**2)


def _gaussian(emission: Emission, params: Params) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Means `(K, D)`, rows of the whitening triangles `(K, D (D + 1) / 2)`, and the log density at the mean `(K,)`."""
    dim = emission.dim
    if isinstance(emission, Gaussian) and emission.covariance_kind == "full":
        triangle = whitening(jnp.asarray(params["covariance"]))
        diagonal = triangle[:, np.cumsum(np.arange(dim) + 1) - 1]
        return jnp.asarray(params["mean"]), triangle, jnp.sum(jnp.log(diagonal), -1) - 0.5 * dim * LOG_2PI
    mean, deviation = _features(emission, params)
    inverse = 1.0 / deviation
    columns = [inverse[:, i] if i == j else jnp.zeros_like(inverse[:, 0]) for i in range(dim) for j in range(i + 1)]
    return mean, jnp.stack(columns, axis=1), jnp.sum(jnp.log(inverse), -1) - 0.5 * dim * LOG_2PI


def _features(emission: Emission, params: Params) -> tuple[jax.Array, jax.Array]:
    """Means and standard deviations `(K, D)` of features that are independent given the state."""
    if isinstance(emission, LogNormal):
        return emission.with_features(params["loc"]), emission.with_features(params["scale"])
    assert isinstance(emission, Gaussian)
    return jnp.asarray(params["mean"]), jnp.sqrt(emission._variance(params))


def _natural(emission: Emission, params: Params) -> tuple[jax.Array, jax.Array]:
    found = emission.natural_parameters(params)
    assert found is not None
    return found


def _finite_product(sums: jax.Array, logs: jax.Array) -> jax.Array:
    """Sums times logs, with 0 where nothing was seen: a category of probability 0 has no derivative to give."""
    seen = sums != 0
    return sums * jnp.where(seen, logs, 0.0)


def _inner(emission: Emission) -> Emission:
    return emission.emission if isinstance(emission, Tied) else emission


def _by_state(emission: Emission, levels: jax.Array) -> jax.Array:
    return levels[np.array(emission.levels)] if isinstance(emission, Tied) else levels


def _by_level(emission: Emission, sums: jax.Array) -> jax.Array:
    """Sums of states that share a level, added up."""
    if not isinstance(emission, Tied):
        return sums
    return jnp.zeros((emission.n_levels, sums.shape[1]), sums.dtype).at[np.array(emission.levels)].add(sums)


def _row_shape(emission: Emission) -> tuple[int, ...]:
    return (emission.dim,) if emission.vector_valued else ()
