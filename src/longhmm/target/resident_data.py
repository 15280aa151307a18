"""The exact log posterior as one compiled function, for samplers that call it thousands of times.

One evaluation is one pass over all data inside one program. Its derivative is Fisher's identity (F8): expected
statistics at the same point, so nothing is differentiated through the recursions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from longhmm.backends.resident import Data, Program, exact_statistics, lay_out
from longhmm.backends.stream import Progress
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.model.parameters import Params
from longhmm.target.coordinates import prior_gradient
from longhmm.target.target import Estimate, Target


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ExactPosterior(Target):
    """Log posterior density of unconstrained coordinates, up to the evidence; `posterior(u)` may be differentiated.

    It may be called inside compiled code, under `jax.enable_x64(True)`, and may be handed to it as an argument: it is
    a tree of arrays, the data among them.
    """

    program: Program
    data: Data
    level: Any  # the overlap of chunks to begin with, see `settle`
    initial: Any  # `(K,)`, distribution of the state of a sequence's first observation; None for the model's own

    @staticmethod
    def of(model: HMM, sequences: Sequences, initial: Any = None) -> ExactPosterior:
        """With default priors scaled to the data, which the device keeps where they fit; else every pass reads them."""
        with jax.enable_x64(True):
            first = None if initial is None else jnp.asarray(initial, jnp.float64)
            return ExactPosterior(*lay_out(model.resolve(sequences), sequences), jnp.zeros((), jnp.int32), first)

    @property
    def model(self) -> HMM:  # type: ignore[override]
        return self.program.model

    def __call__(self, coordinates: Params) -> Array:
        with jax.enable_x64(True):
            return _log_posterior(self, _wide(coordinates))[0]

    def log_density_and_gradient(self, u: Params, progress: Progress | None = None) -> tuple[Array, dict[str, Array]]:
        """The log posterior and its gradient by name, from one pass; may be called inside compiled code."""
        with jax.enable_x64(True):
            value, gradient, _ = _evaluate(self, _wide(u))
            return value, gradient

    def estimate(self, u: Params, minibatch: None, *, per_window: bool = False) -> Estimate:
        _, gradient = self.log_density_and_gradient(u)
        with jax.enable_x64(True):
            likelihood = jax.tree.map(jnp.subtract, gradient, prior_gradient(self.model, _wide(u)))
            return Estimate(gradient, likelihood, impossible=jnp.zeros((), jnp.int32))

    def params(self, coordinates: Params) -> dict[str, Array]:
        """Natural parameters, with the distribution of first states that holds here."""
        params = self.model.constrain(_wide(coordinates))
        return params if self.initial is None else {**params, "initial": self.initial}

    def settle(self, coordinates: Params) -> int:
        """Find out how far chunks must overlap near these coordinates; see `at_level`."""
        with jax.enable_x64(True):
            return int(_evaluate(self.at_level(0), _wide(coordinates))[2])

    def at_level(self, level: Any) -> ExactPosterior:
        """The same posterior whose passes begin with the overlap that `settle` found, so that none is tried in vain."""
        return replace(self, level=jnp.asarray(level, jnp.int32))


def _wide(coordinates: Params) -> dict[str, Array]:
    return {name: jnp.asarray(value, jnp.float64) for name, value in coordinates.items()}


@jax.jit
def _log_posterior(posterior: ExactPosterior, coordinates: Params) -> tuple[Array, Array]:
    """The log posterior, and the overlap at which all was exact."""
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
    moves = jnp.zeros_like(statistics.transitions) if posterior.model.transitions.varies else statistics.transitions
    for name, counts in (("transition", moves), ("initial", statistics.first)):
        slopes[name] = counts / jnp.where(params[name] > 0, params[name], 1.0)
    return (statistics.log_likelihood, level), {**slopes, **statistics.natural}


def _log_likelihood_backward(slopes: dict[str, Array], outer: tuple[Array, Any]) -> tuple[Any, ...]:
    return None, jax.tree.map(lambda slope: outer[0] * slope, slopes)


_log_likelihood.defvjp(_log_likelihood_forward, _log_likelihood_backward)


@dataclass(frozen=True)
class ResidentData:
    """The exact log posterior and its gradient from one compiled pass over everything, as a policy."""

    def bind(self, model: HMM, sequences: Sequences, params: Params) -> ExactPosterior:
        return ExactPosterior.of(model, sequences, model.given_initial(model.validate(params)))
