"""Joining chunks: each starts some rows early, and where the messages at their boundaries agree, all is exact.

From left to right: the first chunk of a sequence starts from its exact distribution. What leaves it is exact, so that a
chunk that started from the same message is exact too, and so on. "The same" is meant in the projective distance, the
largest difference of log odds: no later observation, however surprising, can make it grow, so that likelihoods and
posteriors are right to the same relative accuracy. (Absolute differences would not do: evidence of a thousand nats
turns 1e-30 and 1e-300 into two different answers.) From right to left, messages need only be right where it counts: the
posterior at each boundary has to agree. Where not all that follows is at hand, the rows behind the last chunk must
settle its last state, whatever state they lead to.

Where messages do not agree, chunks start earlier. In the end they are propagated exactly: what a chunk does to any
message is its transfer operator, found by running it from every state, and operators are applied one after the other.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.protocol import FRAMES, PAIR, Backend, Boundary, PathsGiven, PathsWanted, Potentials, Wanted
from longhmm.backends.varying import log_matrices_at, mean_matrix
from longhmm.data.layout import Layout
from longhmm.inference.markov import stationary
from longhmm.inference.scaling import at_zero, log_sum_exp, safe_log

OVERLAPS = (32, 128, 512)  # rows by which chunks start early, in the order in which they are tried
TOLERANCE = 1e-11  # log odds, or total variation, below which two messages count as the same
SCORE_TOLERANCE = 1e-8  # the same for scores of best paths: sums of thousands of log probabilities
# Share of the uniform distribution in the one that chunks warm up from. Every state that is possible in truth is then
# possible in the warm-up, and an observation that is impossible there is so in truth.
UNIFORM_SHARE = 1e-3
ROUNDING = 64  # units in the last place that a logarithm may be wrong by


def warm_start(transition: Any) -> jax.Array:
    """The distribution `(K,)` that chunks inside a sequence warm up from: nearly the stationary one."""
    matrix = mean_matrix(transition)
    return (1 - UNIFORM_SHARE) * stationary(matrix) + UNIFORM_SHARE / matrix.shape[-1]


def boundary_steps(potentials: Potentials, begin: Any) -> jax.Array:
    """Log weights `(W, K, K)` of the steps into first core rows `begin` of chunks, up to what the new state decides."""
    begin, transition, n = jnp.asarray(begin), potentials.transition, potentials.initial.shape[-1]
    if potentials.kind == FRAMES:  # messages are compared as they are: no step takes them further apart
        transition = jnp.eye(n, dtype=potentials.initial.dtype)
    steps = jnp.broadcast_to(log_matrices_at(transition, begin), (len(begin), n, n))
    if potentials.kind == PAIR:
        logs = jnp.asarray(potentials.rows)[begin]
        steps = steps + jnp.where(jnp.isnan(logs), 0.0, logs)
    return steps


def forward_gap(log_step: jax.Array, forward_out: jax.Array, forward_in: jax.Array, best: bool = False) -> jax.Array:
    """Largest difference of log odds `(W,)` of the messages that left chunks and those the next ones began with, one
    step on, `(K, K)` or `(W, K, K)`, after which what is too small to matter is gone. `best`: scores of best paths."""
    total = jnp.max if best else log_sum_exp
    return _apart(*(total(each[:, :, None] + log_step, 1) for each in (forward_out, forward_in)))


def _apart(one: jax.Array, other: jax.Array) -> jax.Array:
    """Largest difference of log odds `(W,)` of two messages, less what rounding explains."""
    one, other = at_zero(one.T), at_zero(other.T)
    impossible = jnp.isneginf(one) & jnp.isneginf(other)
    gap = jnp.abs(one - other) - ROUNDING * jnp.finfo(one.dtype).eps * jnp.abs(one)
    return jnp.nan_to_num(jnp.max(jnp.where(impossible, 0.0, gap), axis=0), nan=jnp.inf, posinf=jnp.inf)


def posterior_gap(forward_out: jax.Array, backward_in: jax.Array, backward_out: jax.Array) -> jax.Array:
    """Total variation `(W,)` between the posteriors at the ends of chunks: with the backward message that a chunk
    assumed there, and with the one that came out of the next chunk."""
    return _total_variation(forward_out + backward_in, forward_out + backward_out)


def open_gap(forward_out: jax.Array, behind: jax.Array) -> jax.Array:
    """How far the rows behind a chunk leave its last state open: total variation between its posteriors, given where
    these rows end. `forward_out` `(K,)` left the chunk, `behind` `(K, K)` is the transfer operator of the rows."""
    given_end = (forward_out[:, None] + behind).T
    reached = jnp.any(jnp.isfinite(given_end), axis=1)  # an end that cannot be reached says nothing
    one = given_end[jnp.argmax(reached)]
    return jnp.max(jnp.where(reached, _total_variation(given_end, jnp.broadcast_to(one, given_end.shape)), 0.0))


def inner_gap(steps: Any, joined: Any, messages: Sequence[jax.Array], best: bool = False) -> jax.Array:
    """The largest disagreement between neighbours, by `Messages` of both directions or the forward ones alone; `joined`
    `(W,)`: whether a chunk continues the one before it; `steps()` into chunks are made only where they are needed."""
    forward_in, forward_out, *backward = messages
    joined, left = jnp.asarray(joined)[1:], forward_out[:-1]

    def largest(gaps: jax.Array) -> jax.Array:
        return jnp.max(jnp.where(joined, gaps, 0.0), initial=0.0)

    # No step takes messages further apart: where they agree as they are, none need be taken, which costs K times less.
    gap = largest(_apart(left, forward_in[1:]))
    onward = lambda: largest(forward_gap(steps()[1:], left, forward_in[1:], best))  # noqa: E731
    gap = jax.lax.cond(gap <= (SCORE_TOLERANCE if best else TOLERANCE), lambda: gap, onward)
    return jnp.maximum(gap, largest(posterior_gap(left, backward[0][:-1], backward[1][1:]))) if backward else gap


def transfer_operators(backend: Backend, potentials: Potentials, layout: Layout, best: bool = False) -> jax.Array:
    """What each chunk does to any message: at `[w, i, j]` the log weight of all its paths (or of the `best` one) from
    state i just before it to state j at its last row. Where a chunk opens its sequence it is the same for all i."""
    n, dtype = potentials.initial.shape[-1], potentials.initial.dtype

    def from_state(state: jax.Array) -> jax.Array:
        before = jnp.broadcast_to(safe_log((jnp.arange(n) == state).astype(dtype)), (layout.size, n))
        found: Any
        if best:
            found = ends = backend.paths(potentials, layout, PathsGiven(before), PathsWanted(False, messages=True))
        else:
            wanted = Wanted(per_chunk=True, forward_only=True, messages=True)
            found = backend.statistics(potentials, layout, Boundary(before), None, wanted)
            ends = found.messages
        possible = jnp.isfinite(found.log_likelihood)[:, None]
        out = ends.forward_out - log_sum_exp(jnp.where(possible, ends.forward_out, 0.0), 1)[:, None]
        return jnp.where(possible, out + found.log_likelihood[:, None], -jnp.inf)

    # One at a time: all at once would multiply the memory by K.
    return jnp.moveaxis(jax.lax.map(from_state, jnp.arange(n)), 0, 1)


def find_paths(
    backend: Backend, potentials: Potentials, layout: Layout, given: PathsGiven, wanted: PathsWanted
) -> tuple[Any, jax.Array]:
    """Paths through chunks, warm-started where no message before them is given; and the steps between chunks."""
    if given.forward is None:
        given = given._replace(start=warm_start(potentials.transition))
    return backend.paths(potentials, layout, given, wanted), boundary_steps(potentials, layout.begin)


@partial(jax.jit, static_argnames=("best",))
def propagate(carry: Any, operators: Any, restarts: Any, best: bool = False) -> tuple[jax.Array, jax.Array]:
    """Messages (scores, of `best` paths) before chunks, `(W, K)`, from that before the first; and that behind them.
    `restarts` `(W,)`: chunks before which nothing is known."""
    total = jnp.max if best else log_sum_exp

    def step(message: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        operator, restart = inputs
        before = jnp.where(restart, 0.0, message)
        onward = total(before[:, None] + operator, 0)
        scale = log_sum_exp(onward, 0)
        # After an impossible observation, the uniform message: that its likelihood is zero is found elsewhere.
        return jnp.where(jnp.isfinite(scale), onward - scale, -jnp.log(float(message.shape[0]))), before

    last, before = jax.lax.scan(step, carry, (operators, restarts))
    return before, last


def propagate_backward(carry: Any, operators: Any, ends: Any, run: Callable[..., Any] = propagate) -> tuple[Any, Any]:
    """Messages behind consecutive chunks, `(W, K)`, from the one behind the last; and the one before the first. `ends`
    `(W,)`: whether a chunk ends its sequence. They `run` through the program of forward ones, from right to left."""
    behind, first = run(carry, operators.swapaxes(1, 2)[::-1], ends[::-1])
    return behind[::-1], first


_forward_gap = jax.jit(forward_gap, static_argnums=3)


def block_gap(step: np.ndarray, forward_out: np.ndarray, forward_in: np.ndarray, best: bool) -> float:
    """On the host: how far the message `(K,)` that a block began with is from the one that left the block before."""
    with jax.enable_x64(True):
        return float(np.asarray(_forward_gap(step, forward_out[None], forward_in[None], best))[0])


def _total_variation(one: jax.Array, other: jax.Array) -> jax.Array:
    """Between distributions given as log weights `(W, K)`, less what rounding explains."""
    distance = 0.5 * jnp.sum(jnp.abs(jax.nn.softmax(one) - jax.nn.softmax(other)), axis=1)
    size = jnp.max(jnp.where(jnp.isneginf(one), 0.0, jnp.abs(one)), axis=1)
    return jnp.nan_to_num(distance - ROUNDING * jnp.finfo(one.dtype).eps * size, nan=jnp.inf, posinf=jnp.inf)
