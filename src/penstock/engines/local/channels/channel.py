"""Channels: bounded queues of batches between two nodes, in which marks and tickets travel in band.

One node writes and one node reads; several producers have a channel each. What is in it:

    Batch       rows
    EndOfRound  what the reader may rely on from here on
    OneRow      a round of one plain row, or of none, and its end
    int         a ticket: everything that a batch of this number became has been sent (`outlets.py`)
    Rescaled    from the next ticket on so many replicas have their turn
    Word        state moves between replicas, of the reader's step or of one before it (`moves.py`)
    CLOSED      nothing more will come
    BROKEN      nor will the rest of the round at hand: its writer has failed

Neither side takes a lock: appending and taking are single steps of a deque, and each side looks at the
other's state only after it has done its part, as the dispatcher does before it lets a node sleep.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.engines.frontiers import Frontier
from penstock.engines.local.fast_rows.context import Origin, PlainRow
from penstock.engines.local.metrics.statistics import READ_BLOCKED, WRITE_BLOCKED, InputStatistics
from penstock.stages.rows.batch import Batch

if TYPE_CHECKING:
    from penstock.engines.local.scheduling.dispatch import Dispatcher
    from penstock.engines.local.tasks.task import InputTask, Task


class EndOfRound:
    """All rows of a round have passed here.

    round_group    which sources' rounds: those that go together share one
    number  the round, from 0
    mark    how far the stream has come
    """

    __slots__ = ("frontier", "number", "round_group")

    def __init__(self, round_group: int, number: int, frontier: Frontier) -> None:
        self.round_group, self.number, self.frontier = round_group, number, frontier


OneRow = tuple[PlainRow | None, int, int, int, Origin, Frontier, int]
"""A row's values, if there is one, and the number of its round; its time, shift and origin (`context.py`);
the mark of the round's end; and when it was put in.
"""


class ActiveReplicas:
    """From here on batches are dealt in turn to the first `n` replicas."""

    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n


class ControlMessage(ABC):
    """A seldom message, which knows itself what it means to its reader."""

    __slots__ = ()

    @abstractmethod
    def deliver(self, node: InputTask, channel: Channel) -> None:
        """The node has taken it from the channel."""


class _Last:
    """The last message of a channel."""

    __slots__ = ()


CLOSED, BROKEN = _Last(), _Last()


class Channel:
    """One channel.

    capacity   messages that fit; writers may go over it by what one message becomes
    max_rows   rows that fit
    schema     the columns of rows that come by themselves, if any do
    round_groups      the round_groups whose rounds come through here
    control    rows change the reader's state only: marks say nothing about its data
    feedback   the rows come from a later step, and are for the round after theirs

    Kept for the reader alone: `frontier`, `reached` (group -> last round that has ended), `ended`, `kept`
    (rows that wait for the end of their round), `halted` (what comes next must wait for other channels).
    """

    __slots__ = (
        "abandoned",
        "capacity",
        "control",
        "dispatcher",
        "dropped",
        "ended",
        "feedback",
        "frontier",
        "halted",
        "items",
        "kept",
        "max_rows",
        "port",
        "reached",
        "reader",
        "round_groups",
        "schema",
        "stamps",
        "statistics",
        "writer",
    )

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
        """Whether the writer must wait. What nobody will read has room for everything."""
        if len(self.items) < self.capacity and self.statistics.waiting_rows < self.max_rows:
            return False
        return not self.abandoned

    def push(self, message: Any) -> None:
        """Put a message in; wakes the reader if it waits for one."""
        now, counted = self.dispatcher.now(), self.statistics
        if type(message) is Batch:
            if self.abandoned:
                self.dropped += message.num_rows
                return
            counted.put_rows += message.num_rows
            counted.put_batches += 1
        if not self.items:
            counted.oldest = now
        self.stamps.append(now)
        self.items.append(message)
        if self.reader.statistics.state is READ_BLOCKED:
            self.dispatcher.wake_reader(self.reader)

    def push_row(self, message: OneRow) -> bool:
        """The same for a row by itself; gives whether there may be no more room."""
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
            self.dispatcher.wake_reader(self.reader)
        return len(items) >= self.capacity

    def pop(self) -> Any:
        """Take the oldest message; wakes the writer if it waits for room."""
        message, counted = self.items.popleft(), self.statistics
        if type(message) is tuple:
            self.record_taken(int(message[0] is not None))
            return message
        self.stamps.popleft()
        counted.oldest = self._oldest()
        if type(message) is Batch:
            counted.taken_rows += message.num_rows
            counted.taken_batches += 1
        if self.writer.statistics.state is WRITE_BLOCKED:
            self.dispatcher.wake_writer(self.writer)
        return message

    def record_taken(self, n_rows: int) -> None:
        """So many rows by themselves, and ends of rounds, were taken from `items`."""
        counted = self.statistics
        counted.taken_rows += n_rows
        counted.taken_batches += n_rows
        counted.oldest = self._oldest()
        if self.writer.statistics.state is WRITE_BLOCKED:
            self.dispatcher.wake_writer(self.writer)

    def record_direct(self, n_rows: int) -> None:
        """So many rows were brought to the reader by hand."""
        counted = self.statistics
        counted.put_rows += n_rows
        counted.put_batches += n_rows
        counted.taken_rows += n_rows
        counted.taken_batches += n_rows

    def _oldest(self) -> int | None:
        """When the message at the front was put in; for rows by themselves, that is in it."""
        if not self.items:
            return None
        front = self.items[0]
        stamp: int = front[-1] if type(front) is tuple else self.stamps[0]
        return stamp

    def abandon(self) -> None:
        """The reader has completed: what was sent and will be sent is only counted (`unread`)."""
        self.abandoned = True
        if self.writer.statistics.state is WRITE_BLOCKED:
            self.dispatcher.wake_writer(self.writer)

    @property
    def unread(self) -> int:
        """Rows that were sent to a reader that had completed, or completed before it took them."""
        if not self.abandoned:
            return 0
        return self.dropped + sum(_n_rows(each) for each in tuple(self.items))


def _n_rows(message: Any) -> int:
    if type(message) is tuple:
        return int(message[0] is not None)
    return message.num_rows if type(message) is Batch else 0
