"""Loops over window state."""
