"""Which process runs a test on Spark: two share them, and each starts one Java."""

from __future__ import annotations

import zlib

import pytest


def spark_group(item: pytest.Item) -> str:
    """Return the group of a test, one of two, the same in every run."""
    return f"spark-{zlib.crc32(item.nodeid.encode()) % 2}"
