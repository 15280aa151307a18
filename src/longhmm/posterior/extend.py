"""More draws of the same run, and the same run with half the step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np

from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import ModelError, check_whole
from longhmm.posterior.diagnostics.bias import Compared, complaint, entries
from longhmm.posterior.draws import Draws
from longhmm.posterior.summary import effective_sizes, sd_errors
from longhmm.progress import Bar
from longhmm.run.checkpoint import from_plain
from longhmm.run.limit import Limit
from longhmm.run.request import Request
from longhmm.run.run import Run, carry_out
from longhmm.samplers.contract import Sampler

HALVED_DRAWS = 500  # of every chain


class Extending(Draws):
    """Draws whose run can go on."""

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
        run = self.run or _stored_run(self, data, sampler)
        run = replace(run, request=replace(run.request, draws=self.n_draws + int(draws)))
        with Bar(progress) as bar:
            chains = carry_out(run, bar, Limit(time_limit))
        vars(self).update(vars(self.from_chains(run.request.model, chains, run.request.sequences)), run=run)
        return self


def _stored_run(posterior: Draws, data: Any, sampler: Sampler | None) -> Run:
    """The run of a posterior that was read from disk: what it asked for; the rest is in its checkpoint."""
    asked, place = posterior.settings.get("request"), posterior.settings.get("checkpoint")
    if not isinstance(asked, dict) or place is None:
        raise ModelError(
            "This posterior cannot go on, since its run kept no checkpoint: sample with checkpoint='folder', or extend "
            "before saving."
        )
    if data is None:
        raise ModelError("data must be the data of the run where a posterior was loaded, got None: extend(n, data).")
    given = {name: from_plain(asked.get(name)) for name in ("sampler", "windows", "buffer")}
    given |= {name: asked[name] for name in ("chains", "draws", "warmup", "thin", "init", "seed")}
    given["automatic"] = given["spaced"] = bool(asked["automatic"])
    given["sampler"] = sampler or given["sampler"]
    if given["sampler"] is None:
        raise ModelError("sampler must be given: the run used one of your own, which is not stored with it.")
    return Run(Request(posterior.model, open_data(data), checkpoint=place, **given))


def step_bias(posterior: Draws, sequences: Sequences, details: dict[str, Any]) -> str | None:
    """What a short run with half the step says against the draws, if anything; the numbers go into `details`."""
    found = compare_halved(posterior, sequences)
    if found is None:
        details["half_step"] = "this sampler has no step to halve"
        return None
    return complaint(
        found, entries(posterior).names, details, "half_step_",
        "the mean of {name} lies {shift:+.2f} posterior sd from that with half the step",
        "the interval of {name} is {sd_ratio:.2f} times as wide as with half the step",
    )  # fmt: skip


def compare_halved(posterior: Draws, sequences: Sequences) -> Compared | None:
    """Run for a short while with half the step and compare; None for samplers without a step."""
    run = posterior.run or _stored_run(posterior, sequences, None)
    run.find()
    halved = None if run.tuned is None else run.sampler.halved()
    if halved is None:
        return None
    short = replace(
        run.request, sampler=halved, draws=min(run.request.draws, HALVED_DRAWS), thin=2 * run.thin,
        seed=run.request.seed + 1, init=posterior.mean_params(), checkpoint=None, automatic=False,
    )  # fmt: skip
    chains = carry_out(Run(short, tuned=halved))  # which keeps its tuning but for the step
    other = posterior.from_chains(posterior.model, chains, sequences)
    return compared(entries(posterior).values, entries(other).values)


def compared(draws: np.ndarray, halved: np.ndarray) -> Compared:
    """Means and standard deviations of two sets of draws `(chain, draw, Q)`."""
    both = (draws, halved)
    means, sds = [each.mean(axis=(0, 1)) for each in both], [each.std(axis=(0, 1)) for each in both]
    shift_error = np.sqrt(sum(1.0 / effective_sizes(each) for each in both))
    ratio = sds[0] / sds[1]
    ratio_error = ratio * np.hypot(*(sd_errors(each) for each in both))
    return Compared((means[0] - means[1]) / sds[1], shift_error, ratio, ratio_error, np.inf)
