"""A posterior of more data: the search begins at the old mode with the old curvature instead of from many starts."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from longhmm.data.joining import ConcatenatedSource
from longhmm.data.sequences import Sequences
from longhmm.data.source import ArraySource, Source
from longhmm.errors import DataError, ModelError
from longhmm.posterior.draws import Draws
from longhmm.progress import Bar
from longhmm.run.checkpoint import from_plain
from longhmm.run.compilation import cached_compilation
from longhmm.run.limit import Limit
from longhmm.run.request import Request
from longhmm.run.run import Run, carry_out
from longhmm.target.coordinates import unconstrain

KEPT = ("chains", "draws", "warmup", "thin", "seed")  # what a run asked for, and asks for again
UNMARKED = {"mask": 0, "states": -1}  # where one of two data sets has none


class Updating(Draws):
    """Draws that go on to the posterior of more data."""

    @cached_compilation()
    def update(
        self,
        new_data: Any,
        *,
        data: Any = None,
        continues: bool = False,
        draws: int | None = None,
        time_limit: float | None = None,
        progress: bool = True,
        verdict: bool = True,
    ) -> Any:
        """The posterior of the data so far and of new ones, as a run of its own; this one stays as it is.

        Priors are those of this posterior, also where they were scaled to its data. The search for the mode begins at
        the old one with the old curvature, on all data at once, and looks for no other mode: where new data change what
        the states are, sample anew.

        Args:
            new_data: what came since, anything that `open_data` takes.
            data: the data so far, needed only if the posterior was loaded from disk.
            continues: whether the new rows go on where the last sequence ended; otherwise they are sequences apart.
            draws: of each chain; by default as many as here.
            time_limit, progress, verdict: as in `sample`.
        """
        if data is None and self.run is None:
            raise ModelError("data must be the data of the run where a posterior was loaded, got None.")
        old = self.model.opened(data) if self.run is None else self.run.request.sequences
        whole = appended(old, self.model.opened(new_data), continues)
        near = None
        if self.mode is not None and self.information is not None:
            near = unconstrain(self.model, self.mode), self.information * (whole.length / max(old.length, 1))
        given: Any = {"init": None if near else self.centre} | ({} if draws is None else {"draws": int(draws)})
        run = Run(replace(self._request(whole), **given), near=near)
        limit = Limit(time_limit)
        found = self._carried_out(run, progress, limit)
        if progress and verdict:
            found.diagnose(whole)
            if found.verdict.kind == "biased" and run.request.automatic and not run.why_exact and time_limit is None:
                why = f"exact gradients contradicted the draws from windows, {found.verdict.reason}"
                found = self._carried_out(Run(run.request, run.tuned, why), progress, limit)
                found.diagnose(whole)
            print(f"Verdict: {found.verdict}")
        return found

    def _carried_out(self, run: Run, progress: bool, limit: Limit) -> Any:
        with Bar(progress) as bar:
            found = self.from_chains(run.request.model, carry_out(run, bar, limit), run.request.sequences)
        found.run = run
        return found

    def _request(self, whole: Sequences) -> Request:
        """What the run of this posterior asked for, of other data and without a checkpoint."""
        if self.run is not None:
            return replace(self.run.request, model=self.model, sequences=whole, checkpoint=None)
        asked = self.settings.get("request") or {}
        kept = {name: from_plain(asked.get(name)) for name in ("sampler", "windows", "buffer")}
        if kept["sampler"] is None:
            raise ModelError("The run of this posterior used a sampler of your own, which is not stored: sample anew.")
        kept |= {name: asked[name] for name in KEPT if asked.get(name) is not None}
        automatic = bool(asked.get("automatic"))
        return Request(self.model, whole, **kept, automatic=automatic, spaced=automatic)


def appended(old: Sequences, new: Sequences, continues: bool = False) -> Sequences:
    """Both data sets, one behind the other; in memory where both are."""
    if old.dim != new.dim or old.n_covariates != new.n_covariates:
        raise DataError(
            f"new_data must have {old.dim} feature(s) and {old.n_covariates} covariate(s) like the data of the run, "
            f"got {new.dim} and {new.n_covariates}."
        )
    parts: dict[str, Source] = {}
    for name in {**old.parts, **new.parts}:
        pair = [each.parts.get(name) or _unmarked(name, each.length) for each in (old, new)]
        if all(isinstance(each, ArraySource) for each in pair):
            values = np.concatenate([each.read(0, each.length) for each in pair])
            parts[name] = ArraySource(values, pair[0].name, like=pair[0])
        else:
            parts[name] = ConcatenatedSource(pair)
    behind = new.offsets[1:] + old.length
    offsets = np.concatenate([old.offsets[:-1] if continues else old.offsets, behind])
    found = Sequences(parts.pop("values"), offsets, **parts)
    found.executor, found.context = old.executor, copy.copy(old.context)
    return found


def _unmarked(name: str, length: int) -> Source:
    return ArraySource(np.full((length, 1), UNMARKED[name], np.int8), name)
