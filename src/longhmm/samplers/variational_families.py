"""Mean-field approximations `q` of emission parameters: conjugate families, their expectations, and draws from them.

A family turns running sums over the data into `q`; evaluates `E_q log p(y | k)`, the density that the local step uses;
and knows the mean of `q` and how to draw from it. Sums are those of `conjugate`, around a fixed centre.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln

from longhmm.errors import ModelError
from longhmm.model.categories import Bernoulli, Categorical
from longhmm.model.counts import Poisson
from longhmm.model.emissions import Emission
from longhmm.model.gaussian import Gaussian
from longhmm.model.hmm import HMM
from longhmm.model.multivariate_normal import LOG_2PI
from longhmm.samplers import conjugate_priors as priors
from longhmm.samplers.conjugate import Conditional, Moments, conditional_of, draw_dirichlet, draw_inverse_wishart

SUPPORTED = (
    "Gaussian with normal mean and full inverse-Wishart covariance, Poisson with gamma rate, Categorical with "
    "Dirichlet probs, and Bernoulli with beta probs"
)


class Family(NamedTuple):
    """A variational family for the emission.

    Attributes:
        conditional: holds `statistics`, the sums it is made from.
        pretend: `(params, count (G,)) -> sums` as if each group had that many rows with these parameters.
        update: `(q, sums) -> q`, the best `q` given sums (a few rounds where its factors depend on one another).
        start: `q` before any data: the prior, where it is proper.
        expected: `(q, values (n, D), observed (n, D)) -> (n, G)`, `E_q log p(y | group)`.
        mean: `q -> params`; `draw`: `(key, q) -> params`.
    """

    conditional: Conditional
    pretend: Callable[[Any, jax.Array], Any]
    update: Callable[[Any, Any], Any]
    start: Any
    expected: Callable[[Any, jax.Array, jax.Array], jax.Array]
    mean: Callable[[Any], dict[str, jax.Array]]
    draw: Callable[[jax.Array, Any], dict[str, jax.Array]]


def family_of(model: HMM, centre: Any) -> Family:
    """The family for a model's emission; `centre` `(D,)` is subtracted from Gaussian observations."""
    emission, levels = priors.grouped(model.emission, model.n_states)
    table = emission.parameters(int(levels.max()) + 1)
    conditional = conditional_of(model, False)
    if not any(parameter.is_free for parameter in table.values()):
        return _known(emission, table)
    if conditional is not None and all(parameter.is_free for parameter in table.values()):
        if isinstance(emission, Gaussian) and emission.covariance_kind == "full":
            wishart = priors.inverse_wishart_prior(table["covariance"])
            if wishart is not None and wishart.proper:  # `q` begins as the prior
                return _gaussian(table, conditional, wishart, centre)
        if isinstance(emission, Poisson):
            return _poisson(table["rate"], conditional)
        if isinstance(emission, Bernoulli):
            return _bernoulli(table["probs"], conditional)
        if isinstance(emission, Categorical):
            return _categorical(table["probs"], conditional)
    raise ModelError(
        f"Stochastic variational inference supports {SUPPORTED}, got {emission!r}: choose one of these, or a sampler."
    )


def _known(emission: Emission, table: Any) -> Family:
    """All parameters are fixed: there is nothing to approximate."""

    def expected(q: Any, values: jax.Array, observed: jax.Array) -> jax.Array:
        params = {name: jnp.asarray(parameter.value, jnp.result_type(float)) for name, parameter in table.items()}
        return emission.log_density_missing(params, values, observed)

    return Family(
        Conditional(lambda *_: (), lambda *_: {}),
        lambda *_: (),
        lambda *_: (),
        (),
        expected,
        lambda q: {},
        lambda *_: {},
    )


class GaussianQ(NamedTuple):
    """`mean` of a group is normal with `loc` and `spread` (a covariance), its covariance inverse Wishart."""

    loc: jax.Array
    spread: jax.Array
    degrees: jax.Array
    scale: jax.Array


def _gaussian(table: Any, conditional: Conditional, wishart: priors.InverseWishartPrior, centre: Any) -> Family:
    normal = priors.normal_prior(table["mean"])
    assert normal is not None
    middle = jnp.asarray(centre)
    size = middle.shape[0]
    prior_loc = normal.mean - middle
    origin = {"mean": middle[None]}

    def statistics(params: Any, values: jax.Array, observed: jax.Array, weights: jax.Array) -> Any:
        return conditional.statistics(origin, values, observed, weights)

    def pretend(params: Any, count: jax.Array) -> Moments:
        offset = params["mean"] - middle
        products = params["covariance"] + offset[:, :, None] * offset[:, None, :]
        return Moments(
            jnp.broadcast_to(count[:, None], offset.shape), count[:, None] * offset, count[:, None, None] * products
        )

    def update(q: GaussianQ, sums: Moments) -> GaussianQ:
        assert sums.second is not None
        count = sums.number[:, 0]
        for _ in range(3):
            precision = q.degrees[:, None, None] * jnp.linalg.inv(q.scale)
            information = normal.precision + count[:, None, None] * precision
            linear = jnp.einsum("gij,gj->gi", normal.precision, prior_loc)
            linear = linear + jnp.einsum("gij,gj->gi", precision, sums.first)
            loc = jnp.linalg.solve(information, linear[..., None])[..., 0]
            spread = jnp.linalg.inv(information)
            cross = sums.first[:, :, None] * loc[:, None, :]
            around = sums.second - cross - jnp.swapaxes(cross, 1, 2)
            around = around + count[:, None, None] * (loc[:, :, None] * loc[:, None, :] + spread)
            q = GaussianQ(
                loc, spread, wishart.degrees + count, wishart.scale + 0.5 * (around + jnp.swapaxes(around, 1, 2))
            )
        return q

    def expected(q: GaussianQ, values: jax.Array, observed: jax.Array) -> jax.Array:
        whole = jnp.all(observed, axis=-1)
        moved = jnp.where(whole[:, None], values - middle, 0.0)
        precision = q.degrees[:, None, None] * jnp.linalg.inv(q.scale)
        halves = jnp.arange(size)
        log_det = jnp.linalg.slogdet(q.scale)[1] - size * jnp.log(2.0)
        log_det = log_det - jnp.sum(digamma(0.5 * (q.degrees[:, None] - halves)), axis=1)
        residual = moved[:, None, :] - q.loc
        distance = jnp.einsum("tgi,gij,tgj->tg", residual, precision, residual)
        distance = distance + jnp.einsum("gij,gji->g", precision, q.spread)
        return jnp.where(whole[:, None], -0.5 * (distance + log_det + size * LOG_2PI), 0.0)

    def mean(q: GaussianQ) -> dict[str, jax.Array]:
        # The mean of an inverse Wishart law needs more than D + 1 degrees of freedom; its mode always exists.
        divisor = jnp.where(q.degrees > size + 1.5, q.degrees - size - 1.0, q.degrees + size + 1.0)
        return {"mean": q.loc + middle, "covariance": q.scale / divisor[:, None, None]}

    def draw(key: jax.Array, q: GaussianQ) -> dict[str, jax.Array]:
        mean_key, scatter_key = jax.random.split(key)
        noise = jax.random.normal(mean_key, q.loc.shape, q.loc.dtype)
        moved = jnp.einsum("gij,gj->gi", jnp.linalg.cholesky(q.spread), noise)
        return {
            "mean": q.loc + middle + moved,
            "covariance": draw_inverse_wishart(scatter_key, q.degrees, q.scale),
        }

    start = GaussianQ(
        jnp.asarray(prior_loc),
        jnp.linalg.inv(normal.precision + 1e-6 * jnp.eye(size)),
        jnp.asarray(wishart.degrees),
        jnp.asarray(wishart.scale),
    )
    return Family(Conditional(statistics, conditional.draw), pretend, update, start, expected, mean, draw)


class PairQ(NamedTuple):
    """Two numbers per value: shape and rate of a gamma, or both concentrations of a beta."""

    one: jax.Array
    two: jax.Array


def _columns(parameter: Any, numbers: jax.Array) -> jax.Array:
    """`(G,)` or `(G, D)` as `(G, D)`."""
    return numbers.reshape(parameter.shape[0], -1)


def _poisson(parameter: Any, conditional: Conditional) -> Family:
    prior, shape = priors.gamma_prior(parameter), parameter.shape
    assert prior is not None

    def pretend(params: Any, count: jax.Array) -> Moments:
        rates = _columns(parameter, params["rate"])
        number = jnp.broadcast_to(count[:, None], rates.shape)
        return Moments(number, number * rates, None)

    def expected(q: PairQ, values: jax.Array, observed: jax.Array) -> jax.Array:
        seen = jnp.where(observed, values, 0).astype(q.one.dtype)
        log_rate, rate = (_columns(parameter, each) for each in (digamma(q.one) - jnp.log(q.two), q.one / q.two))
        ways = jnp.sum(jnp.where(observed, gammaln(seen + 1.0), 0.0), axis=1, keepdims=True)
        return seen @ log_rate.T - observed.astype(q.one.dtype) @ rate.T - ways

    return Family(
        conditional,
        pretend,
        lambda q, sums: PairQ(prior.one + sums.first.reshape(shape), prior.two + sums.number.reshape(shape)),
        PairQ(jnp.asarray(prior.one), jnp.asarray(prior.two)),
        expected,
        lambda q: {"rate": q.one / q.two},
        lambda key, q: {"rate": jax.random.gamma(key, q.one) / q.two},
    )


def _bernoulli(parameter: Any, conditional: Conditional) -> Family:
    prior, shape = priors.beta_prior(parameter), parameter.shape
    assert prior is not None

    def pretend(params: Any, count: jax.Array) -> Moments:
        probs = _columns(parameter, params["probs"])
        number = jnp.broadcast_to(count[:, None], probs.shape)
        return Moments(number, number * probs, None)

    def update(q: PairQ, sums: Moments) -> PairQ:
        ones, number = sums.first.reshape(shape), sums.number.reshape(shape)
        return PairQ(prior.one + ones, prior.two + number - ones)

    def expected(q: PairQ, values: jax.Array, observed: jax.Array) -> jax.Array:
        total = digamma(q.one + q.two)
        log_one, log_zero = (_columns(parameter, digamma(each) - total) for each in (q.one, q.two))
        ones = jnp.where(observed, values, 0).astype(q.one.dtype)
        return ones @ log_one.T + (observed.astype(q.one.dtype) - ones) @ log_zero.T

    return Family(
        conditional,
        pretend,
        update,
        PairQ(jnp.asarray(prior.one), jnp.asarray(prior.two)),
        expected,
        lambda q: {"probs": q.one / (q.one + q.two)},
        lambda key, q: {"probs": draw_dirichlet(key, jnp.stack(q, -1))[..., 0]},
    )


def _categorical(parameter: Any, conditional: Conditional) -> Family:
    prior = priors.dirichlet_prior(parameter)

    def expected(q: jax.Array, values: jax.Array, observed: jax.Array) -> jax.Array:
        logs = digamma(q) - digamma(jnp.sum(q, axis=1, keepdims=True))
        labels = jnp.where(observed[:, 0], values[:, 0], 0).astype(jnp.int32)
        return jnp.where(observed, logs.T[labels], 0.0)

    return Family(
        conditional,
        lambda params, count: count[:, None] * params["probs"],
        lambda q, sums: prior + sums,
        jnp.asarray(prior),
        expected,
        lambda q: {"probs": q / jnp.sum(q, axis=1, keepdims=True)},
        lambda key, q: {"probs": draw_dirichlet(key, q)},
    )
