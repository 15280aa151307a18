"""Stochastic-gradient Langevin dynamics (SGLD), with a constant preconditioner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.samplers import recipe
from longhmm.samplers.contract import Coordinates, all_finite
from longhmm.samplers.preconditioning import Identity, Preconditioner
from longhmm.samplers.schedules import Schedule, Stepped, as_schedule
from longhmm.target.coordinates import Flat
from longhmm.target.target import Target


class SGLDState(NamedTuple):
    """Where the chain is."""

    coordinates: Coordinates
    factor: jax.Array  # L, `(P, P)` or `(P,)`, constant; `D = L L^T`
    steps: jax.Array
    noise: jax.Array | None  # `(P, P)`, moving average of `L^T V L`; None without correction


class SGLDInfo(NamedTuple):
    """Beside gradient and finiteness: the share of directions whose noise was clipped, h, and impossible windows."""

    gradient: Coordinates
    finite: jax.Array
    clipped: jax.Array
    step_size: jax.Array
    impossible: jax.Array


@dataclass(frozen=True)
class SGLD(Stepped):
    """Langevin steps in unconstrained coordinates u: the complete recipe with D constant and Q = 0,

        u' = u + h D g_hat(u) + N(0, 2 h D - h^2 D V D)

    with h = `step_size` at this step, g_hat an estimate of the gradient of the log posterior (Jacobian included), D
    from `preconditioner`, and V the covariance of g_hat if `noise_correction`, else 0.

    Args:
        step_size: h, a number or a schedule. With `InverseInformation()` 0.01 to 0.1 suits any data; with `Identity()`
            it must stay below 2 over the largest posterior precision, about 1 over the number of observations.
        preconditioner: `Identity()`, `InverseInformation()`, or `Given(...)`.
        noise_correction: estimate V from the spread of windows and inject that much less noise.

    Example:
        >>> import jax, longhmm as lh
        >>> model, params = lh.HMM(2, lh.Poisson(rate=[1.0, 8.0])), {"transition": [[0.9, 0.1], [0.2, 0.8]]}
        >>> data = lh.open_data(lh.simulate(model, params, 2000, seed=0)[1])
        >>> sampler = lh.SGLD(step_size=1e-4)
        >>> target = sampler.estimator(lh.Windows(10, 20), lh.FixedBuffer(5)).bind(model, data, params)
        >>> state = sampler.init(target, jax.random.key(0), lh.unconstrain(model, params))
        >>> state, info = sampler.step(target, jax.random.key(1), state, target.minibatch(jax.random.key(2)))
        >>> bool(info.finite)
        True

    Reference: M. Welling and Y. W. Teh, Bayesian learning via stochastic gradient Langevin dynamics, ICML 2011. Differs
    by the preconditioner, by the correction of the noise, and by step sizes that need not decay.
    """

    step_size: float | Schedule
    preconditioner: Preconditioner = field(default_factory=Identity)
    noise_correction: bool = False
    name: ClassVar[str] = "SGLD"
    cites: ClassVar[tuple[str, ...]] = ("welling2011",)

    def init(self, target: Target, key: jax.Array, u: Coordinates) -> SGLDState:
        if self.noise_correction:
            recipe.check_noise_known(target, self.name)
        factor = self.preconditioner.factor(target, u)
        noise = jnp.zeros((factor.shape[0],) * 2, factor.dtype) if self.noise_correction else None
        return SGLDState(dict(u), factor, jnp.zeros((), jnp.int32), noise)

    def step(self, target: Any, key: jax.Array, state: SGLDState, minibatch: Any) -> tuple[SGLDState, SGLDInfo]:
        flat = Flat.like(state.coordinates)
        seen = target.estimate(state.coordinates, minibatch, per_window=self.noise_correction)
        noise = recipe.learned(target, state, seen, minibatch, recipe.covariance)
        size = jnp.asarray(as_schedule(self.step_size).at(state.steps), state.factor.dtype)
        theta, gradient = flat.ravel(state.coordinates), flat.ravel(seen.gradient)
        moved = recipe.step(recipe.Factored(state.factor), key, theta, gradient, size, noise)
        finite = all_finite((moved.theta, gradient))
        after = SGLDState(flat.unravel(moved.theta), state.factor, state.steps + 1, noise)
        return after, SGLDInfo(seen.gradient, finite, moved.clipped, size, seen.impossible)
