"""The result of a run: labelled draws, and the answers that are computed from them."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from longhmm.backends.stream import Progress
from longhmm.data.preprocess import Preprocessing
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.model.serialise import model_to_config
from longhmm.posterior import show, store
from longhmm.posterior.decode import decode
from longhmm.posterior.diagnostics import Verdict, verdict
from longhmm.posterior.draws import Draws, describe, label_chains
from longhmm.posterior.dwell import dwell
from longhmm.posterior.events import events
from longhmm.posterior.extend import extend
from longhmm.posterior.forecast import Forecast, forecast
from longhmm.posterior.labels import labelled, parameter_dims
from longhmm.posterior.origin import Origin
from longhmm.posterior.probabilities import state_probabilities
from longhmm.posterior.score import PredictiveScore, Score, predictive_log_prob, score
from longhmm.posterior.stein import Gradient
from longhmm.run.chains import Chains
from longhmm.samplers.contract import Sampler
from longhmm.version import __version__

if TYPE_CHECKING:
    import pandas as pd


class Posterior(Draws):
    """Draws from the posterior of a hidden Markov model, and what follows from them.

    Attributes:
        model: the model, its default priors resolved to numbers.
        draws: natural parameters, `(chain, draw, state, ...)`; `transition` is `(chain, draw, state, to_state)`.
            `initial` is given rather than inferred, and constants do not vary: neither is among the draws.
        unconstrained: the same draws in the coordinates in which they were made.
        sample_stats: one number per draw, such as "log_likelihood".
        settings: how the draws came about, as plain values.
        notes: sentences about the run.
        mode: natural parameters at the mode, or None.
        information: observed information at the mode, unconstrained names in sorted order, or None.
        verdict: what the checks say, or None before `diagnose`.
        origin: what the run needs to go on, or None after loading.
    """

    def __init__(
        self,
        model: HMM,
        draws: xr.Dataset,
        unconstrained: xr.Dataset,
        sample_stats: xr.Dataset,
        *,
        settings: Mapping[str, Any] | None = None,
        notes: Sequence[str] = (),
        mode: Mapping[str, np.ndarray] | None = None,
        information: np.ndarray | None = None,
        verdict: Verdict | None = None,
    ) -> None:
        super().__init__(model, draws, unconstrained, sample_stats)
        self.settings: dict[str, Any] = dict(settings or {})
        self.notes = tuple(notes)
        self.mode = None if mode is None else dict(mode)
        self.information = information
        self.verdict = verdict
        self.origin: Origin | None = None

    @classmethod
    def from_chains(cls, model: HMM, chains: Chains, data: Sequences | Mapping[str, Any] | None = None) -> Posterior:
        """Turn what a run left behind into a posterior: natural parameters, states numbered in one order.

        `data` is the data of the run, or a description of them with the keys of `describe`.
        """
        if isinstance(data, Sequences):
            model = model.resolve(data)
        described = describe(data) if isinstance(data, Sequences) else dict(data or {})
        # States that were known in places have numbers that mean something.
        found = label_chains(model, chains, keep_order=bool(described.get("has_states", False)))
        settings = copy.deepcopy(dict(chains.settings))
        if described:
            settings.setdefault("data", described)
        settings["state_order"] = found.orders
        return cls(
            model, found.draws, found.unconstrained, found.sample_stats, settings=settings, notes=chains.notes,
            mode=found.mode, information=found.information,
        )  # fmt: skip

    def extend(
        self,
        draws: int,
        data: Any = None,
        *,
        sampler: Sampler | None = None,
        time_limit: float | None = None,
        progress: bool = True,
    ) -> Posterior:
        """Go on from where the run stopped; this posterior then holds old and new draws, and is returned.

        The chains are the same chains: with `thin` given, the draws are bit for bit those of one longer run. Where the
        distance between draws was chosen automatically it is kept, and doubled only if all draws together are too much
        alike, as one longer run would have done. What was diagnosed before no longer holds: `verdict` is None again.

        Args:
            draws: how many more, of each chain.
            data: the data of the run, needed only if the posterior was loaded from disk; its run must have kept a
                checkpoint, which is brought up to date.
            sampler: needed only if the posterior was loaded and its sampler is your own.
            time_limit, progress: as in `sample`.
        """
        return extend(self, draws, data, sampler=sampler, time_limit=time_limit, progress=progress)

    def decode(self, data: Any, *, draws: int | None = None, client: Any = None) -> np.ndarray:
        """The most probable path of states (Viterbi): `(T,)` at the posterior mean, or `(draws, T)`, one per draw.

        Many sequences are laid end to end, in order. How much the paths of several draws differ shows what the
        uncertainty of the parameters does to the decoding; it does not include the uncertainty of the path itself.
        With a `client` of a Dask cluster, its workers pass over the data.
        """
        return decode(self, data, draws=draws, client=client)

    def state_probabilities(
        self, data: Any, *, draws: int = 20, causal: bool = False, out: Any = None, client: Any = None
    ) -> np.ndarray:
        """`P(x_t = k | all y)`, `(T, K)` float32, averaged over `draws` evenly spaced draws.

        Args:
            data: anything that `open_data` takes; many sequences are laid end to end.
            causal: True conditions on the observations up to t only.
            out: where to put the result if it is too long for memory: the name of an .npy file to make, or an array.
            client: a `dask.distributed.Client`, whose workers then pass over the data.
        """
        return state_probabilities(self, data, draws=draws, causal=causal, out=out, client=client)

    def score(self, data: Any, *, draws: int = 100, after: Any = None, blocks: int = 100, client: Any = None) -> Score:
        """Log predictive density of held-out data: the logarithm of the likelihood averaged over draws.

        Args:
            data: held-out observations.
            draws: how many draws to average over.
            after: data that `data` follow without a gap, such as the training data; the first state then has the
                distribution that they imply. Without it, `data` begin afresh from the initial distribution.
            blocks: stretches of equal length into which the score is split.
            client: a `dask.distributed.Client`, whose workers then pass over the data.
        """
        return score(self, data, draws=draws, after=after, blocks=blocks, client=client)

    def predictive_log_prob(self, data: Any, *, steps: int = 10, draws: int = 10) -> PredictiveScore:
        """Mean over t of `log p(y_{t+steps} | y_0 .. y_t)`, densities averaged over `draws` draws at each t."""
        return predictive_log_prob(self.model, list(self.iterate(draws)), data, steps=steps)

    def forecast(
        self,
        data: Any,
        steps: int,
        *,
        draws: int = 200,
        paths: int = 20,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        sequence: int = -1,
        seed: int = 0,
        covariates: Any = None,
    ) -> Forecast:
        """Predict states and observations after the end of one sequence.

        State probabilities are exact for each draw of the parameters; observations are sampled.

        Args:
            data: the observations so far.
            steps: how many steps ahead.
            draws: draws of the parameters.
            paths: sampled continuations of each draw.
            quantiles: of the sampled observations, which to return.
            sequence: which sequence goes on, the last by default.
            seed: of the sampled observations.
            covariates: `(steps, C)`, of the steps ahead, for models that depend on them.
        """
        how = {"draws": draws, "paths": paths, "quantiles": quantiles, "sequence": sequence, "seed": seed}
        return forecast(self, data, steps, covariates=covariates, **how)  # type: ignore[arg-type]

    def events(
        self,
        data: Any,
        *,
        rate: float | None = None,
        path: np.ndarray | None = None,
        interval: float = 0.9,
        preprocessing: Preprocessing | None = None,
    ) -> pd.DataFrame:
        """One row per visit to a state: when it began and ended, which state, and at what level.

        Columns: `sequence`; `start` (inclusive) and `end` (exclusive) in samples, counted from the start of the
        sequence; `start_s` and `end_s` in seconds where `rate` is given; `state`; `level`, the emission's location in
        the units of the data, with the ends of its central interval, `level_lower` and `level_upper`. An event never
        runs from one sequence into the next.

        Args:
            rate: samples per second.
            path: states `(T,)`, if they were decoded already; otherwise the most probable path at the posterior mean.
            interval: probability of the interval of the level, over draws of the parameters.
            preprocessing: what was done to a recording to make `data` of it. Samples, rate and levels are then those of
                the recording: with every n-th sample kept, an event covers n times as many samples of the file.
        """
        return events(self, data, rate=rate, path=path, interval=interval, preprocessing=preprocessing)

    def dwell(
        self, *, rate: float | None = None, interval: float = 0.9, data: Any = None, draws: int = 20
    ) -> pd.DataFrame:
        """One row per state, each quantity with its posterior mean and the ends of its central interval.

        Columns: `dwell`, the expected length of a visit, `1 / (1 - A[k, k])`, in samples; `dwell_s`, the same in
        seconds where `rate` (samples per second) is given; `stationary`, the share of time in the long run; and, where
        `data` are given, `occupancy`, the share of their observations, averaged over `draws` draws.
        """
        return dwell(self, rate=rate, interval=interval, data=data, draws=draws)

    def diagnose(
        self,
        data: Any = None,
        *,
        gradients: int = 32,
        cells: int = 400,
        gradient: Gradient | None = None,
        half_step: bool = False,
        progress: Progress | None = None,
    ) -> Verdict:
        """Run the checks behind the verdict, and keep what they say.

        Args:
            data: the data of the run; without them nothing but the chains can be judged.
            gradients: at how many draws to evaluate the exact gradient, one pass over the data each; 0 leaves it out.
            cells: how many stretches of data to compare for the sandwich.
            gradient: a function from coordinates by name to the exact gradient, instead of passes over the data.
            half_step: run the chains again for a short while with half the step, and compare. Off by default, since
                exact gradients see the same error, and more, for less.
            progress: called with the number of rows that an exact gradient has done.
        """
        how: Any = {"gradients": gradients, "cells": cells, "gradient": gradient}
        self.verdict = verdict(self, data, **how, half_step=half_step, progress=progress)
        return self.verdict

    def report(
        self,
        data: Any = None,
        path: str | os.PathLike[str] = "report.html",
        *,
        rate: float | None = None,
        unit: str = "",
        title: str | None = None,
    ) -> Path:
        """Write a page about this posterior, one HTML file that carries all it shows, and return where it is.

        Args:
            data: the recording, to be shown with its states.
            path: the file to write.
            rate: samples per second, for times in seconds.
            unit: of the observations.
            title: of the page; by default the name of the data.
        """
        from longhmm.report.page import report

        return report(self, data, path, rate=rate, unit=unit, title=title)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to the directory `path`, all or nothing: Zarr arrays and JSON, no pickle."""
        try:
            config: dict[str, Any] | None = model_to_config(self.model)
        except ModelError:
            config = None  # a user's own code: load(path, model=...) takes it from there
        groups = {"draws": self.draws, "unconstrained": self.unconstrained, "sample_stats": self.sample_stats}
        if self.mode is not None:
            groups["mode"] = labelled(
                {str(name): self.mode[str(name)] for name in self.draws}, parameter_dims(self.model), ()
            )
        if self.information is not None:
            groups["information"] = xr.Dataset({"information": (("row", "column"), self.information)})
        document = {
            "longhmm": __version__,
            "groups": list(groups),
            "model": config,
            "model_text": repr(self.model),
            "settings": self.settings,
            "notes": list(self.notes),
            "verdict": None if self.verdict is None else self.verdict.to_dict(),
        }
        store.write_run(path, document, groups)

    def __repr__(self) -> str:
        return show.as_text(self)

    def _repr_html_(self) -> str:
        return show.as_html(self)
