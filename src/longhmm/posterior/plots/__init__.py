"""Pictures of posteriors and data: one function each, all return a matplotlib figure and show nothing by themselves.

Example:
    >>> import longhmm as lh
    >>> sorted(lh.plots.__all__)[:3]
    ['amplitudes', 'buffer_certificate', 'chain_traces']
"""

from longhmm.posterior.plots.amplitudes import amplitudes
from longhmm.posterior.plots.buffer_certificate import buffer_certificate
from longhmm.posterior.plots.chain_traces import chain_traces
from longhmm.posterior.plots.dwell_times import dwell_times
from longhmm.posterior.plots.forest import forest
from longhmm.posterior.plots.residual_check import residual_check
from longhmm.posterior.plots.segmentation import segmentation
from longhmm.posterior.plots.transition_graph import transition_graph

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
