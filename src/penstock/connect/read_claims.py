"""Reads that may wait: rows of generators, connections and watched folders come when they come.

The thread that reads such a source cannot be interrupted while it waits. So another thread may act in its
place: it claims the read, takes the rows that have come so far, lets an engine do what the clock asks for,
and lets the reading thread go on; or it abandons the read, and what the reading thread still gets is dropped.

A claim costs the reading thread two stores and a look for every item. It says that it waits before it looks
for a claim, and whoever claims says so before it looks whether the other waits, so at least one of the two
sees the other. Python's bytecodes are in order for all threads, so no lock is needed for that.

Asynchronous iterables are read by an event loop in a thread of its own, which never waits for the steps of a
graph: items wait for their reader, up to a limit. Also what a generator may yield beside rows.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import AsyncIterable, Iterator
from contextlib import suppress
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.connect.protocol import SourceBatch
from penstock.errors import ConnectorError
from penstock.expr.values import from_python
from penstock.frozen import Frozen
from penstock.timing.units import micros

if TYPE_CHECKING:
    import asyncio

DEFAULT_WAIT = "100 ms"
"""How long the first row of a batch waits for others."""


class Watermark(Frozen):
    """A source's own promise: no more rows with a time before this.

    A datetime where the time column is a timestamp, a date where it is a date, an int in its unit where it
    is int64.
    """

    time: int | datetime | date

    def __post_init__(self) -> None:
        if isinstance(self.time, bool) or not isinstance(self.time, int | date):
            raise ConnectorError(
                f"Watermark({self.time!r}) is not a time",
                hint="give a datetime, a date, or an int in the column's unit",
            )

    @property
    def value(self) -> int:
        """Return the time in the time column's unit."""
        if isinstance(self.time, int):
            return self.time
        as_type = pa.timestamp("us") if isinstance(self.time, datetime) else pa.date32()
        plain = from_python(self.time, as_type)
        assert isinstance(plain, int), "times and dates are ints in plain form"
        return plain


class Position(Frozen):
    """Where a generator can go on: everything that it has yielded so far is behind it.

    at  plain data, such as a number or a dict, which a later run is given as `position=`
    """

    at: Any

    def __post_init__(self) -> None:
        try:
            json.dumps(self.at, allow_nan=False)
        except (TypeError, ValueError) as problem:
            raise ConnectorError(
                f"Position({self.at!r:.80}) cannot be saved: {problem}",
                hint="give numbers, strings, lists and dicts of these",
            ) from problem


class AbandonedRead(BaseException):  # no error: it ends a thread that nobody waits for
    """Ends the thread of a read that was abandoned while it waited."""


class WaitingRead:
    """The read of a source that may wait, as an iterator; what it yields is for its caller to know.

    items      what is waited for
    source     where they come from, if not from themselves; its `interrupt()`, if there is one, ends it soon
    reading    whether the reading thread waits, or is about to
    claimed    whether another thread acts in its place
    abandoned  whether nobody wants what comes any more
    """

    def __init__(self, items: Iterator[Any], source: object = None) -> None:
        self.items, self._source = items, items if source is None else source
        self.reading = self.claimed = self.abandoned = False
        self._turn = threading.Lock()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.reading = True
        try:
            return next(self.items)
        finally:
            self.reading = False
            if self.claimed:
                self.wait_turn()

    def claim(self) -> bool:
        """Keep the reading thread from going on, if it waits; return whether it does."""
        self._turn.acquire()
        self.claimed = True
        if self.reading:
            return True
        self.release()
        return False

    def release(self) -> None:
        """Let the reading thread go on; it ends as soon as it can if the read was abandoned."""
        self.claimed = self.abandoned
        self._turn.release()

    def wait_turn(self) -> None:
        """Wait until no other thread acts; raise AbandonedRead if nothing is wanted any more."""
        with self._turn:
            pass
        if self.abandoned:
            with suppress(Exception):  # nobody is there to hear of it
                self.close()
            raise AbandonedRead

    def abandon(self) -> None:
        """Want nothing any more, and let the source end soon if it can."""
        self.abandoned = self.claimed = True
        self._interrupt()

    def _interrupt(self) -> None:
        interrupt = getattr(self._source, "interrupt", None)
        if interrupt is not None:
            interrupt()

    def close(self) -> None:
        """Let the source release what it holds; if it is still waited for, the reading thread does."""
        self.abandoned = True
        close = getattr(self.items, "close", None)
        if self.reading:
            self._interrupt()
        elif close is not None:
            close()

    @property
    def first_number(self) -> int | None:
        """Return the number of the first row that has come and waits for others; None if there is none."""
        return None

    @property
    def first_read_at(self) -> int | None:
        """Return when that row was read, where rows are stamped."""
        return None

    def take(self) -> SourceBatch | None:
        """Return the rows that have come, as a batch; None if there are none. Only with a claim."""
        return None

    def skip(self, n_rows: int) -> int | None:
        """Drop the first rows, which an earlier run has read, however they were cut then.

        Returns how many there were, or None where the cuts are always the same.
        """
        return None


def check_wait(value: object, name: str = "wait", example: str = DEFAULT_WAIT) -> int:
    """Return the `wait=` of a user, or another length of time, in microseconds."""
    if isinstance(value, str | timedelta) and (us := micros(value, subject=f"{name}=")) > 0:
        return us
    raise ConnectorError(
        f"{name}={value!r} is not a length of time",
        hint=f'give a duration above zero: {name}="{example}"',
    )


MAX_ITEMS = 1_024
"""Items of an asynchronous iterable that wait to be taken."""
_END = object()


class AsyncItems:
    """The items of an asynchronous iterable, for a thread that waits for them.

    They are read by an event loop in a thread of its own, at most `MAX_ITEMS` ahead.
    """

    def __init__(self, source: AsyncIterable[Any], name: str) -> None:
        self._source, self._items = source, deque[Any]()
        self._changed, self._closed = threading.Condition(), False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._room: asyncio.Event
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"penstock-{name}-loop", daemon=True)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self._thread.is_alive() and self._loop is None:
            self._thread.start()
        with self._changed:
            while not self._items:
                self._changed.wait()
            item = self._items.popleft()
            half_empty = len(self._items) == MAX_ITEMS // 2
        if item is _END:
            self._items.append(_END)  # it stays the end
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            raise StopIteration
        if half_empty and self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._room.set)
        return item

    def interrupt(self) -> None:
        """Cancel what the source waits for."""
        self._closed = True
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with suppress(RuntimeError):  # the loop has ended in the meantime
                loop.call_soon_threadsafe(task.cancel)

    def close(self) -> None:
        """Cancel what the source waits for, and wait a while until its `finally` has run."""
        self.interrupt()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def _run(self) -> None:
        import asyncio  # it takes long to load, and few programs need it
        from concurrent.futures import CancelledError

        try:
            asyncio.run(self._pump())
        except asyncio.CancelledError as cause:
            if not self._closed:  # the source itself has cancelled what it awaits
                # Why another class: who awaits the end of the run would seem to be cancelled.
                self._failure = CancelledError("what it awaits was cancelled")
                self._failure.__cause__ = cause
        except BaseException as failure:  # raised again where the item would have been taken
            self._failure = failure
        with self._changed:
            self._items.append(_END)
            self._changed.notify_all()

    async def _pump(self) -> None:
        import asyncio

        self._room, self._loop, self._task = (
            asyncio.Event(),
            asyncio.get_running_loop(),
            asyncio.current_task(),
        )
        items = aiter(self._source)
        try:
            async for item in items:
                with self._changed:
                    self._items.append(item)
                    self._changed.notify_all()
                    self._room.clear()
                    is_full = len(self._items) >= MAX_ITEMS
                if self._closed:
                    return
                if is_full:
                    await self._room.wait()
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                await close()
