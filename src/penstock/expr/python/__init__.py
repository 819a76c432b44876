"""Expressions in plain Python, one row at a time: `lower.py`, and the rules of each family of nodes."""
