"""The result of a run: labelled draws, and the answers that are computed from them."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import xarray as xr

from longhmm.errors import ModelError, check_whole
from longhmm.model.hmm import HMM
from longhmm.model.serialise import model_to_config, stored_model
from longhmm.posterior import store
from longhmm.posterior.along import Following
from longhmm.posterior.arviz_groups import Exporting
from longhmm.posterior.diagnostics.verdict import Judging, Verdict
from longhmm.posterior.draws import coordinate_axes, labelled, parameter_axes
from longhmm.posterior.events import Decoding
from longhmm.posterior.names import labels_of, numbered
from longhmm.posterior.online import Arriving
from longhmm.posterior.plotting import Plotting
from longhmm.posterior.predict import Predicting
from longhmm.posterior.summary import Summarising
from longhmm.posterior.updating import Updating
from longhmm.progress import Bar
from longhmm.run.limit import Limit
from longhmm.run.run import carry_out
from longhmm.samplers.contract import Sampler
from longhmm.version import __version__

INSIDE_RUN = "posterior"  # where a run of the command line keeps its posterior


class Posterior(Summarising, Decoding, Predicting, Following, Arriving, Plotting, Updating, Exporting, Judging):
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

    def extend(
        self,
        draws: int,
        data: Any = None,
        *,
        sampler: Sampler | None = None,
        time_limit: float | None = None,
        progress: bool = True,
    ) -> Self:
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
        check_whole("draws", draws, 1)
        run = self.run or self.stored_run(data, sampler)
        run = replace(run, request=replace(run.request, draws=self.n_draws + int(draws)))
        with Bar(progress) as bar:
            chains = carry_out(run, bar, Limit(time_limit))
        vars(self).update(vars(self.from_chains(run.request.model, chains, run.request.sequences)), run=run)
        return self

    def report(
        self,
        data: Any = None,
        path: store.Place = "report.html",
        *,
        rate: float | None = None,
        unit: str | None = None,
        title: str | None = None,
        progress: bool = True,
    ) -> Path:
        """Write a page about this posterior, one HTML file that carries all it shows, and return where it is.

        Args:
            data: the recording, to be shown with its states.
            path: the file to write.
            rate: samples per second, for times in seconds; by default what the file says, like the unit.
            unit: of the observations.
            title: of the page; by default the name of the data.
        """
        from longhmm.report.page import write_page
        from longhmm.report.stages import in_stages
        from longhmm.report.subject import Subject, data_name

        sequences, name = None if data is None else self.model.opened(data), title or data_name(self) or "A posterior"
        rate = sequences.rate if rate is None and sequences is not None else rate
        unit = sequences.unit if unit is None and sequences is not None else unit
        with in_stages(progress):
            return write_page(Subject(self, sequences, name, rate, unit or ""), Path(path))

    def save(self, path: store.Place) -> None:
        """Write everything to the directory `path`, all or nothing: Zarr arrays and JSON, no pickle."""
        try:
            config: dict[str, Any] | None = model_to_config(self.model)
        except ModelError:
            config = None  # a user's own code: load(path, model=...) takes it from there
        groups = {"draws": numbered(self.draws), "unconstrained": self.unconstrained, "sample_stats": self.sample_stats}
        if self.mode is not None:
            varying = {str(name): self.mode[str(name)] for name in self.draws}
            groups["mode"] = labelled(varying, parameter_axes(self.model), ())
        if self.information is not None:
            groups["information"] = xr.Dataset({"information": (("row", "column"), self.information)})
        verdict = None if self.verdict is None else self.verdict.to_dict()
        document = dict(longhmm=__version__, groups=list(groups), model=config, model_text=repr(self.model))
        document |= dict(settings=self.settings, notes=list(self.notes), verdict=verdict)
        store.write_run(path, document, groups)


def load(path: store.Place, model: HMM | None = None) -> Posterior:
    """Read what `Posterior.save` or `longhmm fit` wrote. Nothing in the directory can run code.

    Args:
        path: the directory.
        model: the model of the run, needed if it contains code of your own (a subclass, a function).
    """
    inner = Path(path) / INSIDE_RUN
    document, groups = store.read_run(inner if (inner / store.DOCUMENT).is_file() else path)
    damaged = store.damaged(f"{path} does not hold a complete posterior")
    if model is None:
        if document.get("model") is None:
            raise ModelError(
                f"{path} was made with a model that contains code of your own ({document.get('model_text')}): pass "
                "the same model again, as load(path, model=...)."
            )
        model = stored_model(document["model"], damaged)
    if not {"draws", "unconstrained", "sample_stats"} <= set(groups) or not isinstance(document.get("settings"), dict):
        raise damaged
    draws, unconstrained = groups["draws"], groups["unconstrained"]
    shapes = {name: tuple(axes.values()) for name, axes in parameter_axes(model).items()}
    found = {str(name): value.shape[2:] for name, value in draws.items()}
    same_names = set(map(str, unconstrained)) == set(coordinate_axes(model))
    if found != shapes or not same_names or draws["transition"].dims[0] != "chain":
        raise ModelError(
            f"{path} holds parameters of shapes {found}, {model!r} has {shapes}: pass the model of the run."
        )
    mode, information = groups.get("mode"), groups.get("information")
    try:
        return Posterior(
            model,
            draws[list(shapes)].assign_coords(labels_of(model, document["settings"].get("data") or {})),
            unconstrained,
            groups["sample_stats"],
            settings=document["settings"],
            notes=tuple(str(note) for note in document["notes"]),
            mode=None if mode is None else model.validate({str(k): np.asarray(v) for k, v in mode.items()}),
            information=None if information is None else np.asarray(information["information"]),
            verdict=None if document["verdict"] is None else Verdict.from_dict(document["verdict"]),
        )
    except (KeyError, TypeError, AttributeError):
        raise damaged from None
