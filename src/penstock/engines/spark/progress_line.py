"""One line on a terminal that says how a run goes; nothing anywhere else.

It is a reader of events like any other: batches, rows per second, how long the last batch took, and how far
the watermark is behind the clock. Short runs are over before it shows.
"""

from __future__ import annotations

import shutil
import sys
from typing import TextIO

from penstock.events import BatchDone, Event, EventSink, RunEnded, RunStarted

_FIRST_US, _EVERY_US = 1_000_000, 200_000
_UNITS = ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms"))


def with_progress(events: EventSink, stream: TextIO | None = None) -> EventSink:
    """The same sink, and a line beside it if somebody looks."""
    screen = stream or sys.stderr
    if screen is None or not screen.isatty():
        return events
    line = ProgressLine(screen)

    def told(event: Event) -> None:
        line.tell(event)
        events(event)

    return told


class ProgressLine:
    """The line of one run."""

    def __init__(self, screen: TextIO) -> None:
        self._screen, self._graph = screen, ""
        self._began = self._shown_at = self._rows = self._batches = 0
        self._shown = False

    def tell(self, event: Event) -> None:
        """Take an event in, and show the line if it is time."""
        if isinstance(event, RunStarted):
            self._graph, self._began, self._shown_at = event.graph, event.at, event.at + _FIRST_US - _EVERY_US
        elif isinstance(event, BatchDone):
            self._batches += 1
            self._rows += sum(event.rows_in.values())
            if event.at - self._shown_at >= _EVERY_US:
                self._show(event)
        elif isinstance(event, RunEnded) and self._shown:
            self._put("")

    def _show(self, event: BatchDone) -> None:
        self._shown, self._shown_at = True, event.at
        rate = self._rows * 1_000_000 // max(1, event.at - self._began)
        parts = [self._graph, f"{self._batches:,} batches", f"{rate:,} rows/s"]
        parts.append(f"latency {_spelled(event.took_us)}")
        if event.lag_us:
            parts.append(f"lag {_spelled(max(event.lag_us.values()))}")
        self._put("  ".join(parts))

    def _put(self, text: str) -> None:
        """Instead of what the line says; ESC [K ends it there."""
        width = shutil.get_terminal_size().columns
        self._screen.write(f"\r{text[: width - 1]}\x1b[K")
        self._screen.flush()


def _spelled(us: int) -> str:
    for size, unit in _UNITS:
        if abs(us) >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us} us"
