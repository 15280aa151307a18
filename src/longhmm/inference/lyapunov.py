"""How fast the message recursion forgets its start: the two largest Lyapunov exponents.

Two forward messages with different starts approach each other like `exp((rho_2 - rho_1) t)`. A frame of two columns
is pushed forward through `diag(p(y_t)) A^T` with a QR step each time; the log ratio of the diagonal of R is what a
step contributes to the gap (F12).
"""

import jax
import jax.numpy as jnp

from longhmm.inference.scaling import peak_scaled

# A single step may contract the second direction to nothing (well separated emissions); what is below this is
# forgotten anyway, and unbounded values would swamp the mean.
FLOOR = -15.0


def log_contractions(transition: jax.Array, log_likelihoods: jax.Array) -> jax.Array:
    """Log ratios `log |R_22| - log |R_11|` of every step, `(time, W)`; their mean is `rho_2 - rho_1`.

    Args:
        transition: `(K, K)`, `A[i, j]`, `K >= 2`; or `(time, K, K, W)`, one for each row.
        log_likelihoods: `(time, K, W)`.
    """
    n_states, n_windows = log_likelihoods.shape[1:]
    dtype = log_likelihoods.dtype
    likelihoods, _ = peak_scaled(log_likelihoods)
    limits = jnp.finfo(dtype)
    # The direction that replaces a column that has been annihilated: no vector of a plausible model is parallel.
    spare = jnp.cos(1.0 + 2.0 * jnp.arange(n_states, dtype=dtype))[:, None]
    first = jnp.ones((n_states, n_windows), dtype) / jnp.sqrt(jnp.asarray(n_states, dtype))
    second = _orthogonal_to(first, jnp.broadcast_to(spare, first.shape))

    def step(
        frame: tuple[jax.Array, jax.Array], inputs: tuple[jax.Array, jax.Array | None]
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        likelihood, matrix = inputs
        leading, trailing = (likelihood * _moved(transition if matrix is None else matrix, each) for each in frame)
        size = jnp.sqrt(jnp.sum(leading**2, axis=0))
        # A zero leading column (an impossible step) leaves no information: restart the frame, count the floor.
        dead = size <= limits.tiny
        leading = jnp.where(dead, first, leading / jnp.where(dead, 1.0, size))
        rest = _remove(leading, _remove(leading, trailing))
        remaining = jnp.sqrt(jnp.sum(rest**2, axis=0))
        ratio = remaining / jnp.where(dead, 1.0, size)
        lost = dead | (ratio <= jnp.exp(jnp.asarray(FLOOR, dtype)))
        fresh = _orthogonal_to(leading, jnp.broadcast_to(spare, leading.shape))
        trailing = jnp.where(lost, fresh, rest / jnp.where(lost, 1.0, remaining))
        return (leading, trailing), jnp.where(lost, FLOOR, jnp.log(jnp.where(lost, 1.0, ratio)))

    return jax.lax.scan(step, (first, second), (likelihoods, transition if transition.ndim == 4 else None))[1]


def _moved(transition: jax.Array, vectors: jax.Array) -> jax.Array:
    """`A^T v` for vectors `(K, W)`."""
    return transition.T @ vectors if transition.ndim == 2 else jnp.einsum("ijw,iw->jw", transition, vectors)


def _remove(direction: jax.Array, vector: jax.Array) -> jax.Array:
    return vector - direction * jnp.sum(direction * vector, axis=0)


def _orthogonal_to(direction: jax.Array, vector: jax.Array) -> jax.Array:
    rest = _remove(direction, _remove(direction, vector))
    return rest / jnp.sqrt(jnp.sum(rest**2, axis=0))
