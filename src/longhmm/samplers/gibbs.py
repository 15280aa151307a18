"""Blocked Gibbs sampling: all states at once, then the transition matrix, then the emission, each given the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.drawn_path import DrawnPath, draw_path
from longhmm.inference.scaling import safe_log
from longhmm.model import parameters
from longhmm.model.conjugate import Conjugate, draw_dirichlet
from longhmm.model.emission_fit import Coordinates as FlatEmission
from longhmm.samplers.conditional_moves import ConditionalDensity, Metric, adapted, first_step_size, metric_at, move
from longhmm.samplers.contract import Coordinates, Sampler, in_blocks
from longhmm.target.resident_data import ExactPosterior, ResidentData
from longhmm.target.target import Estimator

Params = dict[str, jax.Array]
PHASES = 3  # of the adaptation


class GibbsState(NamedTuple):
    """Where the chain is; `metric` is None where the emission has a closed form."""

    coordinates: Coordinates
    metric: Metric | None


class GibbsInfo(NamedTuple):
    """What a sweep reports; a gradient of zeros, since none is used."""

    gradient: Coordinates
    finite: jax.Array
    log_likelihood: jax.Array  # with the states summed out, at the parameters before the sweep
    acceptance: jax.Array  # of the emission's Hamiltonian steps; 1 where it has a closed form
    transitions_accepted: jax.Array  # 1 unless `initial` is stationary, which a Dirichlet draw leaves out


@dataclass(frozen=True)
class Gibbs(Sampler):
    """Blocked Gibbs sampling on all data.

        x'   ~ P(x | y, A, phi)          forward filtering, backward sampling (F7)
        A_i' ~ Dirichlet(a_i + n_i)      n[i, j] steps from i to j in x'; fixed rows and forbidden entries stay
        phi' ~ p(phi | x', y)            in closed form where priors are conjugate, otherwise Hamiltonian steps with a
                                         Metropolis test

    Draws are exact up to Monte Carlo error. Where states are well told apart a sweep is nearly an independent draw;
    where they are not, `x` and the parameters hold one another fast and NUTS, which sums `x` out, mixes better.

    Args:
        adaptation_steps: sweeps spent on the step size of an emission without a closed form.

    Example:
        >>> import jax, longhmm as lh
        >>> model, params = lh.HMM(2, lh.Poisson(rate=[1.0, 8.0])), {"transition": [[0.9, 0.1], [0.2, 0.8]]}
        >>> data, sampler = lh.open_data([0, 1, 9, 7] * 50), lh.Gibbs()
        >>> with jax.enable_x64(True):
        ...     target = sampler.estimator(None, None).bind(model, data, params)
        ...     state = sampler.init(target, jax.random.key(0), lh.unconstrain(model, params))
        ...     state, info = sampler.step(target, jax.random.key(1), state, None)
        >>> bool(info.finite)
        True

    Closed forms: Gaussian (normal or flat mean; inverse-Wishart or flat covariance, inverse-gamma variance), Poisson
    (gamma, exponential or flat), Bernoulli (beta or uniform), Categorical (Dirichlet or flat), tied or not.
    Reference: Scott (2002), Bayesian methods for hidden Markov models. Differs by the Hamiltonian steps for emissions
    without a closed form, and by the Metropolis test where `initial` moves with the transitions.
    """

    adaptation_steps: int = 60
    name: ClassVar[str] = "Gibbs"
    cites: ClassVar[tuple[str, ...]] = ("scott2002",)
    x64: ClassVar[bool] = True
    varying: ClassVar[bool] = False
    coupled: ClassVar[bool] = False

    def estimator(self, windows: Any, buffer: Any) -> Estimator:
        """All data; windows and buffer play no part."""
        return ResidentData()

    def init(self, target: ExactPosterior, key: jax.Array, u: Coordinates) -> GibbsState:
        self.check(target.model)
        size = FlatEmission(target.model.emission.parameters(target.model.n_states)).size
        if _closed_form(target, np.zeros(target.model.dim)) is not None or not size:
            return GibbsState(dict(u), None)
        with jax.enable_x64(True):
            return GibbsState(dict(u), Metric(jnp.eye(size), jnp.asarray(first_step_size(size))))

    def step(
        self, target: ExactPosterior, key: jax.Array, state: GibbsState, minibatch: None
    ) -> tuple[GibbsState, GibbsInfo]:
        return sweep(target, key, state)

    def adapt(self, target: ExactPosterior, key: jax.Array, state: GibbsState) -> Iterator[tuple[GibbsState, float]]:
        return _adapt(target, self.adaptation_steps, key, state)


def _closed_form(target: ExactPosterior, centre: Any) -> Conjugate | None:
    """The emission's, where it has one."""
    emission, n_levels = target.model.emission, int(target.model.emission.state_levels(target.model.n_states).max()) + 1
    if target.program.partial_rows and not emission.factorises:
        return None  # a row observed in part says something about the rest of it, which no sum over rows holds
    return emission.untied.conjugate(n_levels, centre)


def sweep(posterior: ExactPosterior, key: jax.Array, state: GibbsState) -> tuple[GibbsState, GibbsInfo]:
    """States, transitions, emission, in this order."""
    path_key, transition_key, emission_key = jax.random.split(key, 3)
    params = posterior.params(state.coordinates)
    paths = draw_path(posterior.program, posterior.data, params, path_key)
    transition, accepted = _draw_transition(transition_key, posterior, params, paths)
    closed = _closed_form(posterior, posterior.model.emission.centre(params))
    if closed is not None:
        emission = _draw_emission(emission_key, posterior, closed, params, paths.states)
        acceptance = jnp.ones(())
    elif state.metric is not None:
        density = ConditionalDensity(posterior.program, posterior.data, params)
        vector, acceptance = move(
            emission_key, density, state.metric, density.coordinates.flatten(params), paths.states
        )
        emission = density.coordinates.params(vector)
    else:
        emission, acceptance = {}, jnp.ones(())
    table = posterior.model.emission.parameters(posterior.model.n_states)
    coordinates = {
        "transition": posterior.model.transitions.unconstrain(transition),
        **parameters.unconstrain(table, {**params, **emission}),
    }
    finite = jnp.isfinite(paths.log_likelihood)
    for value in coordinates.values():
        finite = finite & jnp.all(jnp.isfinite(value))
    nothing = jax.tree.map(jnp.zeros_like, coordinates)
    info = GibbsInfo(nothing, finite, paths.log_likelihood, acceptance, accepted)
    return GibbsState(coordinates, state.metric), info


def _draw_transition(
    key: jax.Array, posterior: ExactPosterior, params: Params, paths: DrawnPath
) -> tuple[jax.Array, jax.Array]:
    """Dirichlet rows. If `initial` moves with them, the first states have a say, through a Metropolis test."""
    model = posterior.model
    draw_key, test_key = jax.random.split(key)
    concentration = jnp.asarray(model.transitions.concentration, paths.transitions.dtype)
    rows = draw_dirichlet(draw_key, concentration + paths.transitions, model.transitions.allowed)
    proposal = jnp.where(model.transitions.free_rows[:, None], rows, params["transition"])
    if not isinstance(model.initial, str) or posterior.initial is not None:
        return proposal, jnp.ones(())
    terms = paths.first * (safe_log(model.initial_distribution(proposal)) - safe_log(params["initial"]))
    ratio = jnp.sum(jnp.where(paths.first > 0, terms, 0.0))
    accepted = jnp.log(jax.random.uniform(test_key, (), ratio.dtype)) < ratio
    return jnp.where(accepted, proposal, params["transition"]), accepted.astype(float)


def _draw_emission(
    key: jax.Array, posterior: ExactPosterior, closed: Conjugate, params: Params, states: jax.Array
) -> Params:
    program = posterior.program
    emission, levels = program.model.emission.untied, program.model.emission.state_levels(program.model.n_states)
    groups = jnp.asarray(levels)

    def one(index: jax.Array) -> Any:
        rows, origin, fresh = program.share(posterior.data, index)
        values, observed = rows.values, rows.observed
        if jnp.issubdtype(values.dtype, jnp.floating):
            values = values.astype(jnp.float64)
        if not emission.factorises:
            observed = jnp.broadcast_to(jnp.all(observed, axis=-1, keepdims=True), observed.shape)
        drawn = groups[jax.lax.dynamic_slice_in_dim(states, origin, fresh.shape[0])]
        weights = jax.nn.one_hot(drawn, int(levels.max()) + 1, dtype=jnp.float64) * fresh[:, None]
        return closed.statistics(values, observed, weights)

    def add(total: Any, index: jax.Array) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, one(index)), None

    shapes = jax.eval_shape(one, jnp.asarray(0))
    zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    totals, _ = jax.lax.scan(add, zeros, jnp.arange(program.shares[1]))
    return closed.draw_given(key, params, totals)


def _adapt(
    posterior: ExactPosterior, steps: int, key: jax.Array, state: GibbsState
) -> Iterator[tuple[GibbsState, float]]:
    """Sweeps that find the step size, with the metric measured anew after a third and two thirds of them."""
    if state.metric is None:
        return
    each = max(steps // PHASES, 1)
    with jax.enable_x64(True):
        pairs = [jax.random.split(one) for one in jax.random.split(key, PHASES)]
    for phase, (metric_key, sweep_key) in enumerate(pairs):
        assert state.metric is not None
        with jax.enable_x64(True):
            metric = _measured(posterior, metric_key, state.coordinates, state.metric.step_size)
        sweeps = in_blocks(partial(_sweeps, each, posterior, sweep_key), state._replace(metric=metric), each)
        for state, done in sweeps:
            yield state, (phase + done / each) / PHASES


@jax.jit
def _measured(posterior: ExactPosterior, key: jax.Array, coordinates: Coordinates, step_size: jax.Array) -> Metric:
    params = posterior.params(coordinates)
    paths = draw_path(posterior.program, posterior.data, params, key)
    density = ConditionalDensity(posterior.program, posterior.data, params)
    return metric_at(density, density.coordinates.flatten(params), paths.states, step_size)


@partial(jax.jit, static_argnums=0)
def _sweeps(
    steps: int, posterior: ExactPosterior, key: jax.Array, state: GibbsState, first: int, count: int
) -> GibbsState:
    """`count` of the `steps` sweeps of a phase, beginning with number `first`."""
    keys = jax.random.split(key, steps)

    def one(number: jax.Array, state: GibbsState) -> GibbsState:
        state, info = sweep(posterior, keys[number], state)
        assert state.metric is not None
        return state._replace(metric=adapted(state.metric, info.acceptance, number))

    last: GibbsState = jax.lax.fori_loop(first, first + count, one, state)
    return last
