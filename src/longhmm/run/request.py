"""What the user asked of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.run.fingerprint import Fingerprint, fingerprint
from longhmm.samplers.contract import Sampler
from longhmm.target.buffer_length import FixedBuffer, LyapunovBuffer
from longhmm.target.systematic import Windows

SETTINGS = ("sampler", "windows", "buffer", "chains", "warmup", "thin", "init", "seed")  # that decide about draws


@dataclass
class Request:
    """What the user asked for."""

    model: HMM
    sequences: Sequences
    sampler: Sampler
    windows: Windows | None
    buffer: LyapunovBuffer | FixedBuffer | None
    chains: int
    draws: int
    warmup: int | None
    thin: int | None
    init: Mapping[str, Any] | None
    seed: int
    time_limit: float | None
    checkpoint: str | os.PathLike[str] | None
    wanted_size: float
    client: Any = None  # of a Dask cluster, whose workers run the chains
    automatic: bool = False  # whether the sampler was left to us
    mark: Fingerprint | None = None  # of what the checkpoint belongs to, see `marked`

    def marked(self) -> Request:
        """The same request with the fingerprint by which its checkpoint is known again."""
        if self.checkpoint is None or self.mark is not None:
            return self
        settings = {name: getattr(self, name) for name in SETTINGS}
        if self.automatic:
            settings["sampler"] = None
        return replace(self, mark=fingerprint(self.model, self.sequences, settings))
