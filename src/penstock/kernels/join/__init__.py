"""Loops of joins: boxes against points."""
