"""The watermark W of a source: no more rows with time < W.

W(n), which judges batch n, is the greatest valid time of the batches before n minus the delay, or what
the source itself promised, whichever is later; minus infinity before the first row. It never goes back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

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

    def saw(self, greatest_time: int | None) -> None:
        """A batch went by; its greatest valid time, or None if it had none."""
        if greatest_time is not None and (self._greatest is None or greatest_time > self._greatest):
            self._greatest = greatest_time

    def promise(self, watermark: int) -> None:
        """The source says so itself; a promise that goes back is no news."""
        self._promised = max(self._promised, watermark)

    def end(self) -> None:
        """The source has ended: it no longer holds anything back."""
        self._ended = True


def merged(watermarks: Iterable[float]) -> float:
    """Return the watermark of a stream fed by several: the least of theirs."""
    return min(watermarks, default=AFTER_ALL)
