"""The page of a run: `write_report` for a run on disk, `Posterior.report` for a posterior in hand."""

from longhmm.report.viewer import write_report

__all__ = ["write_report"]
