"""What full-data algorithms receive as their minibatch: everything, read in blocks when it is needed."""

from __future__ import annotations

from typing import NamedTuple

from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM


class WholeData(NamedTuple):
    """A resolved model and the data it describes."""

    model: HMM
    sequences: Sequences
