"""Log likelihoods in, posteriors out: recursions over batches of windows. Knows no model and no data."""
