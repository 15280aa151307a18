"""Simulation-based calibration (Cook and others 2006; Talts and others 2018): does the truth, drawn from the prior,
rank evenly among the draws? Too narrow a posterior pushes ranks to both ends, too wide a one to the middle."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from longhmm.backends.answers import log_likelihood
from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import LongHMMError, ModelError
from longhmm.inference.markov import stationary_on_host
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.posterior.arviz_groups import prior_params
from longhmm.posterior.diagnostics.uniform import points, uniform_p_values
from longhmm.run.request import Request
from longhmm.run.run import Run, carry_out
from longhmm.samplers.contract import Sampler

# Draws of coordinates by name, `(chain, draw, ...)`, for a model, data, a point to start from, and a seed.
Method = Callable[[HMM, Sequences, dict[str, np.ndarray], int], dict[str, np.ndarray]]


class Ranks(NamedTuple):
    """Where true values lie among posterior draws."""

    names: tuple[str, ...]  # of the P numbers that were ranked, `transition[0, 1]`, `dwell[0]` and the like
    ranks: np.ndarray  # `(replication, P)`, how many draws lie below the true value
    draws: int  # L; ranks go from 0 to L
    failed: tuple[str, ...]  # sentences of replications that gave no draws; they are not in `ranks`

    def p_values(self) -> np.ndarray:
        """`(P,)`, chance of a distribution function of ranks at least as far off somewhere if the sampler is right."""
        return uniform_p_values(self.below(), len(self.ranks), self.draws)

    def below(self) -> np.ndarray:
        """`(P, points)`, how many ranks lie below each of the points at which distribution functions are compared."""
        return np.stack([(self.ranks < each).sum(axis=0) for each in points(self.draws)], axis=1)

    def widths(self) -> np.ndarray:
        """`(P,)`, sd of ranks over that of uniform ones: above 1 for too narrow posteriors, below for too wide."""
        return np.asarray(self.ranks.std(axis=0) / np.sqrt(((self.draws + 1) ** 2 - 1) / 12))

    def right(self, level: float = 0.01) -> bool:
        """Whether no number is unevenly ranked, at `level` for all of them together."""
        return bool(self.p_values().min() * len(self.names) > level)


def simulated_ranks(model: HMM, by: Method, *, length: int, replications: int, keep: int = 99, seed: int = 0) -> Ranks:
    """Ranks of parameters, and of what follows from them, over data sets simulated from the proper priors of a model,
    which differ between states; data set i of one seed is the same for all methods."""
    rows, failed = [], []
    for index in range(replications):
        params = prior_params(model, jax.random.key(1_000_003 * seed + index))
        sequences = open_data(simulate(model, params, length, seed=1_000_003 * seed + index)[1])
        try:
            drawn = thinned(by(model, sequences, params, index), keep)
        except LongHMMError as error:
            failed.append(str(error))
            continue
        truth = numbers(model, {name: np.asarray(value)[None] for name, value in params.items()}, sequences)
        rows.append((numbers(model, natural(model, drawn), sequences) < truth).sum(axis=0))
    return Ranks(columns(model), np.array(rows), keep, tuple(failed))


def by_sampler(sampler: Sampler, *, chains: int = 2, draws: int = 200, warmup: int | None = None) -> Method:
    """A method for `simulated_ranks`: runs of a sampler, which begins at the truth unless it tunes itself."""

    def method(model: HMM, data: Sequences, params: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
        tunes = bool(sampler.learned)
        how: Any = {"chains": chains, "draws": draws, "warmup": warmup, "seed": seed, "spaced": tunes}
        return carry_out(Run(Request(model, data, sampler, init=None if tunes else params, **how))).coordinates

    return method


def thinned(coordinates: dict[str, np.ndarray], keep: int) -> dict[str, np.ndarray]:
    """`(keep, ...)` of draws `(chain, draw, ...)`, evenly spaced."""
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in coordinates.items()}
    total = len(next(iter(flat.values())))
    if keep > total:
        raise ModelError(f"keep must be at most the number of draws, {total}, got {keep!r}.")
    return {name: value[np.arange(keep) * total // keep] for name, value in flat.items()}


def natural(model: HMM, coordinates: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Natural parameters `(n, ...)` of coordinates `(n, ...)`."""
    with jax.enable_x64(True):
        return {name: np.asarray(value) for name, value in _natural(model, coordinates).items()}


_natural = jax.jit(lambda model, coordinates: jax.vmap(model.constrain)(coordinates))


def numbers(model: HMM, params: dict[str, Any], sequences: Sequences) -> np.ndarray:
    """`(n, P)`, what `columns` names, for parameters `(n, ...)`."""
    free = np.stack([params[name][:, *index] for name, index in _entries(model)], axis=1)
    transition = np.asarray(params["transition"])
    if model.n_states == 1:
        return free
    dwell = 1.0 / (transition * (1.0 - np.eye(model.n_states))).sum(axis=2)  # no difference that could round to 0
    each = ({name: value[index] for name, value in params.items()} for index in range(len(free)))
    values = np.array([log_likelihood(model, one, sequences) for one in each])
    return np.concatenate([free, dwell, stationary_on_host(transition), values[:, None]], axis=1)


def columns(model: HMM) -> tuple[str, ...]:
    """Names of the numbers that are ranked: all but the last of each free row, every free emission parameter, expected
    dwell times, the stationary distribution, and the log likelihood of the data."""
    entries = tuple(f"{name}[{', '.join(map(str, index))}]" for name, index in _entries(model))
    if model.n_states == 1:
        return entries
    derived = (f"{name}[{state}]" for name in ("dwell", "stationary") for state in range(model.n_states))
    return (*entries, *derived, "log likelihood")


def _entries(model: HMM) -> list[tuple[str, tuple[int, ...]]]:
    found: list[tuple[str, tuple[int, ...]]] = []
    for row in range(model.n_states):
        allowed = np.flatnonzero(model.transitions.allowed[row])
        if model.transitions.free_rows[row]:
            found += [("transition", (row, int(column))) for column in allowed[:-1]]
    for name, parameter in sorted(model.emission.parameters(model.n_states).items()):
        if parameter.is_free:
            found += [(name, index) for index in np.ndindex(*parameter.shape)]
    return found
