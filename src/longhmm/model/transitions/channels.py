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
from longhmm.model.transitions.renumbering import Unmoved


@TRANSITIONS.register("channels")
class Channels(Unmoved, TransitionModel):
    """N identical, independent channels, each with the same kinetic scheme.

    `levels`, one for every state of the model, is the number of open channels there: for `Tied(Gaussian(), levels)`,
    with a mean for each number, or `EquallySpaced(levels)`, where every channel adds the same.

    Args:
        n: number of channels N.
        scheme: of one channel, as `Rates` takes it, or `Rates(...)` with priors, known or tied rates.
        dt: seconds between two observations; known already where `scheme` is `Rates`.
        open_states: names of the states in which a channel is open; the last of the scheme by default.

    >>> import longhmm as lh
    >>> moves = lh.Channels(2, "C <-> O", dt=1e-4)
    >>> moves.states, moves.levels
    (('2 C', '1 C + 1 O', '2 O'), (0, 1, 2))
    >>> lh.HMM(moves.n_states, lh.EquallySpaced(moves.levels), transitions=moves).transitions
    Channels(2, Rates('C <-> O', dt=0.0001), open_states=('O',))
    """

    varies, parameter, axes = False, "rates", ("reaction",)

    def __init__(
        self, n: int, scheme: Any, *, dt: float | None = None, open_states: str | Sequence[str] | None = None
    ) -> None:
        check_whole("n", n, 1)
        if getattr(scheme, "varies", False):
            raise ModelError(f"Channels need rates and steps that are the same in every row, got {scheme!r}.")
        if isinstance(scheme, Rates) != (dt is None):
            raise ModelError(f"dt must be given once, beside the scheme or within Rates, got {dt!r} and {scheme!r}.")
        self.n, self.one = int(n), scheme if isinstance(scheme, Rates) else Rates(scheme, dt=dt)  # type: ignore[arg-type]
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
    single = property(lambda self: self.one)

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
        dt = float(np.asarray(self.dt)[0])
        return f'lh.Channels({self.n}, "{self.one.scheme}, {kin} <-> {new}", dt={dt:g}, open_states={opens})'

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
        """`(K, K)`, rates per second, rows summing to 0."""
        rows, columns, steps, channels = self._moves
        rates = parameter[steps] * jnp.asarray(channels, parameter.dtype)
        found = jnp.zeros((self.n_states, self.n_states), parameter.dtype).at[rows, columns].set(rates)
        return found - jnp.diag(jnp.sum(found, axis=1))

    def after(self, parameter: jax.Array, share: float) -> jax.Array:
        """`(K, K)`, the transitions within a share of the time between two rows."""
        return exponential(self.generator(parameter) * (jnp.asarray(self.dt, parameter.dtype)[0] * share))

    def typical(self, parameter: Any) -> jax.Array:
        return self.after(jnp.asarray(parameter), 1.0)

    def matrices(self, parameter: jax.Array, covariates: jax.Array) -> jax.Array:
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
        one = Rates.rebuilt(n_states, {name: each for name, each in options.items() if name not in own})
        return cls(own["n"], one, open_states=own["open_states"])
