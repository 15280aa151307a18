"""Statistics of windows by the fused kernel, from inside compiled programs; equal to `window_statistics`.

Which kernel that is, C++ or Pallas, depends on where compiled programs run (see `backends`).
Where an emission has a form of its own (see `forms`) the kernel reads the rows of the windows straight from the data;
otherwise JAX computes the log likelihoods, and the kernel does the rest. Under `jax.vmap` all chains share one call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.windows import WindowBatch, WindowIndex
from longhmm.kernels import backends, native
from longhmm.kernels.compiled_call import Laws, Placed, native_windows
from longhmm.kernels.forms import Form, form_of, packs, slopes
from longhmm.kernels.pallas_windows import window_sums
from longhmm.kernels.rows import host_numbers
from longhmm.kernels.statistics import Statistics, free_emission
from longhmm.messages.markov import stationary
from longhmm.model.hmm import HMM

Params = Mapping[str, jax.Array]


def place(rows: Any, index: WindowIndex) -> Placed:
    """Windows where they lie in the data."""
    short = (
        index.start + index.core_start,
        index.core_start,
        index.core_stop - index.core_start,
        index.length - index.core_stop,
        index.at_start,
    )
    return Placed(rows, *(jnp.asarray(each).astype(jnp.int32) for each in short))


def copied_windows(model: HMM, windows: WindowBatch) -> Placed | None:
    """Windows that were read on the host `(..., S, width, D)`, as rows of numbers for the kernel, beside each other.

    None where it cannot read them: emissions without a form of their own, and rows that are observed in part.
    """
    form = form_of(model)
    seen = windows.observed.any(axis=-1)
    if form.kind == native.GIVEN or not np.array_equal(seen, windows.observed.all(axis=-1)):
        return None
    *outer, count, width = seen.shape
    rows = host_numbers(model, windows.values, windows.observed).reshape(*outer, count * width, form.width)
    begin = np.arange(count, dtype=np.int32) * width + windows.core_start
    core, right = windows.core_stop - windows.core_start, windows.length - windows.core_stop
    return Placed(rows, begin, windows.core_start, core, right, windows.at_start.astype(np.int32))


class FusedSums(NamedTuple):
    """What the kernel found in some windows, summed or with a leading axis W.

    Attributes:
        log_likelihood: of the cores, without `log h(y)`, which no parameter moves.
        first, transitions: expected first states and transitions.
        excess: `n_ij - A_ij n_i.`, precise also where counts are large and cancel.
        sums: `(..., K, sums)`, what the emission's form asks for.
    """

    log_likelihood: jax.Array
    first: jax.Array
    transitions: jax.Array
    excess: jax.Array
    sums: jax.Array


def placed_sums(
    model: HMM,
    params: Params,
    placed: Placed,
    start: jax.Array | None,
    core_length: int,
    buffer: int,
    weights: jax.Array | None,
) -> FusedSums:
    """Sums over the cores, read from the data where they lie.

    `start` None means that windows begin from the stationary law of the transition matrix. With `weights` `(W,)`
    windows are summed up, each times its own; with None the sums of every window come back, a leading axis W.
    """
    spans = (buffer, core_length, buffer)
    found = _call(form_of(model), placed, params, start, packs(model, params), spans, weights, gamma=1)
    return FusedSums(*found[:5])


def statistics_of(model: HMM, params: Params, found: FusedSums) -> Statistics:
    """Expected statistics from the sums of one set of windows."""
    return Statistics(found.first, found.transitions, slopes(model, params, found.sums), found.log_likelihood)


def given_statistics(
    model: HMM, params: Params, windows: WindowBatch, start: jax.Array | None, core_length: int, buffer: int
) -> Statistics:
    """Expected statistics of every window's core, with log likelihoods computed by JAX."""

    def logs_of_one(window: tuple[Any, Any, Any]) -> tuple[jax.Array, Any]:
        def logs(values: dict[str, jax.Array]) -> jax.Array:
            return model.log_likelihoods({**params, **values}, *window)

        return jax.vjp(logs, free_emission(model, params))

    logs, pull = jax.vmap(logs_of_one)((windows.values, windows.observed, windows.states))
    count, width, n_states = logs.shape
    inside = jnp.arange(width) < windows.length[:, None]
    rows = jnp.where(inside[..., None], logs, 0.0).reshape(-1, n_states)
    index = WindowIndex(
        jnp.arange(count) * width, windows.length, windows.core_start, windows.core_stop, windows.at_start
    )
    form = Form(native.GIVEN, n_states, 0, 0)
    none = jnp.zeros((n_states, 1), logs.dtype)
    likelihoods, first, transitions, _, _, gamma = _call(
        form,
        place(rows, index),
        params,
        start,
        none,
        (buffer, core_length, buffer),
        None,
        gamma=count * width,
    )
    weights = gamma.reshape(logs.shape)
    emission = jax.vmap(lambda one, weight: one(weight)[0])(pull, weights)
    return Statistics(first, transitions, emission, likelihoods)


def _call(
    form: Form,
    placed: Placed,
    params: Params,
    start: jax.Array | None,
    state_packs: jax.Array,
    spans: tuple[int, int, int],
    weights: jax.Array | None,
    *,
    gamma: int,
) -> Sequence[jax.Array]:
    """Log likelihood, first states, transitions, their excess, sums and posteriors."""
    kind = params["transition"].dtype
    n = params["transition"].shape[-1]
    if backends.windows_backend(n) == backends.PALLAS:
        law = jax.lax.stop_gradient(stationary(params["transition"])) if start is None else start
        laws = (params["transition"], params["initial"], law)
        asked = gamma if gamma > 1 else 0
        found = window_sums(form, placed, laws, state_packs, spans, weights, gamma=asked)
        return [each.astype(kind) for each in found]
    return native_windows(
        form,
        placed._replace(rows=placed.rows.astype(kind)),
        Laws(params["transition"], params["initial"], start, state_packs),
        weights,
        per_window=weights is None,
    )[:6]
