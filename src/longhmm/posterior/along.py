"""Answers as functions of covariates: transitions, stationary probabilities, dwell times, parameters of emissions; and
of time: the baseline; and of sequences: their brightness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import xarray as xr

from longhmm.errors import ModelError
from longhmm.inference.markov import stationary_on_host
from longhmm.model.emissions.brightness import NAME, spreads
from longhmm.model.formula import transitions_into
from longhmm.model.regression import SUFFIX
from longhmm.model.row_by_row import checked_covariates
from longhmm.posterior.draws import Draws, central, in_float64

if TYPE_CHECKING:
    import pandas as pd

SUMMARY = ["mean", "lower", "upper"]
_values = jax.jit(lambda emission, params, rows: emission.values(params, rows))
_baseline = jax.jit(lambda emission, params, rows: emission.baseline(params, rows))
_gain = jax.jit(lambda emission, params, rows: emission.gain(params, rows))


class Following(Draws):
    """Draws that say what covariates do."""

    def along(self, covariates: Any, *, interval: float = 0.9, draws: int = 200) -> xr.Dataset:
        """What transitions and emissions are at chosen covariates, each with its posterior mean and the ends of its
        central interval.

        Args:
            covariates: one row for each point to look at: a table or a mapping where the model has a formula, else an
                array `(points, C)`. What is held constant has the same value in every row.
            interval: probability of the central interval.
            draws: how many draws to look at.

        Returns:
            Where transitions follow covariates, `transition` `(summary, point, state, to_state)`, of moves into a row
            with these covariates; `stationary` `(summary, point, state)`, the share of time in the long run were
            covariates to stay as they are there; and `dwell`, likewise, the expected length of a visit,
            `1 / (1 - A[k, k])`, in samples. And by its name every parameter of the emission that follows covariates,
            `(summary, point, state, ...)`.
        """
        emission: Any = self.model.emission
        following = [name for name in emission.regressions if name + SUFFIX in emission.names]
        if not self.model.transitions.varies and not following:
            raise ModelError("along(covariates) needs a model that follows covariates, but this one does not.")
        sizes = {len(each) for each in covariates.values()} if isinstance(covariates, dict) else {len(covariates)}
        if len(sizes) != 1 or 0 in sizes:
            raise ModelError(f"covariates must have one row for each point, got {sorted(sizes)} rows.")
        rows = checked_covariates(self.model, covariates, sizes.pop())
        at = list(self.iterate(draws))
        answers: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
        if self.model.transitions.varies:
            matrices = np.stack([transitions_into(self.model, params, rows) for params in at])
            with np.errstate(divide="ignore"):  # the sum of the others keeps its digits where a state hardly changes
                leave = matrices.sum(axis=-1) - np.diagonal(matrices, axis1=-2, axis2=-1)
                dwell = 1.0 / leave
            answers["transition"] = ("state", "to_state"), matrices
            answers |= {"stationary": (("state",), stationary_on_host(matrices)), "dwell": (("state",), dwell)}
        values = [in_float64(_values, emission, params, rows) for params in at] if following else []
        for name in following:
            own = emission.axes(name + SUFFIX, self.model.n_states)[:-1]
            answers[name] = own, np.stack([each[name] for each in values])
        found = {
            name: (
                ("summary", "point", *axes),
                np.stack([values.mean(axis=0), *central(values, interval, "inverted_cdf")]),
            )
            for name, (axes, values) in answers.items()
        }
        chosen = dict(covariates) if hasattr(covariates, "keys") else {}
        beside = {str(name): ("point", np.asarray(values)) for name, values in chosen.items()}
        states = np.arange(self.model.n_states)
        named = {"summary": SUMMARY, "state": states, "to_state": states}
        used = {axis for axes, _ in found.values() for axis in axes}
        return xr.Dataset(found, coords={**{axis: named[axis] for axis in named if axis in used}, **beside})

    def baseline(
        self, points: int = 200, *, interval: float = 0.9, draws: int = 200, gain: bool = False
    ) -> pd.DataFrame:
        """The slow baseline of a model with a drift, which is added to the levels of all states.

        Args:
            gain: the gain instead, of a model that has one: by what levels and noise are multiplied.
            points: how many rows to look at, from the first to the last of the data that were fitted.
            interval: probability of the central interval at every point.
            draws: how many draws to look at.

        Returns:
            One line for each point, and feature: `row`, `feature`, the posterior mean, `lower` and `upper`.
        """
        import pandas as pd

        emission: Any = self.model.emission
        if emission.drift is None:
            raise ModelError(f"baseline() needs a model with a drift, as Gaussian(drift=20), got {emission!r}.")
        if gain and emission.drift.gain is None:
            raise ModelError(f"gain needs a model that has one, as Gaussian(drift=Drift(gain=True)), got {emission!r}.")
        time, dim = emission.drift.linear, 1 if gain else emission.dim
        rows = np.rint(np.linspace(time.centre[0], time.centre[0] + time.spread[0] - 1, points))
        seen = np.zeros((points, time.n_covariates))
        seen[:, time.own[0]] = rows
        found = np.stack(
            [in_float64(_gain if gain else _baseline, emission, params, seen) for params in self.iterate(draws)]
        )
        lower, upper = central(found, interval, "inverted_cdf")
        numbers = dict(mean=found.mean(axis=0).ravel(), lower=lower.ravel(), upper=upper.ravel())
        features = np.tile(np.arange(dim), points)
        return pd.DataFrame(dict(row=np.repeat(rows.astype(np.int64), dim), feature=features, **numbers))

    def brightness(self, *, interval: float = 0.9) -> pd.DataFrame:
        """How bright every sequence is, of a model with `Brightness`, and how much sequences differ.

        Returns:
            One line for each sequence, by its number: the posterior mean of the factor by which its levels and noise
            are multiplied, `lower` and `upper`. The last line, "spread", is the standard deviation of the logarithms
            of the factors of all sequences that might have been seen.
        """
        import pandas as pd

        factors: Any = self.model.emission.regressions.get(NAME)
        if factors is None:
            said = f"got {self.model.emission!r}."
            raise ModelError(f"brightness() needs a model with one, as Brightness(Gaussian()), {said}")
        logs = np.asarray(self.draws[NAME], np.float64).reshape(-1, factors.size)
        found = np.column_stack([np.exp(logs), spreads(logs, float(factors.scale))])
        lower, upper = central(found, interval, "inverted_cdf")
        index = pd.Index([*range(factors.size), "spread"], name="sequence")
        return pd.DataFrame({"mean": found.mean(axis=0), "lower": lower, "upper": upper}, index=index)
