"""Blocked Gibbs sampling: all states at once, then the transition matrix, then the emission, each given the others."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.backends.evaluate import in_double
from longhmm.backends.paths import DrawnPath, draw_path
from longhmm.data.rows import Rows
from longhmm.inference.scaling import safe_log
from longhmm.model import parameters
from longhmm.model.conjugate import draw_dirichlet
from longhmm.model.emission_fit import Coordinates as FlatEmission
from longhmm.model.normal_updates import Conjugate
from longhmm.model.parameters import Params
from longhmm.samplers import SAMPLERS
from longhmm.samplers.contract import Coordinates, Info, Sampler, all_finite, in_blocks
from longhmm.target.target import Estimator, ExactPosterior, ResidentData

PHASES = 3  # of the adaptation
LEAPFROGS, MOVES = 4, 2  # of each trajectory, and trajectories per sweep, where the emission has no closed form
ACCEPTANCE = 0.8  # at which the step size of these is adapted


class Metric(NamedTuple):
    """How steps are scaled: `factor` `(P, P)` with `factor factor^T` about the conditional covariance; a step size."""

    factor: Array
    step_size: Array


class GibbsState(NamedTuple):
    """Where the chain is; `metric` is None where the emission has a closed form."""

    coordinates: Coordinates
    metric: Metric | None


@SAMPLERS.register("gibbs")
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
        >>> import longhmm as lh
        >>> lh.Gibbs().name
        'Gibbs'

    Stats: `log_likelihood` at the parameters before the sweep, the states summed out; `acceptance` of Hamiltonian
    steps; `transitions_accepted`, 1 unless `initial` is stationary, which a Dirichlet draw leaves out.

    Closed forms: Gaussian (normal or flat mean; inverse-Wishart or flat covariance, inverse-gamma variance), Poisson
    (gamma, exponential or flat), Bernoulli (beta or uniform), Categorical (Dirichlet or flat), tied or not.
    Reference: Scott (2002), Bayesian methods for hidden Markov models. Differs by the Hamiltonian steps for emissions
    without a closed form, and by the Metropolis test where `initial` moves with the transitions.
    """

    adaptation_steps: int = 60
    name: ClassVar[str] = "Gibbs"
    cites: ClassVar[tuple[str, ...]] = ("scott2002",)
    x64: ClassVar[bool] = True
    sees: ClassVar[Estimator] = ResidentData()
    varying: ClassVar[bool] = False
    coupled: ClassVar[bool] = False

    def init(self, target: ExactPosterior, key: Array, u: Coordinates) -> GibbsState:
        self.check(target.model)
        size = FlatEmission(target.model.emission.parameters(target.model.n_states)).size
        if _closed_form(target, np.zeros(target.model.dim)) is not None or not size:
            return GibbsState(dict(u), None)
        with in_double():
            step_size = 0.9 * size**-0.25  # accepted about as often as wanted where the density is normal
            return GibbsState(dict(u), Metric(jnp.eye(size), jnp.asarray(step_size)))

    def step(self, target: ExactPosterior, key: Array, state: GibbsState, minibatch: None) -> tuple[GibbsState, Info]:
        """States, transitions, emission, in this order."""
        path_key, transition_key, emission_key = jax.random.split(key, 3)
        model, params = target.model, target.params(state.coordinates)
        paths = draw_path(target.program, target.data, params, path_key)
        transition, accepted = _draw_transition(transition_key, target, params, paths)
        closed = _closed_form(target, model.emission.centre(params))
        emission: Params = {}
        acceptance = jnp.ones(())
        if closed is not None:
            emission = _draw_emission(emission_key, target, closed, params, paths.states)
        elif state.metric is not None:
            density = ConditionalDensity(target, params, paths.states)
            vector, acceptance = density.move(emission_key, state.metric, density.coordinates.flatten(params))
            emission = density.coordinates.params(vector)
        table = model.emission.parameters(model.n_states)
        coordinates = {
            "transition": model.transitions.unconstrain(transition),
            **parameters.unconstrain(table, {**params, **emission}),
        }
        nothing = jax.tree.map(jnp.zeros_like, coordinates)
        finite = jnp.isfinite(paths.log_likelihood) & all_finite(coordinates)
        stats = {"log_likelihood": paths.log_likelihood, "acceptance": acceptance, "transitions_accepted": accepted}
        return GibbsState(coordinates, state.metric), Info(nothing, finite, stats)

    def adapt(self, target: ExactPosterior, key: Array, state: GibbsState) -> Iterator[tuple[GibbsState, float]]:
        """Sweeps that find the step size, with the metric measured anew after a third and two thirds of them."""
        if state.metric is None:
            return
        each = max(self.adaptation_steps // PHASES, 1)
        with in_double():
            pairs = [jax.random.split(one) for one in jax.random.split(key, PHASES)]
        for phase, (metric_key, sweep_key) in enumerate(pairs):
            with in_double():
                metric = _measured(target, metric_key, state)
            sweeps = in_blocks(_adapting_sweep, sweep_key, state._replace(metric=metric), each, self, target)
            for state, done in sweeps:
                yield state, (phase + done / each) / PHASES


def _closed_form(target: ExactPosterior, centre: Any) -> Conjugate | None:
    """The emission's, where it has one."""
    emission, n_levels = target.model.emission, int(target.model.emission.state_levels(target.model.n_states).max()) + 1
    if target.program.partial_rows and not emission.factorises:
        return None  # a row observed in part says something about the rest of it, which no sum over rows holds
    return emission.untied.conjugate(n_levels, centre)


def _draw_transition(key: Array, posterior: ExactPosterior, params: Params, paths: DrawnPath) -> tuple[Array, Array]:
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


def _draw_emission(key: Array, posterior: ExactPosterior, closed: Conjugate, params: Params, states: Array) -> Params:
    model = posterior.model
    emission, levels = model.emission.untied, model.emission.state_levels(model.n_states)

    def of_share(rows: Rows, drawn: Array, fresh: Array) -> Any:
        values, observed = rows.values, rows.observed
        if jnp.issubdtype(values.dtype, jnp.floating):
            values = values.astype(jnp.float64)
        if not emission.factorises:
            observed = jnp.broadcast_to(jnp.all(observed, axis=-1, keepdims=True), observed.shape)
        groups = jax.nn.one_hot(jnp.asarray(levels)[drawn], int(levels.max()) + 1, dtype=jnp.float64)
        return closed.statistics(values, observed, groups * fresh[:, None])

    return closed.draw_given(key, params, _summed(posterior, states, of_share))


def _summed(posterior: ExactPosterior, states: Array, of_share: Callable[..., Any], start: Any = None) -> Any:
    """`start` (None: 0) plus `of_share(rows, their states, which count)` of all rows; few are in memory at a time."""

    def one(index: Array) -> Any:
        rows, origin, fresh = posterior.program.share(posterior.data, index)
        return of_share(rows, jax.lax.dynamic_slice_in_dim(states, origin, fresh.shape[0]), fresh)

    def add(total: Any, index: Array) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, one(index)), None

    if start is None:
        shapes = jax.eval_shape(one, jnp.asarray(0))
        start = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    return jax.lax.scan(add, start, jnp.arange(posterior.program.shares[1]))[0]


class ConditionalDensity:
    """Log density of any emission's flat coordinates `(P,)` given data and states, an ordinary sum over rows.

    Hamiltonian steps are preconditioned with its curvature, and a Metropolis test makes them exact.
    """

    def __init__(self, posterior: ExactPosterior, params: Params, states: Array) -> None:
        self.posterior, self.params, self.states = posterior, params, states
        self.coordinates = FlatEmission(posterior.model.emission.parameters(posterior.model.n_states))

    def _of(self, derivative: Callable[[Callable[[Array], Array]], Any]) -> Any:
        """A derivative of the prior and of every share of the rows, added up."""
        model, table = self.posterior.model, self.coordinates.table

        def prior(vector: Array) -> Array:
            params = self.coordinates.params(vector)
            jacobian = parameters.log_abs_det_jacobian(table, parameters.unconstrain(table, params))
            return model.emission.log_prior(params) + jacobian

        def of_share(rows: Rows, drawn: Array, fresh: Array) -> Any:
            def share(vector: Array) -> Array:
                params = {**self.params, **self.coordinates.params(vector)}
                # Known states are not asked again: they only rule out, with minus infinity, what was not drawn.
                logs = model.log_likelihoods(params, rows._replace(states=None))
                own = (drawn[:, None] == jnp.arange(model.n_states)) & fresh[:, None]
                return jnp.sum(jnp.where(own, logs, 0.0))

            return derivative(share)

        return _summed(self.posterior, self.states, of_share, derivative(prior))

    def value_and_gradient(self, vector: Array) -> tuple[Array, Array]:
        found: tuple[Array, Array] = self._of(lambda density: jax.value_and_grad(density)(vector))
        return found

    def metric(self, vector: Array, step_size: Array) -> Metric:
        """From the curvature here, every eigenvalue made positive and at least 1/9 (a standard deviation of 3).

        The symmetric root: eigenvectors have signs that rounding chooses.
        """
        hessian = self._of(lambda density: jax.hessian(density)(vector))
        values, vectors = jnp.linalg.eigh(-0.5 * (hessian + hessian.T))
        return Metric((vectors / jnp.sqrt(jnp.maximum(jnp.abs(values), 1.0 / 9.0))) @ vectors.T, step_size)

    def move(self, key: Array, metric: Metric, vector: Array) -> tuple[Array, Array]:
        """A few Hamiltonian trajectories; the new coordinates, and the mean acceptance probability."""

        def leapfrog(carry: Any, step: Array) -> Any:
            at, momentum, _, slope = carry
            momentum = momentum + 0.5 * step * (metric.factor.T @ slope)
            at = at + step * (metric.factor @ momentum)
            value, slope = self.value_and_gradient(at)
            return at, momentum + 0.5 * step * (metric.factor.T @ slope), value, slope

        def trajectory(carry: Any, key: Array) -> tuple[Any, Array]:
            at, value, slope = carry
            momentum_key, step_key, test_key = jax.random.split(key, 3)
            momentum = jax.random.normal(momentum_key, at.shape, at.dtype)
            # A varying step keeps trajectories from closing upon themselves.
            step = metric.step_size * jax.random.uniform(step_key, (), at.dtype, 0.7, 1.3)
            start = (at, momentum, value, slope)
            there = jax.lax.fori_loop(0, LEAPFROGS, lambda _, each: leapfrog(each, step), start)
            energy = there[2] - value - 0.5 * (jnp.sum(there[1] ** 2) - jnp.sum(momentum**2))
            acceptance = jnp.where(jnp.isnan(energy), 0.0, jnp.exp(jnp.minimum(energy, 0.0)))
            accepted = jax.random.uniform(test_key, (), at.dtype) < acceptance
            kept = (there[0], there[2], there[3])
            return jax.tree.map(lambda new, old: jnp.where(accepted, new, old), kept, carry), acceptance

        start = (vector, *self.value_and_gradient(vector))
        (vector, _, _), acceptance = jax.lax.scan(trajectory, start, jax.random.split(key, MOVES))
        return vector, jnp.mean(acceptance)


@jax.jit
def _measured(posterior: ExactPosterior, key: Array, state: GibbsState) -> Metric:
    assert state.metric is not None
    params = posterior.params(state.coordinates)
    density = ConditionalDensity(posterior, params, draw_path(posterior.program, posterior.data, params, key).states)
    return density.metric(density.coordinates.flatten(params), state.metric.step_size)


def _adapting_sweep(
    number: Array, key: Array, state: GibbsState, sampler: Gibbs, posterior: ExactPosterior
) -> GibbsState:
    state, info = sampler.step(posterior, key, state, None)
    assert state.metric is not None
    # Robbins and Monro (1951).
    size = state.metric.step_size * jnp.exp((info.stats["acceptance"] - ACCEPTANCE) / jnp.sqrt(number + 1.0))
    return state._replace(metric=state.metric._replace(step_size=jnp.clip(size, 1e-4, np.pi / 2)))
