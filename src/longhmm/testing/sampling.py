"""What sampling needs of an emission, beyond densities that are right: derivatives, curvature, draws, a location.

Chains compute windows in single precision, wander away from where they begin, and meet rows that are missing even where
the data have none, since short windows are filled up with such rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.target.coordinates import Flat

POINTS, SPREAD = 4, 0.5  # parameters tried around the given ones, and their distance in coordinates
DRAWS = 2000  # of every state
MOST_ERRORS = 6.0  # standard errors by which a mean may be off
LEAST_INFORMATION = 1e-10  # relative to the largest: below, a direction is not determined
MOST_ROWS = 200  # for second derivatives

Arrays = Mapping[str, Any]


class Sampling:
    """A model, its parameters in double precision and some rows: what chains do with them."""

    def __init__(self, model: HMM, params: Arrays, rows: Rows, seed: int) -> None:
        self.model, self.rows = model, rows._replace(states=None)
        self.rng, self.key = np.random.default_rng(seed), jax.random.key(seed)
        with jax.enable_x64(True):
            self.params = {name: jnp.asarray(value) for name, value in params.items()}
            self.at = jax.jit(model.unconstrain)(self.params)
        self.order = Flat.like(self.at)

    def check_basics(self) -> None:
        """What the other identities lean on."""
        self.check_location()
        self._drawn()
        self.check_missing_rows()

    def check_chains(self) -> None:
        """What chains lean on."""
        self.check_other_points()
        self.check_single_precision()
        self.check_draws()
        self.check_information()

    def _total(self, coordinates: Arrays, rows: Rows) -> jax.Array:
        """Sum of the log likelihoods of all rows in all states that can have produced them."""
        logs = self.model.log_likelihoods(self.model.constrain(coordinates), rows)
        return jnp.sum(jnp.where(jnp.isfinite(logs), logs, 0.0))

    def check_missing_rows(self) -> None:
        """Rows without an observation change no gradient, whatever number stands there."""
        gradient, n = jax.jit(jax.grad(self._total)), len(self.rows.values)
        longer = self.rows.padded(2 * n)
        with jax.enable_x64(True):
            alone = gradient(self.at, self.rows)
            for number in [0] if self.rows.values.dtype.kind in "iu" else [0.0, np.nan]:
                values = np.concatenate([self.rows.values, np.full_like(self.rows.values, number)])
                filled_up = gradient(self.at, longer._replace(values=values))
                for name in alone:
                    found, expected = np.asarray(filled_up[name]), np.asarray(alone[name])
                    require(
                        bool(np.isfinite(found).all()),
                        f"the derivative of log_likelihoods with respect to '{name}' must be finite where a row is "
                        f"missing (its value was {number}): set the class attribute support, so that missing values "
                        "are filled with one inside it, or fill them before the density",
                    )
                    close(found, expected, f"missing rows must not change the derivative with respect to '{name}'")

    def check_other_points(self) -> None:
        """Around the given parameters densities are numbers, and so are their derivatives and the prior's."""
        both = jax.jit(jax.value_and_grad(self._total))
        prior = jax.jit(jax.value_and_grad(self.model.log_prior_unconstrained))
        back = jax.jit(lambda u: self.model.unconstrain(self.model.constrain(u)))
        with jax.enable_x64(True):
            for _ in range(POINTS):
                point = {name: value + SPREAD * self.rng.normal(size=value.shape) for name, value in self.at.items()}
                for what, (value, slope) in (
                    ("log_density", both(point, self.rows)),
                    ("the log prior density", prior(point)),
                ):
                    require(bool(jnp.isfinite(value)), f"{what} must be a number near the given parameters, too")
                    for name in slope:
                        require(
                            bool(jnp.isfinite(slope[name]).all()),
                            f"the derivative of {what} with respect to '{name}' must be finite near the given "
                            "parameters, too",
                        )
                again = back(point)
                for name, value in point.items():
                    gap = float(jnp.max(jnp.abs(again[name] - value), initial=0.0))
                    require(gap < 1e-5, f"unconstrain(constrain(u)) must give the coordinates of '{name}' back")

    def check_single_precision(self) -> None:
        """Windows are computed in single precision."""
        single = {name: np.asarray(value, np.float32) for name, value in self.at.items()}
        rows = jax.tree.map(lambda each: each.astype(np.float32) if each.dtype.kind == "f" else each, self.rows)
        total, slope = jax.jit(jax.value_and_grad(self._total))(single, rows)
        require(bool(jnp.isfinite(total)), "log_density must be a number in single precision")
        for name in slope:
            require(
                bool(jnp.isfinite(slope[name]).all()),
                f"the derivative of log_density with respect to '{name}' must be finite in single precision, too",
            )

    def check_location(self) -> None:
        with jax.enable_x64(True):
            location = np.asarray(self.model.emission.location(self.params))
        require(
            location.shape == (self.model.n_states,) and bool(np.isfinite(location).all()),
            f"location must give one number for each of the {self.model.n_states} states (it gave {location!r})",
        )

    def _drawn(self) -> tuple[np.ndarray, jax.Array] | None:
        """States and observations of each; None where the emission cannot draw, or not without what came before."""
        if self.model.lags:
            return None
        states = np.repeat(np.arange(self.model.n_states), DRAWS)
        try:
            with jax.enable_x64(True):
                drawn = self.model.emission.sample(self.key, dict(self.params), jnp.asarray(states))
        except (ModelError, NotImplementedError):
            return None
        wanted = (len(states), self.model.dim)
        require(drawn.shape == wanted, f"sample must give an array of shape {wanted}, (n, D) (it gave {drawn.shape})")
        return states, drawn

    def _scores(self, rows: Rows) -> jax.Array:
        """`(n, K, P)`, derivatives of every row's log density in every state."""

        def logs(point: jax.Array) -> jax.Array:
            params = self.model.constrain(self.order.unravel(point))
            return self.model.log_likelihoods(params, rows)

        return jax.jacfwd(logs)(self.order.ravel(self.at))

    def check_draws(self) -> None:
        """Where draws come from the density, the mean of its derivative over them is zero."""
        drawn = self._drawn()
        if drawn is None or self.order.size == 0:
            return
        states, values = drawn
        with jax.enable_x64(True):
            scores = np.asarray(jax.jit(self._scores)(_observed(values)))[np.arange(len(states)), states]
        names = [name for name, shape in self.order.shapes for _ in range(int(np.prod(shape, dtype=int)))]
        for state in range(self.model.n_states):
            mine = scores[states == state]
            mean, error = mine.mean(axis=0), mine.std(axis=0) / np.sqrt(DRAWS)
            worst = int(np.argmax(np.abs(mean) - MOST_ERRORS * error))
            require(
                bool(abs(mean[worst]) <= MOST_ERRORS * error[worst] + 1e-6),
                f"sample must draw from log_density, and log_density must be normalised: over draws of state {state} "
                f"the mean derivative with respect to '{names[worst]}' must be 0 (it is {mean[worst]:.3g} with "
                f"standard error {error[worst]:.2g})",
            )

    def check_information(self) -> None:
        """Data and prior together determine every parameter; second derivatives are numbers."""
        drawn = self._drawn()
        if drawn is not None:
            owner, rows = drawn[0][:: DRAWS // MOST_ROWS], _observed(np.asarray(drawn[1])[:: DRAWS // MOST_ROWS])
        else:
            whole = np.flatnonzero(self.rows.observed.all(axis=1))[:MOST_ROWS]
            owner, rows = None, jax.tree.map(lambda each: each[whole], self.rows)
        if self.order.size == 0 or len(rows.values) == 0:
            return
        prior_of = jax.hessian(lambda u: self.model.log_prior_unconstrained(self.order.unravel(u)))
        total_of = jax.hessian(lambda u: self._total(self.order.unravel(u), rows))
        with jax.enable_x64(True):
            flat = self.order.ravel(self.at)
            scores = np.asarray(jax.jit(self._scores)(rows))
            prior, curvature = (np.asarray(jax.jit(each)(flat)) for each in (prior_of, total_of))
        require(bool(np.isfinite(curvature).all()), "second derivatives of log_density must be finite")
        require(bool(np.isfinite(prior).all()), "second derivatives of the log prior density must be finite")
        each = scores.reshape(-1, self.order.size) if owner is None else scores[np.arange(len(owner)), owner]
        self._require_determined(each.T @ each - prior)

    def _require_determined(self, information: np.ndarray) -> None:
        names = [name for name, shape in self.order.shapes for _ in range(int(np.prod(shape, dtype=int)))]
        emission = np.array([name != "transition" for name in names])  # rows without transitions have none
        if not emission.any():
            return
        information = information[np.ix_(emission, emission)]
        scale = np.sqrt(np.maximum(np.diag(information), LEAST_INFORMATION * np.abs(information).max()))
        eigenvalues, vectors = np.linalg.eigh(information / scale / scale[:, None])
        weights = np.abs(vectors[:, 0])
        named = [name for name, mine in zip(names, emission, strict=True) if mine]
        guilty = sorted({name for name, weight in zip(named, weights, strict=True) if weight > 0.1 * weights.max()})
        what = ("a combination of " if len(guilty) > 1 else "") + " and ".join(map(repr, guilty))
        require(
            bool(eigenvalues[0] > LEAST_INFORMATION),
            f"data and prior must determine every parameter, and say nothing about {what}: give proper priors, or "
            "leave out a parameter",
        )


def _observed(values: Any) -> Rows:
    return Rows(values, np.ones(values.shape, bool))


def require(holds: bool, identity: str) -> None:
    """What must hold, and the sentence that is said where it does not."""
    if not holds:
        raise AssertionError(f"{identity[0].upper()}{identity[1:]}.")


def close(found: Any, expected: Any, identity: str) -> None:
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.where(found == expected, 0.0, np.abs(found - expected))
        holds = found.shape == expected.shape and bool(np.all(gap <= 1e-8 * (1 + np.abs(expected))))
    largest = f" (largest difference {np.max(gap):.3g})" if found.shape == expected.shape and gap.size else ""
    require(holds, identity + largest)
