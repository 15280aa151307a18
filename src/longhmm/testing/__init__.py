"""Checks that anyone can run: an oracle that enumerates every path, and identities that every model must keep."""

from longhmm.testing.coherence import check_coherence
from longhmm.testing.paths import Enumerated, enumerate_paths

__all__ = ["Enumerated", "check_coherence", "enumerate_paths"]
