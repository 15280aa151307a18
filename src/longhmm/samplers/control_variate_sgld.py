"""Stochastic-gradient Langevin dynamics with control variates, the noise scheme of Leimkuhler and Matthews, and a
preconditioner: the default sampler.

In whitened coordinates `z`, `theta = theta* + L z` with `L L^T = H^-1`, one step is

    z' = z + h L^T g_hat(theta) + sqrt(2 h) C (xi + xi') / 2

where `g_hat` is the control-variate gradient, `xi'` is fresh standard normal noise, `xi` that of the step before, and
`C C^T = I - h / (2 - h) V` takes away what the noise of the gradient, `V = L^T Cov(g_hat) L`, adds by itself.

Averaging the noise of two neighbouring steps (Leimkuhler and Matthews 2013) makes the stationary distribution of a
Gaussian target exact for every stable step size, and second-order accurate for others; plain Euler steps are only
first-order, which shows on the skewed coordinates of rare transitions. Without averaging, the noise
`2 h M - h^2 M (H + V) M` would be needed for the same covariance, and skewed targets come out visibly wrong at the same
step size (F22, F23).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.samplers.contract import Coordinates, Sampler, chosen
from longhmm.target.control_variate import ControlVariate, ControlVariateTarget
from longhmm.target.coordinates import Flat
from longhmm.target.target import Estimator

# No step goes further than this along any whitened coordinate, in posterior standard deviations. Even the most skewed
# coordinate, the logarithm of an exponential variable, asks for more only once in ten million draws. But far out in its
# tail explicit steps are unstable: without a limit, one unlucky window in a million throws a chain out for good.
LONGEST_DRIFT = 4.0


class ControlVariateState(NamedTuple):
    """Where the chain is: `offset` is z, `noise` the normal draws of the last step."""

    coordinates: Coordinates
    offset: jax.Array
    noise: jax.Array


class ControlVariateInfo(NamedTuple):
    """The gradient used, whether all was finite, the length of the drift when whitened, and impossible windows."""

    gradient: Coordinates
    finite: jax.Array
    drift: jax.Array
    impossible: jax.Array


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("plain", "centre", "exact", "rare", "factor", "noise_factor", "step_size"),
    meta_fields=(),
)
@dataclass(frozen=True, eq=False)
class Tuned(ControlVariateTarget):
    """Control variates with what tuning found at their centre: L and C, `(P, P)`, and h."""

    factor: Any = None
    noise_factor: Any = None
    step_size: Any = None

    @classmethod
    def of(cls, control: ControlVariateTarget, factor: Any, noise_factor: Any, step_size: Any) -> Tuned:
        """The same control variates, tuned."""
        return cls(control.plain, control.centre, control.exact, control.rare, factor, noise_factor, step_size)


@dataclass(frozen=True)
class ControlVariateSGLD(Sampler):
    """The default sampler; everything it needs is tuned automatically.

        z' = z + h L^T g_hat(theta) + sqrt(2 h) C (xi + xi') / 2

    Args:
        largest_step: upper limit of the step size h.
        noise_share: how much of the stationary variance may come from the gradient's noise before it is compensated.

    Example:
        >>> import longhmm as lh
        >>> lh.ControlVariateSGLD(largest_step=0.1)
        ControlVariateSGLD(largest_step=0.1, noise_share=0.25)

    References: Leimkuhler and Matthews (2013) for the averaged noise; Baker, Fearnhead, Fox and Nemeth (2019) for
    control variates. Differs from both by the noise C, which leaves out what the gradient's own noise adds.
    """

    largest_step: float = 0.25
    noise_share: float = 0.25
    name: ClassVar[str] = "SGLD with control variates"
    cites: ClassVar[tuple[str, ...]] = ("leimkuhler2013", "baker2019")

    def estimator(self, windows: Any, buffer: Any) -> Estimator:
        """Control variates with the user's windows and buffer."""
        return ControlVariate(**chosen(windows, buffer))

    def init(self, target: Tuned, key: jax.Array, u: Coordinates) -> ControlVariateState:
        flat = Flat.like(u)
        distance = flat.ravel(u).astype(jnp.float32) - flat.ravel(target.centre).astype(jnp.float32)
        offset = jnp.linalg.solve(jnp.asarray(target.factor, jnp.float32), distance)
        noise = jax.random.normal(key, offset.shape, offset.dtype)
        return ControlVariateState(_place(target, offset), offset, noise)

    def step(
        self, target: Tuned, key: jax.Array, state: ControlVariateState, minibatch: Any
    ) -> tuple[ControlVariateState, ControlVariateInfo]:
        factor, step_size = (jnp.asarray(each, jnp.float32) for each in (target.factor, target.step_size))
        spread = jnp.sqrt(2.0 * step_size) * jnp.asarray(target.noise_factor, jnp.float32)
        seen = target.estimate(state.coordinates, minibatch)
        asked = step_size * (factor.T @ Flat.like(state.coordinates).ravel(seen.gradient))
        drift = jnp.clip(asked, -LONGEST_DRIFT, LONGEST_DRIFT)
        noise = jax.random.normal(key, state.offset.shape, state.offset.dtype)
        offset = state.offset + drift + spread @ (0.5 * (state.noise + noise))
        length = jnp.sqrt(jnp.sum(drift**2))
        info = ControlVariateInfo(seen.gradient, jnp.all(jnp.isfinite(offset)), length, seen.impossible)
        return ControlVariateState(_place(target, offset), offset, noise), info

    def record(self, state: ControlVariateState) -> jax.Array:
        """Only the offset: in float32 it is precise to a millionth of a posterior standard deviation."""
        return state.offset


def _place(target: Tuned, offset: jax.Array) -> Coordinates:
    flat = Flat.like(target.centre)
    return flat.unravel(
        flat.ravel(target.centre).astype(jnp.float32) + jnp.asarray(target.factor, jnp.float32) @ offset
    )
