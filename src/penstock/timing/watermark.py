"""The watermark W of a source: no more rows with time < W.

W(n), which judges batch n, is the greatest valid time of the batches before n minus the delay, or what
the source itself promised, whichever is later; minus infinity before the first row. It never goes back.
"""

from __future__ import annotations

import math

BEFORE_ALL = -math.inf
AFTER_ALL = math.inf


class SourceWatermark:
    """Follows one source, batch by batch."""

    def __init__(self, delay: int | None) -> None:
        self._delay = delay  # None: only what the source promises counts
        self._greatest: int | None = None
        self._promised: float = BEFORE_ALL
        self._ended = False

    @property
    def now(self) -> float:
        """W: judges the next batch."""
        if self._ended:
            return AFTER_ALL
        seen = BEFORE_ALL
        if self._greatest is not None and self._delay is not None:
            seen = self._greatest - self._delay
        return max(seen, self._promised)

    def observe(self, greatest_time: int | None) -> None:
        """Take note of a batch by its greatest valid time, None if it has none."""
        if greatest_time is not None and (self._greatest is None or greatest_time > self._greatest):
            self._greatest = greatest_time

    def promise(self, watermark: int) -> None:
        """Take note of a watermark from the source itself; one that goes back changes nothing."""
        self._promised = max(self._promised, watermark)

    def end(self) -> None:
        """End the source: it no longer holds anything back."""
        self._ended = True
