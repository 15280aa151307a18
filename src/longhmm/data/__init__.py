"""Bytes to windows: sources, sequences and windows, which know no model."""

from longhmm.data.layout import Layout
from longhmm.data.rows import Rows
from longhmm.data.sequences import Block, Sequences, open_data
from longhmm.data.sources import Source, open_source
from longhmm.data.windows import Cells, gather, locate

__all__ = [
    "Block",
    "Cells",
    "Layout",
    "Rows",
    "Sequences",
    "Source",
    "gather",
    "locate",
    "open_data",
    "open_source",
]
