"""From one task to the next, for single rows: through the channel, or by a direct call.

A task that waits for rows, and takes little time for each, is run by the thread that has a row for it: the
channel and the quantum of another thread would cost more than the work does. So it is borrowed from the
dispatcher for as long as its feeder goes on (`begin` to `end`), and counts as running for that time. Its
rounds are those of its feeder, so a round that brings it no row costs nothing, unless steps behind it wait
for the end of every round. A task that takes long for a row gets it through the channel, so that both can
work side by side; timing some of the rows tells which it is.

With a task for each of five steps (`python -m bench runtime`, group latency) half of the rows arrive within
7 us, and without direct calls within 0.9 ms.

Batches go through channels. But a source that waits for rows has a thread of its own, and after a round of
few rows that thread runs the tasks that the round has woken, one after the other, before it waits again
(`InlineTasks`): to wake another thread, and to wait for the interpreter, takes longer than such a round
(`python -m bench latency`).
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.engines.frontiers import Frontier
from penstock.engines.local.channels import Origin, Output, row_order
from penstock.engines.local.metrics.statistics import READ_BLOCKED, TaskStatistics
from penstock.stages.stage import PlainRow

if TYPE_CHECKING:
    from penstock.engines.local.dispatch import Dispatcher
    from penstock.engines.local.row_path import RowInput
    from penstock.engines.local.tasks.task import Task

SLOW_NS = 20_000
"""A task that takes longer for a row works for itself."""

SAMPLE_EVERY = 64
"""One in this many rounds is timed."""

WAITED_NS = 5_000_000
"""Tasks that wait longer in a round, for a lock or an answer, work for themselves: meanwhile others could."""
INLINE_NS = 100_000_000
"""So do tasks that take longer for a round, or rows would be read later than after their `wait`."""

FIRST_PAUSE, LONGEST_PAUSE = 4, 1_024
"""How many times a task is not borrowed, although it waits, after it was slow: twice as many each time, since
many a step is slow at first only. For so many rounds tasks are not run inline.
"""


class RowContext:
    """What is known of the row at hand besides its values and the number of its round.

    origin  the source it comes from
    shift   how far its place among the rows of the source is beyond the number of its round
    time    its event time
    """

    __slots__ = ("origin", "shift", "time")

    def __init__(self, origin: Origin) -> None:
        self.origin, self.shift, self.time = origin, 0, 0

    def order(self, number: int) -> tuple[int, ...]:
        """Return the place of the row of a round among those of equal time."""
        return row_order(self.origin, number + self.shift)


class RowOutput(ABC):
    """Where rows go from the last step of a pipeline: a sink, the next task, or steps that take batches.

    every_round  whether it must hear of rounds that bring it no row
    frontier     that of the task
    """

    every_round = True
    context: RowContext
    frontier: Frontier

    def begin(self, context: RowContext, number: int, frontier: Frontier) -> None:
        """Begin a sequence of rounds, the first of this number, with the task at the frontier."""
        self.context, self.frontier = context, frontier

    def advance_frontier(self, frontier: Frontier) -> None:
        """Move the frontier, which the round of the next row reaches."""
        self.frontier = frontier

    @abstractmethod
    def put_row(self, values: PlainRow | None, number: int) -> bool:
        """Take the row of a round, or None, and end the round; return whether there may be no room."""

    def end(self, number: int) -> int:
        """End the sequence before this round; return the nanoseconds spent on behalf of other tasks."""
        return 0


class DirectCall(RowOutput):
    """The only edge out of a task, for single rows."""

    def __init__(self, output: Output) -> None:
        self._output, (self._channel,) = output, output.channels
        self._input: RowInput | None = None  # of the reader, while it is borrowed
        self._process: Callable[[Any, int], bool] | None = None
        self._end_empty_round: Callable[[Any, int], bool] | None = None
        self._pause = self._next_sample = self._cost_ns = 0
        self._next_pause = FIRST_PAUSE
        self._was_slow = False

    def begin(self, context: RowContext, number: int, frontier: Frontier) -> None:
        """Implement `RowOutput.begin`: borrows the reader, if it only waits for rows."""
        super().begin(context, number, frontier)
        self._borrow(number)

    def _borrow(self, number: int) -> None:
        row_input = self._channel.reader.row_input
        if row_input is None:
            return
        if self._pause:
            self._pause -= 1
        elif self._channel.dispatcher.borrow(self._channel.reader):
            pipeline = row_input.begin(self.context, number, self.frontier)
            self._input, self._process = row_input, pipeline.process
            self._next_sample = self._cost_ns = 0
            self._end_empty_round = pipeline.put_row if pipeline.every_round else None

    def advance_frontier(self, frontier: Frontier) -> None:
        """Implement `RowOutput.advance_frontier`: at once, or with the next row in the channel."""
        self.frontier = frontier
        if self._input is not None:
            self._input.advance_frontier(frontier)

    def end(self, number: int) -> int:
        """Implement `RowOutput.end`: gives the reader back."""
        row_input, self._input, self._process = self._input, None, None
        if row_input is None:
            return 0
        n_rows, spent_behind_ns = row_input.end(number)
        spent_ns = self._cost_ns * n_rows
        self._output.statistics.rows += n_rows
        self._output.statistics.batches += n_rows
        self._channel.dispatcher.release(self._channel.reader, max(spent_ns - spent_behind_ns, 0))
        return spent_ns

    def put_row(self, values: PlainRow | None, number: int) -> bool:
        """Implement `RowOutput.put_row`."""
        process = self._process
        if process is None:
            return self._send(values, number)
        if values is None:
            process = self._end_empty_round
            if process is None:
                return False
        if number >= self._next_sample:
            return self._call_timed(process, values, number)
        try:
            return process(values, number)
        except BaseException as failure:
            return self._fail(number, failure)

    def _send(self, values: PlainRow | None, number: int) -> bool:
        """Send the row through the channel, unless the reader waits now."""
        if self._channel.reader.statistics.state is READ_BLOCKED:
            self._borrow(number)
            if self._input is not None:
                return self.put_row(values, number)
        if values is not None:
            self._output.statistics.rows += 1
            self._output.statistics.batches += 1
        context, now = self.context, self._channel.dispatcher.now()
        return self._channel.push_row(
            (values, number, context.time, context.shift, context.origin, self.frontier, now)
        )

    def _call_timed(self, process: Callable[[Any, int], bool], values: PlainRow | None, number: int) -> bool:
        """Call the reader and time it; one that is slow for two such rows is given back.

        For two of them, because one may be bad luck.
        """
        clock = self._channel.dispatcher.now
        began = clock()
        try:
            full = process(values, number)
        except BaseException as failure:
            return self._fail(number, failure)
        took = clock() - began
        self._cost_ns = took if not self._cost_ns else (3 * self._cost_ns + took) // 4
        was_slow, self._was_slow = self._was_slow, took > SLOW_NS
        if not self._was_slow:
            self._next_sample, self._next_pause = number + SAMPLE_EVERY, FIRST_PAUSE
        elif not was_slow:
            self._next_sample = number + 1
        else:
            self._pause, self._next_pause = self._next_pause, min(2 * self._next_pause, LONGEST_PAUSE)
            self.end(number + 1)
        return full

    def _fail(self, number: int, failure: BaseException) -> bool:
        """End the reader, which raised; its feeder, to which there is room, goes on until told to stop."""
        row_input, self._input, self._process = self._input, None, None
        assert row_input is not None, "the reader is borrowed"
        row_input.end(number)
        self._channel.dispatcher.fail_task(self._channel.reader, failure)
        return False


class InlineTasks:
    """Runs the tasks behind a source in the source's own thread, round after round, unless they are slow.

    Invariant: the source's task is running meanwhile, so the run is never taken for one that cannot go on.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._woken: deque[Task] = deque()
        self._was_slow, self._pause, self._next_pause = False, 0, FIRST_PAUSE

    def carry(self, statistics: TaskStatistics, carry: Callable[[], bool]) -> bool:
        """Carry a round, and run the tasks that it wakes; return what `carry` returns.

        statistics  of the source, which is not charged for the other tasks
        """
        if self._pause:
            self._pause -= 1
            return carry()
        dispatcher, woken, thread = self._dispatcher, self._woken, threading.get_ident()
        dispatcher.woken_inline[thread] = woken
        try:
            goes_on = carry()
            began, worked = dispatcher.now(), time.thread_time_ns()
            # Why a limit: another source may keep a task ready for ever, and this one has to read on.
            dispatcher.run_woken(woken, began + INLINE_NS)
        finally:
            del dispatcher.woken_inline[thread]
            if woken:
                dispatcher.release_woken(woken)
        now = dispatcher.now()
        took, worked = now - began, time.thread_time_ns() - worked
        statistics.exclude_borrowed(now, took)
        self._judge(took > INLINE_NS or took - worked > WAITED_NS)
        return goes_on

    def _judge(self, is_slow: bool) -> None:
        """Leave some rounds to workers after two slow ones: one may be bad luck."""
        was_slow, self._was_slow = self._was_slow, is_slow
        if not is_slow:
            self._next_pause = FIRST_PAUSE
        elif was_slow:
            self._pause, self._next_pause = self._next_pause, min(2 * self._next_pause, LONGEST_PAUSE)
            self._was_slow = False
