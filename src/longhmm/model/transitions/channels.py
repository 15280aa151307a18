"""Several identical channels at once: the hidden state says how many of them are in each state of their scheme.

Of N independent channels in S states only the numbers `n_1 .. n_S` matter, and these are a Markov process themselves:
one channel goes from i to j at rate `n_i q_ij`. The S^N states of the product of N chains become (N + S - 1 choose N).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations_with_replacement, count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.errors import ModelError, check_whole
from longhmm.model.registry import TRANSITIONS
from longhmm.model.transitions import TransitionModel
from longhmm.model.transitions.rates import Rates, exponential
from longhmm.model.transitions.rates_by_row import RatesByRow, by_row
from longhmm.model.transitions.renumbering import Unmoved

FOLLOWED = ("scaled", "sloped")  # what rates by row say beside the scheme and the step


@TRANSITIONS.register("channels")
class Channels(Unmoved, TransitionModel):
    """N identical, independent channels, each with the same kinetic scheme.

    `levels`, one for every state of the model, is the number of open channels there: for `Tied(Gaussian(), levels)`,
    with a mean for each number, or `EquallySpaced(levels)`, where every channel adds the same.

    Args:
        n: number of channels N.
        scheme: of one channel, as `Rates` takes it, or `Rates(...)` with priors, known or tied rates, or with rates and
            steps that follow covariates.
        dt: seconds between two observations, or the covariate that holds them; known already where `scheme` is `Rates`.
        open_states: names of the states in which a channel is open; the last of the scheme by default.

    >>> import longhmm as lh
    >>> moves = lh.Channels(2, "C <-> O", dt=1e-4)
    >>> moves.states, moves.levels
    (('2 C', '1 C + 1 O', '2 O'), (0, 1, 2))
    >>> lh.HMM(moves.n_states, lh.EquallySpaced(moves.levels), transitions=moves).transitions
    Channels(2, Rates('C <-> O', dt=0.0001), open_states=('O',))
    """

    parameter, axes = "rates", ("reaction",)

    def __init__(
        self, n: int, scheme: Any, *, dt: float | str | None = None, open_states: str | Sequence[str] | None = None
    ) -> None:
        check_whole("n", n, 1)
        known = isinstance(scheme, Rates | RatesByRow)
        if known != (dt is None):
            raise ModelError(f"dt must be given once, beside the scheme or within Rates, got {dt!r} and {scheme!r}.")
        self.n, self.one = int(n), scheme if known else Rates(scheme, dt=dt)  # type: ignore[arg-type]
        self.formula = self.one.formula
        names = self.one.states[-1:] if open_states is None else open_states
        self.open_states = (names,) if isinstance(names, str) else tuple(names)
        if not self.open_states or not set(self.open_states) <= set(self.one.states):
            raise ModelError(f"open_states must be names among {', '.join(self.one.states)}, got {open_states!r}.")

    @cached_property
    def occupancies(self) -> np.ndarray:
        """`(K, S)`, how many channels are in each state of the scheme, by rising number of open ones."""
        size = self.one.n_states
        found = [np.bincount(each, minlength=size) for each in combinations_with_replacement(range(size), self.n)]
        return np.array(sorted(found, key=lambda each: (int(each @ self._is_open), *(-each))))

    @property
    def _is_open(self) -> np.ndarray:
        return np.array([name in self.open_states for name in self.one.states], int)

    @property
    def levels(self) -> tuple[int, ...]:
        """`(K,)`, the number of open channels, numbered without gaps."""
        return tuple((self.occupancies @ self._is_open).tolist())

    @property
    def n_states(self) -> int:  # type: ignore[override]
        return len(self.occupancies)

    @property
    def states(self) -> tuple[str, ...]:  # type: ignore[override]
        named = (
            [f"{n} {name}" for n, name in zip(each, self.one.states, strict=True) if n] for each in self.occupancies
        )
        return tuple(" + ".join(each) for each in named)

    dt = property(lambda self: self.one.dt)
    shape = property(lambda self: self.one.shape)
    terms = property(lambda self: self.one.terms)
    n_free = property(lambda self: self.one.n_free)
    single = property(lambda self: self.one.single)
    varies = property(lambda self: self.one.varies)
    is_resolved = property(lambda self: self.one.is_resolved)
    n_covariates = property(lambda self: self.one.n_covariates)
    own = property(lambda self: self.one.own)
    known = property(lambda self: self.one.known)

    def resolve(self, formula: Any, columns: tuple[str, ...], seen: np.ndarray) -> Channels:
        """With rates and steps that know their covariates."""
        one: Any = self.one
        return Channels(self.n, one.resolve(formula, columns, seen), open_states=self.open_states)

    def __repr__(self) -> str:
        return f"Channels({self.n}, {self.one!r}, open_states={self.open_states})"

    __str__ = __repr__

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        return self.one.constrain(coordinates)

    def unconstrain(self, parameter: jax.Array) -> jax.Array:
        return self.one.unconstrain(parameter)

    def log_jacobian(self, parameter: jax.Array) -> jax.Array:
        return self.one.log_jacobian(parameter)

    def log_prior(self, parameter: jax.Array) -> jax.Array:
        return self.one.log_prior(parameter)

    def richer(self, n_open: int) -> str:
        """As a line of Python, channels with one state more: an open one, or a closed one if none is open."""
        kin = [name for name in self.one.states if (name in self.open_states) == (n_open > 0)][-1]
        stem = kin.rstrip("0123456789") or "S"
        new = next(name for number in count(2) if (name := f"{stem}{number}") not in self.one.states)
        opens = self.open_states + (new,) * (n_open > 0)
        follows = [f"{name}={found}" for name, found in self.one.options().items() if name in FOLLOWED and found]
        dt = getattr(self.one, "step_column", None) or float(np.asarray(self.dt)[0])
        given = f'"{self.one.scheme}, {kin} <-> {new}", dt={dt!r}'
        given = f"lh.Rates({', '.join([given, *follows])})" if self.varies else given
        return f"lh.Channels({self.n}, {given}, open_states={opens})"

    @cached_property
    def _moves(self) -> np.ndarray:
        """`(4, M)`: from a state to another, by which step of the scheme, and how many channels may take it."""
        number = {tuple(each): index for index, each in enumerate(self.occupancies.tolist())}
        found = []
        for index, each in enumerate(self.occupancies):
            for step, (i, j) in enumerate(self.one.steps):
                if each[i]:
                    unit = np.eye(len(each), dtype=int)
                    found.append((index, number[tuple((each - unit[i] + unit[j]).tolist())], step, each[i]))
        return np.array(found).T

    def generator(self, parameter: jax.Array) -> jax.Array:
        """`(K, K)`, rates per second, at the typical row, rows summing to 0."""
        return self._between(self.one.at_row(parameter)[0])

    def _between(self, rates: jax.Array) -> jax.Array:
        """The same from rates of one channel."""
        rows, columns, steps, channels = self._moves
        taken = rates[steps] * jnp.asarray(channels, rates.dtype)
        found = jnp.zeros((self.n_states, self.n_states), rates.dtype).at[rows, columns].set(taken)
        return found - jnp.diag(jnp.sum(found, axis=1))

    def flow(self, parameter: jax.Array, share: float, row: Any = None) -> jax.Array:
        """As in `Rates`."""
        rates, seconds = self.one.at_row(parameter, row)
        return self._between(rates) * (seconds * share)

    def after(self, parameter: jax.Array, share: float, row: Any = None) -> jax.Array:
        """As in `Rates`."""
        return exponential(self.flow(parameter, share, row), *self.one.effort)

    def typical(self, parameter: Any) -> jax.Array:
        return self.after(jnp.asarray(parameter), 1.0)

    def matrices(self, parameter: jax.Array, covariates: jax.Array) -> jax.Array:
        if self.varies:
            return by_row(self, lambda row: self.after(parameter, 1.0, row), covariates)
        return jnp.broadcast_to(self.typical(parameter), (covariates.shape[0], self.n_states, self.n_states))

    @cached_property
    def direct(self) -> np.ndarray:
        found = np.eye(self.n_states, dtype=bool)
        found[self._moves[0], self._moves[1]] = True
        return found

    @cached_property
    def allowed(self) -> np.ndarray:
        return np.linalg.matrix_power(self.direct.astype(np.float64), self.n_states) > 0

    def complete(self, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
        self.one.complete(params)  # or a refusal
        return super().complete(params)

    def options(self) -> dict[str, Any]:
        return {"n": self.n, "open_states": list(self.open_states), **self.one.options()}

    @classmethod
    def rebuilt(cls, n_states: int, options: Mapping[str, Any]) -> Channels:
        own = {name: options[name] for name in ("n", "open_states")}
        kind = RatesByRow if "step_column" in options else Rates
        one = kind.rebuilt(n_states, {name: each for name, each in options.items() if name not in own})
        return cls(own["n"], one, open_states=own["open_states"])
