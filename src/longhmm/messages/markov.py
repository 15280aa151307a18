"""Facts about a transition matrix alone: where the chain rests and how fast it gets there."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def stationary(transition: jax.Array) -> jax.Array:
    """Stationary distribution `pi = pi A`, `(K,)`, differentiable with respect to `A`.

    A whisper of uniform jumps (2e-12 in double precision) makes the answer unique for reducible chains, and is far
    below any probability that data could tell from zero.
    """
    n_states = transition.shape[0]
    whisper = float(jnp.finfo(transition.dtype).eps) ** 0.75
    mixed = (1 - whisper) * transition + whisper / n_states
    # pi (I - A) = 0 and pi 1 = 1, added up into one regular system.
    system = jnp.eye(n_states, dtype=transition.dtype) - mixed.T + 1.0
    law = jnp.maximum(jnp.linalg.solve(system, jnp.ones(n_states, transition.dtype)), 0.0)
    return law / jnp.sum(law)


def mixing_time(transition: np.ndarray, *, cap: float = 1e6) -> float:
    """Steps until the chain forgets its state, `1 / (1 - |lambda_2|)` (F14), capped where it never does."""
    transition = np.asarray(transition, dtype=np.float64)
    if transition.shape[0] == 1:
        return 1.0
    moduli = np.sort(np.abs(np.linalg.eigvals(transition)))
    gap = 1.0 - moduli[-2]
    return float(min(cap, 1.0 / gap)) if gap > 1.0 / cap else float(cap)
