"""What sampling needs of an emission, beyond densities that are right: derivatives, curvature, draws, a location."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.target.coordinates import Flat
from longhmm.testing.identities import close, finite, require

POINTS, SPREAD = 4, 0.5  # parameters tried around the given ones, and their distance in coordinates
DRAWS = 2000  # of every state
MOST_ERRORS = 6.0  # standard errors by which a mean may be off
LEAST_INFORMATION = 1e-10  # relative to the largest: below, a direction is not determined
MOST_ROWS = 200  # for second derivatives

Arrays = Mapping[str, Any]


class Sampling:
    """A model, its parameters and some rows, and what chains do with them; made and asked in double precision."""

    def __init__(self, model: HMM, params: Arrays, rows: Rows, seed: int) -> None:
        self.model, self.rows = model, rows._replace(states=None)
        self.rng, self.key = np.random.default_rng(seed), jax.random.key(seed)
        self.params = {name: jnp.asarray(value) for name, value in params.items()}
        self.at = jax.jit(model.unconstrain)(self.params)
        self.order = Flat.like(self.at)
        self.names = [name for name, shape in self.order.shapes for _ in range(int(np.prod(shape, dtype=int)))]

    def _total(self, coordinates: Arrays, rows: Rows) -> jax.Array:
        """Sum of the log likelihoods of all rows in all states that can have produced them."""
        logs = self.model.log_likelihoods(self.model.constrain(coordinates), rows)
        return jnp.sum(jnp.where(jnp.isfinite(logs), logs, 0.0))

    def check_missing_rows(self) -> None:
        gradient, n = jax.jit(jax.grad(self._total)), len(self.rows.values)
        longer = self.rows.padded(2 * n)
        alone = gradient(self.at, self.rows)
        for number in [0] if self.rows.values.dtype.kind in "iu" else [0.0, np.nan]:
            values = np.concatenate([self.rows.values, np.full_like(self.rows.values, number)])
            filled_up = gradient(self.at, longer._replace(values=values))
            for name in alone:
                finite(
                    filled_up[name],
                    f"the derivative of log_likelihoods with respect to '{name}' must be finite where a row is missing "
                    f"(its value was {number}): set the class attribute support, so that missing values are filled "
                    "with one inside it, or fill them before the density",
                )
                what = f"missing rows must not change the derivative with respect to '{name}'"
                close(filled_up[name], alone[name], what)

    def check_other_points(self) -> None:
        both = jax.jit(jax.value_and_grad(self._total))
        prior = jax.jit(jax.value_and_grad(self.model.log_prior_unconstrained))
        back = jax.jit(lambda u: self.model.unconstrain(self.model.constrain(u)))
        for _ in range(POINTS):
            point = {name: value + SPREAD * self.rng.normal(size=value.shape) for name, value in self.at.items()}
            _finite_at("log_density", both(point, self.rows), "near the given parameters, too")
            _finite_at("the log prior density", prior(point), "near the given parameters, too")
            again = back(point)
            for name, value in point.items():
                gap = float(jnp.max(jnp.abs(again[name] - value), initial=0.0))
                require(gap < 1e-5, f"unconstrain(constrain(u)) must give the coordinates of '{name}' back")

    def check_single_precision(self) -> None:
        single = {name: np.asarray(value, np.float32) for name, value in self.at.items()}
        rows = jax.tree.map(lambda each: each.astype(np.float32) if each.dtype.kind == "f" else each, self.rows)
        with jax.enable_x64(False):  # as windows are computed
            found = jax.jit(jax.value_and_grad(self._total))(single, rows)
        _finite_at("log_density", found, "in single precision, too")

    def check_location(self) -> None:
        location = np.asarray(self.model.emission.location(self.params))
        require(
            location.shape == (self.model.n_states,) and bool(np.isfinite(location).all()),
            f"location must give one number for each of the {self.model.n_states} states (it gave {location!r})",
        )

    def drawn(self) -> tuple[np.ndarray, Rows] | None:
        """States and observations of each; None where the emission cannot draw, or not without what came before."""
        if self.model.lags or self.model.emission.couples:
            return None
        states = np.repeat(np.arange(self.model.n_states), DRAWS)
        try:
            drawn = self.model.emission.sample(self.key, dict(self.params), jnp.asarray(states))
        except (ModelError, NotImplementedError):
            return None
        wanted = (len(states), self.model.dim)
        require(drawn.shape == wanted, f"sample must give an array of shape {wanted}, (n, D) (it gave {drawn.shape})")
        return states, Rows(drawn, np.ones(drawn.shape, bool))

    def _scores(self, rows: Rows) -> np.ndarray:
        """`(n, K, P)`, derivatives of every row's log density in every state."""

        def logs(point: jax.Array) -> jax.Array:
            return self.model.log_likelihoods(self.model.constrain(self.order.unravel(point)), rows)

        return np.asarray(jax.jit(jax.jacfwd(logs))(self.order.ravel(self.at)))

    def check_draws(self) -> None:
        """Where draws come from the density, the mean of its derivative over them is zero."""
        drawn = self.drawn()
        if drawn is None or self.order.size == 0:
            return
        states, rows = drawn
        scores = self._scores(rows)[np.arange(len(states)), states]
        for state in range(self.model.n_states):
            mine = scores[states == state]
            mean, error = mine.mean(axis=0), mine.std(axis=0) / np.sqrt(DRAWS)
            worst = int(np.argmax(np.abs(mean) - MOST_ERRORS * error))
            require(
                bool(abs(mean[worst]) <= MOST_ERRORS * error[worst] + 1e-6),
                f"sample must draw from log_density, and log_density must be normalised: over draws of state {state} "
                f"the mean derivative with respect to '{self.names[worst]}' must be 0 (it is {mean[worst]:.3g} with "
                f"standard error {error[worst]:.2g})",
            )

    def check_information(self) -> None:
        drawn = self.drawn()
        if drawn is not None:
            owner, rows = jax.tree.map(lambda each: np.asarray(each)[:: DRAWS // MOST_ROWS], drawn)
        else:
            whole = np.flatnonzero(self.rows.observed.all(axis=1))[:MOST_ROWS]
            owner, rows = None, jax.tree.map(lambda each: each[whole], self.rows)
        if self.order.size == 0 or len(rows.values) == 0:
            return
        prior_of = jax.hessian(lambda u: self.model.log_prior_unconstrained(self.order.unravel(u)))
        total_of = jax.hessian(lambda u: self._total(self.order.unravel(u), rows))
        prior, curvature = (np.asarray(jax.jit(each)(self.order.ravel(self.at))) for each in (prior_of, total_of))
        finite(curvature, "second derivatives of log_density must be finite")
        finite(prior, "second derivatives of the log prior density must be finite")
        scores = self._scores(rows)
        each = scores.reshape(-1, self.order.size) if owner is None else scores[np.arange(len(owner)), owner]
        self._require_determined(each.T @ each - prior)

    def _require_determined(self, information: np.ndarray) -> None:
        emission = [index for index, name in enumerate(self.names) if name != "transition"]  # rows alone have none
        if not emission:
            return
        information = information[np.ix_(emission, emission)]
        scale = np.sqrt(np.maximum(np.diag(information), LEAST_INFORMATION * np.abs(information).max()))
        eigenvalues, vectors = np.linalg.eigh(information / scale / scale[:, None])
        weights = np.abs(vectors[:, 0])
        guilty = sorted({self.names[emission[at]] for at in np.flatnonzero(weights > 0.1 * weights.max())})
        what = ("a combination of " if len(guilty) > 1 else "") + " and ".join(map(repr, guilty))
        require(
            bool(eigenvalues[0] > LEAST_INFORMATION),
            f"data and prior must determine every parameter, and say nothing about {what}: give proper priors, or "
            "leave out a parameter",
        )


def _finite_at(what: str, found: tuple[Any, Mapping[str, Any]], where: str) -> None:
    finite(found[0], f"{what} must be a number {where}")
    for name, derivative in found[1].items():
        finite(derivative, f"the derivative of {what} with respect to '{name}' must be finite {where}")
