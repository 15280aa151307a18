"""Facts about a transition matrix alone: where the chain rests and how fast it gets there."""

import jax
import jax.numpy as jnp
import numpy as np

WHISPER = 1e-18
UNROLLED_STATES = 16  # up to here the loops over states are written out, which compiles to a few fused operations


def stationary(transition: jax.Array) -> jax.Array:
    """Stationary distribution `pi = pi A`, `(K,)`, differentiable with respect to `A`.

    States are eliminated one after the other (Grassmann, Taksar and Heyman 1985). Nothing is ever subtracted, so every
    entry is accurate to rounding even in single precision and for chains that hardly move. A whisper of jumps between
    all states makes the answer unique for reducible chains, far below any probability that data could tell from zero.
    """
    n_states = transition.shape[0]
    states = jnp.arange(n_states)
    unroll = n_states <= UNROLLED_STATES

    def eliminate(chain: jax.Array, last: jax.Array) -> tuple[jax.Array, None]:
        before = states < last
        out = jnp.where(before, chain[last], 0.0)
        into = jnp.where(before, chain[:, last], 0.0) / jnp.sum(out)
        chain = chain + into[:, None] * out[None, :]
        return jnp.where((states == last)[None, :] & before[:, None], into[:, None], chain), None

    def insert(pi: jax.Array, state: jax.Array) -> tuple[jax.Array, None]:
        return jnp.where(states == state, jnp.sum(jnp.where(states < state, pi * reduced[:, state], 0.0)), pi), None

    reduced, _ = jax.lax.scan(eliminate, transition + WHISPER, states[:0:-1], unroll=unroll)
    pi, _ = jax.lax.scan(insert, (states == 0).astype(transition.dtype), states[1:], unroll=unroll)
    return pi / jnp.sum(pi)


def stationary_on_host(transition: np.ndarray) -> np.ndarray:
    """The same as `stationary`, on the host, `(..., K)` for matrices `(..., K, K)`."""
    chain = np.array(transition, np.float64) + WHISPER
    n_states = chain.shape[-1]
    for last in range(n_states - 1, 0, -1):
        chain[..., :last, last] /= chain[..., last, :last].sum(axis=-1, keepdims=True)
        chain[..., :last, :last] += chain[..., :last, last, None] * chain[..., last, None, :last]
    pi = np.ones(chain.shape[:-1])
    for state in range(1, n_states):
        pi[..., state] = np.sum(pi[..., :state] * chain[..., :state, state], axis=-1)
    return pi / pi.sum(axis=-1, keepdims=True)


def centred_counts(counts: jax.Array, transition: jax.Array) -> jax.Array:
    """`n_ij - A_ij n_i.`, `(K, K)`: how much more often a transition was made than its probability says.

    Written so that nothing nearly equal is subtracted, `n_ij sum_{k != j} A_ik - A_ij sum_{k != j} n_ik`. Scaled up to
    all data, the rounding of large counts in single precision would drown transitions that are never seen.
    """
    others = 1.0 - jnp.eye(transition.shape[-1], dtype=transition.dtype)
    exact = jax.lax.Precision.HIGHEST
    left, made = (jnp.matmul(each, others, precision=exact) for each in (transition, counts))
    return (counts * left - transition * made) / jnp.sum(transition, axis=-1, keepdims=True)


def mixing_time(transition: np.ndarray, *, cap: float = 1e6) -> float:
    """Steps until the chain forgets its state, `1 / (1 - |lambda_2|)` (F14), capped where it never does."""
    transition = np.asarray(transition, dtype=np.float64)
    if transition.shape[0] == 1:
        return 1.0
    moduli = np.sort(np.abs(np.linalg.eigvals(transition)))
    gap = 1.0 - moduli[-2]
    return float(min(cap, 1.0 / gap)) if gap > 1.0 / cap else float(cap)
