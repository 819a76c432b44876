"""Expressions in plain Python, one row at a time: slow, and written to be obviously right."""

from penstock.expr.python.lower import lower_python as lower_python
