"""Expressions in plain Python, one row at a time: `lower.py`, the rules of nodes, and conversions."""
