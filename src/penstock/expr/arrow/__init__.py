"""Expressions on Arrow columns, one batch at a time: `lower.py`, the rules of nodes, and conversions."""
