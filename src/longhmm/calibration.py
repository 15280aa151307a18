"""Simulation-based calibration (Cook and others 2006; Talts and others 2018): does the truth, drawn from the prior,
rank evenly among the draws? Too narrow a posterior pushes ranks to both ends, too wide a one to the middle."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chisquare

from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import LongHMMError, ModelError
from longhmm.model.hmm import HMM
from longhmm.model.parameters import draw_prior
from longhmm.model.simulate import simulate
from longhmm.run.request import Request
from longhmm.run.run import Run, carry_out
from longhmm.samplers.contract import Sampler

# Draws of coordinates by name, `(chain, draw, ...)`, for a model, data, a point to start from, and a seed.
Method = Callable[[HMM, Sequences, dict[str, np.ndarray], int], dict[str, np.ndarray]]
BINS = 10


class Ranks(NamedTuple):
    """Where true values lie among posterior draws."""

    names: tuple[str, ...]  # of the P numbers that were ranked, `transition[0, 1]` and the like
    ranks: np.ndarray  # `(replication, P)`, how many draws lie below the true value
    draws: int  # L; ranks go from 0 to L
    failed: tuple[str, ...]  # sentences of replications that gave no draws; they are not in `ranks`

    def p_values(self) -> np.ndarray:
        """`(P,)`, chance of ranks at least as uneven over ten bins if the sampler is right."""
        return np.asarray(chisquare(self.counts(), axis=1).pvalue)

    def counts(self) -> np.ndarray:
        """`(P, 10)`, ranks in each of ten equal bins."""
        edges = np.linspace(0, self.draws + 1, BINS + 1)
        return np.stack([np.histogram(column, edges)[0] for column in self.ranks.T])

    def widths(self) -> np.ndarray:
        """`(P,)`, sd of ranks over that of uniform ones: above 1 for too narrow posteriors, below for too wide."""
        return np.asarray(self.ranks.std(axis=0) / np.sqrt(((self.draws + 1) ** 2 - 1) / 12))

    def right(self, level: float = 0.01) -> bool:
        """Whether no number is unevenly ranked, at `level` for all of them together."""
        return bool(self.p_values().min() * len(self.names) > level)


def rank_truth(truth: np.ndarray, draws: np.ndarray, keep: int) -> np.ndarray:
    """`(P,)` ranks of `truth` `(P,)` among `keep` of the draws `(n, P)`, evenly spaced."""
    if keep > len(draws):
        raise ModelError(f"keep must be at most the number of draws, {len(draws)}, got {keep!r}.")
    return np.asarray((draws[np.arange(keep) * len(draws) // keep] < truth).sum(axis=0))


def simulated_ranks(model: HMM, by: Method, *, length: int, replications: int, keep: int = 99, seed: int = 0) -> Ranks:
    """Ranks over data sets simulated from the proper priors of a model, which differ between states; data set i of one
    seed is the same for all methods. The truth is ranked among `keep` draws: one less than a multiple of ten (bins)."""
    rows, failed, names = [], [], columns(model)
    for index in range(replications):
        params = prior_params(model, jax.random.key(1_000_003 * seed + index))
        sequences = open_data(simulate(model, params, length, seed=1_000_003 * seed + index)[1])
        try:
            coordinates = by(model, sequences, params, index)
        except LongHMMError as error:
            failed.append(str(error))
            continue
        truth = np.array([np.asarray(params[name])[index] for name, index in _entries(model)])
        rows.append(rank_truth(truth, natural_draws(model, coordinates), keep))
    return Ranks(names, np.array(rows), keep, tuple(failed))


def by_sampler(sampler: Sampler, *, chains: int = 2, draws: int = 200, warmup: int | None = None) -> Method:
    """A method for `simulated_ranks`: runs of a sampler, which begins at the truth unless it tunes itself."""

    def method(model: HMM, data: Sequences, params: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
        tunes = bool(sampler.learned)
        how: Any = {"chains": chains, "draws": draws, "warmup": warmup, "seed": seed, "spaced": tunes}
        return carry_out(Run(Request(model, data, sampler, init=None if tunes else params, **how))).coordinates

    return method


def prior_params(model: HMM, key: jax.Array) -> dict[str, np.ndarray]:
    """Natural parameters drawn from the prior; rows of `transition` are Dirichlet, fixed rows stay."""
    table = model.emission.parameters(model.n_states)
    *keys, last = jax.random.split(key, len(table) + 1)
    with jax.enable_x64(True):
        drawn = zip(sorted(table), keys, strict=True)
        params = {name: np.asarray(draw_prior(each, table[name])) for name, each in drawn}
        allowed = model.transitions.allowed
        shape = jnp.where(allowed, jnp.asarray(model.transitions.concentration), 1.0)
        gammas = jnp.where(allowed, jax.random.gamma(last, shape), 0.0)
        rows = np.array(gammas / gammas.sum(axis=1, keepdims=True))
    for row, known in model.transitions.fixed_rows.items():
        rows[row] = known
    return model.validate({**params, "transition": rows})


def natural_draws(model: HMM, coordinates: dict[str, np.ndarray]) -> np.ndarray:
    """`(n, P)`, draws of the numbers that `columns` names."""
    with jax.enable_x64(True):
        flat = {name: jnp.asarray(value.reshape(-1, *value.shape[2:])) for name, value in coordinates.items()}
        found = jax.jit(jax.vmap(model.constrain))(flat)
    return np.stack([np.asarray(found[name][:, *index]) for name, index in _entries(model)], axis=1)


def columns(model: HMM) -> tuple[str, ...]:
    """Names of the numbers that are ranked: all but the last of each free row, and every free emission parameter."""
    return tuple(f"{name}[{', '.join(map(str, index))}]" for name, index in _entries(model))


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
