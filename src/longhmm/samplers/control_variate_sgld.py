"""The default sampler: SGLD with control variates, preconditioned, by the scheme of Leimkuhler and Matthews (F22, F23).

Averaging the noise of two neighbouring steps makes the stationary distribution of a Gaussian target exact for every
stable step size; plain Euler steps come out visibly wrong on the skewed coordinates of rare transitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.errors import ModelError
from longhmm.samplers.contract import Coordinates, Sampler, Start
from longhmm.samplers.control_variate_tuning import Tuned, drifted, tune
from longhmm.target.buffered import FullData
from longhmm.target.control_variate import ControlVariateTarget
from longhmm.target.coordinates import Arrays, Flat
from longhmm.target.target import Estimator, Target

WARM_UP = 20  # autocorrelation times that chains warm up for

# No step goes further than this along any whitened coordinate, in posterior standard deviations. Even the most skewed
# coordinate, the logarithm of an exponential variable, asks for more only once in ten million draws. But far out in its
# tail explicit steps are unstable: without a limit, one unlucky window in a million throws a chain out for good.
LONGEST_DRIFT = 4.0


class ControlVariateState(NamedTuple):
    """Where the chain is: `offset` is z, `noise` the normal draws of the last step."""

    coordinates: Coordinates
    offset: Array
    noise: Array


class ControlVariateInfo(NamedTuple):
    """The gradient used, whether all was finite, the length of the drift when whitened, and impossible windows."""

    gradient: Coordinates
    finite: Array
    drift: Array
    impossible: Array


@dataclass(frozen=True)
class ControlVariateSGLD(Sampler):
    """The default sampler; everything it needs is tuned automatically. In whitened coordinates, `theta = theta* + L z`,

        z' = z + h L^T g_hat(theta) + sqrt(2 h) C (xi + xi') / 2

    where `L L^T = H^-1`, g_hat is the control-variate gradient, xi' fresh standard normal noise, xi that of the step
    before, and `C C^T = I - h / (2 - h) V` takes away what the noise of the gradient, `V = L^T Cov(g_hat) L`, adds.

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
    tuned: Tuned | None = field(default=None, repr=False, compare=False)
    name: ClassVar[str] = "SGLD with control variates"
    cites: ClassVar[tuple[str, ...]] = ("leimkuhler2013", "baker2019")
    learned: ClassVar[tuple[str, ...]] = ("tuned",)
    retunes: ClassVar[int] = 3

    @property
    def found(self) -> Tuned:
        """What `tune` found."""
        if self.tuned is None:
            raise ModelError(f"{self.name} must be tuned before it runs: sample(...) does, or sampler.tune(...).")
        return self.tuned

    @property
    def warmup(self) -> int:
        return int(np.ceil(WARM_UP * self.found.autocorrelation))

    @property
    def spacing(self) -> int:
        return int(np.ceil(self.found.autocorrelation))

    @property
    def cost(self) -> float:
        return self.found.cost

    def estimator(self, windows: Any, buffer: Any) -> Estimator:
        """Control variates with what was tuned; all data before that."""
        return FullData() if self.tuned is None else self.tuned

    def tune(self, target: Target, start: Start) -> ControlVariateSGLD:
        found = tune(target.model, target.sequences, start, self.largest_step, self.noise_share)
        return replace(self, tuned=found)

    def starts(self, chains: int, seed: int) -> list[Arrays] | None:
        return self.found.spread(chains, seed)

    def init(self, target: ControlVariateTarget, key: Array, u: Coordinates) -> ControlVariateState:
        flat = Flat.like(u)
        distance = flat.ravel(u).astype(jnp.float32) - flat.ravel(target.centre).astype(jnp.float32)
        offset = jnp.linalg.solve(jnp.asarray(self.found.factor, jnp.float32), distance)
        noise = jax.random.normal(key, offset.shape, offset.dtype)
        return ControlVariateState(self._place(target, offset), offset, noise)

    def step(
        self, target: ControlVariateTarget, key: Array, state: ControlVariateState, minibatch: Any
    ) -> tuple[ControlVariateState, ControlVariateInfo]:
        factor, step_size = (jnp.asarray(each, jnp.float32) for each in (self.found.factor, self.found.step_size))
        spread = jnp.sqrt(2.0 * step_size) * jnp.asarray(self.found.noise_factor, jnp.float32)
        seen = target.estimate(state.coordinates, minibatch)
        asked = step_size * (factor.T @ Flat.like(state.coordinates).ravel(seen.gradient))
        drift = jnp.clip(asked, -LONGEST_DRIFT, LONGEST_DRIFT)
        noise = jax.random.normal(key, state.offset.shape, state.offset.dtype)
        offset = state.offset + drift + spread @ (0.5 * (state.noise + noise))
        length = jnp.sqrt(jnp.sum(drift**2))
        info = ControlVariateInfo(seen.gradient, jnp.all(jnp.isfinite(offset)), length, seen.impossible)
        return ControlVariateState(self._place(target, offset), offset, noise), info

    def _place(self, target: ControlVariateTarget, offset: Array) -> Coordinates:
        flat = Flat.like(target.centre)
        centre, factor = flat.ravel(target.centre).astype(jnp.float32), jnp.asarray(self.found.factor, jnp.float32)
        return flat.unravel(centre + factor @ offset)

    def record(self, state: ControlVariateState) -> Array:
        """Only the offset: in float32 it is precise to a millionth of a posterior standard deviation."""
        return state.offset

    def coordinates(self, recorded: np.ndarray) -> Arrays:
        return self.found.at(recorded)

    def unsettled(self, target: ControlVariateTarget, recorded: np.ndarray) -> bool:
        return drifted(np.asarray(recorded, np.float64), target.model.n_states)

    def retune(self, target: ControlVariateTarget, recorded: np.ndarray) -> ControlVariateSGLD:
        """With the centre of the control variates moved to where the chains are."""
        centre = self.found.at(np.asarray(recorded, np.float64).mean(axis=(0, 1)))
        return replace(self, tuned=self.found.about(target.model, target.sequences, centre))

    def halved(self) -> ControlVariateSGLD:
        return replace(self, tuned=self.found.halved())

    def mode(self) -> tuple[Arrays, np.ndarray] | None:
        return self.found.mode, self.found.information

    def describe(self, target: ControlVariateTarget) -> dict[str, Any]:
        found = self.found
        chosen = {
            "step_size": found.step_size,
            "gradient_noise": found.noise,
            "windows": found.windows.count,
            "half_width": found.windows.half_width,
            "buffer": found.buffer,
            "gap": target.source.scheme.spacing,
            "mode_log_posterior": found.log_posterior,
            "full_passes": found.passes,
        }
        return chosen | ({"recentred": found.recentred} if found.recentred else {})

    def notes(self) -> list[str]:
        if np.isnan(self.found.competing):
            return []
        return [
            "another mode is as good: a search from another start ended elsewhere, "
            f"{-self.found.competing:.1f} below in log posterior on a part of the data"
        ]
