"""Channels: bounded queues between two tasks, in which rows and control messages travel in band.

One task writes a channel and one task reads it; several producers have a channel each. The messages:

    Batch           rows
    EndOfRound      all rows of a round have been sent, with the frontier that the reader may rely on
    OneRow          a round of one plain row, or of none, and its end
    int             a sequence number: all results of the batch with this number were sent (`output.py`)
    ActiveReplicas  from the next sequence number on, so many replicas get batches
    ControlMessage  state moves between replicas of the reader's step or of one before it (`rescale/`)
    CLOSED          nothing more will come
    BROKEN          nor will the rest of the current round: its writer has failed

Invariant: neither side takes a lock. Appending to and taking from a deque are atomic, and each side looks at
the other's state only after it has done its part; the dispatcher sets a task's state before it looks whether
the task could go on. So one of the two always sees the other, and no wake-up is lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.engines.frontiers import Frontier
from penstock.engines.local.fast_rows.context import Origin
from penstock.engines.local.metrics.statistics import READ_BLOCKED, WRITE_BLOCKED, InputStatistics
from penstock.frozen import dataclass
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import PlainRow

if TYPE_CHECKING:
    from penstock.engines.local.scheduling.dispatch import Dispatcher
    from penstock.engines.local.tasks.task import InputTask, Task


@dataclass(slots=True)
class EndOfRound:
    """Says that all rows of a round have been sent.

    round_group  whose rounds: sources that read in step share one
    number       the round, from 0
    frontier     the progress of the stream
    """

    round_group: int
    number: int
    frontier: Frontier


OneRow = tuple[PlainRow | None, int, int, int, Origin, Frontier, int]
"""The values of a row, or None, and the number of its round; its time, shift and origin (`RowContext`); the
frontier at the end of the round; and when it was put in.
"""


@dataclass(slots=True)
class ActiveReplicas:
    """Says that from here on the first `n` replicas get batches round-robin."""

    n: int


class ControlMessage(ABC):
    """A rare message that knows itself what its reader must do."""

    __slots__ = ()

    @abstractmethod
    def deliver(self, task: InputTask, channel: Channel) -> None:
        """Acts on the task that has taken the message from the channel."""


class _Last:
    """The last message of a channel."""

    __slots__ = ()


CLOSED, BROKEN = _Last(), _Last()


class Channel:
    """A queue of messages from one task to another.

    capacity      messages that fit; a writer may exceed it by the results of one message
    max_rows      rows that fit
    schema        the columns of single plain rows, if any are sent
    round_groups  the round groups whose rounds come through here
    control       rows change the reader's state only: their frontier says nothing about its data
    feedback      the rows come from a later step, and belong to the round after theirs

    For the reader alone: `frontier`, `reached` (round group -> last round that has ended), `ended`, `kept`
    (rows that wait for the end of their round), `halted` (what comes next must wait for a barrier on other
    channels).
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        capacity: float,
        max_rows: float,
        port: str,
        control: bool = False,
        feedback: bool = False,
    ) -> None:
        self.dispatcher, self.capacity, self.max_rows = dispatcher, capacity, max_rows
        self.port, self.control, self.feedback = port, control, feedback
        self.round_groups: frozenset[int] = frozenset()
        self.items: deque[Any] = deque()
        self.stamps: deque[int] = deque()
        self.statistics = InputStatistics(max_rows, capacity)
        self.reader: Task
        self.writer: Task
        self.abandoned = self.ended = self.halted = False
        self.dropped = 0
        self.schema: pa.Schema | None = None
        self.frontier = Frontier()
        self.reached: dict[int, int] = {}
        self.kept: list[Batch] = []

    @property
    def is_full(self) -> bool:
        """Returns whether the writer must wait; an abandoned channel never is."""
        counted = self.statistics
        if len(self.items) < self.capacity and counted.put_rows - counted.taken_rows < self.max_rows:
            return False
        return not self.abandoned

    def push(self, message: Any) -> None:
        """Puts a message in, and wakes the reader if it waits for one."""
        now, counted = self.dispatcher.now(), self.statistics
        if isinstance(message, Batch):
            if self.abandoned:
                self.dropped += message.num_rows
                return
            counted.put_rows += message.num_rows
            counted.put_batches += 1
        if not self.items:
            counted.oldest = now
        self.stamps.append(now)
        self.items.append(message)
        # Invariant: look at the reader's state after the append, or a reader that blocks now sleeps for ever.
        if self.reader.statistics.state is READ_BLOCKED:
            self.dispatcher.wake(self.reader, READ_BLOCKED)

    def push_row(self, message: OneRow) -> bool:
        """Puts a single row in, as `push` does; returns whether the channel may be full now."""
        counted, items = self.statistics, self.items
        if message[0] is not None:
            if self.abandoned:
                self.dropped += 1
                return False
            counted.put_rows += 1
            counted.put_batches += 1
        if not items:
            counted.oldest = message[-1]
        items.append(message)
        if self.reader.statistics.state is READ_BLOCKED:
            self.dispatcher.wake(self.reader, READ_BLOCKED)
        return len(items) >= self.capacity

    def pop(self) -> Any:
        """Takes the oldest message, and wakes the writer if it waits for room."""
        message, counted = self.items.popleft(), self.statistics
        if type(message) is tuple:
            self.record_taken(int(message[0] is not None))
            return message
        self.stamps.popleft()
        counted.oldest = self._oldest()
        if isinstance(message, Batch):
            counted.taken_rows += message.num_rows
            counted.taken_batches += 1
        # Invariant: look at the writer's state after the take, for the same reason as in `push`.
        if self.writer.statistics.state is WRITE_BLOCKED:
            self.dispatcher.wake(self.writer, WRITE_BLOCKED)
        return message

    def record_taken(self, n_rows: int) -> None:
        """Counts single rows that the reader took from `items` itself, and wakes the writer."""
        counted = self.statistics
        counted.taken_rows += n_rows
        counted.taken_batches += n_rows
        counted.oldest = self._oldest()
        if self.writer.statistics.state is WRITE_BLOCKED:
            self.dispatcher.wake(self.writer, WRITE_BLOCKED)

    def record_direct(self, n_rows: int) -> None:
        """Counts rows that the writer handed to the reader by a direct call."""
        counted = self.statistics
        counted.put_rows += n_rows
        counted.put_batches += n_rows
        counted.taken_rows += n_rows
        counted.taken_batches += n_rows

    def _oldest(self) -> int | None:
        """Returns when the front message was put in; a single row carries its own time stamp."""
        if not self.items:
            return None
        front = self.items[0]
        stamp: int = front[-1] if type(front) is tuple else self.stamps[0]
        return stamp

    def abandon(self) -> None:
        """Ends reading: what was sent and will be sent is only counted (`unread`)."""
        self.abandoned = True
        if self.writer.statistics.state is WRITE_BLOCKED:
            self.dispatcher.wake(self.writer, WRITE_BLOCKED)

    @property
    def unread(self) -> int:
        """Rows that the reader did not take before it completed."""
        if not self.abandoned:
            return 0
        return self.dropped + sum(_n_rows(message) for message in tuple(self.items))


def _n_rows(message: Any) -> int:
    if type(message) is tuple:
        return int(message[0] is not None)
    return message.num_rows if isinstance(message, Batch) else 0
