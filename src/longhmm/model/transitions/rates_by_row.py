"""Kinetic schemes in which rates, or the time since the row before, differ from row to row.

Rate r at row t is `q_r c_t exp(b_r v_t)`: in proportion to a covariate c such as a concentration, or exponential in a
covariate v such as a voltage, and the matrix into row t is `expm(Q_t dt_t)`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist

from longhmm.data.columns import ALIKE, distinct
from longhmm.data.layout import ladder
from longhmm.errors import ModelError
from longhmm.model.formula import Formula
from longhmm.model.registry import TRANSITIONS
from longhmm.model.terms import in_precision
from longhmm.model.transitions import TransitionModel
from longhmm.model.transitions.rates import Rates, exponential

MOST_KNOWN = 64  # rows of covariates that are looked for
TOGETHER = 512  # rows that are looked at together
SLOPE = dist.Normal(0.0, 2.5)  # prior of what one standard deviation of a covariate adds to the logarithm of a rate


def by_row(moves: Any, one: Callable[[Any], Any], covariates: Any, numbers: Any = None, use: Any = None) -> jax.Array:
    """`use(one(row), its numbers)` of rows with covariates and numbers `(..., .)`, or `one(row)` alone, which is made
    of the columns that transitions follow. It is made once for each of the rows that are known, if all others are."""
    rows = jnp.asarray(covariates)[..., list(moves.own)]
    flat, known = rows.reshape(-1, rows.shape[-1]), jnp.asarray(moves.known, rows.dtype)
    beside = None if numbers is None else numbers.reshape(-1, numbers.shape[-1])
    use = use or (lambda made, _: made)

    def each(make: Callable[[Any], Any], given: Any) -> jax.Array:
        # What is made of a row, and on the way to it, may be more than anyone should keep.
        single = jax.checkpoint(lambda at: use(make(at[0]), at[1]))
        made: jax.Array = jax.lax.map(single, (given, beside), batch_size=min(TOGETHER, len(flat)))
        return made

    if not len(known) or len(flat) <= 2 * len(known):
        found = each(one, flat)
    else:
        same = jnp.all(jnp.abs(flat[:, None] - known) <= ALIKE * jnp.abs(known), axis=-1)
        made, index = jax.vmap(one)(known), jnp.argmax(same, axis=1)
        found = jax.lax.cond(
            jnp.all(jnp.any(same, axis=1)), lambda: each(lambda at: made[at], index), lambda: each(one, flat)
        )
    return found.reshape(*rows.shape[:-1], *found.shape[1:])


@TRANSITIONS.register("rates-by-row", offered=False)
class RatesByRow(TransitionModel):
    """What `Rates(...)` is where `dt` names a covariate, or rates are `scaled` or `sloped` by one.

    `rates` holds the rates per second (of a scaled step per unit of its covariate, of a sloped one where that is 0),
    and behind them the slopes b. `transition` and what `kinetics()` says are those of the typical row: with the median
    step, and the means of the other covariates.
    """

    varies, is_resolved, parameter, axes = True, False, "rates", ("reaction",)
    own: tuple[int, ...] = ()  # where its columns stand among all covariates
    effort = (6, 16)  # of exponentials: a gap may be thousands of times as long as the usual step

    def __init__(
        self, one: Rates, *, dt: str | None, usual: bool, scaled: Mapping[str, str], sloped: Mapping[str, str]
    ) -> None:
        self.one, self.step_column, self.usual = one, dt, usual
        self.scaled = tuple((one._step(name), str(column)) for name, column in scaled.items())
        self.sloped = tuple((one._step(name), str(column)) for name, column in sloped.items())
        if self.sloped and one.balanced:
            raise ModelError("sloped must not be given with detailed_balance, which it would break at other values.")
        named = [column for _, column in (*self.scaled, *self.sloped)]
        self.columns = tuple(dict.fromkeys([dt, *named] if dt is not None else named))
        self.formula: Any = Formula("~ " + " + ".join(self.columns))
        # What the data say: where columns stand among all covariates, the typical row, and scales.
        self.own, self.n_covariates = tuple(range(len(self.columns))), 0
        self.typical_row, self.spread = np.ones(len(self.columns)), np.ones(len(self.columns))
        self.known = np.zeros((0, len(self.columns)))  # rows `(M, C)` of which there are many

    n_states = property(lambda self: self.one.n_states)
    states = property(lambda self: self.one.states)
    steps = property(lambda self: self.one.steps)
    scheme = property(lambda self: self.one.scheme)
    dt = property(lambda self: self.one.dt)
    allowed = property(lambda self: self.one.allowed)
    direct = property(lambda self: self.one.direct)
    shape = property(lambda self: (len(self.steps) + len(self.sloped),))
    n_free = property(lambda self: self.one.n_free + len(self.sloped))

    def __repr__(self) -> str:
        step = repr(self.step_column) if self.step_column else f"{float(np.asarray(self.dt)[0]):g}"
        by = [f"{self.one.terms[at]} by {column}" for at, column in (*self.scaled, *self.sloped)]
        return f"Rates({', '.join([repr(self.scheme), f'dt={step}', *by])})"

    __str__ = __repr__

    @property
    def terms(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*self.one.terms, *(f"{self.one.terms[at]} by {column}" for at, column in self.sloped))

    @property
    def symmetries(self) -> tuple[tuple[int, ...], ...]:  # type: ignore[override]
        told = self.scaled or self.sloped
        return (tuple(range(self.n_states)),) if told else self.one.symmetries

    @property
    def exchangeable(self) -> bool:  # type: ignore[override]
        return len(self.symmetries) > 1

    def renumbered(self, parameter: Any, order: Any) -> Any:
        return parameter if self.scaled or self.sloped else self.one.renumbered(parameter, order)

    def resolve(self, formula: Formula | None, columns: tuple[str, ...], seen: np.ndarray) -> RatesByRow:
        """With the columns of its covariates among those of the model, and what is typical of them."""
        found = copy.copy(self)
        found.formula, found.is_resolved, found.n_covariates = formula, True, len(columns)
        found.own = tuple(columns.index(column) for column in self.columns)
        own = seen[:, list(found.own)]
        if (few := distinct(own, MOST_KNOWN)) is not None:  # beside them zeros, which fill blocks up
            found.known = np.zeros((ladder(len(few[0]) + 1), own.shape[1]))
            found.known[: len(few[0])] = own[few[0]]
        for column in {self.step_column, *(column for _, column in self.scaled)} - {None}:
            if not np.all(own[:, self._at(column)] >= 0):
                raise ModelError(f"The covariate {column!r} of rates must not be negative, but some of it is.")
        found.typical_row, found.spread = own.mean(axis=0), np.where(np.ptp(own, axis=0) > 0, own.std(axis=0), 1.0)
        if self.step_column is not None:
            steps = own[:, self._at(self.step_column)]
            if not np.any(steps > 0):
                raise ModelError(f"The covariate {self.step_column!r} must hold seconds since the row before, not 0.")
            found.typical_row[self._at(self.step_column)] = np.median(steps[steps > 0])
            found.one = self._with_step(float(np.median(steps[steps > 0])))
        return found

    def _with_step(self, dt: float) -> Rates:
        """The scheme with default priors, and coordinates, for a step of so many seconds."""
        given = {**self.one.options(), "dt": dt}
        return Rates.rebuilt(self.n_states, {**given, "prior": None} if self.usual else given)

    def _at(self, column: Any) -> int:
        return self.columns.index(column)

    @property
    def single(self) -> Any:
        """The same where nothing is scaled or sloped: its generator holds the rates themselves."""
        found = copy.copy(self)
        found.scaled, found.sloped = (), ()
        return found

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        n = self.one.n_free
        return jnp.concatenate([self.one.constrain(coordinates[:n]), coordinates[n:] / self._scales(coordinates)])

    def unconstrain(self, parameter: jax.Array) -> jax.Array:
        n = len(self.steps)
        return jnp.concatenate([self.one.unconstrain(parameter[:n]), parameter[n:] * self._scales(parameter)])

    def _scales(self, like: jax.Array) -> jax.Array:
        return jnp.asarray(self.spread, like.dtype)[np.array([self._at(column) for _, column in self.sloped], int)]

    def log_jacobian(self, parameter: jax.Array) -> jax.Array:
        rates = self.one.log_jacobian(parameter[: len(self.steps)])
        return rates - jnp.sum(jnp.log(self._scales(parameter)))

    def log_prior(self, parameter: jax.Array) -> jax.Array:
        n, scales = len(self.steps), self._scales(parameter)
        slopes = in_precision(SLOPE).log_prob(parameter[n:] * scales) + jnp.log(scales)
        return self.one.log_prior(parameter[:n]) + jnp.sum(slopes)

    def at_row(self, parameter: jax.Array, row: Any = None) -> tuple[jax.Array, jax.Array]:
        """As in `Rates`."""
        row = jnp.asarray(self.typical_row if row is None else row, parameter.dtype)
        step = self.one._dt(parameter) if self.step_column is None else row[self._at(self.step_column)]
        found = parameter[: len(self.steps)]
        for at, column in self.scaled:
            found = found.at[at].multiply(row[self._at(column)])
        for number, (at, column) in enumerate(self.sloped):
            slope = parameter[len(self.steps) + number]
            found = found.at[at].multiply(jnp.exp(slope * row[self._at(column)]))
        # Time does not run backwards: a matrix of NaN makes such rows impossible.
        return found, jnp.where(step >= 0, step, jnp.nan)

    def generator(self, parameter: jax.Array) -> jax.Array:
        """`(K, K)`, rates per second at the typical row, rows summing to 0."""
        return self.one.generator(self.at_row(parameter)[0])

    def flow(self, parameter: jax.Array, share: float, row: Any = None) -> jax.Array:
        """As in `Rates`."""
        rates, seconds = self.at_row(parameter, row)
        return self.one.generator(rates) * (seconds * share)

    def after(self, parameter: jax.Array, share: float, row: Any = None) -> jax.Array:
        """As in `Rates`."""
        return exponential(self.flow(parameter, share, row), *self.effort)

    def typical(self, parameter: Any) -> jax.Array:
        return self.after(jnp.asarray(parameter), 1.0)

    def matrices(self, parameter: jax.Array, covariates: jax.Array) -> jax.Array:
        return by_row(self, lambda row: self.after(parameter, 1.0, row), covariates)

    def complete(self, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
        found = super().complete(params)
        if np.any(found[self.parameter][: len(self.steps)] <= 0):
            raise ModelError(f"params['rates'] must be positive rates, then slopes, got {found['rates'].tolist()}.")
        return found

    def options(self) -> dict[str, Any]:
        by_name = {"scaled": dict(self.scaled), "sloped": dict(self.sloped)}
        stored = None if self.formula is None else self.formula.state
        known = {"own": list(self.own), "n_covariates": self.n_covariates, "state": stored}
        known |= {name: getattr(self, name).tolist() for name in ("typical_row", "spread", "known")}
        return {
            **{f"one {name}": each for name, each in self.one.options().items()},
            **{name: {self.one.terms[at]: column for at, column in own.items()} for name, own in by_name.items()},
            "step_column": self.step_column,
            "usual": self.usual,
            "resolved": known if self.is_resolved else None,
        }

    @classmethod
    def rebuilt(cls, n_states: int, options: Mapping[str, Any]) -> RatesByRow:
        own = {name.removeprefix("one "): each for name, each in options.items() if name.startswith("one ")}
        by = {name: options[name] for name in ("scaled", "sloped", "usual")}
        found = cls(Rates.rebuilt(n_states, own), dt=options["step_column"], **by)
        if (known := options["resolved"]) is not None:
            found.is_resolved, found.own, found.n_covariates = True, tuple(known["own"]), known["n_covariates"]
            found.typical_row, found.spread = np.array(known["typical_row"]), np.array(known["spread"])
            found.known = np.array(known.get("known", [])).reshape(-1, len(found.columns))
            found.formula = Formula(found.formula.text, known["state"]) if known["state"] is not None else None
        return found
