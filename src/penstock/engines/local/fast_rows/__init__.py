"""The row-at-a-time path."""
