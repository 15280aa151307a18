"""Recursions of hidden Markov models on arrays: no data, no models."""
