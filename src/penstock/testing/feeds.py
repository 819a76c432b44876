"""Sources and sinks for tests: batches cut by hand, and rows kept to be looked at."""

from __future__ import annotations

from collections.abc import Sequence

from penstock import read, write
from penstock.connect.protocol import Reader
from penstock.connect.writers.memory import Memory


def feed(*batches: Sequence[object], schema: object = None) -> Reader:
    """A reader that gives exactly these batches: one list of rows each, empty ones too.

    >>> feed([{"a": 1}, {"a": 2}], [{"a": 3}]).describe()
    'batches (2 batches, 3 rows)'
    """
    return read.batches(list(batches), schema=schema)


def collecting() -> Memory:
    """A sink that keeps what it is given: `.rows()`, `.table()` and `.batches()`."""
    return write.memory()
