"""Backends turn potentials of rows into marginals of chunks: C++ on the CPU, Pallas on a GPU, JAX everywhere."""
