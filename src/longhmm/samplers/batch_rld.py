"""Batch Riemannian Langevin dynamics: SG-RLD with the exact gradient of all data at every step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax

from longhmm.samplers.contract import Coordinates, Sampler
from longhmm.samplers.emission_moves import GaussianMetric, Preconditioned
from longhmm.samplers.expanded_mean import CoxIngersollRoss, Mirror
from longhmm.samplers.schedules import Schedule, as_schedule
from longhmm.samplers.sgrld import SGRLD, SGRLDInfo, SGRLDState
from longhmm.target.estimators import FullData
from longhmm.target.target import Estimator, Target


@dataclass(frozen=True)
class BatchRLD(Sampler):
    """One pass over all data per step, no gradient noise; the yardstick of the paper's ion-channel experiment.

        Ahat' = | Ahat + h_i ( a - Ahat + n[i,j] - A[i,j] n[i,.] ) + sqrt(2 h_i Ahat) N(0, 1) |
        u'    = u + h D grad log p(u | y) + N(0, 2 h D)

    with n the exact expected transitions; h = `step_size`, h_i, D and the other arguments as in `SGRLD`. What is left
    is the error of finite steps: standard deviations about h/4 too large. Steps are not compiled as a whole.

    Example:
        >>> import jax, longhmm as lh
        >>> from longhmm.samplers.batch_rld import BatchRLD
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson(rate=[1.0, 8.0]))
        >>> params = {"transition": [[0.9, 0.1], [0.2, 0.8]]}
        >>> states, y = lh.simulate(model, params, 200, seed=0)
        >>> sampler = BatchRLD(step_size=0.05)
        >>> target = sampler.estimator(None, None).bind(model, lh.open_data(y), params)
        >>> u = jax.tree.map(jax.numpy.asarray, lh.unconstrain(model, params))
        >>> state = sampler.init(target, jax.random.key(0), u)
        >>> state, info = sampler.step(target, jax.random.key(1), state, None)
        >>> target.compiled, bool(info.finite)
        (False, True)

    Reference and differences: as for `SGRLD`.
    """

    step_size: float | Schedule = 0.05
    transitions: Mirror | CoxIngersollRoss = field(default_factory=Mirror)
    emission: Preconditioned | GaussianMetric = field(default_factory=Preconditioned)
    per_observation: bool = False
    name: ClassVar[str] = "batch RLD"
    cites: ClassVar[tuple[str, ...]] = ("patterson2013",)

    def __post_init__(self) -> None:
        as_schedule(self.step_size)

    def estimator(self, windows: Any, buffer: Any) -> Estimator:
        """The exact gradient; windows and buffer play no part."""
        return FullData()

    @property
    def _same(self) -> SGRLD:
        return SGRLD(self.step_size, self.transitions, self.emission, per_observation=self.per_observation)

    def init(self, target: Target, key: jax.Array, u: Coordinates) -> SGRLDState:
        return self._same.init(target, key, u)

    def step(self, target: Any, key: jax.Array, state: SGRLDState, minibatch: None) -> tuple[SGRLDState, SGRLDInfo]:
        return self._same.step(target, key, state, minibatch)
