"""Stochastic-gradient Riemannian Langevin dynamics (SG-RLD): the sampler of the paper, with its formulas corrected.

Reference: Y.-A. Ma, N. J. Foti and E. B. Fox, Stochastic gradient MCMC methods for hidden Markov models, ICML 2017.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from longhmm.errors import ModelError, check_whole
from longhmm.model.hmm import HMM
from longhmm.samplers import SAMPLERS
from longhmm.samplers import langevin_moves as langevin
from longhmm.samplers.contract import Coordinates, Info, all_finite
from longhmm.samplers.preconditioning import EmissionBlocks, information, inverse_factor, pilot
from longhmm.samplers.schedules import Schedule, Stepped
from longhmm.target.buffered import FullData, StartDistribution, stationary_start, uniform_start
from longhmm.target.coordinates import scores
from longhmm.target.target import Estimate, Estimator, Target


class Noise(NamedTuple):
    """Moving averages of the gradient noise: `(K, K, K)` of the rows' drifts, `(n, p, p)` of emission scores."""

    rows: Array
    emission: Array


class SGRLDState(NamedTuple):
    """Where the chain is."""

    coordinates: Coordinates
    expanded: Array  # `(K, K)`, Ahat
    pace: Array  # `(K,)`, constant factors of the step size of each row
    factor: Array  # `(n, p, p)`, L of each emission block, `D = L L^T`, constant
    steps: Array
    noise: Noise | None  # None without correction


@dataclass(frozen=True)
class Joint:
    """One step of all parameters together from one gradient, on a fresh minibatch every time."""


@dataclass(frozen=True)
class Alternating:
    """Algorithm 2 of the paper: first the transitions, then the emission, each `inner_steps` times on one minibatch.

        Ahat <- mean of Ahat^(1) .. Ahat^(inner_steps),     phi <- mean of phi^(1) .. phi^(inner_steps)

    For reproduction only: the average of a chain is not a draw from its target (its spread is too small), except for
    `inner_steps=1`.
    """

    inner_steps: int = 5

    def __post_init__(self) -> None:
        check_whole("inner_steps", self.inner_steps, 1)


@dataclass(frozen=True)
class _Riemannian(Stepped):
    """What SGRLD and BatchRLD share: all but where gradients come from."""

    step_size: float | Schedule = 0.05
    transitions: langevin.Mirror | langevin.CoxIngersollRoss = field(default_factory=langevin.Mirror)
    emission: langevin.Preconditioned | langevin.GaussianMetric = field(default_factory=langevin.Preconditioned)
    per_observation: bool = False
    blocks: ClassVar[Any] = Joint()
    noise_correction: ClassVar[Any] = False
    cites: ClassVar[tuple[str, ...]] = ("patterson2013",)
    varying: ClassVar[bool] = False

    def init(self, target: Target, key: Array, u: Coordinates) -> SGRLDState:
        self._check(target)
        model = target.model
        expanded = langevin.Rows.of(model.transitions).expand(model.constrain(u)["transition"])
        pace, factor = self._scales(target, u, expanded)
        noise = None
        if self.noise_correction:
            noise = Noise(jnp.zeros((model.n_states,) * 3, expanded.dtype), jnp.zeros_like(factor))
        return SGRLDState(dict(u), expanded, pace, factor, jnp.zeros((), jnp.int32), noise)

    def step(self, target: Any, key: Array, state: SGRLDState, minibatch: Any) -> tuple[SGRLDState, Info]:
        size = self.size_at(state.steps, state.expanded.dtype)
        look = partial(target.estimate, minibatch=minibatch, per_window=self.noise_correction)
        if isinstance(self.blocks, Alternating):
            moved, (seen, clipped, refused) = self._in_turn(target, key, state, look, size)
        else:
            seen = look(state.coordinates)
            if state.noise is not None:
                state = state._replace(noise=self._learn_noise(target, state, seen, minibatch))
            rows_key, emission_key = jax.random.split(key)
            expanded, transition, rows_clipped = _move_rows(self, target.model, size, rows_key, state, seen)
            coordinates, clipped, refused = _move_emission(self, target.model, size, emission_key, state, seen)
            moved = state._replace(expanded=expanded, coordinates={**coordinates, "transition": transition})
            clipped, seen = 0.5 * (rows_clipped + clipped), (seen.gradient, seen.impossible)
        gradient, impossible = seen
        finite = all_finite(moved.coordinates)  # what is not finite elsewhere ends there
        stats = {"clipped": clipped, "refused": refused, "step_size": size, "impossible": impossible}
        return moved._replace(steps=state.steps + 1), Info(gradient, finite, stats)

    def _in_turn(
        self, target: Any, key: Array, state: SGRLDState, look: Callable[[Coordinates], Estimate], size: Array
    ) -> tuple[SGRLDState, tuple[Any, Array, Array]]:
        """The next state of `Alternating`; gradient and impossible windows of its first point; shares for the info."""
        model = target.model
        rows_keys, emission_keys = jax.random.split(key, (2, self.blocks.inner_steps))

        def with_rows(state: SGRLDState, expanded: Array, transition: Array) -> SGRLDState:
            return state._replace(expanded=expanded, coordinates={**state.coordinates, "transition": transition})

        def move_rows(state: SGRLDState, key: Array) -> tuple[SGRLDState, Any]:
            seen = look(state.coordinates)
            expanded, transition, clipped = _move_rows(self, model, size, key, state, seen)
            return with_rows(state, expanded, transition), (expanded, clipped, (seen.gradient, seen.impossible))

        def move_emission(state: SGRLDState, key: Array) -> tuple[SGRLDState, Any]:
            coordinates, _, refused = _move_emission(self, model, size, key, state, look(state.coordinates))
            moved = state._replace(coordinates={**state.coordinates, **coordinates})
            params = model.constrain(moved.coordinates)
            return moved, ({name: params[name] for name in model.emission.free_names}, refused)

        _, (expanded, clipped, seen) = _repeat(target.compiled, move_rows, state, rows_keys)
        expanded = jnp.mean(expanded, axis=0)
        state = with_rows(state, expanded, model.transitions.unconstrain(langevin.normalised(expanded)))
        _, (natural, refused) = _repeat(target.compiled, move_emission, state, emission_keys)
        # Natural parameters are averaged, as in the paper; supports are convex, so that the mean lies inside.
        natural = {name: jnp.mean(values, axis=0) for name, values in natural.items()}
        state = state._replace(coordinates=model.unconstrain({**model.constrain(state.coordinates), **natural}))
        return state, (jax.tree.map(lambda values: values[0], seen), jnp.mean(clipped), jnp.mean(refused))

    def _in_gaussian_metric(self, model: HMM) -> bool:
        return isinstance(self.emission, langevin.GaussianMetric) and model.emission.has_full_covariance

    def _check(self, target: Target) -> None:
        model, by_roots = target.model, isinstance(self.transitions, langevin.CoxIngersollRoss)
        self.check(model)
        if self.noise_correction:
            langevin.check_noise_known(target, self.name)
        if (by_roots or self._in_gaussian_metric(model)) and not target.counts:
            raise ModelError(
                f"{'CoxIngersollRoss' if by_roots else 'GaussianMetric'} needs expected counts, which control variates "
                "do not give (they may be negative): use Mirror() and Preconditioned(), or the Buffered(...) estimator."
            )
        if by_roots and isinstance(model.initial, str):
            raise ModelError(
                "CoxIngersollRoss() takes counts of transitions only, but under initial='stationary' the first states "
                "depend on the transition matrix too: use Mirror(), or another initial distribution."
            )

    def _scales(self, target: Target, coordinates: Coordinates, expanded: Array) -> tuple[Array, Array]:
        model, blocks = target.model, EmissionBlocks.like(coordinates)
        if self.per_observation and self._in_gaussian_metric(model):  # steps of this kind bring their own scale
            pace = jnp.ones(model.n_states, expanded.dtype)
            return pace, jnp.zeros((blocks.n_blocks, blocks.size, blocks.size), expanded.dtype)
        found = information(model, blocks, dict(coordinates), pilot(target))
        factor = inverse_factor(found.emission) if blocks.size else found.emission
        if self.per_observation:
            return jnp.ones_like(found.departures), factor * jnp.sqrt(found.counts + 1.0)[:, None, None]
        return 1.0 / (1.0 + found.departures / jnp.sum(expanded, axis=1)), factor

    def _learn_noise(self, target: Any, state: SGRLDState, seen: Estimate, minibatch: Any) -> Noise:
        assert state.noise is not None and seen.windows is not None
        of_windows = scores(target.model, state.coordinates, seen.windows, initial_moves=target.initial is None)
        drifts = jax.vmap(partial(langevin.slope, target.model.transitions))(of_windows["transition"])
        blocks, emission = EmissionBlocks.like(state.coordinates), state.noise.emission
        if blocks.size:
            emission = langevin.covariance(blocks.ravel(of_windows), minibatch)
        now = Noise(langevin.covariance(drifts, minibatch), emission)
        noise: Noise = jax.tree.map(partial(langevin.averaged, index=state.steps), state.noise, now)
        return noise


@SAMPLERS.register("sgrld")
@dataclass(frozen=True)
class SGRLD(_Riemannian):
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
        >>> import longhmm as lh
        >>> lh.SGRLD(step_size=0.05, transitions=lh.samplers.CoxIngersollRoss()).name
        'SG-RLD'

    Stats: as for `SGLD`, and `refused`, the share of covariance proposals that were (`GaussianMetric` only).

    Reference: Ma, Foti and Fox (2017), as above; Patterson and Teh (NeurIPS 2013) for the expanded mean.

    Differs from the paper: rows, not columns, of A sum to one; the prior is Dirichlet, where a flat one on Ahat is
    improper; the term `A n_hat[i,.]` is kept; Gamma has the sign and the size that keep the target; all emissions move
    unconstrained; one joint step per minibatch, where the paper reports averages of iterates, which are no draws.
    """

    blocks: Joint | Alternating = field(default_factory=Joint)  # type: ignore[misc]
    noise_correction: bool = False  # type: ignore[misc]
    start: StartDistribution = stationary_start
    name: ClassVar[str] = "SG-RLD"

    def __post_init__(self) -> None:
        super().__post_init__()
        plain = isinstance(self.transitions, langevin.Mirror) and isinstance(self.emission, langevin.Preconditioned)
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
        return cls(
            step_size, emission=langevin.GaussianMetric(), blocks=blocks, per_observation=True, start=uniform_start
        )

    def estimator(self, windows: Any, buffer: Any) -> Estimator:
        buffered: Any = super().estimator(windows, buffer)
        return replace(buffered, start=self.start)  # type: ignore[no-any-return]


@SAMPLERS.register("batch-rld", offered=False)
@dataclass(frozen=True)
class BatchRLD(_Riemannian):
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

    name: ClassVar[str] = "batch RLD"
    sees: ClassVar[Estimator] = FullData()


# Compiled, also where steps as a whole are not.


@jax.jit
def _move_rows(
    sampler: _Riemannian, model: HMM, size: Array, key: Array, state: SGRLDState, seen: Estimate
) -> tuple[Array, Array, Array]:
    """Ahat, its unconstrained coordinates, and the share of clipped directions."""
    rows, pace, how = langevin.Rows.of(model.transitions), size * state.pace, sampler.transitions
    if isinstance(how, langevin.CoxIngersollRoss):
        assert seen.totals is not None
        counts = jnp.asarray(seen.totals.transitions, state.expanded.dtype)
        expanded, clipped = how.move(key, rows, state.expanded, counts, pace)
    else:
        drift = langevin.slope(model.transitions, jnp.asarray(seen.likelihood["transition"]))
        noise = None if state.noise is None else state.noise.rows
        expanded, clipped = how.move(key, rows, state.expanded, drift, pace, noise)
    return expanded, model.transitions.unconstrain(langevin.normalised(expanded)), clipped


_move_emission = jax.jit(
    lambda sampler, model, size, key, state, seen: sampler.emission.move(key, model, state, seen, size)
)


def _repeat(compiled: bool, body: Callable[[Any, Any], tuple[Any, Any]], state: Any, keys: Array) -> Any:
    if compiled:
        return jax.lax.scan(body, state, keys)
    found = []
    for key in keys:
        state, one = body(state, key)
        found.append(one)
    return state, jax.tree.map(lambda *each: jnp.stack(each), *found)
