"""Asyncio inside an operator with a loop of its own: its co-routine is a task of an event loop of its own.

The engine resumes the operator, and gets control back when it waits for rows or for room. In between it may
await whatever asyncio can wait for: `asyncio.sleep`, a client, a lock, tasks that it has started. The event
loop runs in the thread that resumes the operator, and only while the operator waits for such things; where it
waits for none, its next step is called without the loop turning. So an operator that never awaits anything of
asyncio's need not pay for a loop.

Loaded only in programs that have loaded asyncio themselves: in others nothing of it can be awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

from penstock.errors import FunctionError

MAX_CLOSING_WAITS = 100
"""How often an operator that is being closed may wait for rows before it is told that none will come."""


class OperatorLoop(asyncio.SelectorEventLoop):
    """The event loop of one operator.

    parks   the step that is scheduled next is that of the operator which waits for the engine
    parked  that step: it is called when the engine resumes the operator
    """

    def __init__(self) -> None:
        super().__init__()
        self.parks = False
        self.parked: tuple[Callable[..., object], tuple[Any, ...], Context | None] | None = None

    def park(self) -> None:
        """Keep the next step that is scheduled for the engine; called just before a bare `yield`."""
        self.parks = True

    def call_soon(  # type: ignore[override]  # the stubs tie the arguments to the callback
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a call, unless it is the step to be kept."""
        if not self.parks:
            return super().call_soon(callback, *args, context=context)
        self.parks, self.parked = False, (callback, args, context)
        if self.is_running():
            self.stop()
        return asyncio.Handle(callback, args, self, context)

    def __del__(self) -> None:
        # Why: an operator of a run that nobody ended is just let go, and that deserves no warning.
        if not self.is_closed():
            self.close()


class AsyncioRoutine:
    """The co-routine of an operator, as a task; has the `send` and `close` of a plain co-routine.

    park  is called before the co-routine suspends itself for the engine
    """

    def __init__(self, routine: Coroutine[Any, Any, None]) -> None:
        self._loop = OperatorLoop()
        self.park = self._loop.park
        self.park()  # also the first step is the engine's to call
        self._task = asyncio.Task(routine, loop=self._loop)
        self._task._log_destroy_pending = False  # type: ignore[attr-defined]  # as above: it is let go
        self._task.add_done_callback(lambda task: self._loop.stop() if self._turns else None)
        self._turns = False  # the loop turns until the operator waits for the engine, or ends

    def send(self, value: None) -> None:
        """Run until it waits for the engine; raise StopIteration at its end, or what it has raised."""
        assert self._loop.parked is not None, "the operator waits for the engine"
        (callback, args, context), self._loop.parked = self._loop.parked, None
        with _running_loop(self._loop):
            if context is None:
                callback(*args)
            else:
                context.run(callback, *args)
        if self._loop.parked is None and not self._task.done():
            with _running_loop(None):  # it waits for something of asyncio's
                self._turns = True
                self._loop.run_forever()
                self._turns = False
        if self._task.done():
            self._end()
            self._task.result()  # raises what it has raised
            raise StopIteration

    def close(self) -> None:
        """End the co-routine where it waits: it is cancelled, and may await things while it cleans up."""
        n_waits = 0
        try:
            while not self._task.done():
                self._task.cancel()
                self.send(None)
                n_waits += 1
                if n_waits > MAX_CLOSING_WAITS:
                    raise FunctionError(
                        "an operator that was being closed went on to wait for rows",
                        hint="let asyncio.CancelledError pass: the inputs are over",
                    )
        except (StopIteration, asyncio.CancelledError):
            return
        finally:
            self._loop.close()

    def _end(self) -> None:
        """Cancel the tasks that the operator has left behind, and close the event loop."""
        loop = self._loop
        with _running_loop(None):
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@contextmanager
def _running_loop(loop: asyncio.AbstractEventLoop | None) -> Iterator[None]:
    """Let asyncio take this for the running loop of the thread; a test may run in one of its own."""
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)
