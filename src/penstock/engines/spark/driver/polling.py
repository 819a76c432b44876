"""Sources that must be waited for: each is read in a thread of its own, a little ahead of the rounds.

So a run can be stopped while nothing comes, other sources go on beside a silent one, and results that depend
on the clock leave though no row arrives.
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
from penstock.engines.sources import JournalOf, SourceReader, no_journal
from penstock.errors import CheckpointError
from penstock.operators.ends import Source
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Step
from penstock.timing.watermark import AFTER_ALL, BEFORE_ALL

_AHEAD = 2
"""Batches that wait to be taken."""
_LOOK = 0.1
"""Seconds between looks whether the run is over."""
_END = object()


class BackgroundSourceReader(SourceReader):
    """One source that does not end by itself; `came` is told whenever there is something to take."""

    came: threading.Condition
    _waiting: queue.Queue[Any]

    def begin(self, came: threading.Condition) -> None:
        """Get ready to read."""
        self.came, self._waiting, self._closed = came, queue.Queue(_AHEAD), False
        self._batches = self._taken()

    def resume(self, position: tuple[int, int], watermark: float, journal: JournalOf = no_journal) -> None:
        """Start to read, from where another run had come to."""
        self._restore(position, journal)
        self._start()
        super().resume(position, watermark)

    def _start(self) -> None:
        threading.Thread(target=self._pump, name=f"penstock-{self.step.name}", daemon=True).start()

    @property
    def silent(self) -> bool:
        """Whether there is nothing to take now, and may be later."""
        return not self.ended and self._waiting.empty()

    def close(self) -> None:
        """Let the thread go; one that waits for input ends with the process, or when some comes."""
        self._closed = True

    def _pump(self) -> None:
        given = None
        try:
            given = self._read()
            for batch in given:
                self._put(batch)
                if self._closed:
                    break
            self._put(_END)
        except Exception as failure:  # raised again where the batch would have been taken
            self._put(failure)
        finally:
            closing = getattr(given, "close", None)
            if closing is not None:
                with suppress(Exception):
                    closing()

    def _put(self, what: Any) -> None:
        while not self._closed:
            with suppress(queue.Full):
                self._waiting.put(what, timeout=_LOOK)
                break
        with self.came:
            self.came.notify_all()

    def _taken(self) -> Iterator[Any]:
        while (what := self._waiting.get()) is not _END:
            if isinstance(what, Exception):
                raise what
            yield what


class StreamSourceReader(BackgroundSourceReader):
    """A streaming DataFrame. Spark goes on to its next batch when a manifest says that this one is done."""

    def __init__(self, plan: Plan, step: Step, clock: Clock, accounts: Accounts, folder: Path) -> None:
        super().__init__(plan, step, clock, accounts)
        self._folder = folder
        self._stream: StreamBatches | None = None

    @property
    def bounded(self) -> bool:
        """Never: the next batch is not made before this one is done, so there is nothing to read ahead."""
        return False

    def resume(self, position: tuple[int, int], watermark: float, journal: JournalOf = no_journal) -> None:
        """Go on behind the batches that are done; Spark gives the one after them again, if it had begun."""
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

    def committed(self, n_batches: int) -> None:
        """So many batches are done."""
        if self._stream is not None:
            self._stream.acknowledge(n_batches)

    def close(self) -> None:
        """End the query."""
        super().close()
        if self._stream is not None:
            self._stream.close()

    def _read(self) -> Iterator[Any]:
        assert self._stream is not None, "a stream is taken up before it is read"
        return iter(self._stream)


# Waiting for sources that do not end by themselves, and for the clock.
#
# A round takes a batch of every source. One that is silent is waited for, but not for ever: the others go on
# beside it. And where idle sources or early results are asked for, a round without rows is due when the clock
# says so, once for every such moment.

OTHERS = 0.1
"""Seconds that rows of one source wait for those of another."""
_PATIENCE_LOOK = 0.02
"""Seconds between looks at the clock."""


class SourcePolling:
    """Knows when a round is due. `stopping` ends the waiting."""

    def __init__(
        self, plan: Plan, source_readers: Sequence[SourceReader], clock: Clock, stopping: threading.Event
    ) -> None:
        self._source_readers, self._clock, self._stopping = source_readers, clock, stopping
        self._slow = [
            source_reader
            for source_reader in source_readers
            if isinstance(source_reader, BackgroundSourceReader)
        ]
        self._came = threading.Condition()
        windows = [step.op.resolve(step.up) for step in plan if isinstance(step.op, Windows)]
        self._early = min((each.early for each in windows if each.early is not None), default=None)
        times = {step.name: step.op.resolve() for step in plan if isinstance(step.op, Source)}
        self._idle = {name: at.idle for name, at in times.items() if at is not None and at.idle is not None}
        clocked = [at for at in times.values() if at is not None and (at.column is None or at.max_future)]
        self.timely = bool(self._slow or self._idle or clocked)
        self._due: dict[str, int] = {}

    def now(self) -> int:
        """The time now."""
        return self._clock.now()

    def begin(self) -> None:
        """Have slow sources read."""
        for source_reader in self._slow:
            source_reader.begin(self._came)
        self.went(self.now(), self._idle, ())

    def went(self, now: int, came: Collection[str] | Mapping[str, Any], idle: Collection[str]) -> None:
        """A round went by with batches of these sources: when the next is due though nothing comes."""
        self._due = {what: at for what, at in self._due.items() if at > now}
        if came and self._early is not None:
            self._due["early results"] = now + self._early
        for name, after in self._idle.items():
            if name in came:
                self._due[name] = now + after
            elif name in idle:
                self._due.pop(name, None)

    def awaited(self) -> list[str] | None:
        """The sources to take a batch from now; none of them for a round that the clock asks for. None when
        the run is to stop.
        """
        waited_since: float | None = None
        while any(source_reader.silent for source_reader in self._slow):
            if self._stopping.is_set():
                return None
            if any(at <= self.now() for at in self._due.values()):
                break
            if self._some_came():
                waited_since = waited_since or time.monotonic()
                if time.monotonic() - waited_since >= OTHERS:
                    break
            with self._came:
                self._came.wait(_PATIENCE_LOOK)
        silent = {source_reader.step.name for source_reader in self._slow if source_reader.silent}
        return [
            source_reader.step.name
            for source_reader in self._source_readers
            if source_reader.step.name not in silent
        ]

    def _some_came(self) -> bool:
        here = (
            each
            for each in self._source_readers
            if not isinstance(each, BackgroundSourceReader) or not each.silent
        )
        return any(not each.ended for each in here)
