"""Log likelihoods and expected sufficient statistics of every kind of rows, in JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from longhmm.backends.protocol import GAUSSIAN, LINEAR, PRECOMPUTED, TABLE


def log_likelihoods(kind: int, width: int, rows: jax.Array, natural: jax.Array | None) -> jax.Array:
    """`(..., K)` of rows `(..., width)`; 0 where a row is missing."""
    if kind == PRECOMPUTED:
        return jnp.where(jnp.isnan(rows), 0.0, rows)
    assert natural is not None
    present = jnp.all(rows == rows, axis=-1, keepdims=True)
    filled = jnp.where(present, rows, 0.0)
    return jnp.where(present, _logs(kind, width, filled, natural), 0.0)


def _logs(kind: int, width: int, rows: jax.Array, natural: jax.Array) -> jax.Array:
    if kind == TABLE:
        codes = rows[..., 0].astype(jnp.int32)
        known = (codes >= 0) & (codes < natural.shape[1])  # what is no category is impossible
        logs = jnp.moveaxis(natural[:, jnp.where(known, codes, 0)], 0, -1)
        return jnp.where(known[..., None], logs, -jnp.inf)
    if kind == LINEAR:
        return natural[:, 0] + _product(rows, natural[:, 1:].T)
    away = rows[..., None, :] - natural[:, 1 : 1 + width]
    total, place = natural[:, 0], 1 + width
    for i in range(width):
        z = jnp.sum(natural[:, place : place + i + 1] * away[..., : i + 1], axis=-1)
        total, place = total - 0.5 * z * z, place + i + 1
    return total


def expected_sums(
    kind: int, width: int, n_sums: int, rows: jax.Array, natural: jax.Array, gamma: jax.Array
) -> jax.Array:
    """`(..., K, sums)` of rows `(time, ..., width)` with probabilities `(time, ..., K)`, summed over time."""
    present = jnp.all(rows == rows, axis=-1, keepdims=True)
    filled, gamma = jnp.where(present, rows, 0.0), jnp.where(present, gamma, 0.0)
    if kind == PRECOMPUTED:
        return jnp.zeros((*gamma.shape[1:], 0), gamma.dtype)
    if kind == TABLE:
        seen = jax.nn.one_hot(filled[..., 0].astype(jnp.int32), n_sums, dtype=gamma.dtype)
        return jnp.einsum("t...k,t...s->...ks", gamma, seen, precision=jax.lax.Precision.HIGHEST)
    if kind == LINEAR:
        visits = jnp.sum(gamma, axis=0)[..., None]
        sums = jnp.einsum("t...k,t...d->...kd", gamma, filled, precision=jax.lax.Precision.HIGHEST)
        return jnp.concatenate([visits, sums], axis=-1)
    assert kind == GAUSSIAN
    away = filled[..., None, :] - natural[:, 1 : 1 + width]
    products = [away[..., i] * away[..., j] for i in range(width) for j in range(i, width)]
    terms = [jnp.ones_like(gamma), *(away[..., i] for i in range(width)), *products]
    return jnp.stack([jnp.sum(gamma * term, axis=0) for term in terms], axis=-1)


def _product(one: jax.Array, other: jax.Array) -> jax.Array:
    return jnp.matmul(one, other, precision=jax.lax.Precision.HIGHEST)  # a GPU would round its factors otherwise
