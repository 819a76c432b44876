"""Bounded channels between tasks."""
