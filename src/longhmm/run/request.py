"""What the user asked of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.run.fingerprint import Fingerprint, fingerprint
from longhmm.run.serialise import to_plain
from longhmm.samplers.contract import Sampler
from longhmm.target.buffer_length import FixedBuffer, LyapunovBuffer
from longhmm.target.systematic import Windows

SETTINGS = ("sampler", "windows", "buffer", "chains", "warmup", "thin", "init", "seed")  # that decide about draws
WANTED_SHARE = 0.5  # effective draws per draw, where draws are to be spaced
LEAST = {"chains": 1, "draws": 1, "warmup": 0, "thin": 1}


@dataclass(frozen=True)
class Request:
    """What the user asked for, with data that are open and a model that has numbers for all its priors.

    Attributes:
        automatic: whether the sampler was left to us.
        spaced: whether draws are to be moved apart until they are nearly independent.
    """

    model: HMM
    sequences: Sequences
    sampler: Sampler
    windows: Windows | None = None
    buffer: LyapunovBuffer | FixedBuffer | None = None
    chains: int = 4
    draws: int = 1000
    warmup: int | None = None
    thin: int | None = None
    init: Mapping[str, Any] | None = None
    seed: int = 0
    checkpoint: str | os.PathLike[str] | None = None
    client: Any = None
    automatic: bool = False
    spaced: bool = False

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            check_whole(name, getattr(self, name), least)

    @property
    def wanted_size(self) -> float:
        """Effective draws that the run should reach by spacing its draws."""
        return WANTED_SHARE * self.chains * self.draws if self.spaced and self.thin is None else 0.0

    def fingerprint(self) -> Fingerprint:
        """By which its checkpoint is known again."""
        settings = {name: getattr(self, name) for name in SETTINGS}
        return fingerprint(self.model, self.sequences, settings | ({"sampler": None} if self.automatic else {}))

    def settings(self) -> dict[str, Any]:
        """The request as plain values; a sampler that is not longhmm's own is left out."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in (*LEAST, "seed", "automatic")}
        plain["init"] = None if self.init is None else {k: np.asarray(v).tolist() for k, v in self.init.items()}
        for name in ("sampler", "windows", "buffer"):
            try:
                plain[name] = to_plain(getattr(self, name))
            except ModelError:
                plain[name] = None
        return plain


def check_whole(name: str, value: Any, least: int) -> None:
    """Refuse what is no whole number, or too small; None is left to us."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least):
        raise ModelError(f"{name} must be a whole number of at least {least}, got {value!r}.")
