"""Steps to chains: the one driver, tuning, checkpoints."""
