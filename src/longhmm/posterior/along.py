"""Answers as functions of covariates: transitions, stationary probabilities and expected dwell times."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from longhmm.errors import ModelError
from longhmm.inference.markov import stationary_on_host
from longhmm.model.formula import transitions_into
from longhmm.model.row_by_row import checked_covariates
from longhmm.posterior.draws import Draws, central

SUMMARY = ["mean", "lower", "upper"]


class Following(Draws):
    """Draws that say what covariates do."""

    def along(self, covariates: Any, *, interval: float = 0.9, draws: int = 200) -> xr.Dataset:
        """What transitions are at chosen covariates, each with its posterior mean and the ends of its central interval.

        Args:
            covariates: one row for each point to look at: a table or a mapping where the model has a formula, else an
                array `(points, C)`. What is held constant has the same value in every row.
            interval: probability of the central interval.
            draws: how many draws to look at.

        Returns:
            `transition` `(summary, point, state, to_state)`, of moves into a row with these covariates; `stationary`
            `(summary, point, state)`, the share of time in the long run were covariates to stay as they are there; and
            `dwell`, likewise, the expected length of a visit, `1 / (1 - A[k, k])`, in samples.
        """
        if not self.model.transitions.varies:
            raise ModelError("along(covariates) needs transitions that follow covariates, but these do not.")
        sizes = {len(each) for each in covariates.values()} if isinstance(covariates, dict) else {len(covariates)}
        if len(sizes) != 1 or 0 in sizes:
            raise ModelError(f"covariates must have one row for each point, got {sorted(sizes)} rows.")
        rows = checked_covariates(self.model, covariates, sizes.pop())
        matrices = np.stack([transitions_into(self.model, params, rows) for params in self.iterate(draws)])
        with np.errstate(divide="ignore"):  # the sum of the others keeps its digits where a state hardly ever changes
            leave = matrices.sum(axis=-1) - np.diagonal(matrices, axis1=-2, axis2=-1)
            dwell = 1.0 / leave
        found = {}
        for name, values in {
            "transition": matrices,
            "stationary": stationary_on_host(matrices),
            "dwell": dwell,
        }.items():
            axes = ("summary", "point", "state", "to_state")[: values.ndim]
            found[name] = (axes, np.stack([values.mean(axis=0), *central(values, interval, "inverted_cdf")]))
        chosen = dict(covariates) if hasattr(covariates, "keys") else {}
        beside = {str(name): ("point", np.asarray(values)) for name, values in chosen.items()}
        states = np.arange(self.model.n_states)
        named = {"summary": SUMMARY, "state": states, "to_state": states}
        return xr.Dataset(found, coords={**named, **beside})
