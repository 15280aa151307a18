"""Means and (co)variances of normal observations in closed form: a normal prior on the mean and an inverse Wishart one
on the covariance, or flat ones, are conjugate given each other; so is an inverse gamma prior on variances, of which
twice the shape and rate are degrees of freedom and scale."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import digamma
from numpyro import distributions as dist
from numpyro.distributions import constraints

from longhmm.model.conjugate import OneParameter, Params, RootInverseGamma, is_flat, prior_numbers
from longhmm.model.covariance import LOG_2PI, inverse_factor
from longhmm.model.parameters import Parameter, Parameters

ROUNDS = 200
SETTLED = 1e-13  # change of the mean, in standard deviations, after which the rounds of the mode end


class Moments(NamedTuple):
    """Sums over the observed rows of each level: how many `(G, D)`, of `y - centre` `(G, D)`, and of its products
    `(G, D, D)`, or squares `(G, D)` where features are independent."""

    number: Any
    first: Any
    second: Any


class Spread(NamedTuple):
    """Covariances are inverse Wishart, with `degrees` `(G,)` of freedom and `scale` `(G, D, D)`; variances likewise."""

    degrees: Any
    scale: Any


class NormalQ(NamedTuple):
    """Means are normal with `loc` and covariance `uncertainty`, covariances inverse Wishart."""

    loc: jax.Array
    uncertainty: jax.Array
    spread: Spread

    @property
    def precision(self) -> jax.Array:
        """The mean of the inverse covariance."""
        return self.spread.degrees[:, None, None] * jnp.linalg.inv(self.spread.scale)


class NormalUpdates:
    """`mean`, and `covariance`, `variance`, or `sd` of one feature, which is a 1 x 1 covariance. As in `OneParameter`,
    `q` is their distribution. Observations are measured from `centre` `(D,)`, or `(G, D)`. `conjugate` says whether all
    priors are; without `prior`, they are taken to be flat."""

    def __init__(self, table: Parameters, centre: Any, *, prior: bool = True) -> None:
        if not prior:
            flat = dist.ImproperUniform(constraints.real, (), ())
            table = {name: each._replace(prior=flat) for name, each in table.items()}
        mean, spread = table.values()
        self.table, self.centre, self.name, self.dim = table, centre, spread.name, centre.shape[-1]
        self.joint = self.name != "variance"  # whether features have covariances
        # A normal distribution of means `(G, D)` has `loc` and precision matrices, zero if it is flat.
        self.loc, self.precision = _mean_prior(mean, self.dim)
        self.spreads = _spread_prior(spread, self.dim)
        fixed = {"mean": self.loc is None, self.name: self.spreads is None}
        self.conjugate = not any(fixed[name] and each.is_free for name, each in table.items())

    def _matrices(self, params: Params) -> tuple[jax.Array, jax.Array]:
        """Means `(G, D)` and covariances, or variances."""
        spread = params[self.name]
        spread = (spread**2)[:, None, None] if self.name == "sd" else spread
        return params["mean"].reshape(-1, self.dim), spread

    def _named(self, mean: Any = None, spread: Any = None) -> dict[str, Any]:
        """The inverse of `_matrices`."""
        spread = spread**0.5 if self.name == "sd" and spread is not None else spread
        found = {"mean": mean, self.name: spread}
        return {name: each.reshape(self.table[name].shape) for name, each in found.items() if each is not None}

    def _given_mean(self, mean: Any, sums: Moments) -> Spread:
        """The spread about means relative to the centre."""
        assert self.spreads is not None
        number, first, second = sums
        if self.joint:
            cross, count = mean[:, :, None] * first[:, None, :], number[:, 0]
            square = count[:, None, None] * mean[:, :, None] * mean[:, None, :]
            scatter = second - cross - cross.swapaxes(1, 2) + square
        else:
            count, scatter = number, 2 * mean * first - number * mean**2
            if len(self.table["variance"].shape) == 1:  # features share their variance
                count, second, scatter = count.sum(1), second.sum(1), scatter.sum(1)
            scatter = second - scatter
        return Spread(self.spreads.degrees + count, self.spreads.scale + scatter)

    def _given_precision(self, precision: Any, sums: Moments) -> tuple[Any, Any]:
        """The precision of the mean relative to the centre, and its product with that mean."""
        # Independent features may have been observed unequally often: each has its own count.
        information = self.precision + sums.number[..., None] * precision
        return information, _times(precision, sums.first) + _times(self.precision, self.loc - self.centre)

    def _precision(self, spread: Any) -> Any:
        numbers = jnp if isinstance(spread, jax.Array) else np
        if self.joint:
            return numbers.linalg.inv(spread)
        wide = numbers.broadcast_to(spread.reshape(len(spread), -1), (len(spread), self.dim))
        return (1.0 / wide)[..., None] * np.eye(self.dim)

    def mode(self, sums: np.ndarray) -> dict[str, np.ndarray] | None:
        """The best means and spreads: each is known given the other, and a few rounds settle both. `sums` are counts,
        first and second moments about the centre. None where a level has too few observations, or a covariance is not
        positive definite."""
        counts, first, second = sums[:, :1], sums[:, 1 : 1 + self.dim], sums[:, 1 + self.dim :]
        if np.any(counts <= self.dim):
            return None
        square = np.zeros((self.dim, self.dim), int)
        square[np.triu_indices(self.dim)] = np.arange(second.shape[1])
        second = second[:, np.maximum(square, square.T) if self.joint else np.diag(square)]
        moments, mean = Moments(np.broadcast_to(counts, first.shape), first, second), np.zeros_like(first)
        for _ in range(ROUNDS):
            spread = self._mode_given_mean(mean, moments)
            if not (np.linalg.eigvalsh(spread) if self.joint else spread).min() > 0:
                return None
            precision = self._precision(spread)
            information, linear = self._given_precision(precision, moments)
            change = np.linalg.solve(information, linear[..., None])[..., 0] - mean
            mean = mean + change
            if np.all(change**2 * np.diagonal(precision, axis1=1, axis2=2) < SETTLED**2):
                break
        return self._named(mean=mean + self.centre, spread=self._mode_given_mean(mean, moments))

    def _mode_given_mean(self, mean: np.ndarray, moments: Moments) -> np.ndarray:
        degrees, scale = self._given_mean(mean, moments)
        # The density of a standard deviation has its mode elsewhere: d variance / d sd = 2 sd.
        divisor = degrees + {"covariance": self.dim + 1.0, "variance": 2.0, "sd": 1.0}[self.name]
        return np.asarray(scale / (divisor[:, None, None] if self.joint else divisor))

    def statistics(self, values: jax.Array, observed: jax.Array, weights: jax.Array) -> Moments:
        """Rows with covariances are observed whole or not at all."""
        moved = jnp.where(observed, values - self.centre, 0.0)
        if self.joint:
            second = jnp.einsum("tg,ti,tj->gij", weights, moved, moved, optimize=True)
        else:
            second = weights.T @ (moved * moved)
        return Moments(weights.T @ observed.astype(weights.dtype), weights.T @ moved, second)

    def draw_given(self, key: jax.Array, params: Params, sums: Moments) -> dict[str, jax.Array]:
        spread_key, mean_key = jax.random.split(key)
        mean, spread = self._matrices(params)
        found: dict[str, Any] = {}
        if self.spreads is not None:
            degrees, scale = self._given_mean(mean - self.centre, sums)
            if self.joint:
                spread = draw_inverse_wishart(spread_key, degrees, scale)
            else:
                spread = 0.5 * scale / jax.random.gamma(spread_key, 0.5 * degrees)
            found["spread"] = spread
        if self.loc is not None:
            information, linear = self._given_precision(self._precision(spread), sums)
            root, noise = inverse_factor(information), jax.random.normal(mean_key, linear.shape, linear.dtype)
            # The transpose turns standard noise into the covariance, the inverse of the precision.
            found["mean"] = self.centre + _times(root.swapaxes(-1, -2), _times(root, linear) + noise)
        return self._named(**found)

    @property
    def start(self) -> NormalQ | None:
        if not self.joint or self.loc is None or self.spreads is None or is_flat(self.table[self.name]):
            return None
        uncertainty = jnp.linalg.inv(self.precision + 1e-6 * np.eye(self.dim))
        return NormalQ(jnp.asarray(self.loc - self.centre), uncertainty, Spread(*map(jnp.asarray, self.spreads)))

    def pretend(self, params: Params, count: jax.Array) -> Moments:
        mean, covariance = self._matrices(params)
        offset, n = mean - self.centre, count[:, None]
        products = covariance + offset[:, :, None] * offset[:, None, :]
        return Moments(jnp.broadcast_to(n, offset.shape), n * offset, n[:, None] * products)

    def update(self, q: NormalQ, sums: Moments) -> NormalQ:
        for _ in range(3):
            information, linear = self._given_precision(q.precision, sums)
            loc, uncertainty = jnp.linalg.solve(information, linear[..., None])[..., 0], jnp.linalg.inv(information)
            degrees, scale = self._given_mean(loc, sums)
            scale = scale + sums.number[..., None] * uncertainty
            q = NormalQ(loc, uncertainty, Spread(degrees, 0.5 * (scale + scale.swapaxes(1, 2))))
        return q

    def expected(self, q: NormalQ, values: jax.Array, observed: jax.Array) -> jax.Array:
        size, whole = self.dim, jnp.all(observed, axis=-1)
        log_det = jnp.linalg.slogdet(q.spread.scale)[1] - size * jnp.log(2.0)
        log_det = log_det - jnp.sum(digamma(0.5 * (q.spread.degrees[:, None] - jnp.arange(size))), axis=1)
        residual = jnp.where(whole[:, None], values - self.centre, 0.0)[:, None, :] - q.loc
        distance = jnp.einsum("tgi,gij,tgj->tg", residual, q.precision, residual)
        distance = distance + jnp.einsum("gij,gji->g", q.precision, q.uncertainty)
        return jnp.where(whole[:, None], -0.5 * (distance + log_det + size * LOG_2PI), 0.0)

    def mean(self, q: NormalQ) -> dict[str, jax.Array]:
        degrees, size = q.spread.degrees, self.dim
        # The mean of an inverse Wishart needs more than D + 1 degrees of freedom; its mode always exists.
        divisor = jnp.where(degrees > size + 1.5, degrees - size - 1.0, degrees + size + 1.0)
        return self._named(mean=q.loc + self.centre, spread=q.spread.scale / divisor[:, None, None])

    def draw(self, key: jax.Array, q: NormalQ) -> dict[str, jax.Array]:
        mean_key, spread_key = jax.random.split(key)
        noise = jax.random.normal(mean_key, q.loc.shape, q.loc.dtype)
        mean = q.loc + self.centre + _times(jnp.linalg.cholesky(q.uncertainty), noise)
        return self._named(mean=mean, spread=draw_inverse_wishart(spread_key, *q.spread))


def _mean_prior(parameter: Parameter, dim: int) -> tuple[Any, Any]:
    means, matrices = (parameter.shape[0], dim), (parameter.shape[0], dim, dim)
    found = prior_numbers(parameter, (dist.Normal,), (0.0, 0.0))
    if found is not None:
        return found[0].reshape(means), found[1].reshape(means)[..., None] * np.eye(dim)
    loc, precision = prior_numbers(parameter, (dist.MultivariateNormal,), (0, 0), (means, matrices)) or (None, None)
    return loc, precision


def _spread_prior(parameter: Parameter, dim: int) -> Spread | None:
    shape, one = parameter.shape, (parameter.shape[0], 1, 1)
    kind, flat, shapes = {
        "covariance": (dist.InverseWishart, -(dim + 1.0), (shape[:1], shape)),
        "variance": (dist.InverseGamma, -2.0, (shape, shape)),
        "sd": (RootInverseGamma, -1.0, (shape, shape)),  # flat in the standard deviation is v^-1/2 in the variance
    }[parameter.name]
    found = prior_numbers(parameter, (kind,), (flat, 0.0), shapes)
    return None if found is None else Spread(found[0], found[1].reshape(one) if parameter.name == "sd" else found[1])


def _times(matrices: Any, vectors: Any) -> Any:
    return (matrices @ vectors[..., None])[..., 0]


def draw_inverse_wishart(key: jax.Array, degrees: Any, scale: Any) -> jax.Array:
    """Covariances `(G, D, D)` with density `|S|^-(degrees + D + 1)/2 exp(-tr(scale S^-1) / 2)`, by Bartlett's way."""
    size = scale.shape[-1]
    normal_key, chi_key = jax.random.split(key)
    below = jnp.tril(jax.random.normal(normal_key, scale.shape, scale.dtype), -1)
    squares = 2.0 * jax.random.gamma(chi_key, 0.5 * (degrees[:, None] - jnp.arange(size)))
    bartlett = below + jax.vmap(jnp.diag)(jnp.sqrt(squares))
    # W = L^-T B B^T L^-1 is Wishart with scale^-1 = L^-T L^-1, and its inverse is X X^T with X = L B^-T.
    half = solve_triangular(bartlett, jnp.linalg.cholesky(scale).swapaxes(-1, -2), lower=True)
    return half.swapaxes(-1, -2) @ half


Conjugate = OneParameter | NormalUpdates
