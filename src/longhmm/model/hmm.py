"""The hidden Markov model: transitions, emission and initial distribution, as functions of one set of parameters."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.data.shown import html_table
from longhmm.errors import DataError, ModelError, check_whole
from longhmm.inference.markov import stationary, stationary_on_host
from longhmm.model import parameters
from longhmm.model.emissions import Emission
from longhmm.model.formula import WithFormulas
from longhmm.model.parameters import Tree
from longhmm.model.summary import DataSummary, subsample, summarise
from longhmm.model.transitions import TransitionModel, probabilities
from longhmm.model.transitions.logit import as_transitions

if TYPE_CHECKING:
    from jaxtyping import Float

Params = dict[str, jax.Array]
_summaries: WeakKeyDictionary[Sequences, DataSummary] = WeakKeyDictionary()  # of data that are kept open
# The same data, opened again, give the same emission, and the same model: with what they have cached.
_scaled = lru_cache(4)(lambda emission, summary: emission.resolve(summary))
_resolved = lru_cache(4)(lambda model, summary: model.scaled_to(summary))


class Potentials(NamedTuple):
    """All that inference needs to know of a model, at given parameters and for given rows."""

    initial: Float[Any, " K"]  # `p(x_0 = k)` of a sequence's first row
    # `[i, j] = p(x_t = j | x_{t-1} = i)`, for all rows or for each
    transition: Float[Any, "K K"] | Float[Any, "*rows K K"]
    # `log p(y_t | x_t = k)`, or given the states before and at the row, where emission and transition couple
    log_likelihood: Float[Any, "*rows K"] | Float[Any, "*rows K K"]


class HMM(WithFormulas, Tree):
    """A hidden Markov model with `n_states` states and any emission.

    Args:
        n_states: number of hidden states K, at least 1.
        emission: an `Emission`, such as `Gaussian(dim=2)` or `Emission(dist.StudentT, ...)`.
        transitions: a formula of covariates such as "~ temp", or a `TransitionModel`; None for one matrix for all rows.
        transition_prior: concentrations of the Dirichlet prior of each row of the transition matrix: a number, an
            array that broadcasts to (K, K), or `Sticky(stay, move)`. A concentration of 0 forbids the transition.
        fixed_rows: rows of the transition matrix that are known, `{state: probabilities}`.
        initial: distribution of the state of a sequence's first observation: "uniform", "stationary" (then it moves
            with the transition matrix, and that dependence is part of every gradient), or K probabilities.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=3, emission=lh.Gaussian(dim=2), transition_prior=lh.Sticky(stay=20.0))
        >>> model
        HMM(n_states=3, emission=Gaussian(dim=2, covariance='full'))
    """

    labels: tuple[int, ...] = ()  # of states that are made of one with memory or phases, the number of that one

    def __init__(
        self,
        n_states: int,
        emission: Emission,
        *,
        transitions: TransitionModel | str | None = None,
        transition_prior: Any = 1.0,
        fixed_rows: Mapping[int, Any] | None = None,
        initial: Literal["uniform", "stationary"] | Any = "uniform",
    ) -> None:
        check_whole("n_states", n_states, 1)
        if not isinstance(emission, Emission):
            raise ModelError(f"emission must be an Emission such as Gaussian(dim=2), got {emission!r}.")
        if isinstance(initial, str) and initial not in ("uniform", "stationary"):
            raise ModelError(f"initial must be 'uniform', 'stationary' or {n_states} probabilities, got {initial!r}.")
        self.n_states = int(n_states)
        self.transitions: Any = as_transitions(transitions, self.n_states, transition_prior, fixed_rows)
        self.emission = emission.beside(self.transitions)
        if not isinstance(initial, str):
            initial = probabilities("initial", initial, self.n_states)
        uniform = isinstance(initial, str) and initial == "uniform"
        self.initial = np.full(self.n_states, 1.0 / self.n_states) if uniform else initial
        if emission.is_resolved:
            self.emission.parameters(self.n_states)  # complains now, not in the middle of a run

    def __repr__(self) -> str:
        return f"HMM(n_states={self.n_states}, emission={self.emission!r})"

    def _repr_html_(self) -> str:
        """The emission, and one row per parameter with its prior; every text is escaped."""
        rows = [("transition", f"{self.n_states} x {self.n_states}", str(self.transitions))]
        for name, spec in self.emission.specifications.items():
            fixed = "fixed at " if isinstance(spec, np.ndarray) else ""
            rows.append((name, "one per state", fixed + parameters.brief(spec)))
        start = self.initial if isinstance(self.initial, str) else "uniform" if np.ptp(self.initial) == 0 else "given"
        said = f"{self.n_states} states, {escape(repr(self.emission))}, initial distribution {start}"
        shown = html_table(("parameter", "size", "prior"), rows)
        return f"<div class='longhmm-model'><p><b>Hidden Markov model</b>: {said}</p>{shown}</div>"

    def potentials(self, params: Mapping[str, jax.Array], rows: Rows) -> Potentials:
        """What this model is, at natural parameters and for rows of data."""
        moves, transition = self.transitions, params["transition"]
        if moves.varies:
            transition = moves.matrices(params[moves.parameter], jnp.asarray(rows.covariates))
        return Potentials(params["initial"], transition, self.log_likelihoods(params, rows))

    def log_likelihoods(
        self, params: Mapping[str, jax.Array], rows: Rows
    ) -> Float[jax.Array, "*rows K"] | Float[jax.Array, "*rows K K"]:
        """The log likelihoods among the potentials. A missing observation contributes 0. A known state (not -1) makes
        every other state impossible."""
        logs = self.emission.log_likelihoods(params, rows)
        if rows.states is None:
            return logs
        known = jnp.asarray(rows.states)[..., None]
        excluded = (known >= 0) & (known != np.array(self.labels or range(self.n_states)))
        return jnp.where(excluded[..., None, :] if self.emission.couples else excluded, -jnp.inf, logs)

    memory = property(lambda self: self.emission.memory(self.n_states), doc="How states remember; None if they do not.")
    dim = property(lambda self: self.emission.dim, doc="Number of features the emission describes.")
    lags = property(lambda self: self.emission.lags, doc="Rows before each that the emission sees.")
    is_resolved = property(lambda self: self.emission.is_resolved and self.transitions.is_resolved)

    def resolve(self, data: Any) -> HMM:
        """This model with default priors that depend on the data turned into numbers, from a fixed subsample."""
        if self.is_resolved:
            return self
        model, sequences = self.meet(data)
        model.check_dim(sequences)
        if not model.emission.is_resolved:
            if sequences not in _summaries:
                _summaries[sequences] = summarise(subsample(sequences))
            model = _resolved(model, _summaries[sequences])
        return model

    def scaled_to(self, summary: DataSummary) -> HMM:
        """This model with default priors scaled to data of which this is known."""
        model = copy.copy(self)
        model.emission = _scaled(model.emission, summary)
        model.emission.parameters(self.n_states)  # complains now, not in the middle of a run
        return model

    def check_dim(self, sequences: Sequences) -> None:
        """Refuse data with another number of features than the emission has, or of covariates than the model has."""
        self.check_covariates(sequences)
        if sequences.dim != self.dim:
            raise ModelError(
                f"{sequences.name} has {sequences.dim} feature(s) per observation, but {self.emission!r} describes "
                f"{self.dim}: choose columns, or give the emission dim={sequences.dim}."
            )

    def check_rows(
        self, sequences: Sequences, values: np.ndarray, observed: np.ndarray, start: int, states: Any = None
    ) -> None:
        """Refuse rows, read from position `start` on, that the model cannot have: observations and known states."""
        self.emission.check(values, observed, lambda row: sequences.describe(start + row))
        most = max(self.labels, default=self.n_states - 1)
        if states is not None and states.size and states.max() > most:
            row = int(np.argmax(states > most))
            raise DataError(
                f"The known state at {sequences.describe(start + row)} is {states[row]}, but the model has states 0 to "
                f"{most}: mark unknown states with -1, or raise n_states."
            )

    def validate(self, params: Mapping[str, Any], *, supports: bool = True) -> dict[str, np.ndarray]:
        """Complete parameters as float64 arrays: shapes, `supports` and row sums checked, constants filled in."""
        table = self.emission.parameters(self.n_states)
        own = {"initial", "transition", self.transitions.parameter}
        unknown = sorted(set(params) - set(table) - own)
        if unknown:
            raise ModelError(f"params must hold only {[*sorted(own), *table]}, got also {', '.join(unknown)}.")
        complete: dict[str, np.ndarray] = self.transitions.complete(params)
        complete |= {name: parameters.check_parameter(each, params.get(name), supports) for name, each in table.items()}
        complete["initial"] = self._own_initial(complete["transition"])
        if "initial" in params:
            complete["initial"] = probabilities("params['initial']", params["initial"], self.n_states)
        return complete

    def check_supports(self, complete: Mapping[str, np.ndarray]) -> None:
        """Refuse what `validate` has let pass without `supports`, which take longest to check."""
        for name, parameter in self.emission.parameters(self.n_states).items():
            parameters.check_parameter(parameter, complete[name])

    def _own_initial(self, transition: np.ndarray) -> np.ndarray:
        return stationary_on_host(transition) if isinstance(self.initial, str) else np.asarray(self.initial, np.float64)

    def initial_distribution(self, transition: jax.Array) -> jax.Array:
        """`(K,)`, of the state of a sequence's first observation, given the transition matrix."""
        return stationary(transition) if isinstance(self.initial, str) else jnp.asarray(self.initial, transition.dtype)

    def given_initial(self, params: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """The initial distribution of `params` where it differs from the model's own; it then wins, as a constant."""
        own, given = self._own_initial(params["transition"]), np.asarray(params["initial"], np.float64)
        return None if (np.abs(given - own) <= 1e-9 + 1e-5 * own).all() else given

    def unconstrain(self, params: Mapping[str, jax.Array]) -> Params:
        """Natural parameters to unconstrained coordinates: "transition" and the emission's free names."""
        coordinates = parameters.unconstrain(self.emission.parameters(self.n_states), params)
        return {"transition": self.transitions.unconstrain(params[self.transitions.parameter]), **coordinates}

    def constrain(self, coordinates: Mapping[str, jax.Array]) -> Params:
        """Unconstrained coordinates to natural parameters, constants and the initial distribution included."""
        moves = self.transitions
        found = moves.constrain(coordinates["transition"])
        transition = moves.typical(found)
        emission = parameters.constrain(self.emission.parameters(self.n_states), coordinates)
        initial = self.initial_distribution(transition)
        return {"initial": initial, "transition": transition, moves.parameter: found, **emission}

    def log_prior(self, params: Mapping[str, jax.Array]) -> jax.Array:
        """Log prior density of natural parameters."""
        moves: jax.Array = self.transitions.log_prior(params[self.transitions.parameter])
        return moves + self.emission.log_prior(params)

    def log_prior_unconstrained(self, coordinates: Mapping[str, jax.Array]) -> jax.Array:
        """Log prior density of the unconstrained coordinates: the natural one plus the log Jacobian (F18)."""
        return self.log_prior_of_coordinates(self.constrain(coordinates)) + self.log_jacobian(coordinates)

    def log_prior_of_coordinates(self, params: Mapping[str, jax.Array]) -> jax.Array:
        """The part of the log prior density of the coordinates that natural parameters decide: rows have a Jacobian
        that is a function of the rows themselves."""
        volume: jax.Array = self.transitions.log_jacobian(params[self.transitions.parameter])
        return self.log_prior(params) + volume

    def log_jacobian(self, coordinates: Mapping[str, jax.Array]) -> jax.Array:
        """Log volume of the map from the emission's coordinates to its natural parameters."""
        return parameters.log_abs_det_jacobian(self.emission.parameters(self.n_states), coordinates)
