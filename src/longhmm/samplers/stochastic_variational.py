"""Stochastic variational inference: a mean-field approximation fitted by natural gradients on buffered windows.

The local step runs forward-backward over windows with `exp E_q log A` and `exp E_q log p(y | k)` in place of
transitions and densities; the global step moves the natural parameters of `q` towards the scaled statistics.
"""

from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import digamma

from longhmm.backends.evaluate import window_marginals
from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.inference.markov import stationary
from longhmm.inference.scaling import safe_log
from longhmm.model.conjugate import draw_dirichlet
from longhmm.model.hmm import HMM
from longhmm.model.normal_updates import Conjugate
from longhmm.samplers import SAMPLERS
from longhmm.samplers.contract import Coordinates, Info, Sampler, all_finite
from longhmm.target.minibatch import Minibatch


class SVIState(NamedTuple):
    """The approximation `q`."""

    coordinates: Coordinates  # of the mean of `q`
    transitions: Array  # `(K, K)`, running expected transitions in all data; `w = concentration + this`
    sums: Any  # running expected sums of the emission
    emission: Any  # `q` of the emission's parameters
    centre: Array  # `(D,)`, what Gaussian observations are measured from
    steps: Array


@SAMPLERS.register("svi", offered=False)
@dataclass(frozen=True)
class StochasticVariational(Sampler):
    """SVI for hidden Markov models, `q(A, phi) = prod_i Dirichlet(A_i | w_i) prod_k q(phi_k)`.

    With rate `r_n = (n + delay)^-forgetting` and the scaled statistics of windows,

        w' = (1 - r_n) w + r_n (concentration + n_hat),     and likewise for the sums of the emission

    It is fast, and a reference to compare with: standard deviations are too small wherever states are hard to tell
    apart, since `q` leaves out the correlation between states and parameters.

    Args:
        forgetting: the learning rate of step n is `(n + delay)^-forgetting`, between 1/2 and 1.
        delay: at least 1.

    Example:
        >>> import longhmm as lh
        >>> lh.samplers.StochasticVariational(forgetting=0.7).name
        'SVI'

    Reference: Foti, Xu, Laird and Fox (NeurIPS 2014). Differs in buffer and scale, as said below.

    `initial` is taken as known; if it is stationary, that of the mean of `q`. A row of a Gaussian with full covariance
    that is observed in part counts as missing. The paper's buffer grows until answers settle; here it is the Lyapunov
    buffer, as everywhere, and statistics are scaled by the weights of the blocks, which is unbiased.
    """

    forgetting: float = 0.6
    delay: float = 10.0
    name: ClassVar[str] = "SVI"
    cites: ClassVar[tuple[str, ...]] = ("foti2014",)
    varying: ClassVar[bool] = False
    coupled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0.5 < self.forgetting <= 1.0 or self.delay < 1.0:
            raise ModelError(
                f"forgetting must lie in (0.5, 1] and delay must be at least 1, got {self.forgetting!r} and "
                f"{self.delay!r}."
            )

    def check(self, model: HMM) -> None:
        super().check(model)
        _approximation(model, np.zeros(model.dim))  # complains if the emission is not supported

    def init(self, target: Any, key: Array, u: Coordinates) -> SVIState:
        self.check(target.model)
        state: SVIState = _start(target.model, float(target.source.partition.offsets[-1]), dict(u))
        return state

    def step(self, target: Any, key: Array, state: SVIState, minibatch: Minibatch) -> tuple[SVIState, Info]:
        model = target.model
        family = _approximation(model, state.centre)
        transitions, sums, lost = _expect(model, family, target.initial, state, minibatch)
        rate = (state.steps + self.delay) ** -self.forgetting
        running, seen = (state.transitions, state.sums), (transitions, sums)
        moved = jax.tree.map(lambda old, new: (1 - rate) * old + rate * new, running, seen)
        new = state._replace(transitions=moved[0], sums=moved[1], steps=state.steps + 1)
        new = _settled(model, family, new)
        nothing = jax.tree.map(jnp.zeros_like, new.coordinates)
        return new, Info(nothing, all_finite(new.coordinates), {"rate": rate, "impossible": lost})


@jax.jit
def _start(model: HMM, length: float, u: Coordinates) -> SVIState:
    params = model.constrain(u)
    transition = params["transition"]
    centre = jnp.asarray(model.emission.centre(params), transition.dtype)
    family = _approximation(model, centre)
    visits = length * stationary(transition)
    levels = model.emission.state_levels(model.n_states)
    groups = jax.ops.segment_sum(visits, jnp.asarray(levels), int(levels.max()) + 1)
    sums = family.pretend(params, groups)
    state = SVIState({}, visits[:, None] * transition, sums, family.start, centre, jnp.zeros(()))
    return _settled(model, family, state)


@partial(jax.jit, static_argnames=("n",))
def draw_from_posterior(model: HMM, key: Array, state: SVIState, n: int) -> Coordinates:
    """`n` independent draws from `q`, as unconstrained coordinates with a leading axis."""
    family = _approximation(model, state.centre)
    concentration = _weights(model, state)

    def one(key: Array) -> Coordinates:
        transition_key, emission_key = jax.random.split(key)
        rows = draw_dirichlet(transition_key, concentration, model.transitions.allowed)
        emission = family.draw(emission_key, state.emission)
        return model.unconstrain({"transition": model.transitions.with_known_rows(rows), **emission})

    return jax.vmap(one)(jax.random.split(key, n))


def _approximation(model: HMM, centre: Any) -> Conjugate:
    """The family of `q` for a model's emission; `centre` `(D,)` is subtracted from Gaussian observations."""
    emission, n_levels = model.emission.untied, int(model.emission.state_levels(model.n_states).max()) + 1
    table = emission.parameters(n_levels)
    found: Any = emission.conjugate(n_levels, centre) if len(emission.free_names) == len(table) else None
    if not emission.free_names:  # nothing to approximate

        def expected(q: Any, values: Array, observed: Array) -> Array:
            params = {name: jnp.asarray(parameter.value, jnp.result_type(float)) for name, parameter in table.items()}
            return emission.log_likelihoods(params, Rows(values, observed))

        sums = dict.fromkeys(("statistics", "pretend", "update"), lambda *_: ())
        found = SimpleNamespace(**sums, start=(), expected=expected, mean=lambda q: {}, draw=lambda *_: {})
    elif found is None or found.start is None:
        raise ModelError(
            "Stochastic variational inference needs an emission whose parameters all have conjugate priors, such as a "
            f"Gaussian with full covariance and default priors, got {emission!r}: choose such priors, or a sampler."
        )
    family: Conjugate = found
    return family


def _weights(model: HMM, state: SVIState) -> Array:
    """Concentrations `w` of the rows of `A`."""
    # With its type said: JAX may remember an array of NumPy's in the precision of another scope.
    return jnp.asarray(model.transitions.concentration, state.transitions.dtype) + state.transitions


def _settled(model: HMM, family: Conjugate, state: SVIState) -> SVIState:
    """The state with `q` and its mean made from its running sums."""
    emission: Any = family.update(state.emission, state.sums)
    weights = jnp.where(model.transitions.allowed, _weights(model, state), 0.0)
    mean = model.transitions.with_known_rows(weights / jnp.sum(weights, axis=1, keepdims=True))
    coordinates = model.unconstrain({"transition": mean, **family.mean(emission)})
    return state._replace(coordinates=coordinates, emission=emission)


def _expected_log_transition(model: HMM, state: SVIState) -> Array:
    allowed = model.transitions.allowed
    weights = jnp.where(allowed, _weights(model, state), 1.0)
    total = jnp.sum(jnp.where(allowed, weights, 0.0), axis=1, keepdims=True)
    logs = jnp.where(allowed, digamma(weights) - digamma(total), -jnp.inf)
    return jnp.where(model.transitions.free_rows[:, None], logs, safe_log(model.transitions.with_known_rows(weights)))


def _expect(
    model: HMM, family: Conjugate, initial: Any, state: SVIState, minibatch: Minibatch
) -> tuple[Array, Any, Array]:
    """The local step: expected transitions and sums of the cores, scaled to all data; and impossible windows."""
    rows, layout = minibatch.rows, minibatch.in_rows()
    n_windows, width, dim = rows.values.shape
    levels = model.emission.state_levels(model.n_states)
    values, observed = rows.values.reshape(-1, dim), rows.observed.reshape(-1, dim)
    logs = family.expected(state.emission, values, observed)[:, levels].reshape(n_windows, width, -1)
    if rows.states is not None:
        known = rows.states[..., None]
        logs = jnp.where((known >= 0) & (known != jnp.arange(model.n_states)), -jnp.inf, logs)
    # exp E log A has rows that sum to less than one. The sums are moved into the densities of the times that have a
    # successor, and the rows made proper, so that padding beyond the end of a sequence changes nothing.
    log_transition = _expected_log_transition(model, state)
    log_sums = jax.nn.logsumexp(log_transition, axis=1)
    has_next = jnp.arange(width) < (layout.left + layout.core + layout.right)[:, None] - 1
    logs = logs + jnp.where(has_next[..., None], log_sums, 0.0)
    mean = model.constrain(state.coordinates)
    start = stationary(mean["transition"]) * jnp.exp(log_sums)
    first = mean["initial"] if initial is None else jnp.asarray(initial, start.dtype)
    proper = jnp.exp(log_transition - log_sums[:, None])
    found = window_marginals(logs, proper, first, layout, start / jnp.sum(start))
    by = minibatch.weights[:, None, None]
    weights = (found.gamma * by).reshape(-1, model.n_states)
    groups = weights @ jax.nn.one_hot(levels, int(levels.max()) + 1, dtype=weights.dtype)
    if not model.emission.factorises:
        observed = jnp.broadcast_to(jnp.all(observed, axis=-1, keepdims=True), observed.shape)
    sums = family.statistics(values, observed, groups)
    transitions = jnp.sum(found.transitions * by, axis=0)
    lost = jnp.sum(jnp.sum(found.gamma, axis=(1, 2)) < 0.5).astype(jnp.int32)  # a core has at least one time
    return transitions, sums, lost
