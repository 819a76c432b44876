"""Keyed state and the operators that use it."""
