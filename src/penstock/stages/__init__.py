"""Operators as state machines that every engine carries batches to."""
