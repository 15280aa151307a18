"""Bytes to windows: sources, sequences and windows, which know no model."""

from longhmm.data.sequences import Block, Sequences, open_data
from longhmm.data.sources import Source, open_source
from longhmm.data.windows import Cells, WindowBatch, WindowIndex, gather, locate

__all__ = [
    "Block",
    "Cells",
    "Sequences",
    "Source",
    "WindowBatch",
    "WindowIndex",
    "gather",
    "locate",
    "open_data",
    "open_source",
]
