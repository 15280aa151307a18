"""Pictures of posteriors and data: one function each, all return a matplotlib figure and show nothing by themselves.

Example:
    >>> import longhmm as lh
    >>> sorted(lh.plots.__all__)[:3]
    ['along', 'amplitudes', 'buffer_report']
"""

from longhmm.report.plots.checks import buffer_report, chain_traces, forest, residual_check
from longhmm.report.plots.covariates import along
from longhmm.report.plots.predictive import predictive_check
from longhmm.report.plots.states import amplitudes, dwell_times, segmentation, transition_graph

__all__ = ["along", "amplitudes", "buffer_report", "chain_traces", "dwell_times", "forest", "residual_check"]
__all__ += ["predictive_check", "segmentation", "transition_graph"]
