"""One block of rows, read, checked and turned into log likelihoods: all that a pass needs to know of model and data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.errors import ModelError
from longhmm.kernels.blocks import Block, Plan
from longhmm.model.hmm import HMM


def as_arrays(params: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """Checked parameters on the device, in double precision."""
    with jax.enable_x64(True):
        return {name: jnp.asarray(value) for name, value in params.items()}


def read_block(
    model: HMM, params: Mapping[str, jax.Array], plan: Plan, index: int, reach: int
) -> tuple[Block, jax.Array]:
    """Block `index` with `reach` rows around it, and `log p(y_t | x_t = k)` of its rows, `(R, K)` float64.

    Data outside the support, and densities that are not a number, are refused with the row that they belong to.
    """
    block = plan.read(index, reach)
    start = plan.position(index, reach, 0)
    model.check_rows(plan.sequences, block.values, block.observed, start, block.states)
    partly = bool(np.any(block.observed.any(axis=1) != block.observed.all(axis=1)))
    with jax.enable_x64(True):
        logs, first = _log_likelihoods(model, partly, params, block.values, block.observed, block.states)
        undefined = int(first)
    if undefined >= 0:
        raise ModelError(
            f"params gave a log density that is not a number for {plan.sequences.describe(start + undefined)}: "
            "every parameter must be finite and inside its support."
        )
    return block, logs


@partial(jax.jit, static_argnames=("model", "partly"))
def _log_likelihoods(
    model: HMM, partly: bool, params: Mapping[str, jax.Array], values: Any, observed: Any, states: Any
) -> tuple[jax.Array, jax.Array]:
    """Log likelihoods of rows, and the first row where one is not a number (-1: none)."""
    logs = model.log_likelihoods(params, values, observed, states, partial=partly)
    undefined = jnp.any(jnp.isnan(logs), axis=1)
    return logs, jnp.where(jnp.any(undefined), jnp.argmax(undefined), -1)
