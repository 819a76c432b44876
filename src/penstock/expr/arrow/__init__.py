"""Expressions on Arrow columns, one batch at a time: `lower.py`, and the rules of each family of nodes."""
