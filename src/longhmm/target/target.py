"""What a sampler sees of a model and its data: the exact log density, minibatches, and what a minibatch says. A policy
such as `Buffered(...)` becomes a target by `bind(model, data, params)`, which fixes its buffer at `params`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.backends import stream
from longhmm.backends.counts import lowering_with
from longhmm.backends.evaluate import Statistics, in_double
from longhmm.backends.pallas.full import ALONE, Fused
from longhmm.backends.programs import here, quick
from longhmm.backends.resident import Data, Program, exact_statistics, lay_out
from longhmm.data.sequences import Sequences
from longhmm.inference.markov import centred_counts
from longhmm.model.hmm import HMM
from longhmm.model.parameters import Params
from longhmm.target.buffer_length import BufferEstimate
from longhmm.target.coordinates import Arrays, constrain, interior, prior_gradient, score, unconstrain
from longhmm.target.minibatch import MinibatchSource


class Estimate(NamedTuple):
    """What a minibatch says at some coordinates."""

    gradient: dict[str, Any]  # of the log posterior in unconstrained coordinates, by name; an estimate
    likelihood: dict[str, Any]  # the same of the log likelihood, without the prior and its Jacobian
    totals: Any = None  # expected statistics scaled to all data; None where the target has no `counts`
    windows: Statistics | None = None  # those of every window, without weights, where they were asked for
    impossible: Any = 0  # how many windows had to be left out, see `impossible_windows`


class Target:
    """The log posterior of one model on some data; this one passes over all data, streamed, outside compiled code."""

    model: HMM  # default priors scaled to the data
    sequences: Sequences
    initial: Any  # the distribution of first states that the parameters brought along; None for the model's own
    source: MinibatchSource | None = None  # where windows come from; None where it has none
    buffer: BufferEstimate | None = None  # None where there are no windows, or their length is decided
    compiled: ClassVar[bool] = True  # whether `minibatch` and `estimate` may run inside `jax.jit`
    counts: ClassVar[bool] = False  # whether estimates carry expected counts
    apart: ClassVar[bool] = False  # whether windows are drawn so that their spread tells the noise of the gradient
    on_host: Any = False  # whether minibatches are read from files, outside compiled code
    together: Any = False  # whether chains are best run together: one call serves them all

    def log_density_and_gradient(self, u: Params) -> tuple[Any, dict[str, Any]]:
        """The exact log posterior density of the coordinates, up to the evidence, and its gradient, in float64."""
        value, found = self._pass(u)
        return value, found.gradient

    def minibatch(self, key: Array) -> Any:
        """Windows at random; None where all data are used."""
        return None

    def minibatches(self, keys: Array) -> Any:
        """What `minibatch` gives for each of some keys, along a leading axis; where `on_host`."""
        return None

    def estimate(self, u: Params, minibatch: Any, *, per_window: bool = False) -> Estimate:
        """The gradient of the log posterior, and what is behind it; `per_window` asks for every window's statistics."""
        return self._pass(u)[1]

    def _pass(self, u: Params) -> tuple[float, Estimate]:
        given = {} if self.initial is None else {"initial": self.initial}
        return exact(self.model, {**constrain(self.model, u), **given}, self.sequences, u=u)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class StreamedPosterior(Target):
    """All data at every step, read in blocks, however long they are."""

    model: HMM
    sequences: Sequences = field(metadata={"static": True})
    initial: Any = None
    compiled: ClassVar[bool] = False
    counts: ClassVar[bool] = True


class Estimator(Protocol):
    """A policy: which windows, with which buffer."""

    def bind(self, model: HMM, sequences: Sequences, params: Params) -> Target:
        """Tie the policy to a model and data, with buffer and gap as `params` need them."""


def impossible_windows(totals: Statistics, minibatch: Any) -> Array:
    """At least how many windows hold observations that no state can produce, so that they were left out: every time in
    a core adds its weight to the expected first states or transitions, unless the window's likelihood is zero."""
    expected, least = minibatch.weights * minibatch.layout.core, 0.5 * jnp.min(minibatch.weights)
    lost = jnp.sum(expected) - jnp.sum(totals.first) - jnp.sum(totals.transitions)
    return jnp.where(lost > least, jnp.ceil((lost - least) / jnp.max(expected)), 0.0).astype(jnp.int32)


@dataclass(frozen=True)
class Finish:
    """From sums over all data to the log likelihood's gradient, and statistics; `moves`: the initial distribution
    follows from the parameters, instead of being given beside them."""

    moves: bool

    def __call__(self, model: HMM, params: Params, given: Params | None, sums: Any) -> tuple[Any, Statistics]:
        found = stream.Totals(*sums)
        natural: Any = dict(found.natural or {})
        counts, apart = jnp.asarray(found.transitions), model.transitions.apart
        if found.sums is not None:
            natural |= lowering_with(model.emission, found.sums.shape[-1]).gradient(params, jnp.asarray(found.sums))
        centred = jnp.zeros_like(counts) if apart else centred_counts(counts, jnp.asarray(params["transition"]))
        totals = Statistics(jnp.asarray(found.log_likelihood), jnp.asarray(found.first), counts, centred, natural)
        return score(model, _coordinates(model, params, given), totals, initial_moves=self.moves), totals


def _prior(model: HMM, params: Params, given: Params | None) -> tuple[Any, Any]:
    """The log prior density of coordinates, and its gradient."""
    u = _coordinates(model, params, given)
    return model.log_prior_unconstrained(u), prior_gradient(model, u)


def _coordinates(model: HMM, params: Params, given: Params | None) -> dict[str, Any]:
    return dict(model.unconstrain(params)) if given is None else dict(given)


def _finish(work: Finish, *given: Any) -> Any:
    return work(*given), _prior(*given[:3])


_prior_on_host, _on_host = quick(_prior), quick(_finish, static_argnums=0)


def exact(
    model: HMM, complete: Params, sequences: Sequences, *, u: Any = None, progress: Any = None, check: Any = ALONE.check
) -> tuple[float, Estimate]:
    """One pass over all data, in float64, at parameters that `check` may refuse: log posterior and exact estimate."""
    wide = None if u is None else {name: np.asarray(value, np.float64) for name, value in u.items()}
    finish, at = Finish(model.given_initial(complete) is None), (model, complete, wide)
    # On a GPU half of the work of finishing would be the prior's, which can be had meanwhile.
    fused = Fused(finish, wide, check, lambda: here(_prior_on_host, *at))
    found = stream.totals(model, complete, sequences, progress=progress, fused=fused)
    if isinstance(found, stream.Totals):
        found = here(_on_host, finish, *at, found)
    (likelihood, statistics), (prior, slope) = found
    gradient = {name: each + slope[name] for name, each in likelihood.items()}
    return float(statistics.log_likelihood + prior), Estimate(gradient, likelihood, statistics, impossible=np.int32(0))


def gradient(
    model: HMM, params: Params, data: Any, *, prior: bool = True, estimator: Estimator | None = None, seed: int = 0
) -> Arrays:
    """Gradient of the log posterior (or of the log likelihood) in unconstrained coordinates.

    Args:
        model: the hidden Markov model.
        params: natural parameters at which the gradient is taken.
        data: an array, a path, a list of these, or what `open_data` returned.
        prior: False leaves the prior and its Jacobian out.
        estimator: None for the exact gradient in double precision, or a policy such as `Buffered(...)` for an estimate
            from one random minibatch.
        seed: chooses the minibatch.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
        >>> slope = lh.gradient(model, params, [0, 1, 9, 7], prior=False)
        >>> sorted(slope), slope["transition"].shape
        (['rate', 'transition'], (2,))
    """
    model, sequences = model.meet(data)
    model = model.resolve(sequences)
    complete = interior(model, params, supports=estimator is not None)
    if estimator is None:
        _, found = exact(model, complete, sequences, check=lambda: model.check_supports(complete))
        return found.gradient if prior else found.likelihood
    target = estimator.bind(model, sequences, complete)
    u = jax.tree.map(jnp.asarray, unconstrain(model, complete))
    estimate = target.estimate(u, target.minibatch(jax.random.key(seed)))
    return {name: np.asarray(value) for name, value in (estimate.gradient if prior else estimate.likelihood).items()}


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ExactPosterior(Target):
    """The same from one compiled pass over all data, for samplers that call it thousands of times, also inside compiled
    code, under `in_double()`; `posterior(u)` may be differentiated, by Fisher's identity (F8)."""

    program: Program
    data: Data
    level: Any  # the overlap of chunks to begin with, see `settle`
    initial: Any  # `(K,)`, distribution of the state of a sequence's first observation; None for the model's own

    @staticmethod
    def of(model: HMM, sequences: Sequences, initial: Any = None) -> ExactPosterior:
        """With default priors scaled to the data, which the device keeps where they fit; else every pass reads them."""
        with in_double():
            first = None if initial is None else jnp.asarray(initial, jnp.float64)
            return ExactPosterior(*lay_out(model.resolve(sequences), sequences), jnp.zeros((), jnp.int32), first)

    @property
    def model(self) -> HMM:  # type: ignore[override]
        return self.program.model

    def __call__(self, coordinates: Params) -> Array:
        with in_double():
            value: Array = _log_posterior(self, _wide(coordinates))[0]
            return value

    def log_density_and_gradient(self, u: Params) -> tuple[Array, dict[str, Array]]:
        with in_double():
            value, gradient, _ = _evaluate(self, _wide(u))
            return value, gradient

    def estimate(self, u: Params, minibatch: None, *, per_window: bool = False) -> Estimate:
        _, gradient = self.log_density_and_gradient(u)
        with in_double():
            likelihood = jax.tree.map(jnp.subtract, gradient, prior_gradient(self.model, _wide(u)))
            return Estimate(gradient, likelihood, impossible=jnp.zeros((), jnp.int32))

    def params(self, coordinates: Params) -> dict[str, Array]:
        """Natural parameters, with the distribution of first states that holds here."""
        params = self.model.constrain(_wide(coordinates))
        return params if self.initial is None else {**params, "initial": self.initial}

    def settle(self, coordinates: Params) -> int:
        """Find out how far chunks must overlap near these coordinates; see `at_level`."""
        with in_double():
            return int(_evaluate(self.at_level(0), _wide(coordinates))[2])

    def at_level(self, level: Any) -> ExactPosterior:
        """The same posterior whose passes begin with the overlap that `settle` found, so that none is tried in vain."""
        return replace(self, level=jnp.asarray(level, jnp.int32))


def _wide(coordinates: Params) -> dict[str, Array]:
    return {name: jnp.asarray(value, jnp.float64) for name, value in coordinates.items()}


@jax.jit
def _log_posterior(posterior: ExactPosterior, coordinates: Params) -> tuple[Array, Array]:
    value, level = _log_likelihood(posterior, posterior.params(coordinates))
    return value + posterior.model.log_prior_unconstrained(coordinates), level


@jax.jit
def _evaluate(posterior: ExactPosterior, u: Params) -> tuple[Array, dict[str, Array], Array]:
    both = jax.value_and_grad(_log_posterior, argnums=1, has_aux=True)
    (value, level), gradient = both(posterior, dict(u))
    return value, gradient, level


@jax.custom_vjp
def _log_likelihood(posterior: ExactPosterior, params: Params) -> tuple[Array, Array]:
    return _log_likelihood_forward(posterior, params)[0]


def _log_likelihood_forward(posterior: ExactPosterior, params: Params) -> tuple[tuple[Array, Array], dict[str, Array]]:
    statistics, level = exact_statistics(posterior.program, posterior.data, params, posterior.level)
    slopes = {name: jnp.zeros_like(value) for name, value in params.items()}
    # d/dA of n_ij log A_ij is n_ij / A_ij, and n_ij is 0 where A_ij is. Matrices that vary have a slope of their own.
    moves = jnp.zeros_like(statistics.transitions) if posterior.model.transitions.apart else statistics.transitions
    for name, counts in (("transition", moves), ("initial", statistics.first)):
        slopes[name] = counts / jnp.where(params[name] > 0, params[name], 1.0)
    return (statistics.log_likelihood, level), {**slopes, **statistics.natural}


_log_likelihood.defvjp(
    _log_likelihood_forward, lambda slopes, outer: (None, jax.tree.map(lambda slope: outer[0] * slope, slopes))
)


@dataclass(frozen=True)
class ResidentData:
    """The exact log posterior and its gradient from one compiled pass over everything, as a policy."""

    def bind(self, model: HMM, sequences: Sequences, params: Params) -> ExactPosterior:
        return ExactPosterior.of(model, sequences, model.given_initial(model.validate(params)))
