"""Algorithm 2 of the paper: blocks of parameters move several times on one minibatch, then iterates are averaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.samplers.expanded_mean import normalised


@dataclass(frozen=True)
class Alternating:
    """First the transitions, then the emission, each `inner_steps` times on the same minibatch; means of iterates.

        Ahat <- mean of Ahat^(1) .. Ahat^(inner_steps),     phi <- mean of phi^(1) .. phi^(inner_steps)

    For reproduction only: the average of a chain is not a draw from its target (its spread is too small), except for
    `inner_steps=1`.
    """

    inner_steps: int = 5

    def __post_init__(self) -> None:
        steps = self.inner_steps
        if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 1:
            raise ModelError(f"inner_steps must be a whole number of at least 1, got {steps!r}.")


def alternate(
    policy: Alternating,
    compiled: bool,
    model: HMM,
    key: jax.Array,
    state: Any,
    size: jax.Array,
    look: Callable[[Any], Any],
    rows_step: Callable[..., Any],
    emission_step: Callable[..., Any],
) -> tuple[Any, tuple[Any, jax.Array, jax.Array, jax.Array]]:
    """The next state, and of the first point the gradient, the shares of clipped and of refused directions, and windows
    that are impossible there.

    Args:
        policy: how often.
        compiled: whether `look` may run inside a compiled loop.
        look: gradient and statistics of the minibatch at a state.
        rows_step, emission_step: one step of either block, given key, state, step size and what `look` saw.
    """
    rows_keys, emission_keys = jax.random.split(key, (2, policy.inner_steps))

    def move_rows(state: Any, key: jax.Array) -> tuple[Any, Any]:
        seen = look(state)
        expanded, law, clipped = rows_step(key, state, size, seen)
        moved = state._replace(expanded=expanded, coordinates={**state.coordinates, "transition": law})
        return moved, (expanded, clipped, (seen.gradient, seen.impossible))

    def move_emission(state: Any, key: jax.Array) -> tuple[Any, Any]:
        move = emission_step(key, state, size, look(state))
        moved = state._replace(coordinates={**state.coordinates, **move.coordinates})
        params = model.constrain(moved.coordinates)
        return moved, ({name: params[name] for name in model.emission.free_names}, move.refused)

    _, (expanded, clipped, seen) = _repeat(compiled, move_rows, state, rows_keys)
    gradient, impossible = jax.tree.map(lambda values: values[0], seen)
    expanded = jnp.mean(expanded, axis=0)
    law = model.transitions.unconstrain(normalised(expanded))
    state = state._replace(expanded=expanded, coordinates={**state.coordinates, "transition": law})
    _, (natural, refused) = _repeat(compiled, move_emission, state, emission_keys)
    # Natural parameters are averaged, as in the paper; supports are convex, so that the mean lies inside.
    natural = {name: jnp.mean(values, axis=0) for name, values in natural.items()}
    state = state._replace(coordinates=model.unconstrain({**model.constrain(state.coordinates), **natural}))
    return state, (gradient, jnp.mean(clipped), jnp.mean(refused), impossible)


def _repeat(compiled: bool, body: Callable[[Any, Any], tuple[Any, Any]], state: Any, keys: jax.Array) -> Any:
    if compiled:
        return jax.lax.scan(body, state, keys)
    found = []
    for key in keys:
        state, one = body(state, key)
        found.append(one)
    return state, jax.tree.map(lambda *each: jnp.stack(each), *found)
