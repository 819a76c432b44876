"""Approximate aggregates: HLL and KLL sketches per window."""
