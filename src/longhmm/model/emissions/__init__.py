"""Emissions: one file per family, named like it, with everything that is known about it."""
