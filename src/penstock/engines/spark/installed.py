"""Whether pyspark is here, asked before anything else of it is imported."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec

from penstock.errors import NotSupported

PIP_LINE = 'pip install "penstock[spark]"'
WANTED = (4, 3)


def need_pyspark() -> None:
    """NotSupported, with the line that mends it, unless the pyspark that we know is installed."""
    if find_spec("pyspark") is None:
        raise NotSupported(
            "the Spark engine needs pyspark, which is not installed",
            detail='engine="local" needs nothing more, and a run never changes its engine by itself',
            hint=PIP_LINE,
        )
    version = metadata.version("pyspark")
    if tuple(int(part) for part in version.split(".")[:2]) != WANTED:
        raise NotSupported(
            f"pyspark {version} is installed, and the Spark engine is made for {WANTED[0]}.{WANTED[1]}",
            hint=PIP_LINE,
        )
