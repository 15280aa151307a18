"""`lh.sample`: data in, posterior out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.gradients.buffer_length import FixedBuffer, LyapunovBuffer
from longhmm.gradients.schemes import Windows
from longhmm.model.hmm import HMM
from longhmm.posterior.origin import Origin, exactly, go, wanted_size
from longhmm.posterior.posterior import Posterior
from longhmm.posterior.why_exact import why_exact
from longhmm.progress import Bar
from longhmm.run.cluster_passes import on_cluster
from longhmm.run.request import Request
from longhmm.samplers.contract import Sampler
from longhmm.samplers.matched_langevin import MatchedLangevin

GRADIENTS = 32  # exact gradients behind a verdict


def sample(
    model: HMM,
    data: Any,
    *,
    sampler: Sampler | None = None,
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
) -> Posterior:
    """Draw from the posterior of a hidden Markov model, at any length of data.

    With no options this finds the mode, measures curvature and gradient noise there, chooses windows, buffer and step
    size by formula, and runs control-variate Langevin chains whose draws are spaced so that they are nearly
    independent. Where the exact full-data sampler is cheaper, or exact gradients contradict the draws and the data are
    not too long, it is used instead, and the notes say so.

    Args:
        model: the hidden Markov model; default priors are scaled to the data.
        data: an array `(T,)` or `(T, D)`, a path, a list of these (many sequences), or what `open_data` returned.
        sampler: another sampler, such as `SGRLD(step_size=0.01)` or `NUTS()`.
        windows: half-width and number of windows per step.
        buffer: `LyapunovBuffer(...)` or `FixedBuffer(...)`.
        chains: how many.
        draws: kept of each chain.
        warmup: steps thrown away at first.
        thin: steps between two kept draws; None chooses, and doubles it until the draws are nearly independent.
        init: natural parameters to start from.
        seed: equal seeds give equal draws.
        time_limit: seconds after which the draws so far are returned.
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
    for name, value, least in (("chains", chains, 1), ("draws", draws, 1), ("warmup", warmup, 0), ("thin", thin, 1)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least):
            raise ModelError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    sequences = on_cluster(data, client)
    model.check_dim(sequences)
    resolved = model.resolve(sequences)
    chosen: Sampler = MatchedLangevin() if sampler is None else sampler
    request = Request(
        resolved, sequences, chosen, windows, buffer, chains, draws, warmup, thin, init, seed, time_limit, checkpoint,
        wanted_size(sampler is None, chains, draws), client, automatic=sampler is None,
    )  # fmt: skip
    posterior = _carried_out(Origin(request), progress)
    reason = why_exact(posterior)
    if reason:
        assert posterior.origin is not None
        posterior = _carried_out(exactly(posterior.origin, reason), progress)
    if progress and verdict:
        _judge(posterior, sequences)
    return posterior


def _carried_out(origin: Origin, progress: bool) -> Posterior:
    result, onward = go(origin, progress)
    posterior = Posterior.from_chains(origin.request.model, result, origin.request.sequences)
    posterior.origin = onward
    return posterior


def _judge(posterior: Posterior, sequences: Sequences) -> None:
    """Check the draws and print what the checks say; Ctrl-C leaves the draws unchecked."""
    try:
        with Bar() as bar:
            bar.phase("checking the draws", total=GRADIENTS * sequences.length, unit="rows")
            posterior.diagnose(sequences, gradients=GRADIENTS, progress=bar.advance)
    except KeyboardInterrupt:
        print("Verdict: none, since the checks were interrupted; posterior.diagnose(y) runs them.")
        return
    for note in posterior.notes:
        print(f"Note: {note}.")
    print(f"Verdict: {posterior.verdict}")
