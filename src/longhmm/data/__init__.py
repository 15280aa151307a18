"""Bytes to windows: sources, sequences and windows, which know no model."""
