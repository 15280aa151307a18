"""What a kinetic scheme says about dwell times, occupancies and relaxation, draw by draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np

from longhmm.errors import ModelError
from longhmm.inference.markov import stationary_on_host
from longhmm.posterior.draws import Draws, central, in_float64

if TYPE_CHECKING:
    import pandas as pd

generators_of = jax.jit(lambda moves, rates: jax.vmap(moves.generator)(rates))


def equilibrium(generators: np.ndarray) -> np.ndarray:
    """`(n, K)`, the distribution that generators `(n, K, K)` leave as it is."""
    n_states = generators.shape[-1]
    # Columns of Q are dependent: one of the equations gives way to the sum.
    system = np.concatenate([np.swapaxes(generators, 1, 2)[:, :-1], np.ones((len(generators), 1, n_states))], axis=1)
    return np.linalg.solve(system, np.eye(n_states)[:, -1:])[..., 0]


def dwell_times(generators: np.ndarray, shares: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """`(n, L)`, the mean of uninterrupted visits to each level, in seconds: time there over the flow out of it."""
    member = (levels[:, None] == np.arange(levels.max() + 1)).astype(float)
    within = np.einsum("ni,nij,il,jl->nl", shares, generators, member, member)  # minus the flow out
    return (shares @ member) / -within


def relaxation_times(generators: np.ndarray) -> np.ndarray:
    """`(n, K - 1)`, in seconds, the slowest first."""
    speeds = np.sort(-np.linalg.eigvals(generators).real, axis=1)[:, 1:]  # the first is 0
    return 1.0 / speeds


def dwell_mixture(transition: np.ndarray, levels: np.ndarray, level: int, lengths: np.ndarray) -> np.ndarray:
    """`(terms, n)`: the chance that a visit to a level lasts more than each of `lengths` rows, as a sum of geometric
    terms, one for every state on the level, the slowest first. Visits begin as they do in the long run."""
    inside, shares = levels == level, stationary_on_host(transition)
    entry = (shares * ~inside) @ transition[:, inside]
    values, vectors = np.linalg.eig(transition[np.ix_(inside, inside)])
    weights = (entry / entry.sum() @ vectors) * np.linalg.solve(vectors, np.ones(inside.sum()))
    order = np.argsort(-np.abs(values))
    return np.real(weights[order, None] * values[order, None] ** np.asarray(lengths))


def level_visits(events: pd.DataFrame, levels: np.ndarray) -> pd.DataFrame:
    """Whole visits to levels, neighbouring events on one level joined: `level` and `length` in samples. The first and
    the last of every sequence, which its ends cut short, are left out."""
    import pandas as pd

    number, level = events["sequence"].to_numpy(), levels[events["state"].to_numpy()]
    begins = np.append(True, (number[1:] != number[:-1]) | (level[1:] != level[:-1]))
    lengths = np.add.reduceat((events["end"] - events["start"]).to_numpy(), np.flatnonzero(begins))
    table = pd.DataFrame({"sequence": number[begins], "level": level[begins], "length": lengths})
    ends = table["sequence"].diff().ne(0) | table["sequence"].diff(-1).ne(0)
    return table[~ends].reset_index(drop=True)


class Kinetics(Draws):
    """Draws of the rates of a kinetic scheme, and what follows from them."""

    def kinetics(self, *, interval: float = 0.9, draws: int = 1000) -> pd.DataFrame:
        """One row per quantity, in seconds, with `mean`, `sd` and the ends `low` and `high` of its interval.

        `quantity` is "dwell time" (the mean of a visit), "seen dwell time" (of visits to a level seen once every dt, in
        which briefer absences are overlooked: what labels of rows and decoded paths show), "occupancy" (the share of
        time in equilibrium), "free energy" (`log(occupancy of the first / its own)`, in units of kT) or "relaxation
        time" (of each exponential, the slowest first); `of` is a state, or a level where several states share one, or
        a number.
        """
        import pandas as pd

        moves, stacked = self.model.transitions, self.stacked(draws)
        if moves.dt is None:
            raise ModelError(f"kinetics needs transitions in continuous time, such as Rates(...), got {moves!r}.")
        generators = in_float64(generators_of, moves, stacked[moves.parameter])
        shares, matrices = equilibrium(generators), stacked["transition"]
        # Seen once every dt, a level is left by what matrices take away from staying.
        leaving, dt = matrices - np.eye(matrices.shape[-1]), float(np.asarray(moves.dt).ravel()[0])
        levels, each = self.model.emission.state_levels(moves.n_states), np.arange(moves.n_states)
        by_level = shares @ (levels[:, None] == np.arange(levels.max() + 1))
        named, numbered = list(moves.states), [f"level {level}" for level in range(levels.max() + 1)]
        tables = [
            ("dwell time", named, dwell_times(generators, shares, each)),
            ("seen dwell time", numbered, dt * dwell_times(leaving, shares, levels)),
            ("occupancy", named, shares),
            ("free energy", named[1:], np.log(shares[:, :1] / shares[:, 1:])),
            ("relaxation time", [str(number) for number in each[1:]], relaxation_times(generators)),
        ]
        if len(numbered) < len(named):
            tables[1:1] = [("dwell time", numbered, dwell_times(generators, shares, levels))]
            tables[4:4] = [("occupancy", numbered, by_level)]
        found = []
        for quantity, names, values in tables:
            low, high = central(values, interval)
            numbers = {"mean": values.mean(axis=0), "sd": values.std(axis=0), "low": low, "high": high}
            found.append(pd.DataFrame({"quantity": quantity, "of": names, **numbers}))
        return pd.concat(found, ignore_index=True)
