"""Loops that turn keys into slots."""
