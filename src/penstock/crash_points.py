"""The moments of a run at which a crash would do most harm, by name.

A run reports each of them; that does nothing unless a test listens and ends the process there. Whichever
point was passed last, what the run leaves behind must be good to resume from.
"""

from __future__ import annotations

from collections.abc import Callable

READ = "rounds read"
PROCESSED = "round processed"
WRITTEN = "file written"
LISTED = "files listed"
PUBLISHED = "file published"
COMMITTED = "sink committed"
STAGED = "manifest staged"
RENAMED = "manifest renamed"
CLEANED = "old state removed"
JOURNALED = "files journaled"
"""Passed only where files make the batches, and therefore not in POINTS: tests that follow files add it."""
POINTS = (READ, PROCESSED, WRITTEN, LISTED, PUBLISHED, COMMITTED, STAGED, RENAMED, CLEANED)

listener: Callable[[str], None] | None = None
"""Called with every point that a run passes; None outside tests."""


def pass_crash_point(point: str) -> None:
    """Report that the run passes a point."""
    if listener is not None:
        listener(point)
