"""Stochastic-gradient Langevin dynamics with a constant preconditioner: SGLD, and with momentum SGHMC."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from longhmm.samplers import SAMPLERS
from longhmm.samplers import langevin_moves as langevin
from longhmm.samplers.contract import Coordinates, Info, all_finite
from longhmm.samplers.preconditioning import Identity, InverseInformation, Preconditioner
from longhmm.samplers.schedules import Schedule, Stepped, positive
from longhmm.target.coordinates import Flat, scores
from longhmm.target.target import Estimate, Target


class SGLDState(NamedTuple):
    """Where the chain is."""

    coordinates: Coordinates
    factor: Array  # L, `(P, P)` or `(P,)`, constant; `D = L L^T`
    steps: Array
    noise: Array | None  # moving average of `L^T V L`, or of its diagonal for SGHMC; None without correction
    momentum: Array | None = None  # `(P,)`, r of SGHMC in scaled coordinates; standard normal in equilibrium


class _Scaled(Stepped):
    """What both share: a constant scale of the coordinates, and noise that is learned from windows."""

    preconditioner: Preconditioner
    noise_correction: bool

    def scale(self, target: Target, u: Coordinates) -> Array:
        """L, for a target whose noise can be known if it has to be."""
        if self.noise_correction:
            langevin.check_noise_known(target, self.name)
        return self.preconditioner.factor(target, u)

    def look(self, target: Any, state: SGLDState, minibatch: Any, spread: Any) -> tuple[Estimate, Any, Array]:
        """What the minibatch says, the noise with what it says of that, and the step size."""
        seen: Estimate = target.estimate(state.coordinates, minibatch, per_window=self.noise_correction)
        noise = None
        if state.noise is not None and seen.windows is not None:
            moves = target.initial is None
            of_windows = scores(target.model, state.coordinates, seen.windows, initial_moves=moves)
            flat = Flat.like(state.coordinates).ravel(of_windows)
            now = spread(langevin.scaled_back(state.factor, flat), minibatch)
            noise = langevin.averaged(state.noise, now, state.steps)
        return seen, noise, self.size_at(state.steps, state.factor.dtype)


@SAMPLERS.register("sgld", offered=False)
@dataclass(frozen=True)
class SGLD(_Scaled):
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

    Stats: `clipped`, the share of directions whose noise was; `step_size`; `impossible` windows.

    Reference: M. Welling and Y. W. Teh, Bayesian learning via stochastic gradient Langevin dynamics, ICML 2011. Differs
    by the preconditioner, by the correction of the noise, and by step sizes that need not decay.
    """

    step_size: float | Schedule
    preconditioner: Preconditioner = field(default_factory=Identity)
    noise_correction: bool = False
    name: ClassVar[str] = "SGLD"
    cites: ClassVar[tuple[str, ...]] = ("welling2011",)

    def init(self, target: Target, key: Array, u: Coordinates) -> SGLDState:
        factor = self.scale(target, u)
        noise = jnp.zeros((factor.shape[0],) * 2, factor.dtype) if self.noise_correction else None
        return SGLDState(dict(u), factor, jnp.zeros((), jnp.int32), noise)

    def step(self, target: Any, key: Array, state: SGLDState, minibatch: Any) -> tuple[SGLDState, Info]:
        flat = Flat.like(state.coordinates)
        seen, noise, size = self.look(target, state, minibatch, langevin.covariance)
        theta, gradient = flat.ravel(state.coordinates), flat.ravel(seen.gradient)
        theta, clipped = langevin.step(key, theta, gradient, state.factor, size, noise)
        after = SGLDState(flat.unravel(theta), state.factor, state.steps + 1, noise)
        stats = {"clipped": clipped, "step_size": size, "impossible": seen.impossible}
        return after, Info(seen.gradient, all_finite((theta, gradient)), stats)


@SAMPLERS.register("sghmc", offered=False)
@dataclass(frozen=True)
class SGHMC(_Scaled):
    """Stochastic-gradient HMC: momentum r in scaled coordinates z, `u = u_0 + L z`; the complete recipe for (z, r) with

        D = diag(0, C),   Q = [[0, -I], [I, 0]],   U(z) + r^T r / 2

    which with C = `friction` and h = `step_size` reads

        r' = r + h L^T g_hat(u) - h C r + N(0, 2 h C - h^2 diag(L^T V L))
        z' = z + h r'

    The position moves with the **new** momentum. Algorithm 1 would use the old one, whose draws are much too wide (11 %
    in variance at h = 0.1 and C = 1, against 0.3 % for this order; measured on a normal target).

    Args:
        step_size: h, a number or a schedule. Where L is the scale of the posterior, 0.05 to 0.2.
        friction: C; with C below 2 and posterior scale, motion is oscillatory. About `2 / (h C)` steps between draws.
        preconditioner: the scale `L L^T`: `InverseInformation()`, `Identity()`, or `Given(...)`.
        noise_correction: estimate the diagonal of the gradient's covariance V from the spread of windows and inject
            that much less noise.

    Example:
        >>> import longhmm as lh
        >>> lh.SGHMC(step_size=0.1).name
        'SGHMC'

    Stats: as for `SGLD`, and `temperature`, the mean of r^2, which is 1 at rest.

    Reference: T. Chen, E. B. Fox and C. Guestrin, Stochastic gradient Hamiltonian Monte Carlo, ICML 2014. Differs by
    the scaled coordinates, the order of the updates, and the noise estimate taken from windows.
    """

    step_size: float | Schedule = 0.1
    friction: float = 1.0
    preconditioner: Preconditioner = field(default_factory=InverseInformation)
    noise_correction: bool = False
    name: ClassVar[str] = "SGHMC"
    cites: ClassVar[tuple[str, ...]] = ("chen2014",)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("friction", self.friction)

    def init(self, target: Target, key: Array, u: Coordinates) -> SGLDState:
        factor = self.scale(target, u)
        momentum = jax.random.normal(key, factor.shape[:1], factor.dtype)
        noise = jnp.zeros_like(momentum) if self.noise_correction else None
        return SGLDState(dict(u), factor, jnp.zeros((), jnp.int32), noise, momentum)

    def step(self, target: Any, key: Array, state: SGLDState, minibatch: Any) -> tuple[SGLDState, Info]:
        flat, factor, momentum = Flat.like(state.coordinates), state.factor, state.momentum
        assert momentum is not None
        seen, noise, size = self.look(target, state, minibatch, langevin.variance)
        slope = langevin.scaled_back(factor, flat.ravel(seen.gradient))
        left = 2.0 * size * self.friction - (0.0 if noise is None else size**2 * noise)
        normal = jax.random.normal(key, (2 * flat.size,), slope.dtype)[flat.size :]  # of the recipe for (z, r)
        drift = self.friction * -momentum + slope
        momentum = momentum + size * drift + jnp.sqrt(jnp.maximum(left, 0.0)) * normal
        theta = flat.ravel(state.coordinates) + langevin.scaled(factor, size * momentum)
        after = SGLDState(flat.unravel(theta), factor, state.steps + 1, noise, momentum)
        finite = all_finite((theta, momentum, slope))
        stats = {"clipped": jnp.mean(jnp.asarray(left < 0, slope.dtype)), "step_size": size}
        stats |= {"impossible": seen.impossible, "temperature": jnp.mean(momentum**2)}
        return after, Info(seen.gradient, finite, stats)
