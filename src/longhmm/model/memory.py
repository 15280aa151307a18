"""States that remember the states before them: a chain of M states that carries the last `length` states of a chain of
K along, so that an observation may depend on all of them while messages stay what they are."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np

from longhmm.errors import ModelError
from longhmm.inference.markov import stationary_on_host
from longhmm.model.phases import Phases, model_of_phases

PIECE = 256  # rows of a product, few enough that BLAS does not call its threads


def times_matrix(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """`rows (n, K) @ matrix (K, M)` on the host. Threads that wait for each other take a hundred times as long as the
    product itself where K is small."""
    whole = len(rows) - len(rows) % PIECE
    found = np.empty((len(rows), matrix.shape[1]), np.result_type(rows, matrix))
    np.matmul(
        rows[:whole].reshape(-1, PIECE, rows.shape[1]), matrix, out=found[:whole].reshape(-1, PIECE, matrix.shape[1])
    )
    np.matmul(rows[whole:], matrix, out=found[whole:])
    return found


class Memory:
    """State s of the longer chain stands for states `past[s]`, `(M, length + 1)`, the present first; from there the
    transition to j leads to `following[s, j]`. `latest` keeps no more than the latest change: what lay before it is
    taken to have lasted, and K + K (K - 1) length states suffice instead of K^(length + 1)."""

    def __init__(self, n_states: int, length: int, *, latest: bool) -> None:
        self.n_states, self.length, self.latest = n_states, length, latest
        if latest:
            changes = itertools.product(range(n_states), range(n_states), range(1, length + 1))
            paths = [(now,) * ago + (was,) * (length + 1 - ago) for now, was, ago in changes if now != was]
            paths = [(state,) * (length + 1) for state in range(n_states)] + paths
        else:
            paths = list(itertools.product(range(n_states), repeat=length + 1))
        number = {path: index for index, path in enumerate(paths)}

        def remembered(path: tuple[int, ...]) -> tuple[int, ...]:
            ago = next((at for at, state in enumerate(path) if state != path[0]), len(path)) if latest else len(path)
            return path[:ago] + tuple(path[ago : ago + 1]) * (length + 1 - ago)

        self.past = np.array(paths)
        self.following = np.array(
            [[number[remembered((state, *path[:-1]))] for state in range(n_states)] for path in paths]
        )

    @property
    def now(self) -> np.ndarray:
        """`(M,)`, the present state."""
        return self.past[:, 0]

    @cached_property
    def _indicator(self) -> np.ndarray:
        return np.eye(self.n_states)[self.now]

    @property
    def allowed(self) -> np.ndarray:
        """`(M, M)`, True where a transition is possible."""
        found = np.zeros((len(self.past),) * 2, bool)
        found[np.arange(len(found))[:, None], self.following] = True
        return found

    def expand(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters of the longer chain; before its first row a sequence is taken to have been in its first state."""
        transition, initial, size = params["transition"], params["initial"], len(self.past)
        lasting = np.flatnonzero((self.past == self.past[:, :1]).all(axis=1))
        # As products with constants, which serve NumPy and JAX alike.
        into = np.zeros((self.n_states, size, size))
        for state in range(self.n_states):
            into[state, np.arange(size), self.following[:, state]] = 1.0
        whole = sum(transition[self.now, state][:, None] * into[state] for state in range(self.n_states))
        first = initial @ np.eye(size)[lasting]
        return {**params, "transition": whole, "initial": first}

    def fold(self, values: Any) -> Any:
        """`(..., K)`, summed over what is remembered, of `(..., M)`."""
        own = self._indicator.astype(values.dtype)
        return times_matrix(values, own) if isinstance(values, np.ndarray) and values.ndim == 2 else values @ own

    def fold_pairs(self, values: Any) -> Any:
        """`(..., K, K)` of `(..., M, M)`."""
        return self._indicator.T.astype(values.dtype) @ self.fold(values)

    def path(self, states: np.ndarray) -> np.ndarray:
        """A path without what its states remember."""
        return self.now.astype(states.dtype)[states]

    def along(self, states: np.ndarray, opens: np.ndarray) -> np.ndarray:
        """A path with what its states remember; `opens` says where sequences begin."""
        lasting = np.flatnonzero((self.past == self.past[:, :1]).all(axis=1))
        first, following = dict(zip(self.now[lasting].tolist(), lasting.tolist(), strict=True)), self.following.tolist()
        found, at = [], 0
        for state, begins in zip(states.tolist(), opens.tolist(), strict=True):
            at = first[state] if begins else following[at][state]
            found.append(at)
        return np.array(found)

    def start(self, params: Mapping[str, Any], distribution: Any) -> Any:
        """`(M,)` from `(K,)` or None."""
        return None if distribution is None else self.expand({**params, "initial": distribution})["initial"]

    def folded(self, found: Any) -> Any:
        """A named tuple of statistics with those of states, and of pairs of states, folded."""
        single = {name: self.fold(getattr(found, name)) for name in ("first", "probabilities") if name in found._fields}
        pairs = [name for name in ("transitions", "centred") if name in found._fields]
        return found._replace(**single, **{name: self.fold_pairs(getattr(found, name)) for name in pairs})

    def forgotten(self, transition: np.ndarray) -> float:
        """How often, in the long run, more happened in the last rows than is remembered: the share of rows with two
        changes or more among the last `length` steps."""
        if not self.latest:
            return 0.0
        stay = np.diag(np.diag(transition))
        none = one = stationary_on_host(np.asarray(transition, np.float64))
        once = np.zeros_like(none)
        for _ in range(self.length):
            once, none = once @ stay + none @ (transition - stay), none @ stay
        return float(max(0.0, one.sum() - none.sum() - once.sum()))


class Dependence:
    """What observations depend on beside the present state: nothing, unless an emission says otherwise."""

    couples = False  # whether `log_likelihoods` depends on the state before a row too
    sees_transitions = False  # whether they depend on the parameter of the transitions too
    takes_response = False  # whether an argument says how an instrument shows a step

    @property
    def call(self) -> str:
        """How it is written, up to further arguments."""
        return f"{type(self).__name__}("

    def more_noise(self, far: int) -> str:
        """What to try where residuals are correlated over so many rows: a line of Python, and an option."""
        return "take every second observation, or fewer"

    def beside(self, transitions: Any) -> Self:
        """The same emission in a model with these transitions, which it may depend on."""
        if transitions.remembers and (self.couples or self.memory(transitions.n_states) is not None):
            raise ModelError(f"{transitions!r} needs an emission of the present state alone, got {self!r}.")
        return self

    def memory(self, n_states: int) -> Memory | None:
        """How states remember those before them, where observations depend on these; `unfolded` is then theirs."""
        return None


class Nothing:
    """What a model has whose observations depend on the present state alone."""

    def fold(self, values: Any) -> Any:
        return values

    folded = path = fold

    def along(self, states: np.ndarray, opens: np.ndarray) -> np.ndarray:
        return states

    def start(self, params: Mapping[str, Any], distribution: Any) -> Any:
        return distribution


remember = lru_cache(Memory)
NOTHING = Nothing()


def unfold(model: Any, params: Mapping[str, Any]) -> tuple[Memory | Phases | Nothing, Any, dict[str, Any]]:
    """What folds answers back, and, for backends, the same model with states that remember, or with phases of states,
    each a state of its own, with complete parameters for it."""
    inner = unfolded(model)
    if inner is model:
        return NOTHING, model, dict(params)
    folds = Phases(model.transitions, params) if model.transitions.remembers else model.memory
    return folds, inner, folds.expand(params)


def pruned(model: Any, params: Mapping[str, Any]) -> dict[str, float]:
    """The share of rows before which more changed than states remember, for those who judge a fit; none where all is
    remembered."""
    memory = model.memory
    return (
        {} if memory is None or not memory.latest else {"forgotten": memory.forgotten(np.asarray(params["transition"]))}
    )


def unfolded(model: Any) -> Any:
    """That model alone."""
    memory = model.memory
    if model.transitions.remembers:
        return model_of_phases(model)
    if memory is None:
        return model
    emission, prior = model.emission.unfolded(model.n_states), memory.allowed.astype(float)
    found = type(model)(len(memory.past), emission, transition_prior=prior)
    found.labels = tuple(memory.now.tolist())
    return found
