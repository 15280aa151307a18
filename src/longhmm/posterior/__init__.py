"""Chains to answers: labelled draws, checks, decoding, scores and forecasts."""
