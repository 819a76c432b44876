"""The moments of a run at which a crash would be most awkward, by name.

A run says when it comes by; that does nothing unless a test listens and ends the process there. What a run
leaves behind must be good to go on from, whichever of these it reached last.
"""

from __future__ import annotations

from collections.abc import Callable

READ = "rounds read"
CARRIED = "job done"
WRITTEN = "file written"
SHOWN = "file shown"
COMMITTED = "sink committed"
STAGED = "manifest staged"
RENAMED = "manifest renamed"
LET_GO = "old state let go"
NOTED = "files noted"
"""Only where files make the batches."""
POINTS = (READ, CARRIED, WRITTEN, SHOWN, COMMITTED, STAGED, RENAMED, LET_GO)

listener: Callable[[str], None] | None = None
"""Told of every point that a run comes by; None outside tests."""


def reached(point: str) -> None:
    """The run has come to this point."""
    if listener is not None:
        listener(point)
