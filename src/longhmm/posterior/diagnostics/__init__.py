"""The checks behind the verdict: chains, bias, fit."""
