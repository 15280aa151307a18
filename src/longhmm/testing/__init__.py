"""Checks that anyone can run: an oracle that enumerates every path, and what every model and sampler must keep."""

from longhmm.testing.coherence import check_coherence
from longhmm.testing.contract import check_sampler
from longhmm.testing.paths import Enumerated, enumerate_paths

__all__ = ["Enumerated", "check_coherence", "check_sampler", "enumerate_paths"]
