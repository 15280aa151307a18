"""Identities that any model must keep, tried on yours; an oracle in plain NumPy, enumerating every path, judges."""

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from longhmm.backends.answers import decode, log_likelihood, sample_states
from longhmm.backends.stream import stream, totals
from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import DataError, LongHMMError, ModelError
from longhmm.model.emissions import Emission
from longhmm.model.formula import on_columns
from longhmm.model.hmm import HMM, Potentials
from longhmm.model.simulate import simulate
from longhmm.testing.identities import close, finite, require
from longhmm.testing.sampling import Sampling

LONGEST = 20_000  # observations; more would say nothing more
FEW_PATHS = 100_000  # up to this many the oracle is asked


class Enumerated(NamedTuple):
    """Exact answers for one short sequence."""

    log_likelihood: float  # `log p(y)`
    gamma: np.ndarray  # `(T, K)`, `P(x_t = k | y)`
    filtered: np.ndarray  # `(T, K)`, `P(x_t = k | y_0 .. y_t)`
    xi: np.ndarray  # `(T - 1, K, K)`, `P(x_{t-1} = i, x_t = j | y)` for t = 1 .. T - 1
    best_path: np.ndarray  # `(T,)`, the most probable path
    best_score: float  # its `log p(x, y)`
    paths: np.ndarray  # `(K ** T, T)`, every path
    probabilities: np.ndarray  # `(K ** T,)`, `P(x | y)` of every path


def enumerate_paths(initial: np.ndarray, transition: np.ndarray, log_likelihoods: np.ndarray) -> Enumerated:
    """Every answer by summing over all `K ** T` paths; `log_likelihoods` is `(T, K)`, `transition` is `(K, K)`, or
    `(T, K, K)` where it varies: entry t leads into row t."""
    length, n_states = log_likelihoods.shape
    if n_states**length > 2_000_000:
        raise LongHMMError(f"enumerate_paths needs K ** T of at most 2,000,000 paths, got {n_states} ** {length}.")
    paths = np.array(list(itertools.product(range(n_states), repeat=length)))
    scores = path_scores(initial, transition, log_likelihoods, paths)
    total = float(logsumexp(scores))
    probabilities = np.exp(scores - total) if np.isfinite(total) else np.zeros(len(paths))
    gamma = np.array([[probabilities[paths[:, t] == k].sum() for k in range(n_states)] for t in range(length)])
    xi, filtered = np.zeros((length - 1, n_states, n_states)), np.zeros((length, n_states))
    for t in range(length):
        short = paths[:: n_states ** (length - 1 - t), : t + 1]
        partial = path_scores(initial, transition, log_likelihoods, short)
        seen = logsumexp(partial)
        np.add.at(filtered[t], short[:, t], np.exp(partial - seen) if np.isfinite(seen) else 0.0)
        if t:
            np.add.at(xi[t - 1], (paths[:, t - 1], paths[:, t]), probabilities)
    best = int(np.argmax(scores))
    return Enumerated(total, gamma, filtered, xi, paths[best], float(scores[best]), paths, probabilities)


def path_scores(initial: np.ndarray, transition: np.ndarray, likelihood: np.ndarray, paths: np.ndarray) -> np.ndarray:
    """`log p(x, y)` of every path, from probabilities and log likelihoods."""
    with np.errstate(divide="ignore"):
        initial, transition = np.log(initial), np.log(transition)
    scores = initial[paths[:, 0]] + likelihood[0, paths[:, 0]]
    for t in range(1, paths.shape[1]):
        into = transition[t] if transition.ndim == 3 else transition
        scores = scores + into[paths[:, t - 1], paths[:, t]] + likelihood[t, paths[:, t]]
    return scores


def check_coherence(model: HMM, params: Mapping[str, Any], data: Any, *, seed: int = 0) -> None:
    """Try identities that every model must keep, on a short data set; the first one that fails is named.

    Run it on an emission of your own: its density, its treatment of missing values, its draws and its derivatives are
    compared with one another, and the answers with the sum over all paths where there are few. What sampling needs is
    tried as well: derivatives that are finite where rows are missing, near the given parameters and in single
    precision, and a prior that determines what the data leave open.

    Raises:
        AssertionError: with a sentence that says which identity failed.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
        >>> lh.testing.check_coherence(model, params, [0, 1, 9, 7])
    """
    model, sequences = model.meet(data)
    if sequences.length > LONGEST:
        raise LongHMMError(f"check_coherence needs at most {LONGEST:,} observations, got {sequences.length:,}.")
    resolved = on_columns(model.resolve(sequences))
    with jax.enable_x64(True):
        case = _Case(resolved, params, sequences, np.random.default_rng(seed))
        case.check_coordinates()
        case.check_densities()
        sampling = Sampling(case.model, case.params, case.block, seed)
        sampling.check_location()
        sampling.drawn()
        sampling.check_missing_rows()
        case.check_derivatives()
    case.check_likelihood()
    case.check_posteriors()
    case.check_paths(seed)
    case.check_draws(seed)
    with jax.enable_x64(True):
        sampling.check_other_points()
        sampling.check_single_precision()
        sampling.check_draws()
        sampling.check_information()


class _Case:
    """A model, its parameters and a short data set, and the identities they must keep."""

    def __init__(self, model: HMM, params: Mapping[str, Any], sequences: Sequences, rng: np.random.Generator) -> None:
        self.model, self.sequences, self.rng = model, sequences, rng
        self.params = model.validate(params)
        self.block: Any = sequences.rows(0, sequences.length, model.lags)
        self.pieces = [slice(*bounds) for bounds in itertools.pairwise(sequences.offsets)]
        self.arrays = {name: jnp.asarray(value) for name, value in self.params.items()}
        self.potentials = jax.tree.map(np.asarray, jax.jit(self.model.potentials)(self.arrays, self.block))
        self.logs = self.potentials.log_likelihood

    def check_coordinates(self) -> None:
        back = jax.jit(lambda params: self.model.constrain(self.model.unconstrain(params)))(self.arrays)
        for name, value in back.items():
            if name != "initial":
                close(value, self.params[name], f"constrain(unconstrain(params)) must give '{name}' back")

    def check_densities(self) -> None:
        block, emission = self.block, self.model.emission
        require(not np.isnan(self.logs).any(), "log_density must be a number for every observation and state")
        whole, kind = block.observed.all(axis=1), type(emission)
        own = kind.log_density is not Emission.log_density or kind.log_likelihoods is Emission.log_likelihoods
        density, with_missing = jax.jit(emission.log_density), jax.jit(emission.log_likelihoods)
        missing = np.asarray(with_missing(self.arrays, block._replace(observed=np.zeros_like(block.observed))))
        if whole.any() and own:
            rows = jax.tree.map(lambda each: each[whole], block)
            plain = density(self.arrays, rows.values if emission.vector_valued else rows.values[:, 0])
            direct = with_missing(self.arrays, rows)
            close(direct, plain, "log_likelihoods must equal log_density where nothing is missing")
        require(bool(np.all(missing == 0)), "log_likelihoods must be 0 for every state where all is missing")

    def check_derivatives(self) -> None:
        possible = np.isfinite(self.logs)
        weights = self.rng.normal(size=self.logs.shape) * possible

        def weighted(coordinates: Mapping[str, jax.Array]) -> jax.Array:
            logs = self.model.log_likelihoods(self.model.constrain(coordinates), self.block)
            return jnp.sum(jnp.where(possible, logs, 0.0) * weights)

        at = jax.jit(self.model.unconstrain)(self.arrays)
        value, gradient = jax.jit(weighted), jax.jit(jax.grad(weighted))(at)
        for name in at:
            direction = jnp.asarray(self.rng.normal(size=at[name].shape))
            slope, step = float(jnp.sum(gradient[name] * direction)), 1e-4
            moved = ({**at, name: at[name] + size * step * direction} for size in (1, -1, 2, -2))
            ahead, back, far, further = (float(value(each)) for each in moved)
            expected = (8 * (ahead - back) - (far - further)) / (12 * step)  # error of order step ** 4
            scale = 1.0 + abs(expected) + float(jnp.sum(jnp.abs(gradient[name] * direction)))
            require(
                abs(slope - expected) <= 1e-5 * scale,
                f"the derivative of log_density with respect to '{name}' must be that of its values (automatic "
                f"differentiation gave {slope:.8g}, finite differences {expected:.8g})",
            )

    def _cut(self, values: Any) -> list[Any] | None:
        return None if values is None else [values[piece] for piece in self.pieces]

    def check_likelihood(self) -> None:
        pieces = [np.arange(piece.start, piece.stop) for piece in self.pieces]
        total = self._log_likelihood(pieces)
        close(log_likelihood(self.model, self.params, self.sequences), total, "NaN must mean missing")
        if len(pieces) > 1:
            alone = [self._log_likelihood([piece]) for piece in pieces]
            close(total, np.sum(alone), "log likelihoods of several sequences must add up")
        else:
            twice = self._log_likelihood(pieces * 2)
            close(twice, 2 * total, "the same sequence twice must have twice the log likelihood")
        longer = self._log_likelihood([np.append(piece, -1) for piece in pieces])
        close(longer, total, "a missing observation at the end must leave the log likelihood alone")

    def _log_likelihood(self, pieces: list[np.ndarray]) -> float:
        """Of sequences of the rows at these places; row -1 is missing."""
        rows = self.block.padded(self.sequences.length + 1)
        parts: Any = (np.where(rows.observed, rows.values, np.nan), rows.states, rows.covariates)
        values, *known = (None if each is None else [each[piece] for piece in pieces] for each in parts)
        return log_likelihood(self.model, self.params, open_data(values, states=known[0], covariates=known[1]))

    def _probabilities(self, forward_only: bool) -> np.ndarray:
        given = stream(self.model, self.params, self.sequences, forward_only=forward_only)
        return np.concatenate([own.probabilities for own in given])

    def check_posteriors(self) -> None:
        smoothed = totals(self.model, self.params, self.sequences)
        gamma, filtered = self._probabilities(False), self._probabilities(True)
        transitions, total = smoothed.transitions, smoothed.log_likelihood
        first, last = self.sequences.offsets[:-1], self.sequences.offsets[1:] - 1
        close(gamma.sum(1), np.ones(len(gamma)), "state probabilities must sum to one")
        close(filtered.sum(1), np.ones(len(gamma)), "filtered probabilities must sum to one")
        close(filtered[last], gamma[last], "filter and smoother must agree at the last time of a sequence")
        arrivals, departures = np.delete(gamma, first, axis=0).sum(0), np.delete(gamma, last, axis=0).sum(0)
        if self.model.emission.couples:  # the step into the first row is like any other
            arrivals, departures = gamma.sum(0), departures + smoothed.first
        close(transitions.sum(0), arrivals, "expected transitions into a state must equal its expected visits")
        close(transitions.sum(1), departures, "expected transitions out of a state must equal its expected visits")
        close(log_likelihood(self.model, self.params, self.sequences), total, "both passes must give one likelihood")
        if all(self.model.n_states ** int(piece.stop - piece.start) <= FEW_PATHS for piece in self.pieces):
            exact = [enumerate_paths(*self._of(self.potentials, piece)) for piece in self.pieces]
            close(total, sum(one.log_likelihood for one in exact), "the log likelihood must be that of all paths")
            own = [one.gamma[piece.start - piece.stop :] for one, piece in zip(exact, self.pieces, strict=True)]
            close(gamma, np.concatenate(own), "state probabilities must be those of all paths")
            close(transitions, sum(one.xi.sum(0) for one in exact), "transitions must be those of all paths")

    def check_paths(self, seed: int) -> None:
        best = self._score(decode(self.model, self.params, self.sequences), self.potentials)
        slack = 1e-9 * (1 + abs(best))
        total = log_likelihood(self.model, self.params, self.sequences)
        require(best <= total + slack, "the most probable path must not be more probable than all paths together")
        for path in sample_states(self.model, self.params, self.sequences, draws=3, seed=seed):
            drawn = self._score(path, self.potentials)
            require(np.isfinite(drawn), "a path drawn from the posterior must be possible")
            require(drawn <= best + slack, "no drawn path may have a higher score than the most probable one")

    def check_draws(self, seed: int) -> None:
        lengths, covariates = [piece.stop - piece.start for piece in self.pieces], self._cut(self.block.covariates)
        try:
            states, observations = simulate(self.model, self.params, lengths, seed=seed, covariates=covariates)
        except (ModelError, NotImplementedError):
            return  # an emission of one's own need not know how to draw
        drawn = open_data(observations, covariates=covariates)
        try:
            block: Any = drawn.rows(0, drawn.length, self.model.lags)
            self.model.check_rows(drawn, block.values, block.observed, 0)
        except DataError as error:
            raise AssertionError(f"Draws must lie in the support of the emission: {error}") from None
        with jax.enable_x64(True):
            potentials = jax.tree.map(np.asarray, jax.jit(self.model.potentials)(self.arrays, block))
        truth = np.concatenate(states)
        own = potentials.log_likelihood[np.arange(len(truth)), ..., truth]
        finite(own, "log_density must be finite for what sample draws, in the state that drew it")
        best, true = (self._score(path, potentials) for path in (decode(self.model, self.params, drawn), truth))
        require(true <= best + 1e-9 * (1 + abs(best)), "the true path may not score higher than the most probable one")

    @staticmethod
    def _of(potentials: Potentials, piece: slice) -> Potentials:
        transition = potentials.transition[piece] if potentials.transition.ndim == 3 else potentials.transition
        logs = potentials.log_likelihood[piece]
        if logs.ndim == 3:  # pairs: matrices that vary, after a row before the first that says nothing
            transition = np.concatenate([np.ones_like(logs[:1]), transition * np.exp(logs)])
            logs = np.zeros(transition.shape[:2])
        return Potentials(potentials.initial, transition, logs)

    def _score(self, path: np.ndarray, potentials: Potentials) -> float:
        total, n = 0.0, self.model.n_states
        for piece in self.pieces:
            given, own = self._of(potentials, piece), path[None, piece].astype(int)
            if len(given.log_likelihood) > own.shape[1]:  # from the best state before the first row
                own = np.column_stack([np.arange(n), own.repeat(n, axis=0)])
            total += path_scores(*given, own).max()
        return float(total)
