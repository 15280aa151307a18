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

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.model.hmm import HMM
from longhmm.samplers.contract import Coordinates, Kernel
from longhmm.samplers.evaluation import impossible_windows
from longhmm.target.control_variate import BoundControlVariate, ControlVariate
from longhmm.target.coordinates import Flat
from longhmm.target.estimators import BoundEstimator

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
    data_fields=("control", "factor", "noise_factor", "step_size"),
    meta_fields=(),
)
@dataclass(frozen=True, eq=False)
class Tuned:
    """A control-variate estimator with what tuning found at its centre.

    Attributes:
        control: the bound estimator; its centre is theta*.
        factor: L, `(P, P)`.
        noise_factor: C, `(P, P)`.
        step_size: h.
    """

    control: BoundControlVariate
    factor: Any
    noise_factor: Any
    step_size: Any

    @property
    def draws_on_host(self) -> bool:
        """Whether windows are read from files, outside compiled code."""
        return self.control.draws_on_host

    @property
    def shares_calls(self) -> bool:
        """Whether chains are best run together."""
        return self.control.shares_calls

    def draw(self, key: jax.Array) -> Any:
        """A minibatch of windows."""
        return self.control.draw(key)

    def draw_many(self, keys: jax.Array) -> Any:
        """What `draw` gives for each of some keys; for windows that are read from files."""
        return self.control.draw_many(keys)

    def estimate(
        self, coordinates: Mapping[str, jax.Array], minibatch: Any, *, prior: bool = True, per_window: bool = False
    ) -> Any:
        """The control-variate gradient."""
        return self.control.estimate(coordinates, minibatch, prior=prior, per_window=per_window)


@dataclass(frozen=True)
class ControlVariateSGLD:
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

    def estimator(self, windows: Any, buffer: Any) -> ControlVariate:
        """Control variates with the user's windows and buffer."""
        chosen = {"windows": windows, "buffer": buffer}
        return ControlVariate(**{name: value for name, value in chosen.items() if value is not None})

    def build(self, model: HMM, estimator: BoundEstimator) -> Kernel:
        """Tie the sampler to a tuned estimator."""
        assert isinstance(estimator, Tuned)
        centre = estimator.control.centre
        flat = Flat.like(centre)
        start = flat.ravel(centre).astype(jnp.float32)
        factor = jnp.asarray(estimator.factor, jnp.float32)
        spread = jnp.sqrt(2.0 * estimator.step_size) * jnp.asarray(estimator.noise_factor, jnp.float32)
        step_size = jnp.asarray(estimator.step_size, jnp.float32)

        def place(offset: jax.Array) -> Coordinates:
            return flat.unravel(start + factor @ offset)

        def init(key: jax.Array, coordinates: Coordinates) -> ControlVariateState:
            distance = flat.ravel(coordinates).astype(jnp.float32) - start
            offset = jnp.linalg.solve(factor, distance)
            return ControlVariateState(place(offset), offset, jax.random.normal(key, offset.shape, offset.dtype))

        def step(
            key: jax.Array, state: ControlVariateState, minibatch: Any
        ) -> tuple[ControlVariateState, ControlVariateInfo]:
            found = estimator.estimate(state.coordinates, minibatch)
            asked = step_size * (factor.T @ flat.ravel(found.gradient))
            drift = jnp.clip(asked, -LONGEST_DRIFT, LONGEST_DRIFT)
            noise = jax.random.normal(key, state.offset.shape, state.offset.dtype)
            offset = state.offset + drift + spread @ (0.5 * (state.noise + noise))
            finite = jnp.all(jnp.isfinite(offset))
            length, lost = jnp.sqrt(jnp.sum(drift**2)), impossible_windows(found.statistics, minibatch)
            return ControlVariateState(place(offset), offset, noise), ControlVariateInfo(
                found.gradient, finite, length, lost
            )

        # Only the offset is kept: in float32 it is precise to a millionth of a posterior standard deviation.
        return Kernel(init, step, estimator.draw, True, lambda state: state.offset)
