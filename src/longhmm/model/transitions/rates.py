"""Transitions in continuous time: a kinetic scheme whose parameters are rates per second, `A = expm(Q dt)`.

`Q[i, j]` is the rate from state i to state j where the scheme has that step, and `Q[i, i]` makes rows sum to 0. The
logarithms of the rates are linear in the coordinates, `log q = design u + offset`, so that tied and fixed rates and
detailed balance are a matter of the design alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist

from longhmm.errors import ModelError
from longhmm.inference.scaling import product, safe_log
from longhmm.model.parameters import Named, Parameter, prior_of, specification
from longhmm.model.registry import TRANSITIONS
from longhmm.model.transitions import TransitionModel
from longhmm.model.transitions.renumbering import MOST_PERMUTED

TYPICAL, SPREAD = 0.05, 2.0  # of the default prior: median of a rate times dt, and sd of its logarithm
TERMS, SQUARINGS = 12, 7  # of the exponential: relative errors below 1e-12 up to 64 steps within dt
ARROW = re.compile(r"\s*(<->|->|<-)\s*")


def named_steps(scheme: Any) -> tuple[Any, list[str], list[list[str]]]:
    """Of a square matrix that holds the name of the rate from each state to each other, nothing where there is no step
    (None or ""): pairs of states, their order, and steps whose rates have one name. Other schemes stay as they are."""
    rows = np.array(scheme, object)
    if rows.ndim != 2 or rows.shape[0] != rows.shape[1]:
        return scheme, [], []
    named = np.array([[isinstance(name, str) and name != "" for name in row] for row in rows])
    if named.diagonal().any():
        return scheme, [], []
    states = list(map(str, scheme.index if hasattr(scheme, "to_numpy") else range(1, len(rows) + 1)))
    pairs = [(states[i], states[j]) for i, j in np.argwhere(named)]
    groups: dict[str, list[str]] = {}
    for (one, other), name in zip(pairs, rows[named], strict=True):
        groups.setdefault(str(name), []).append(f"{one} -> {other}")
    return pairs, states, [group for group in groups.values() if len(group) > 1]


def steps_of(scheme: Any, states: Iterable[str] = ()) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    """Names of the states, and the steps between them, of "C1 <-> C2 <-> O, O -> C1" or of pairs of names."""
    if not isinstance(scheme, str):
        try:
            scheme = ", ".join(f"{one} -> {other}" for one, other in scheme)
        except (TypeError, ValueError):
            raise ModelError(
                f"scheme must be text such as 'C <-> O', pairs of names of states or a matrix of names, got {scheme!r}."
            ) from None
    names, found = list(states), []
    for part in filter(None, re.split(r"\s*[,;\n]\s*", scheme.strip())):
        tokens = ARROW.split(part)
        if len(tokens) < 3 or not all(re.fullmatch(r"\w+", name) for name in tokens[::2]):
            raise ModelError(f"scheme must be steps between named states such as 'C1 <-> C2 <-> O', got {part!r}.")
        names += tokens[::2]
        for one, arrow, other in zip(tokens[:-2:2], tokens[1::2], tokens[2::2], strict=True):
            found += [(one, other)] * (arrow != "<-") + [(other, one)] * (arrow != "->")
    whole = all(name.isdigit() for name in names)
    order = sorted(set(names), key=int) if whole else list(dict.fromkeys(names))
    pairs = [(order.index(one), order.index(other)) for one, other in dict.fromkeys(found)]
    if not pairs or any(one == other for one, other in pairs):
        raise ModelError(f"scheme must have steps between different states, got {scheme!r}.")
    return tuple(order), tuple(sorted(pairs))


def exponential(generator: jax.Array, terms: int = TERMS, squarings: int = SQUARINGS) -> jax.Array:
    """`(K, K)`, expm of a generator times a time. Every term is positive, so that no entry loses digits, however small
    it is and in either precision: `exp(m (P - 1))` as a series in m P, then squared."""
    n_states = generator.shape[0]
    # Any number above the fastest exit gives the same matrix: it need not be differentiated.
    fastest = jax.lax.stop_gradient(jnp.max(-jnp.diagonal(generator))) + 1e-30
    jumps, mean = jnp.eye(n_states, dtype=generator.dtype) + generator / fastest, fastest / 2**squarings
    found = identity = jnp.eye(n_states, dtype=generator.dtype)
    for term in range(terms, 0, -1):
        found = identity + _times(jumps, found) * (mean / term)
    for _ in range(squarings):
        found = found / jnp.sum(found, axis=1, keepdims=True)
        found = _times(found, found)
    return found / jnp.sum(found, axis=1, keepdims=True)


def _times(one: jax.Array, other: jax.Array) -> jax.Array:
    """The product of two small matrices, fused with what is around it."""
    return jnp.swapaxes(product(one[None], jnp.swapaxes(other, 0, 1)), 0, 1)


def scheme_or_formula(scheme: str | None, formula: str | None, rate: float | None) -> Rates | str | None:
    """What the command line says of transitions, seen `rate` times per second."""
    if scheme is None:
        return formula
    if formula is not None:
        raise ModelError("--scheme and --transitions must not be given together: rates follow no covariates.")
    if rate is None:
        raise ModelError("--scheme needs the number of samples per second, which the file does not say: give --rate.")
    return Rates(scheme, dt=1.0 / rate)


@TRANSITIONS.register("rates")
class Rates(TransitionModel):
    """A kinetic scheme in continuous time: `rates` per second, seen every `dt` seconds.

    Args:
        scheme: steps between named states, "C1 <-> C2 <-> O", several chains with commas between them, or pairs of
            names. States have the order of their first mention, or that of their numbers. Or a square matrix (a table
            with the names of states, or lists) with the name of the rate from each state to each other, empty where
            there is no step: `[["", "k_on"], ["k_off", ""]]`. Rates with one name are tied.
        dt: seconds between two observations; or the name of the covariate that holds the seconds since the row before.
        prior: of every rate, per second, or `{"C -> O": prior}` for some of them; log-normal with median 0.05 / dt and
            a standard deviation of 2 of the logarithm by default.
        fixed: rates that are known, `{"C -> O": 12.0}`.
        tied: groups of steps with the same rate, `[("C1 -> C2", "C3 -> C2")]`.
        detailed_balance: whether around every cycle the products of rates in both directions are equal.
        scaled: rates in proportion to a covariate by name, `{"C -> O": "concentration"}`, each per second and unit.
        sloped: rates exponential in one, `{"C -> O": "voltage"}`; the slopes of their logarithms end `rates`.

    >>> import longhmm as lh
    >>> lh.HMM(3, lh.Gaussian(), transitions=lh.Rates("C1 <-> C2 <-> O", dt=1e-4)).transitions
    Rates('C1 <-> C2, C2 <-> O', dt=0.0001)
    """

    varies, parameter, axes = False, "rates", ("reaction",)
    effort = (TERMS, SQUARINGS)  # of exponentials

    def __new__(
        cls,
        scheme: Any = None,
        *,
        dt: Any = None,
        prior: Any = None,
        fixed: Any = None,
        tied: Any = (),
        detailed_balance: bool = False,
        scaled: Any = None,
        sloped: Any = None,
    ) -> Any:
        if not (isinstance(dt, str) or scaled or sloped):
            return super().__new__(cls)
        named, step = (dt, 1.0) if isinstance(dt, str) else (None, dt)
        one = cls(scheme, dt=step, prior=prior, fixed=fixed, tied=tied, detailed_balance=detailed_balance)
        usual = prior is None or isinstance(prior, Mapping)
        return TRANSITIONS.find("RatesByRow")(one, dt=named, usual=usual, scaled=scaled or {}, sloped=sloped or {})

    def __init__(
        self,
        scheme: Any,
        *,
        dt: float | str,
        prior: Any = None,
        fixed: Mapping[str, float] | None = None,
        tied: Iterable[Iterable[str]] = (),
        detailed_balance: bool = False,
        scaled: Mapping[str, str] | None = None,
        sloped: Mapping[str, str] | None = None,
    ) -> None:
        if not isinstance(dt, (int, float, np.floating, np.integer)) or not 0 < dt < np.inf:
            raise ModelError(f"dt must be a positive number of seconds between observations, got {dt!r}.")
        scheme, order, alike = named_steps(scheme)
        self.states, self.steps = steps_of(scheme, order)
        self.n_states, self.shape = len(self.states), (len(self.steps),)
        self.dt, self.balanced = np.array([float(dt)]), bool(detailed_balance)
        own = prior if isinstance(prior, Mapping) else {}
        usual = dist.LogNormal(np.log(TYPICAL / dt), SPREAD) if prior is None or own else prior
        self.usual = specification("rates", usual)
        self.priors = Named({self._step(name): specification(name, each) for name, each in own.items()})
        self.fixed = Named({self._step(name): np.asarray(value, np.float64) for name, value in (fixed or {}).items()})
        if not all(0 < value < np.inf for value in self.fixed.values()):
            raise ModelError(f"fixed must hold positive rates per second, got {fixed!r}.")
        self.tied = tuple(tuple(self._step(name) for name in group) for group in (*tied, *alike))
        wanted = np.zeros(len(self._conditions))
        wanted[: len(self.fixed)] = [np.log(value * dt) for value in self.fixed.values()]
        held = self._conditions @ self._basis
        point = np.linalg.lstsq(held, wanted, rcond=None)[0]
        if np.abs(held @ point - wanted).max(initial=0.0) > 1e-9:
            raise ModelError("fixed, tied and detailed_balance must not contradict each other.")
        self.offset = self._basis @ point

    def _step(self, name: str) -> int:
        tokens = ARROW.split(str(name).strip())
        pair = tuple(self.states.index(each) if each in self.states else -1 for each in tokens[::2])
        if len(tokens) != 3 or tokens[1] != "->" or pair not in self.steps:
            raise ModelError(f"Rates must be named by steps of the scheme, {', '.join(self.terms)}, got {name!r}.")
        return self.steps.index(pair)

    @property
    def terms(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(f"{self.states[one]} -> {self.states[other]}" for one, other in self.steps)

    @property
    def scheme(self) -> str:
        """As text, with every state in the order of the states."""
        both = [(i, j) for i, j in self.steps if i < j and (j, i) in self.steps]
        arrows = [(i, "<->", j) for i, j in both]
        arrows += [(i, "->", j) for i, j in self.steps if (min(i, j), max(i, j)) not in both]
        return ", ".join(f"{self.states[i]} {arrow} {self.states[j]}" for i, arrow, j in sorted(arrows))

    def __repr__(self) -> str:
        return f"Rates({self.scheme!r}, dt={float(np.asarray(self.dt)[0]):g})"

    __str__ = __repr__

    @cached_property
    def _basis(self) -> np.ndarray:
        """`(R, n)`, orthonormal, of the logarithms of rates that keep detailed balance, or of all."""
        from scipy.linalg import orth

        if not self.balanced:
            return np.eye(len(self.steps))
        if any(step[::-1] not in self.steps for step in self.steps):
            raise ModelError(f"detailed_balance needs every step in both directions, got {self.scheme!r}.")
        edges = sorted({(min(step), max(step)) for step in self.steps})
        design = np.zeros((len(self.steps), len(edges) + self.n_states))
        for row, (i, j) in enumerate(self.steps):  # log q_ij = s_ij + (f_i - f_j) / 2
            design[row, edges.index((min(i, j), max(i, j)))] = 1.0
            design[row, len(edges) + i], design[row, len(edges) + j] = 0.5, -0.5
        return np.asarray(orth(design))

    @cached_property
    def _conditions(self) -> np.ndarray:
        """`(n, R)`, what known and tied rates ask of the logarithms of rates."""
        unit = np.eye(len(self.steps))
        tied = [unit[group[0]] - unit[step] for group in self.tied for step in group[1:]]
        return np.array([*(unit[step] for step in self.fixed), *tied]).reshape(-1, len(self.steps))

    @cached_property
    def _design(self) -> np.ndarray:
        """`(R, P)`, orthonormal: what of the basis the conditions leave free."""
        from scipy.linalg import null_space

        return self._basis @ null_space(self._conditions @ self._basis) if len(self._conditions) else self._basis

    @property
    def n_free(self) -> int:
        return int(self._design.shape[1])

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        design, offset = (jnp.asarray(each, coordinates.dtype) for each in (self._design, self.offset))
        return jnp.exp(product(design, coordinates) + offset) / self._dt(coordinates)

    def unconstrain(self, parameter: jax.Array) -> jax.Array:
        design, offset = (jnp.asarray(each, parameter.dtype) for each in (self._design, self.offset))
        logs = safe_log(parameter * self._dt(parameter)) - offset
        return product(design.T, logs)

    def _dt(self, like: jax.Array) -> jax.Array:
        return jnp.asarray(self.dt, like.dtype)[0]

    def log_jacobian(self, parameter: jax.Array) -> jax.Array:
        return jnp.sum(safe_log(parameter))

    def log_prior(self, parameter: jax.Array) -> jax.Array:
        total = jnp.zeros((), parameter.dtype)
        for step in range(len(self.steps)):
            if step not in self.fixed:
                prior = self.priors.get(step, self.usual)
                density = prior_of(Parameter("rates", (), prior, None, dist.constraints.positive))
                total = total + density.log_prob(parameter[step])
        return total

    def generator(self, parameter: jax.Array) -> jax.Array:
        """`(K, K)`, rates per second, rows summing to 0."""
        rows, columns = np.array(self.steps).T
        found = jnp.zeros((self.n_states, self.n_states), parameter.dtype).at[rows, columns].set(parameter)
        return found - jnp.diag(jnp.sum(found, axis=1))

    def typical(self, parameter: Any) -> jax.Array:
        return self.after(jnp.asarray(parameter), 1.0)

    def at_row(self, parameter: jax.Array, row: Any = None) -> tuple[jax.Array, jax.Array]:
        """Rates `(R,)` per second, and seconds since the row before, where covariates are those of a row (its own
        columns alone); at the typical row where None."""
        return parameter, self._dt(parameter)

    def flow(self, parameter: jax.Array, share: float, row: Any = None) -> jax.Array:
        """`(K, K)`, the generator times a share of the time between two rows."""
        rates, seconds = self.at_row(parameter, row)
        return self.generator(rates) * (seconds * share)

    def after(self, parameter: jax.Array, share: float, row: Any = None) -> jax.Array:
        """`(K, K)`, the transitions within a share of the time between two rows."""
        return exponential(self.flow(parameter, share, row), *self.effort)

    def matrices(self, parameter: jax.Array, covariates: jax.Array) -> jax.Array:
        return jnp.broadcast_to(self.typical(parameter), (covariates.shape[0], self.n_states, self.n_states))

    @cached_property
    def direct(self) -> np.ndarray:
        """`(K, K)`, True for the steps of the scheme, and for staying."""
        found = np.eye(self.n_states, dtype=bool)
        found[tuple(np.array(self.steps).T)] = True
        return found

    @cached_property
    def allowed(self) -> np.ndarray:
        return np.linalg.matrix_power(self.direct.astype(np.float64), self.n_states) > 0

    @cached_property
    def symmetries(self) -> tuple[tuple[int, ...], ...]:  # type: ignore[override]
        """The orders of the states in which the scheme, and what is known of its rates, looks the same."""
        told = {*self.priors, *self.fixed}
        groups = {frozenset(group) for group in self.tied}
        found = []
        for order in permutations(range(self.n_states)) if self.n_states <= MOST_PERMUTED else ():
            moved = [(order[one], order[other]) for one, other in self.steps]
            if set(moved) == set(self.steps):
                to = [self.steps.index(step) for step in moved]
                if all(to[step] == step for step in told) and {frozenset(to[s] for s in g) for g in groups} == groups:
                    found.append(order)
        return tuple(found) or (tuple(range(self.n_states)),)

    @property
    def exchangeable(self) -> bool:  # type: ignore[override]
        return len(self.symmetries) > 1

    def renumbered(self, parameter: Any, order: Any) -> Any:
        if isinstance(order, np.ndarray) and tuple(order.tolist()) not in self.symmetries:
            raise ModelError(f"order must leave the scheme {self.scheme!r} as it is, got {order.tolist()}.")
        place = np.zeros((self.n_states, self.n_states), int)
        rows, columns = np.array(self.steps).T
        place[rows, columns] = np.arange(len(self.steps))
        return parameter.take(
            (jnp if isinstance(order, jax.Array) else np).asarray(place)[order[rows], order[columns]], -1
        )

    def complete(self, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
        found = super().complete(params)
        if np.any(found[self.parameter] <= 0):
            raise ModelError(f"params['{self.parameter}'] must be positive, got {found[self.parameter].tolist()}.")
        return found

    def options(self) -> dict[str, Any]:
        return {
            "scheme": [[self.states[one], self.states[other]] for one, other in self.steps],
            "dt": float(self.dt[0]),
            "prior": self.usual,
            **{f"prior {self.terms[step]}": prior for step, prior in self.priors.items()},
            "fixed": {self.terms[step]: float(value) for step, value in self.fixed.items()},
            "tied": [[self.terms[step] for step in group] for group in self.tied],
            "detailed_balance": self.balanced,
        }

    @classmethod
    def rebuilt(cls, n_states: int, options: Mapping[str, Any]) -> Rates:
        own = {name.removeprefix("prior "): each for name, each in options.items() if name.startswith("prior ")}
        found = cls(**{name: each for name, each in options.items() if not name.startswith("prior ")})
        found.priors = Named({found._step(name): each for name, each in own.items()})
        return found
