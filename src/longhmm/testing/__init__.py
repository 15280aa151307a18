"""Checks that anyone can run: an oracle that enumerates every path, and what every model and sampler must keep."""

from longhmm.testing.coherence import Enumerated, check_coherence, enumerate_paths
from longhmm.testing.contract import check_sampler

__all__ = ["Enumerated", "check_coherence", "check_sampler", "enumerate_paths"]
