"""`lh.sample`: data in, posterior out; draws that exact gradients contradict are made again by an exact sampler."""

import copy
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.progress import Bar
from longhmm.run.chains import stopped_note
from longhmm.run.cluster import on_cluster
from longhmm.run.compilation import cached_compilation
from longhmm.run.driver import CTRL_C
from longhmm.run.limit import Limit, TimeIsOver
from longhmm.run.partial_start import whole_init
from longhmm.run.request import Request
from longhmm.run.run import Run, carry_out
from longhmm.samplers import from_name, names
from longhmm.samplers.contract import Sampler
from longhmm.samplers.control_variate_sgld import ControlVariateSGLD
from longhmm.target.buffer_length import FixedBuffer, LyapunovBuffer
from longhmm.target.systematic import Windows

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior

GRADIENTS, PASSED = 32, 3.2e8  # exact gradients behind a verdict, and rows of all together beyond which there are fewer
CHECKS = 0.2  # share of a limited time that is left to them
CHECKED = 16  # exact gradients at which draws from windows are checked
PER_STEP, ADAPTATION = 8, 350  # exact gradients of a step of the exact sampler, about, and steps of its warm-up
MOST_ROWS = 2.7e9  # rows of exact gradients that a run is repeated for: minutes, not hours


@cached_compilation()
def sample(
    model: HMM,
    data: Any,
    *,
    sampler: Sampler | str | None = None,
    windows: Windows | None = None,
    buffer: LyapunovBuffer | FixedBuffer | None = None,
    chains: int = 4,
    draws: int = 1000,
    warmup: int | None = None,
    thin: int | None = None,
    init: Mapping[str, Any] | None = None,
    seed: int = 0,
    time_limit: float | None = None,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    client: Any = None,
    verdict: bool = True,
) -> "Posterior":
    """Draw from the posterior of a hidden Markov model, at any length of data.

    With no options this finds the mode, measures curvature and gradient noise there, chooses windows, buffer and step
    size by formula, and runs chains of SGLD with control variates whose draws are spaced so that they are nearly
    independent. Where the exact full-data sampler is cheaper, or exact gradients contradict the draws and the data are
    not too long, it is used instead, and the notes say so.

    Args:
        model: the hidden Markov model; default priors are scaled to the data.
        data: an array `(T,)` or `(T, D)`, a path, a list of these (many sequences), or what `open_data` returned.
        sampler: another sampler, such as `SGRLD(step_size=0.01)` or `NUTS()`, or its name, such as "nuts".
        windows: half-width and number of windows per step.
        buffer: `LyapunovBuffer(...)` or `FixedBuffer(...)`.
        chains: how many.
        draws: kept of each chain.
        warmup: steps thrown away at first.
        thin: steps between two kept draws; None chooses, and doubles it until the draws are nearly independent.
        init: natural parameters to start from.
        seed: equal seeds give equal draws.
        time_limit: seconds for all of it, within two seconds or one pass over the data. Chains that are not done return
            the draws so far; a fifth of the time is kept for the verdict, and a note says what was left out. Refused
            where there is no draw yet.
        progress: show a bar on anything that takes over two seconds, and a verdict at the end.
        checkpoint: a directory; a run that was stopped goes on from there, to the same draws bit for bit.
        client: a `dask.distributed.Client`; chains and full passes then run on its workers, which must reach the data
            (by the same path or address, unless they lie in memory or are a Dask array, whose chunks stay where they
            are while the chains run here). A worker that is lost changes nothing in the draws.
        verdict: with `progress`, check the draws (see `Posterior.diagnose`) and print what the checks say.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
        >>> states, counts = lh.simulate(model, params, length=20_000, seed=1)
        >>> posterior = lh.sample(model, counts, draws=200, seed=1, progress=False)
        >>> bool(abs(posterior.draws["rate"].mean(("chain", "draw"))[1] - 8.0) < 0.2)
        True
    """
    limit = Limit(time_limit)
    request = requested(
        model, data, sampler=sampler, windows=windows, buffer=buffer, chains=chains, draws=draws, warmup=warmup,
        thin=thin, init=init, seed=seed, checkpoint=checkpoint, client=client,
    )  # fmt: skip
    judged = progress and verdict
    posterior = drawn(request, limit, progress=progress, reserve=CHECKS if judged else 0.0)
    if judged:
        judge(posterior, limit)
        for note in posterior.notes:
            print(f"Note: {note}.")
        print(f"Verdict: {posterior.verdict}")
    return posterior


def requested(model: HMM, data: Any, *, sampler: Sampler | str | None, client: Any = None, **options: Any) -> Request:
    """The arguments of `sample`, checked, with data that are open and a model that has numbers for all its priors."""
    sampler = from_name(sampler) if isinstance(sampler, str) else sampler
    if not isinstance(sampler, Sampler | None):
        raise ModelError(f"sampler must be a sampler such as NUTS() or one of {', '.join(names())}, got {sampler!r}.")
    model, opened = model.meet(data)
    sequences, automatic = on_cluster(opened.at_hand() if client is None else opened, client), sampler is None
    model.check_dim(sequences)
    chosen = ControlVariateSGLD() if sampler is None else sampler
    resolved = model.resolve(sequences)
    options["init"] = whole_init(resolved, sequences, options.get("init"))
    request = Request(resolved, sequences, chosen, client=client, automatic=automatic, spaced=automatic, **options)
    chosen.check(resolved)
    return request


def drawn(request: Request, limit: Limit, *, progress: bool = True, reserve: float = 0.0) -> "Posterior":
    """What `sample` draws, without a verdict; `reserve` is the share of the time that the chains leave for it."""
    from longhmm.posterior.posterior import Posterior

    run = Run(request)
    while True:
        with Bar(progress) as bar:
            chains = carry_out(run, bar, limit, reserve)
        posterior = Posterior.from_chains(request.model, chains, request.sequences)
        posterior.run = run
        why = contradicted(posterior, limit, GRADIENTS if reserve else CHECKED)  # the verdict asks for the same
        if not why:
            return posterior
        run = Run(request, run.tuned, why, mark=run.mark)  # from its start, by the exact sampler
        run.save()


def contradicted(posterior: "Posterior", limit: Limit, gradients: int = CHECKED) -> str:
    """Why draws from windows should be made again by an exact sampler, in words; empty where they should not: their
    step size by formula leans on a posterior not too far from Gaussian, which exact gradients at some draws can refute.
    """
    from longhmm.posterior.diagnostics.bias import bias, by_passes

    run = posterior.run
    if run is None or not run.request.automatic or run.why_exact or run.spare:  # which no sampler mends
        return ""
    request = run.request
    rows = PER_STEP * request.chains * (ADAPTATION + request.draws) * request.sequences.length
    # Who limits the time keeps the draws there are; the verdict will say what is wrong with them.
    if limit.seconds is not None or rows > MOST_ROWS or any("stopped early" in note for note in posterior.notes):
        return ""
    try:
        run.gradient = by_passes(posterior.model, limit.watch(request.sequences))
        found = limit.run(lambda: bias(posterior, run.gradient, gradients, {}), "checking the draws")
    except KeyboardInterrupt:
        posterior.notes = (*posterior.notes, stopped_note(CTRL_C, posterior.n_draws, request.draws))
        return ""
    return "" if found is None else f"exact gradients contradicted the draws from windows, {found}"


def judge(posterior: "Posterior", limit: Limit) -> None:
    """Give a posterior its verdict; what there was no time for, or Ctrl-C ended, is left out, and a note says so."""
    assert posterior.run is not None
    sequences = posterior.run.request.sequences
    why = CTRL_C if any(note.startswith(f"stopped early by {CTRL_C}") for note in posterior.notes) else ""
    try:
        if not why:
            with Bar() as bar:
                count = int(min(max(PASSED / sequences.length, CHECKED), GRADIENTS))
                bar.phase("checking the draws", total=count * sequences.length, unit="rows")
                apart = copy.copy(posterior)  # which checks that nobody waits for may go on with
                how = {"gradients": count, "gradient": posterior.run.gradient, "progress": bar.advance}
                check = partial(apart.diagnose, limit.watch(sequences), **how)
                posterior.verdict, posterior.run.gradient = limit.run(check, "checking the draws"), None
    except TimeIsOver:
        why = "the time limit"
    except KeyboardInterrupt:
        why = CTRL_C
    if why:
        left = "left no time to check the draws for bias and the model for its fit: posterior.diagnose(y) does"
        posterior.notes = (*posterior.notes, f"{why} {left}")
        posterior.diagnose()
