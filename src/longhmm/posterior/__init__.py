"""Chains to answers: labelled draws, diagnostics, decoding, forecasts."""
