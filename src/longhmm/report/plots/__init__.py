"""Pictures of posteriors and data: one function each, all return a matplotlib figure and show nothing by themselves.

Example:
    >>> import longhmm as lh
    >>> sorted(lh.plots.__all__)[:3]
    ['amplitudes', 'buffer_certificate', 'chain_traces']
"""

from longhmm.report.plots.amplitudes import amplitudes
from longhmm.report.plots.buffer_certificate import buffer_certificate
from longhmm.report.plots.chain_traces import chain_traces
from longhmm.report.plots.dwell_times import dwell_times
from longhmm.report.plots.forest import forest
from longhmm.report.plots.residual_check import residual_check
from longhmm.report.plots.segmentation import segmentation
from longhmm.report.plots.transition_graph import transition_graph

__all__ = [
    "amplitudes",
    "buffer_certificate",
    "chain_traces",
    "dwell_times",
    "forest",
    "residual_check",
    "segmentation",
    "transition_graph",
]
