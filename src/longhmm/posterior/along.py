"""Answers as functions of covariates: transitions, stationary probabilities, dwell times, parameters of emissions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import xarray as xr

from longhmm.errors import ModelError
from longhmm.inference.markov import stationary_on_host
from longhmm.model.formula import transitions_into
from longhmm.model.regression import SUFFIX
from longhmm.model.row_by_row import checked_covariates
from longhmm.posterior.draws import Draws, central, in_float64

SUMMARY = ["mean", "lower", "upper"]
_values = jax.jit(lambda emission, params, rows: emission.values(params, rows))


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
        if not self.model.transitions.varies and not self.model.emission.regressions:
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
        emission: Any = self.model.emission
        values = [in_float64(_values, emission, params, rows) for params in at] if emission.regressions else []
        for name in emission.regressions:
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
