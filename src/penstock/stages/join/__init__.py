"""Joins of two streams: what makes a pair, where rows wait for partners, and what leaves."""
