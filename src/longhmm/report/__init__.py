"""The page of a run: `write_report` for a run on disk, `Posterior.report` for a posterior in hand."""
