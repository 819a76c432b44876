"""Sources that must be waited for, and when a round is due though nothing comes.

Each source that does not end by itself is read in a thread of its own, a little ahead of the rounds. So a run
can be stopped while nothing comes, other sources continue beside a silent one, and results that depend on the
clock leave though no row arrives.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.readers.spark import SparkStreamReader, StreamBatches
from penstock.engines.ends import JournalOf, SourceReader, no_journal
from penstock.errors import CheckpointError
from penstock.operators.ends import Source
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Step
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

_READ_AHEAD = 2
"""Batches that wait to be taken."""
_CLOSED_POLL_S = 0.1
"""Seconds between checks whether the run is over."""
_CLOCK_POLL_S = 0.02
"""Seconds between checks of the clock."""
OTHERS_S = 0.1
"""Seconds that rows of one source wait for those of another."""
_END = object()


class BackgroundSourceReader(SourceReader):
    """A source that does not end by itself; `arrived` is notified whenever there is something to take."""

    arrived: threading.Condition
    _queue: queue.Queue[Any]

    def begin(self, arrived: threading.Condition) -> None:
        """Prepares to read."""
        self.arrived, self._queue, self._closed = arrived, queue.Queue(_READ_AHEAD), False
        self._batches = self._take()

    def resume(self, position: tuple[int, int], watermark: float, journal: JournalOf = no_journal) -> None:
        """Starts to read, from where another run had come to."""
        self._restore(position, journal)
        self._start()
        super().resume(position, watermark)

    def _start(self) -> None:
        threading.Thread(target=self._pump, name=f"penstock-{self.step.name}", daemon=True).start()

    @property
    def silent(self) -> bool:
        """Returns whether there is nothing to take now, and may be later."""
        return not self.ended and self._queue.empty()

    def close(self) -> None:
        """Lets the thread go; one that waits for input ends with the process, or when some arrives."""
        self._closed = True

    def _pump(self) -> None:
        batches = None
        try:
            batches = self._read()
            for batch in batches:
                self._put(batch)
                if self._closed:
                    break
            self._put(_END)
        except Exception as failure:  # raised again where the batch would have been taken
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
            if isinstance(item, Exception):
                raise item
            yield item


class StreamSourceReader(BackgroundSourceReader):
    """A streaming DataFrame. Spark goes on to its next batch when a manifest says that this one is done."""

    def __init__(self, plan: Plan, step: Step, clock: Clock, accounts: Accounts, folder: Path) -> None:
        super().__init__(plan, step, clock, accounts)
        # Why: Spark makes the next batch once this one is done, so there is nothing to read ahead.
        self.bounded = False
        self._folder = folder
        self._stream: StreamBatches | None = None

    def resume(self, position: tuple[int, int], watermark: float, journal: JournalOf = no_journal) -> None:
        """Continues behind the batches that are done; Spark repeats the one after them, if it had begun."""
        if position[0] and not (self._folder / "offsets").exists():
            raise CheckpointError(
                f'Spark\'s own checkpoint of source "{self.step.name}" is gone',
                step=self.step.name,
                where=self.step.where,
                detail=f"{position[0]:,} of its batches are done, and only that said where they ended: "
                f"{self._folder}",
                hint="bring the folder back, or start with an empty checkpoint folder",
            )
        self.n_batches, self.n_rows = position
        if BEFORE_ALL < watermark < AFTER_ALL:
            self._stage.promise(int(watermark))
        assert isinstance(self._reader, SparkStreamReader), "streams have a reader of streams"
        try:
            self._stream = StreamBatches(self._reader, str(self._folder), position[0])
        except Exception as cause:
            raise self.read_error(cause) from cause
        self._start()

    def commit(self, n_batches: int) -> None:
        """Tells Spark how many batches are done."""
        if self._stream is not None:
            self._stream.acknowledge(n_batches)

    def close(self) -> None:
        """Ends the query."""
        super().close()
        if self._stream is not None:
            self._stream.close()

    def _read(self) -> Iterator[Any]:
        assert self._stream is not None, "a stream is resumed before it is read"
        return iter(self._stream)


class SourcePolling:
    """Decides when a round is due, and which sources give a batch to it. `stopping` ends the wait.

    A round takes a batch of every source. One that is silent is waited for, but not for ever: the others
    continue beside it. Where idle sources or early firings are asked for, a round without rows is due when
    the clock says so, once for every such moment.

    follows_clock  whether rounds depend on the clock: a run that resumes must then repeat them as they were
    """

    def __init__(
        self, plan: Plan, readers: Sequence[SourceReader], clock: Clock, stopping: threading.Event
    ) -> None:
        self._readers, self._clock, self._stopping = readers, clock, stopping
        self._background = [reader for reader in readers if isinstance(reader, BackgroundSourceReader)]
        self._arrived = threading.Condition()
        windows = [step.op.resolve(step.up) for step in plan if isinstance(step.op, Windows)]
        self._early = min((window.early for window in windows if window.early is not None), default=None)
        times = {step.name: step.op.resolve() for step in plan if isinstance(step.op, Source)}
        self._idle = {name: at.idle for name, at in times.items() if at is not None and at.idle is not None}
        clocked = [at for at in times.values() if at is not None and (at.column is None or at.max_future)]
        self.follows_clock = bool(self._background or self._idle or clocked)
        self._deadlines: dict[str, int] = {}

    def now(self) -> int:
        """Returns the time, in microseconds."""
        return self._clock.now()

    def begin(self) -> None:
        """Starts to read the sources that do not end by themselves."""
        for reader in self._background:
            reader.begin(self._arrived)
        self.end_round(self.now(), self._idle, ())

    def end_round(
        self, now: int, batches: Collection[str] | Mapping[str, Any], idle: Collection[str]
    ) -> None:
        """Sets the deadlines for the next round, after one with batches of these sources."""
        self._deadlines = {name: at for name, at in self._deadlines.items() if at > now}
        if batches and self._early is not None:
            self._deadlines["early results"] = now + self._early
        for name, after in self._idle.items():
            if name in batches:
                self._deadlines[name] = now + after
            elif name in idle:
                self._deadlines.pop(name, None)

    def wait(self) -> list[str] | None:
        """Waits until a round is due; returns the sources that give a batch, or None if the run is to stop.

        No source gives a batch to a round that the clock asks for.
        """
        waited_since: float | None = None
        while any(reader.silent for reader in self._background):
            if self._stopping.is_set():
                return None
            if any(at <= self.now() for at in self._deadlines.values()):
                break
            if self._has_input():
                waited_since = waited_since or time.monotonic()
                if time.monotonic() - waited_since >= OTHERS_S:
                    break
            with self._arrived:
                self._arrived.wait(_CLOCK_POLL_S)
        silent = {reader.step.name for reader in self._background if reader.silent}
        return [reader.step.name for reader in self._readers if reader.step.name not in silent]

    def _has_input(self) -> bool:
        """Returns whether a source that has not ended has something to take."""
        return any(
            not reader.ended
            for reader in self._readers
            if not isinstance(reader, BackgroundSourceReader) or not reader.silent
        )
