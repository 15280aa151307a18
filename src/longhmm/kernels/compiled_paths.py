"""A path of states drawn from its posterior by the C++ kernel inside compiled programs."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.kernels import native
from longhmm.kernels.compiled_pass import Chunks, Params, given_logs
from longhmm.kernels.edges import guess
from longhmm.kernels.forms import Form, packs
from longhmm.kernels.fused_pass import REACHES
from longhmm.model.hmm import HMM


class FlatPath(NamedTuple):
    """One path through all data.

    Attributes:
        states: `(T,)`, the state at every row.
        first, transitions: `(K,)` and `(K, K)`, sequences that begin in each state, and steps from i to j.
        log_likelihood: `log p(y)`, the states summed out.
        sound: False where chunks do not forget what came before them; then the rest means nothing.
    """

    states: jax.Array
    first: jax.Array
    transitions: jax.Array
    log_likelihood: jax.Array
    sound: jax.Array


def draw_path(model: HMM, form: Form, chunks: Chunks, params: Params, key: jax.Array) -> FlatPath:
    """A draw from `P(x | all y)`, under `jax.enable_x64(True)`."""
    native.register()
    n = model.n_states
    given = form.kind == native.GIVEN
    rows = given_logs(model, chunks, params) if given else chunks.rows
    shapes = (
        jax.ShapeDtypeStruct((rows.shape[0],), jnp.uint8),
        jax.ShapeDtypeStruct((n,), jnp.float64),
        jax.ShapeDtypeStruct((n, n), jnp.float64),
        jax.ShapeDtypeStruct((), jnp.float64),
        jax.ShapeDtypeStruct((), jnp.int32),
    )
    run = jax.ffi.ffi_call("longhmm_draw", shapes, vmap_method="sequential")
    states, first, transitions, log_likelihood, sound = run(
        rows,
        chunks.begin,
        chunks.core,
        chunks.left,
        params["transition"],
        params["initial"],
        guess(params["transition"]),
        jnp.zeros((n, 1)) if given else packs(model, params),
        jax.random.key_data(key).ravel()[:2],
        reaches=np.asarray(REACHES, np.int32),
        kind=np.int32(form.kind),
        threads=np.int32(native.threads()),
    )
    # The kernel takes NaN for a missing row.
    defined = ~jnp.any(jnp.isnan(rows)) if given else True
    return FlatPath(states, first, transitions, log_likelihood + chunks.base, (sound > 0) & defined)
