"""Penstock: stream processing in Python, on Spark or in process."""
