"""Pictures of posteriors and data: one function each, all return a matplotlib figure and show nothing by themselves.

Example:
    >>> import longhmm as lh
    >>> sorted(lh.plots.__all__)[:3]
    ['amplitudes', 'buffer_report', 'chain_traces']
"""

from longhmm.report.plots.checks import buffer_report, chain_traces, forest, residual_check
from longhmm.report.plots.states import amplitudes, dwell_times, segmentation, transition_graph

__all__ = [
    "amplitudes",
    "buffer_report",
    "chain_traces",
    "dwell_times",
    "forest",
    "residual_check",
    "segmentation",
    "transition_graph",
]
