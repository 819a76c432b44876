"""Loops on arrays: no state, no threads, no I/O. Nothing else imports numba."""
