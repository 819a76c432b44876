"""Loops on arrays: no state, no threads, no I/O. The only room that imports numba."""
