"""The result of a run: labelled draws, and the answers that are computed from them."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from longhmm.backends.stream import Progress
from longhmm.data.sequences import Sequences
from longhmm.errors import DataError, ModelError
from longhmm.model.hmm import HMM
from longhmm.model.serialise import model_from_config, model_to_config
from longhmm.posterior import store, summary
from longhmm.posterior.diagnostics.bias import Gradient
from longhmm.posterior.diagnostics.convergence import to_arviz
from longhmm.posterior.diagnostics.verdict import Verdict, verdict
from longhmm.posterior.draws import (
    coordinate_dims,
    describe,
    label_chains,
    labelled,
    parameter_dims,
    parameter_shapes,
)
from longhmm.posterior.dwell import Timing
from longhmm.posterior.events import Segmenting
from longhmm.posterior.extend import extend
from longhmm.posterior.predict import Forecasting
from longhmm.posterior.score import Scoring
from longhmm.run.chains import Chains
from longhmm.run.run import Run
from longhmm.samplers.contract import Sampler
from longhmm.version import __version__

if TYPE_CHECKING:
    import pandas as pd

INSIDE_RUN = "posterior"  # where a run of the command line keeps its posterior


@dataclass(eq=False, repr=False)
class Posterior(Segmenting, Forecasting, Scoring, Timing):
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
        run: what is needed to go on, or None after loading.
    """

    verdict: Verdict | None = None
    run: Run | None = None

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
        return cls(model, **found | {"settings": settings | found["settings"]})

    def summary(self, *, interval: float = 0.9) -> pd.DataFrame:
        """One row per entry of every parameter: mean, sd, central interval, R-hat, bulk and tail ESS."""
        return summary.summary_table(self, interval)

    def to_arviz(self) -> Any:
        """The draws in ArviZ's container: InferenceData, or from ArviZ 1 on an xarray DataTree."""
        groups = {"posterior": self.draws, "sample_stats": self.sample_stats}
        return to_arviz({**groups, "unconstrained_posterior": self.unconstrained})

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

    def diagnose(
        self,
        data: Any = None,
        *,
        gradients: int = 32,
        blocks: int = 400,
        gradient: Gradient | None = None,
        half_step: bool = False,
        progress: Progress | None = None,
    ) -> Verdict:
        """Run the checks behind the verdict, and keep what they say.

        Args:
            data: the data of the run; without them nothing but the chains can be judged.
            gradients: at how many draws to evaluate the exact gradient, one pass over the data each; 0 leaves it out.
            blocks: how many stretches of data to compare for the sandwich.
            gradient: a function from coordinates by name to the exact gradient, instead of passes over the data.
            half_step: run the chains again for a short while with half the step, and compare. Off by default, since
                exact gradients see the same error, and more, for less.
            progress: called with the number of rows that an exact gradient has done.
        """
        self.verdict = verdict(
            self, data, gradients=gradients, blocks=blocks, gradient=gradient, half_step=half_step, progress=progress
        )
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

        return report(self, data, path, rate, unit, title)

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
        return summary.as_text(self, None if self.verdict is None else self.verdict.kind)

    def _repr_html_(self) -> str:
        return summary.as_html(self, None if self.verdict is None else str(self.verdict))


def load(path: str | os.PathLike[str], model: HMM | None = None) -> Posterior:
    """Read what `Posterior.save` or `longhmm fit` wrote. Nothing in the directory can run code.

    Args:
        path: the directory.
        model: the model of the run, needed if it contains code of your own (a subclass, a function).
    """
    inner = Path(path) / INSIDE_RUN
    document, groups = store.read_run(inner if (inner / store.DOCUMENT).is_file() else path)
    damaged = DataError(f"{path} does not hold a complete posterior; the run is damaged, restore a copy of it.")
    if model is None:
        if document.get("model") is None:
            raise ModelError(
                f"{path} was made with a model that contains code of your own ({document.get('model_text')}): pass "
                "the same model again, as load(path, model=...)."
            )
        try:
            model = model_from_config(document["model"])
        except ModelError:
            raise
        except Exception:  # a description that save did not write can fail in any way
            raise damaged from None
    if not {"draws", "unconstrained", "sample_stats"} <= set(groups) or not isinstance(document.get("settings"), dict):
        raise damaged
    shapes, dims = parameter_shapes(model), coordinate_dims(model)
    draws = groups["draws"]
    found = {str(name): value.shape[2:] for name, value in draws.items()}
    if found != shapes or set(map(str, groups["unconstrained"])) != set(dims) or draws["transition"].dims[0] != "chain":
        raise ModelError(
            f"{path} holds parameters of shapes {found}, but {model!r} has {shapes}: pass the model of the run."
        )
    mode, information = groups.get("mode"), groups.get("information")
    try:
        return Posterior(
            model,
            draws[list(shapes)],
            groups["unconstrained"],
            groups["sample_stats"],
            settings=document["settings"],
            notes=tuple(str(note) for note in document["notes"]),
            mode=None if mode is None else model.validate({str(k): np.asarray(v) for k, v in mode.items()}),
            information=None if information is None else np.asarray(information["information"]),
            verdict=None if document["verdict"] is None else Verdict.from_dict(document["verdict"]),
        )
    except (KeyError, TypeError, AttributeError):
        raise damaged from None
