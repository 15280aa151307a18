"""The exact log posterior as one compiled function, for samplers that call it thousands of times.

One evaluation is one pass over all data inside one program. Its derivative is Fisher's identity (F8): expected
statistics at the same point, so nothing is differentiated through the recursions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.backends.resident import Data, Program, exact_statistics, lay_out
from longhmm.backends.stream import Progress
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.target.coordinates import prior_gradient
from longhmm.target.target import Estimate, Target

Params = Mapping[str, jax.Array]


class Inputs(NamedTuple):
    """The arrays behind a posterior: the data, the overlap of chunks to begin with (see `ExactPosterior.settle`), and
    the distribution of first states where it is not the model's own."""

    data: Data
    level: Any
    initial: Any


@jax.tree_util.register_pytree_node_class
class ExactPosterior(Target):
    """Log posterior density of unconstrained coordinates, up to the evidence; `posterior(u)` may be differentiated.

    It may be called inside compiled code, under `jax.enable_x64(True)`, and may be handed to it as an argument: it is
    a tree of arrays, the data among them.

    Args:
        model: the hidden Markov model; default priors are scaled to the data.
        sequences: the data; kept by the device where they fit, otherwise read in every pass.
        initial: `(K,)`, distribution of the state of a sequence's first observation, if it is not the model's own.
    """

    def __init__(self, model: HMM, sequences: Sequences, initial: Any = None) -> None:
        resolved = model.resolve(sequences)
        with jax.enable_x64(True):
            self.program, data = lay_out(resolved, sequences)
            first = None if initial is None else jnp.asarray(initial, jnp.float64)
            self.inputs = Inputs(data, jnp.zeros((), jnp.int32), first)

    @property
    def model(self) -> HMM:  # type: ignore[override]
        return self.program.model

    @property
    def initial(self) -> Any:
        return self.inputs.initial

    def __call__(self, coordinates: Params) -> jax.Array:
        with jax.enable_x64(True):
            return _log_posterior(self.program, self.inputs, _wide(coordinates))[0]

    def log_density_and_gradient(
        self, u: Params, progress: Progress | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The log posterior and its gradient by name, from one pass; may be called inside compiled code."""
        with jax.enable_x64(True):
            value, gradient, _ = _evaluate(self.program, self.inputs, _wide(u))
            return value, gradient

    def estimate(self, u: Params, minibatch: None, *, per_window: bool = False) -> Estimate:
        """The exact gradient."""
        _, gradient = self.log_density_and_gradient(u)
        with jax.enable_x64(True):
            likelihood = jax.tree.map(jnp.subtract, gradient, prior_gradient(self.model, _wide(u)))
            return Estimate(gradient, likelihood, impossible=jnp.zeros((), jnp.int32))

    def params(self, coordinates: Params) -> dict[str, jax.Array]:
        """Natural parameters, with the distribution of first states that holds here."""
        params = self.model.constrain(_wide(coordinates))
        return params if self.inputs.initial is None else {**params, "initial": self.inputs.initial}

    def settle(self, coordinates: Params) -> int:
        """Find out how far chunks must overlap near these coordinates; see `at_level`."""
        with jax.enable_x64(True):
            return int(_evaluate(self.program, self.at_level(0).inputs, _wide(coordinates))[2])

    def at_level(self, level: Any) -> ExactPosterior:
        """The same posterior whose passes begin with the overlap that `settle` found, so that none is tried in vain."""
        inputs = self.inputs._replace(level=jnp.asarray(level, jnp.int32))
        return ExactPosterior.tree_unflatten(None, (self.program, inputs))

    def tree_flatten(self) -> tuple[tuple[Program, Inputs], None]:
        """For JAX: all of it."""
        return (self.program, self.inputs), None

    @classmethod
    def tree_unflatten(cls, structure: None, children: tuple[Program, Inputs]) -> ExactPosterior:
        """Inverse of `tree_flatten`."""
        posterior = object.__new__(cls)
        posterior.program, posterior.inputs = children
        return posterior


def _wide(coordinates: Params) -> dict[str, jax.Array]:
    return {name: jnp.asarray(value, jnp.float64) for name, value in coordinates.items()}


@jax.jit
def _log_posterior(program: Program, inputs: Inputs, coordinates: Params) -> tuple[jax.Array, jax.Array]:
    """The log posterior, and the overlap at which all was exact."""
    params = program.model.constrain(coordinates)
    if inputs.initial is not None:
        params = {**params, "initial": inputs.initial}
    value, level = _log_likelihood(program, inputs, params)
    return value + program.model.log_prior_unconstrained(coordinates), level


@jax.jit
def _evaluate(
    program: Program, inputs: Inputs, coordinates: Params
) -> tuple[jax.Array, dict[str, jax.Array], jax.Array]:
    both = jax.value_and_grad(_log_posterior, argnums=2, has_aux=True)
    (value, level), gradient = both(program, inputs, dict(coordinates))
    return value, gradient, level


@jax.custom_vjp
def _log_likelihood(program: Program, inputs: Inputs, params: Params) -> tuple[jax.Array, jax.Array]:
    statistics, level = exact_statistics(program, inputs.data, params, inputs.level)
    return statistics.log_likelihood, level


def _log_likelihood_forward(
    program: Program, inputs: Inputs, params: Params
) -> tuple[tuple[jax.Array, jax.Array], dict[str, jax.Array]]:
    statistics, level = exact_statistics(program, inputs.data, params, inputs.level)
    slopes = {name: jnp.zeros_like(value) for name, value in params.items()}
    # d/dA of n_ij log A_ij is n_ij / A_ij, and n_ij is 0 where A_ij is. Matrices that vary have a slope of their own.
    moves = jnp.zeros_like(statistics.transitions) if program.model.transitions.varies else statistics.transitions
    for name, counts in (("transition", moves), ("initial", statistics.first)):
        slopes[name] = counts / jnp.where(params[name] > 0, params[name], 1.0)
    return (statistics.log_likelihood, level), {**slopes, **statistics.natural}


def _log_likelihood_backward(slopes: dict[str, jax.Array], outer: tuple[jax.Array, Any]) -> tuple[Any, ...]:
    return None, None, jax.tree.map(lambda slope: outer[0] * slope, slopes)


_log_likelihood.defvjp(_log_likelihood_forward, _log_likelihood_backward)


@dataclass(frozen=True)
class ResidentData:
    """The exact log posterior and its gradient from one compiled pass over everything, as a policy."""

    def bind(self, model: HMM, sequences: Sequences, params: Mapping[str, Any]) -> ExactPosterior:
        return ExactPosterior(model, sequences, model.given_initial(model.validate(params)))
