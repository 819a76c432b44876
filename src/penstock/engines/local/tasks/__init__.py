"""Tasks: the co-routines that run chained steps."""
