"""Pictures of posteriors and data: one function each, all return a matplotlib figure and show nothing by themselves.

Example:
    >>> import longhmm as lh
    >>> sorted(lh.plots.__all__)[:3]
    ['along', 'amplitudes', 'baseline']
"""

from longhmm.report.plots.checks import buffer_report, chain_traces, forest, residual_check
from longhmm.report.plots.covariates import along, baseline
from longhmm.report.plots.emission_map import emissions
from longhmm.report.plots.predictive import predictive_check
from longhmm.report.plots.single_molecules import level_dwell_times, transition_density
from longhmm.report.plots.states import amplitudes, dwell_times, segmentation, transition_graph

__all__ = ["along", "amplitudes", "baseline", "buffer_report", "chain_traces", "dwell_times", "emissions", "forest"]
__all__ += ["level_dwell_times", "predictive_check", "residual_check", "segmentation", "transition_density"]
__all__ += ["transition_graph"]
