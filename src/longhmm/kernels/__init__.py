"""Raw observations to expected statistics: windows for stochastic gradients, streamed passes for exact answers."""
