"""What the user asked of a run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.gradients.buffer_length import FixedBuffer, LyapunovBuffer
from longhmm.gradients.schemes import Windows
from longhmm.model.hmm import HMM
from longhmm.samplers.contract import Sampler

LOOK = 1000  # rows at the beginning, in the middle and at the end by which data are known again


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

    def fingerprint(self) -> str:
        """Tells runs apart whose draws would differ; the number of draws and the time limit do not matter."""
        length = self.sequences.length
        looks = [
            self.sequences.read(max(0, at), min(length, max(0, at) + LOOK)) for at in (0, length // 2, length - LOOK)
        ]
        seen = b"".join(np.ascontiguousarray(look.values).tobytes() for look in looks)
        parts = [repr(self.model), repr(self.model.transitions.concentration.tolist()), length]
        parts += [hashlib.sha256(seen).hexdigest(), repr(self.sampler)]
        parts += [repr(self.windows), repr(self.buffer), self.chains, self.warmup, self.thin, self.seed]
        return hashlib.sha256(json.dumps(parts, default=repr).encode()).hexdigest()
