"""More draws of the same run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from longhmm.data.sequences import open_data
from longhmm.errors import ModelError, check_whole
from longhmm.progress import Bar
from longhmm.run.checkpoint import from_plain
from longhmm.run.limit import Limit
from longhmm.run.request import Request
from longhmm.run.run import Run, carry_out
from longhmm.samplers.contract import Sampler

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior


def extend(
    posterior: Posterior,
    draws: int,
    data: Any = None,
    *,
    sampler: Sampler | None = None,
    time_limit: float | None = None,
    progress: bool = True,
) -> Posterior:
    """See `Posterior.extend`."""
    check_whole("draws", draws, 1)
    run = posterior.run or run_of(posterior, data, sampler)
    run = replace(run, request=replace(run.request, draws=posterior.n_draws + int(draws)))
    with Bar(progress) as bar:
        chains = carry_out(run, bar, Limit(time_limit))
    request = run.request
    posterior.__dict__.update(type(posterior).from_chains(request.model, chains, request.sequences).__dict__)
    posterior.run = run
    return posterior


def run_of(posterior: Posterior, data: Any, sampler: Sampler | None) -> Run:
    """The run of a posterior that was read from disk: what it asked for; the rest is in its checkpoint."""
    asked, place = posterior.settings.get("request"), posterior.settings.get("checkpoint")
    if not isinstance(asked, dict) or place is None:
        raise ModelError(
            "This posterior cannot go on, since its run kept no checkpoint: sample with checkpoint='folder', or extend "
            "before saving."
        )
    if data is None:
        raise ModelError(
            "data must be the data of the run where a posterior was loaded, got None: extend(draws, data)."
        )
    policies = {name: from_plain(asked.get(name)) for name in ("sampler", "windows", "buffer")}
    if sampler is not None:
        policies["sampler"] = sampler
    if policies["sampler"] is None:
        raise ModelError("sampler must be given: the run used one of your own, which is not stored with it.")
    plain = {name: asked[name] for name in ("chains", "draws", "warmup", "thin", "init", "seed")}
    automatic = bool(asked["automatic"])
    return Run(
        Request(
            posterior.model, open_data(data), checkpoint=place, automatic=automatic, spaced=automatic, **policies,
            **plain,
        )
    )  # fmt: skip
