"""Stochastic-gradient Riemannian Langevin dynamics (SG-RLD): the sampler of the paper, with its formulas corrected.

Reference: Y.-A. Ma, N. J. Foti and E. B. Fox, Stochastic gradient MCMC methods for hidden Markov models, ICML 2017.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.samplers import recipe
from longhmm.samplers.contract import Coordinates, all_finite, chosen
from longhmm.samplers.langevin_moves import (
    Alternating,
    CoxIngersollRoss,
    EmissionMove,
    GaussianMetric,
    Mirror,
    Preconditioned,
    Rows,
    normalised,
    slope,
)
from longhmm.samplers.preconditioning import EmissionBlocks, information, inverse_factor, pilot
from longhmm.samplers.schedules import Schedule, Stepped, as_schedule
from longhmm.target.buffered import Buffered, FullData, StartDistribution, stationary_start, uniform_start
from longhmm.target.target import Estimate, Estimator, Target


class Noise(NamedTuple):
    """Moving averages of the gradient noise: `(K, K, K)` of the rows' drifts, `(n, p, p)` of emission scores."""

    rows: jax.Array
    emission: jax.Array


class SGRLDState(NamedTuple):
    """Where the chain is."""

    coordinates: Coordinates
    expanded: jax.Array  # `(K, K)`, Ahat
    pace: jax.Array  # `(K,)`, constant factors of the step size of each row
    factor: jax.Array  # `(n, p, p)`, L of each emission block, `D = L L^T`, constant
    steps: jax.Array
    noise: Noise | None  # None without correction


class SGRLDInfo(NamedTuple):
    """What a step reports."""

    gradient: Coordinates
    finite: jax.Array
    clipped: jax.Array  # share of directions in which the gradient's noise alone exceeds what should be injected
    refused: jax.Array  # share of covariance proposals that were not positive definite (`GaussianMetric` only)
    step_size: jax.Array
    impossible: jax.Array  # windows left out, since no state can have produced what they hold


@dataclass(frozen=True)
class Joint:
    """One step of all parameters together from one gradient, on a fresh minibatch every time."""


@dataclass(frozen=True)
class SGRLD(Stepped):
    """Riemannian Langevin steps on minibatches. With h = `step_size` and n_hat the scaled expected transitions,

        Ahat' = | Ahat + h_i ( a - Ahat + n_hat[i,j] - A[i,j] n_hat[i,.] ) + N(0, 2 h_i Ahat - h_i^2 B_i) |
        u'    = u + h D grad log p(u | y) + N(0, 2 h D - h^2 D V D)

    for the expanded transitions, `A[i,j] = Ahat[i,j] / sum_j Ahat[i,j]`, and the emission's coordinates u. Forbidden
    transitions stay 0, fixed rows stay as they are, and row i of A has its Dirichlet prior.

    Units: by default `D` is the inverse of the information that all data hold, and `h_i = h / (1 + n_i / s_i)` with
    n_i departures from state i and s_i the row sum of Ahat at the start. Then h is the share of the way to equilibrium
    that one step goes, whatever the data: 0.01 to 0.1, with an autocorrelation time near `2 / h` steps. D and h_i are
    found at the first point and do not move with the chain, so that they need no correction. With
    `per_observation=True`, `h_i = h` and D is the inverse information of a single observation, as in the paper; h is
    then to be divided by the number of observations (1e-6 for millions).

    Plain minibatch noise does not shrink with the length of the data. In the units above it adds `h (N/S - 1) / 2` of
    the posterior's variance, with S of N blocks per minibatch. `noise_correction` takes that away as long as
    `h (N/S - 1) < 2`; beyond (`clipped` in the info tells) draws are too wide, and control variates are the remedy.

    Args:
        step_size: h, a number or a schedule.
        transitions: `Mirror()`, or `CoxIngersollRoss()` for rows with almost empty entries.
        emission: `Preconditioned()`, or `GaussianMetric()`, the paper's.
        blocks: `Joint()`, or `Alternating(inner_steps)`, the paper's.
        noise_correction: estimate B and V from the spread of windows and leave that much noise out.
        per_observation: measure the step size against one observation instead of all data.
        start: distribution of the state before a window.

    Example:
        >>> import jax, longhmm as lh
        >>> model, params = lh.HMM(2, lh.Poisson(rate=[1.0, 8.0])), {"transition": [[0.9, 0.1], [0.2, 0.8]]}
        >>> data = lh.open_data(lh.simulate(model, params, 2000, seed=0)[1])
        >>> sampler = lh.SGRLD(step_size=0.05)
        >>> target = sampler.estimator(lh.Windows(10, 20), lh.FixedBuffer(5)).bind(model, data, params)
        >>> u = jax.tree.map(jax.numpy.asarray, lh.unconstrain(model, params))
        >>> state = sampler.init(target, jax.random.key(0), u)
        >>> state, info = sampler.step(target, jax.random.key(1), state, target.minibatch(jax.random.key(2)))
        >>> bool(info.finite)
        True

    Reference: Ma, Foti and Fox (2017), as above; Patterson and Teh (NeurIPS 2013) for the expanded mean.

    Differs from the paper: rows, not columns, of A sum to one; the prior is Dirichlet, where a flat one on Ahat is
    improper; the term `A n_hat[i,.]` is kept; Gamma has the sign and the size that keep the target; all emissions move
    unconstrained; one joint step per minibatch, where the paper reports averages of iterates, which are no draws.
    """

    step_size: float | Schedule = 0.05
    transitions: Mirror | CoxIngersollRoss = field(default_factory=Mirror)
    emission: Preconditioned | GaussianMetric = field(default_factory=Preconditioned)
    blocks: Joint | Alternating = field(default_factory=Joint)
    noise_correction: bool = False
    per_observation: bool = False
    start: StartDistribution = stationary_start
    name: ClassVar[str] = "SG-RLD"
    cites: ClassVar[tuple[str, ...]] = ("patterson2013",)
    varying: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        plain = isinstance(self.transitions, Mirror) and isinstance(self.emission, Preconditioned)
        if self.noise_correction and not (plain and isinstance(self.blocks, Joint)):
            raise ModelError(
                "noise_correction must go with Mirror(), Preconditioned() and Joint(), got "
                f"{self.transitions}, {self.emission} and {self.blocks}: leave it out, or use those."
            )

    @classmethod
    def paper(cls, step_size: float | Schedule = 1e-6, inner_steps: int = 5) -> SGRLD:
        """The settings of the paper, its misprints corrected.

        Blocks in turn, each `inner_steps` times on one minibatch and then averaged (Algorithm 2); step sizes per
        observation; means and covariances in the Gaussian metric, with refusals; windows that begin from a uniform
        distribution.
        """
        blocks = Alternating(inner_steps)
        return cls(step_size, emission=GaussianMetric(), blocks=blocks, per_observation=True, start=uniform_start)

    def estimator(self, windows: Any, buffer: Any) -> Estimator:
        """Buffered windows that begin from `start`."""
        return Buffered(**chosen(windows, buffer), start=self.start)

    def init(self, target: Target, key: jax.Array, u: Coordinates) -> SGRLDState:
        self._check(target)
        model = target.model
        expanded = Rows.of(model.transitions).expand(model.constrain(u)["transition"])
        pace, factor = self._scales(target, u, expanded)
        noise = None
        if self.noise_correction:
            noise = Noise(jnp.zeros((model.n_states,) * 3, expanded.dtype), jnp.zeros_like(factor))
        return SGRLDState(dict(u), expanded, pace, factor, jnp.zeros((), jnp.int32), noise)

    def step(self, target: Any, key: jax.Array, state: SGRLDState, minibatch: Any) -> tuple[SGRLDState, SGRLDInfo]:
        size = jnp.asarray(as_schedule(self.step_size).at(state.steps), state.expanded.dtype)
        model = target.model

        def look(state: SGRLDState) -> Estimate:
            found: Estimate = target.estimate(state.coordinates, minibatch, per_window=self.noise_correction)
            return found

        if isinstance(self.blocks, Alternating):
            moves = (partial(each, self, model, size) for each in (_move_rows, _move_emission))
            moved, info = self.blocks.move(target.compiled, model, key, state, look, *moves)
        else:
            seen = look(state)
            if state.noise is not None:
                state = state._replace(noise=self._learn_noise(target, state, seen, minibatch))
            rows_key, emission_key = jax.random.split(key)
            expanded, transition, rows_clipped = _move_rows(self, model, size, rows_key, state, seen)
            emission = _move_emission(self, model, size, emission_key, state, seen)
            moved = state._replace(expanded=expanded, coordinates={**emission.coordinates, "transition": transition})
            clipped = 0.5 * (rows_clipped + emission.clipped)
            info = (seen.gradient, clipped, emission.refused, seen.impossible)
        gradient, clipped, refused, impossible = info
        finite = all_finite(moved.coordinates)  # what is not finite elsewhere ends there
        return moved._replace(steps=state.steps + 1), SGRLDInfo(gradient, finite, clipped, refused, size, impossible)

    # Parts of a step ------------------------------------------------------------------------------------------------

    def _check(self, target: Target) -> None:
        model = target.model
        self.check(model)
        if self.noise_correction:
            recipe.check_noise_known(target, self.name)
        needs_counts = [
            type(policy).__name__
            for policy in (self.transitions, self.emission)
            if isinstance(policy, CoxIngersollRoss) or (isinstance(policy, GaussianMetric) and policy.applies(model))
        ]
        if needs_counts and not target.counts:
            raise ModelError(
                f"{needs_counts[0]} needs expected counts, which control variates do not give (they may be negative): "
                "use Mirror() and Preconditioned(), or the Buffered(...) estimator."
            )
        if isinstance(self.transitions, CoxIngersollRoss) and isinstance(model.initial, str):
            raise ModelError(
                "CoxIngersollRoss() takes counts of transitions only, but under initial='stationary' the first states "
                "depend on the transition matrix too: use Mirror(), or another initial distribution."
            )

    def _scales(self, target: Target, coordinates: Coordinates, expanded: jax.Array) -> tuple[jax.Array, jax.Array]:
        model, blocks = target.model, EmissionBlocks.like(coordinates)
        if self.per_observation and isinstance(self.emission, GaussianMetric) and self.emission.applies(model):
            # Steps of this kind bring their own scale.
            pace = jnp.ones(model.n_states, expanded.dtype)
            return pace, jnp.zeros((blocks.n_blocks, blocks.size, blocks.size), expanded.dtype)
        found = information(model, blocks, dict(coordinates), pilot(target))
        factor = inverse_factor(found.emission) if blocks.size else found.emission
        if self.per_observation:
            return jnp.ones_like(found.departures), factor * jnp.sqrt(found.counts + 1.0)[:, None, None]
        return 1.0 / (1.0 + found.departures / jnp.sum(expanded, axis=1)), factor

    def _learn_noise(self, target: Any, state: SGRLDState, seen: Estimate, minibatch: Any) -> Noise:
        assert state.noise is not None and seen.windows is not None
        found = recipe.window_scores(target, state.coordinates, seen.windows)
        drifts = jax.vmap(partial(slope, target.model.transitions))(found["transition"])
        blocks = EmissionBlocks.like(state.coordinates)
        rows = recipe.covariance(drifts, minibatch)
        emission = state.noise.emission
        if blocks.size:
            emission = recipe.covariance(blocks.ravel(found), minibatch)
        average = partial(recipe.averaged, index=state.steps)
        noise: Noise = jax.tree.map(average, state.noise, Noise(rows, emission))
        return noise


# Compiled, also where steps as a whole are not.


@jax.jit
def _move_rows(
    sampler: SGRLD, model: HMM, size: jax.Array, key: jax.Array, state: SGRLDState, seen: Estimate
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Ahat, its unconstrained coordinates, and the share of clipped directions."""
    rows, pace, how = Rows.of(model.transitions), size * state.pace, sampler.transitions
    if isinstance(how, CoxIngersollRoss):
        assert seen.totals is not None
        counts = jnp.asarray(seen.totals.transitions, state.expanded.dtype)
        expanded, clipped = how.move(key, rows, state.expanded, counts, pace)
    else:
        drift = slope(model.transitions, jnp.asarray(seen.likelihood["transition"]))
        noise = None if state.noise is None else state.noise.rows
        expanded, clipped = how.move(key, rows, state.expanded, drift, pace, noise)
    return expanded, model.transitions.unconstrain(normalised(expanded)), clipped


@jax.jit
def _move_emission(
    sampler: SGRLD, model: HMM, size: jax.Array, key: jax.Array, state: SGRLDState, seen: Estimate
) -> EmissionMove:
    if isinstance(sampler.emission, GaussianMetric) and sampler.emission.applies(model):
        assert seen.totals is not None
        return sampler.emission.move(key, model, state.coordinates, seen.totals, size)
    noise = None
    if state.noise is not None:
        noise = jnp.einsum("nij,nik,nkl->njl", state.factor, state.noise.emission, state.factor)
    return Preconditioned().move(key, state.coordinates, seen.gradient, state.factor, size, noise)


@dataclass(frozen=True)
class BatchRLD(Stepped):
    """SG-RLD on all data at every step, without gradient noise; the yardstick of the paper's ion-channel experiment.

        Ahat' = | Ahat + h_i ( a - Ahat + n[i,j] - A[i,j] n[i,.] ) + sqrt(2 h_i Ahat) N(0, 1) |
        u'    = u + h D grad log p(u | y) + N(0, 2 h D)

    with n the exact expected transitions; h = `step_size`, h_i, D and the other arguments as in `SGRLD`. What is left
    is the error of finite steps: standard deviations about h/4 too large. Steps are not compiled as a whole.

    Example:
        >>> import longhmm as lh
        >>> lh.samplers.BatchRLD(step_size=0.05).name
        'batch RLD'

    Reference and differences: as for `SGRLD`.
    """

    step_size: float | Schedule = 0.05
    transitions: Mirror | CoxIngersollRoss = field(default_factory=Mirror)
    emission: Preconditioned | GaussianMetric = field(default_factory=Preconditioned)
    per_observation: bool = False
    name: ClassVar[str] = "batch RLD"
    cites: ClassVar[tuple[str, ...]] = ("patterson2013",)
    varying: ClassVar[bool] = False

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
