"""Sources that may wait, on the driver: each is read in a thread of its own, a little ahead of the rounds.

So a run can be stopped while nothing comes, other sources continue beside a silent one, and results that
depend on the clock leave though no row arrives.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from penstock.connect.protocol import Delivery, SourceBatch, SourcePosition
from penstock.connect.read_claims import AbandonedRead, WaitingRead
from penstock.engines.ends import JournalOf, SourceReader, no_journal
from penstock.engines.spark.fragments import lives_on_driver

_READ_AHEAD = 64
"""Batches with rows that wait to be taken: as many as a micro-batch may have to take at once."""
_CLOSED_POLL_S = 0.1
"""Seconds between checks whether the run is over."""
_END = object()


class BackgroundSourceReader(SourceReader):
    """A source that may wait; `arrived` is notified whenever there is something to take."""

    arrived: threading.Condition
    read_ahead = _READ_AHEAD
    _queue: queue.Queue[Any]
    _pending_stamp: int | None = (
        None  # the time of rows that workers have read, and that wait for their round
    )

    def begin(self, arrived: threading.Condition) -> None:
        """Prepare to read."""
        self.arrived, self._queue, self._closed = arrived, queue.Queue(self.read_ahead), False
        self._first_row, self._first_at, self._looked_at = -1, 0, 0
        self._open_read: Iterator[Any] | None = None
        self.gives_rows = False  # rows that wait for their round have stamps
        self._batches = self._take()

    def resume(self, position: SourcePosition, watermark: float, journal: JournalOf = no_journal) -> None:
        """Start to read, from where another run had come to."""
        self._restore(position, journal)
        if lives_on_driver(self._reader) and self.n_batches < position.batches:
            read = self._open_read = self._read()
            n_skipped = read.skip(position.rows) if isinstance(read, WaitingRead) else None
            if n_skipped == position.rows:
                self.n_batches, self.n_rows, self._at = position
        self._start()
        super().resume(position, watermark)

    def _start(self) -> None:
        threading.Thread(target=self._pump, name=f"penstock-{self.step.name}", daemon=True).start()

    def hand_on(self, now: int) -> None:
        """Hand on rows that have waited for others of their batch as long as they may."""
        read = self._open_read
        # Why: rows that are given again after a crash are cut by the source alone.
        if self._reader.delivery is Delivery.EXACTLY_ONCE:
            return
        if not isinstance(read, WaitingRead) or not self._queue.empty():
            return
        first = read.first_number
        if first is not None and first != self._first_row:
            self._first_row, self._first_at = first, self._looked_at or now
        self._looked_at = now
        if first is None or self.wait_us is None or now - min(now, self._first_at) < self.wait_us:
            return
        if read.claim():
            try:
                # Why look again: only now the other thread is sure to have handed on what it had.
                batch = read.take() if self._queue.empty() else None
                if batch is not None:
                    self._queue.put_nowait(batch)
            finally:
                read.release()

    def follow_clock(self) -> None:
        """Move the watermark in a round, but not past rows that were read and wait for theirs."""
        read = self._open_read
        if not isinstance(read, WaitingRead):
            self._stage.follow_clock(self._pending_stamp)
            return
        if not read.claim():
            return
        try:
            with self._queue.mutex:
                pending = next((item for item in self._queue.queue if isinstance(item, SourceBatch)), None)
            stamps = None if pending is None else pending.read_at
            first = read.first_read_at if stamps is None or not len(stamps) else int(stamps[0])
            if pending is None or first is not None:
                self._stage.follow_clock(first)
        finally:
            read.release()

    @property
    def silent(self) -> bool:
        """Return whether there is nothing to take now, and may be later."""
        return not self.ended and self._queue.empty()

    def close(self) -> None:
        """Let the thread go; one that waits for input ends with the process, or when some arrives."""
        self._closed = True
        if isinstance(self._open_read, WaitingRead):
            self._open_read.abandon()

    def _pump(self) -> None:
        batches = self._open_read
        try:
            if batches is None:
                batches = self._open_read = self._read()
            for batch in batches:
                self._put(batch)
                if self._closed:
                    break
            self._put(_END)
        except AbandonedRead:
            return
        except BaseException as failure:  # raised again where the batch would have been taken
            self._put(failure)
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                with suppress(Exception):
                    close()

    def _put(self, item: Any) -> None:
        while not self._closed:
            with suppress(queue.Full):
                self._queue.put(item, timeout=_CLOSED_POLL_S)
                break
        with self.arrived:
            self.arrived.notify_all()

    def _take(self) -> Iterator[Any]:
        while (item := self._queue.get()) is not _END:
            if isinstance(item, BaseException):
                raise item
            yield item
