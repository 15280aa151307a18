"""Detectors that average: a frame shows the mean over its exposure, so that emission and transition couple.

Given the states i before and j at the end of a frame, `p(y | i, j) = sum_c P(c | i, j) p(y | c)` over the shares c of
the frame that were spent on each level. A frame is cut into m sub-steps, and the state in the middle of each counts for
all of it: shares are those of a chain that takes half a sub-step, m - 1 whole ones, and half of one again.

Of two states the share x of the second has a closed form. Where the first is left a times in a frame, the second b
times, and `z = 2 sqrt(a b x (1 - x))`, densities from 1 to 2 and from 2 to 1 are a and b times `I0(z) exp(-a (1 - x) -
b x)`; those from 1 to 1 and from 2 to 2 are `2 a b I1(z) / z` times the same exponential and 1 - x, or x, beside masses
`exp(-a)` at x = 0, and `exp(-b)` at x = 1. They are smooth in x: few nodes of Gauss and Legendre serve for shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from itertools import product as all_of
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import i0e, i1e

from longhmm.data.rows import Rows
from longhmm.errors import ModelError, check_whole
from longhmm.inference.scaling import safe_log
from longhmm.model.covariance import LOG_2PI
from longhmm.model.emissions import Before, Emission
from longhmm.model.emissions.gaussian import Gaussian
from longhmm.model.emissions.tied import Tied
from longhmm.model.lowering import Lowering
from longhmm.model.parameters import Parameter, Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary
from longhmm.model.transitions.rates_by_row import by_row

FRAMES = 7  # see call.h
MOST_NUMBERS = 1 << 14  # of a pack: beyond, the sums of a window are no longer small
SUBSTEPS, NODES = 8, 24  # where nothing else is asked for: of more than two states, and of two
SQUARED = {"mean": False, "rate": False, "sd": True}  # whether the squares of a parameter are averaged over a frame


@EMISSIONS.register("frame-average", offered=False)
class FrameAverage(Tied):
    """What `emission` shows of the mean level over each frame; transitions must be `Rates`.

    Args:
        emission: of a frame without transitions: a `Gaussian` (the default) whose means, and variances, are averaged
            over the frame, or a `Poisson` whose rates are.
        substeps: into how many parts a frame is cut; the error falls with their square. Of two states that together
            leave 1.5 times in a frame, the variance of the mean level is 0.9 % too large with 8, and 0.2 % with 16.
            None, the default: 8, but for two states without sub-steps, exactly as far as noise is no less than a
            twentieth of the distance between their levels.
        levels: the level of every state where several share one, such as (0, 0, 1).

    >>> import longhmm as lh
    >>> lh.HMM(3, lh.FrameAverage(substeps=6), transitions=lh.Rates("1 <-> 2 <-> 3", dt=0.1)).emission
    FrameAverage(Gaussian(), substeps=6)
    """

    couples, sees_transitions, log_density = True, True, Emission.log_density

    def __init__(
        self, emission: Emission | None = None, *, substeps: int | None = None, levels: Sequence[int] | None = None
    ) -> None:
        if substeps is not None:
            check_whole("substeps", substeps, 1)
        inner = Gaussian() if emission is None else emission
        if not isinstance(inner, Emission) or inner.dim != 1 or not set(inner.names) <= set(SQUARED):
            raise ModelError(f"FrameAverage must be of one feature with a mean or a rate, got {emission!r}.")
        super().__init__(inner, (0,) if levels is None else levels)
        self.substeps, self.tied = None if substeps is None else int(substeps), levels is not None
        self.moves: Any = None

    def __repr__(self) -> str:
        parts = "" if self.substeps is None else f", substeps={self.substeps}"
        levels = f", levels={self.levels}" if self.tied else ""
        return f"FrameAverage({self.emission!r}{parts}{levels})"

    def options(self) -> dict[str, Any]:
        levels = list(self.levels) if self.tied else None
        return {"emission": self.emission, "substeps": self.substeps, "levels": levels}

    def beside(self, transitions: Any) -> Self:
        if transitions.dt is None:
            raise ModelError(f"FrameAverage needs transitions=Rates(...), got {type(transitions).__name__}.")
        if self.tied and len(self.levels) != transitions.n_states:
            raise ModelError(f"levels must be one for each of {transitions.n_states} states, got {self.levels}.")
        return self._with(self.emission, transitions)

    def _with(self, emission: Emission, moves: Any) -> Self:
        found = type(self)(emission, substeps=self.substeps, levels=self.levels if self.tied else None)
        found.moves = moves
        if not self.tied and moves is not None:
            found.levels = tuple(range(moves.n_states))
        return found

    def resolve(self, summary: DataSummary) -> Emission:
        return self if self.is_resolved else self._with(self.emission.resolve(summary), self.moves)

    @property
    def lowering(self) -> FrameLowering | None:  # type: ignore[override]
        if self.moves is None or self.moves.varies:
            return None
        found = FrameLowering(self)
        return found if found.pack * self.moves.n_states <= MOST_NUMBERS else None

    def axes(self, name: str, n_states: int) -> tuple[str, ...]:
        return super().axes(name, n_states) if self.tied else self.emission.axes(name, n_states)

    def parameters(self, n_states: int) -> dict[str, Parameter]:
        return super().parameters(n_states) if self.tied else self.emission.parameters(n_states)

    @property
    def _exact(self) -> bool:
        return self.substeps is None and len(self.levels) == 2 and self.levels[0] != self.levels[1]

    @cached_property
    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """Shares of a frame between 0 and 1, and their weights."""
        places, weights = np.polynomial.legendre.leggauss(NODES)
        return (places + 1) / 2, weights / 2

    @cached_property
    def _counts(self) -> np.ndarray:
        """`(., L)`, numbers of sub-steps on every level, all but the last in the order of `_chances`."""
        n, parts = max(self.levels), self.substeps or SUBSTEPS
        counts = np.array(list(all_of(range(parts + 1), repeat=n)), int).reshape(-1, n)
        return np.append(counts, parts - counts.sum(axis=1, keepdims=True), axis=1)

    @cached_property
    def _shares(self) -> np.ndarray:
        """`(C, L)`, shares of a frame on every level."""
        if not self._exact:
            return np.asarray(self._counts[self._possible] / (self.substeps or SUBSTEPS))
        second = np.concatenate([[0.0], self._nodes[0], [1.0]])
        return np.stack([1 - second, second], axis=1)[:, list(self.levels)]

    def _chances(self, params: Params, row: Any = None) -> jax.Array:
        """`(K, K, C)`, chances of the shares given the states before and at the end of a frame, whose transitions
        follow the covariates of a row where they vary."""
        rates = jnp.asarray(params[self.moves.parameter])
        found = self._densities(rates, row) if self._exact else self._walked(rates, row)
        total = jnp.sum(found, axis=-1, keepdims=True)  # 0 where the scheme does not lead from one state to the other
        return found / jnp.where(total > 0, total, 1.0)

    def _densities(self, rates: jax.Array, row: Any) -> jax.Array:
        """Those of two states, up to factors of each pair."""
        flow = self.moves.flow(rates, 1.0, row)
        a, b = flow[0, 1], flow[1, 0]
        x, weights = (jnp.asarray(each, rates.dtype) for each in self._nodes)
        both = a * b * x * (1 - x)
        z = 2 * jnp.sqrt(jnp.where(both > 0, both, 1e-30))  # a step may be missing in one direction
        falls, ends = z - a * (1 - x) - b * x, -jnp.stack([a, b])
        top = jax.lax.stop_gradient(jnp.maximum(jnp.max(falls), jnp.max(ends)))
        falls, masses = weights * jnp.exp(falls - top), jnp.diag(jnp.exp(ends - top))
        there, back = i0e(z) * falls, 2 * a * b * i1e(z) / z * falls
        inside = jnp.stack([jnp.stack([back * (1 - x), a * there]), jnp.stack([b * there, back * x])])
        first, last = (masses * jnp.eye(2, dtype=rates.dtype)[state] for state in (0, 1))
        return jnp.concatenate([first[..., None], inside, last[..., None]], axis=-1)

    def _walked(self, rates: jax.Array, row: Any) -> jax.Array:
        """Those of sub-steps."""
        parts, n, moves = self.substeps or SUBSTEPS, max(self.levels), self.moves
        half = moves.after(rates, 0.5 / parts, row)
        whole = moves.after(rates, 1.0 / parts, row)
        found = jnp.zeros((moves.n_states, moves.n_states, *(parts + 1,) * n), rates.dtype)
        found = found.at[(..., *(0,) * n)].set(half)
        for step in range(parts):
            if step:
                found = jnp.einsum("ij...,jk->ik...", found, whole, precision="highest")
            by_state = [
                found[:, state] if level == n else jnp.roll(found[:, state], 1, 1 + level)
                for state, level in enumerate(self.levels)
            ]
            found = jnp.stack(by_state, axis=1)
        found = jnp.einsum("ij...,jk->ik...", found, half, precision="highest")
        return found.reshape(*found.shape[:2], -1)[..., self._possible]

    @cached_property
    def _possible(self) -> np.ndarray:
        return np.flatnonzero(self._counts[:, -1] >= 0)

    def _mixed(self, params: Params) -> dict[str, jax.Array]:
        """The parameters of frames with each of the shares."""
        shares, found = self._shares, {}
        for name in self.emission.names:
            value = jnp.asarray(params[name])
            mean = jnp.sum(jnp.asarray(shares, value.dtype) * (value**2 if SQUARED[name] else value), axis=1)
            found[name] = jnp.sqrt(mean) if SQUARED[name] else mean
        return found

    def log_likelihoods(self, params: Params, rows: Rows) -> jax.Array:
        logs = self.emission.log_likelihoods(self._mixed(params), rows)
        peak = jax.lax.stop_gradient(jnp.max(logs, axis=-1, keepdims=True))
        weighed = self._weighed(params, rows.covariates, jnp.exp(logs - peak))
        return jnp.where(jnp.asarray(rows.observed)[..., None], safe_log(weighed) + peak[..., None], 0.0)

    def _weighed(self, params: Params, covariates: Any, numbers: jax.Array) -> jax.Array:
        """`(..., K, K)`, the means over shares of numbers `(..., C)` of rows, given the states of each pair."""
        if not self.moves.varies:
            return jnp.einsum("...c,ijc->...ij", numbers, self._chances(params), precision="highest")
        mean = partial(jnp.einsum, "ijc,c->ij", precision="highest")
        return by_row(self.moves, partial(self._chances, params), covariates, numbers, mean)

    def sample_after(self, key: jax.Array, params: Params, states: jax.Array, before: Before) -> jax.Array:
        share, noise = jax.random.split(key)
        if self.moves.varies:  # the paths of one time have one row of covariates
            chances = self._chances(params, jnp.asarray(before.covariates)[0, list(self.moves.own)])
        else:
            chances = self._chances(params)
        chosen = jax.random.categorical(share, safe_log(chances)[before.states, states])
        return self.emission.sample(noise, self._mixed(params), chosen)

    def cdf_of_rows(self, params: Params, rows: Rows) -> tuple[jax.Array, jax.Array] | None:
        """Given the states before and at the end of a frame, `(n, K K, D)`."""
        found = self.emission.cdf(self._mixed(params), jnp.asarray(rows.values))
        if found is None:
            return None
        sides = found[:1] if found[0] is found[1] else found
        pairs = [self._weighed(params, rows.covariates, each[..., 0]).reshape(len(each), -1, 1) for each in sides]
        return pairs[0], pairs[-1]


class FrameLowering(Lowering):
    """Natural parameters of state i: chances of the shares of a frame, given each state at its end; then for each share
    a, m, s and b of `log p(y | share) = a + b y - (s (y - m))^2 / 2`. Sums are derivatives by these."""

    kind, rows_are_values, partial_rows, sufficient = FRAMES, True, True, False
    emission: FrameAverage

    def __init__(self, emission: FrameAverage) -> None:
        size = len(emission._shares) * (emission.moves.n_states + 4)
        super().__init__(emission, 1, size, size)
        self.has_base_measure = "rate" in emission.emission.names

    def natural(self, params: Params) -> jax.Array:
        chances, mixed = self.emission._chances(params), self.emission._mixed(params)
        if self.has_base_measure:
            rate, none = mixed["rate"], jnp.zeros_like(mixed["rate"])
            numbers = jnp.stack([-rate, none, none, safe_log(rate)], axis=-1)
        else:
            mean, sd = mixed["mean"], mixed["sd"]
            numbers = jnp.stack([-jnp.log(sd) - 0.5 * LOG_2PI, mean, 1.0 / sd, jnp.zeros_like(sd)], axis=-1)
        n = chances.shape[0]
        every = jnp.broadcast_to(numbers.reshape(1, -1).astype(chances.dtype), (n, numbers.size))
        return jnp.concatenate([chances.reshape(n, -1), every], axis=1)

    def gradient(self, params: Params, sums: jax.Array) -> dict[str, jax.Array]:
        names = (*self.emission.free_names, self.emission.moves.parameter)
        _, pull = jax.vjp(lambda free: self.natural({**params, **free}), {name: params[name] for name in names})
        found: dict[str, jax.Array] = pull(sums)[0]
        return found

    def log_base_measure(self, values: Any, observed: Any) -> Any:
        inner: Any = self.emission.emission.lowering
        return inner.log_base_measure(values, observed) if self.has_base_measure else np.zeros(())
