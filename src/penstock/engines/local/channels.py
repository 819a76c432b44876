"""Channels: bounded queues between two tasks; and outputs, by which rows reach the replicas of the next step.

One task writes a channel and one task reads it; several producers have a channel each. The messages:

    Batch           rows
    EndOfRound      all rows of a round have been sent, with the frontier that the reader may rely on
    OneRow          a round of one plain row, or of none, and its end
    int             a sequence number: all results of the batch with this number were sent
    ActiveReplicas  from the next sequence number on, so many replicas get batches
    ControlMessage  state moves between replicas of the reader's step or of one before it (`elastic/`)
    CLOSED          nothing more will come
    BROKEN          nor will the rest of the current round: its writer has failed

Invariant: neither side takes a lock. Appending to and taking from a deque are atomic, and each side looks at
the other's state only after it has done its part; the dispatcher sets a task's state before it looks whether
the task could go on. So one of the two always sees the other, and no wake-up is lost.

Order behind round-robin replicas (C-Stream, 4.2): the single task that distributes batches numbers them. The
sequence number follows each batch to its replica, and is forwarded behind all results of the batch, even if
there are none. Whoever reads all replicas takes results sequence number by sequence number (`OrderedMerge`),
and so sees the order in which the batches were sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.engines.frontiers import OVER, Frontier
from penstock.engines.local.metrics.statistics import (
    READ_BLOCKED,
    WRITE_BLOCKED,
    InputStatistics,
    OutputStatistics,
)
from penstock.frozen import dataclass
from penstock.operators.op import LATE, LATE_RIGHT
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.order import merge_batches
from penstock.stages.stage import PlainRow

if TYPE_CHECKING:
    from penstock.engines.local.dispatch import Dispatcher
    from penstock.engines.local.tasks.task import InputTask, Task
    from penstock.stages.patterns.pattern import Partitioner


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


Origin = tuple[int, int | None]
"""The round group of a source, and its rank among several, by which rows of equal time are ordered first."""

OneRow = tuple[PlainRow | None, int, int, int, Origin, Frontier, int]
"""The values of a row, or None, and the number of its round; its time, shift and origin (`RowContext`); the
frontier at the end of the round; and when it was put in.
"""


def row_order(origin: Origin, place: int) -> tuple[int, ...]:
    """Return the place of a row among those of equal time, from its number among those of its source."""
    rank = origin[1]
    return (place,) if rank is None else (rank, place)


@dataclass(slots=True)
class ActiveReplicas:
    """Says that from here on the first `n` replicas get batches round-robin."""

    n: int


class ControlMessage(ABC):
    """A rare message that knows itself what its reader must do."""

    __slots__ = ()

    @abstractmethod
    def deliver(self, task: InputTask, channel: Channel) -> None:
        """Act on the task that has taken the message from the channel."""


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
        capacity: float,
        max_rows: float,
        port: str,
        *,
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
        """Return whether the writer must wait; an abandoned channel never is."""
        counted = self.statistics
        if len(self.items) < self.capacity and counted.put_rows - counted.taken_rows < self.max_rows:
            return False
        return not self.abandoned

    def push(self, message: Any) -> None:
        """Put a message in, and wake the reader if it waits for one."""
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
        """Put a single row in, as `push` does; return whether the channel may be full now."""
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
        """Take the oldest message, and wake the writer if it waits for room."""
        message = self.items.popleft()
        if type(message) is tuple:
            self.record_taken(int(message[0] is not None), int(message[0] is not None))
            return message
        self.stamps.popleft()
        if isinstance(message, Batch):
            self.record_taken(message.num_rows, 1)
        else:
            self.record_taken(0, 0)
        return message

    def record_taken(self, n_rows: int, n_batches: int) -> None:
        """Count rows that the reader took from `items`, and wake the writer if it waits for room."""
        counted, items = self.statistics, self.items
        counted.taken_rows += n_rows
        counted.taken_batches += n_batches
        if not items:
            counted.oldest = None
        else:  # a single row carries its own time stamp
            counted.oldest = items[0][-1] if type(items[0]) is tuple else self.stamps[0]
        # Invariant: look at the writer's state after the take, for the same reason as in `push`.
        if self.writer.statistics.state is WRITE_BLOCKED:
            self.dispatcher.wake(self.writer, WRITE_BLOCKED)

    def record_direct(self, n_rows: int) -> None:
        """Count rows that the writer handed to the reader by a direct call."""
        counted = self.statistics
        counted.put_rows += n_rows
        counted.put_batches += n_rows
        counted.taken_rows += n_rows
        counted.taken_batches += n_rows

    def abandon(self) -> None:
        """End reading: what was sent and will be sent is only counted (`unread`)."""
        self.abandoned = True
        if self.writer.statistics.state is WRITE_BLOCKED:
            self.dispatcher.wake(self.writer, WRITE_BLOCKED)

    def take_kept(self) -> list[Batch]:
        """Take the rows of a round that were kept until its end."""
        batches, self.kept = self.kept, []
        return batches

    @property
    def unread(self) -> int:
        """Return the rows that the reader did not take before it completed."""
        if not self.abandoned:
            return 0
        messages = tuple(self.items)
        n_single = sum(message[0] is not None for message in messages if type(message) is tuple)
        n_batched = sum(message.num_rows for message in messages if isinstance(message, Batch))
        return self.dropped + n_single + n_batched


class Output:
    """One edge of the plan, seen from one task that writes it.

    port        the output port of the step
    batch_size  rows in a batch that is sent; None sends batches as they are
    """

    def __init__(self, port: str, channels: Sequence[Channel], batch_size: int | None = None) -> None:
        self.channels, self._batch_size = tuple(channels), batch_size
        self._buffer: list[Batch] = []
        self._n_buffered = 0
        self.statistics = OutputStatistics(tuple(channel.statistics for channel in channels))
        self._has_watermark = port not in (LATE, LATE_RIGHT)  # late rows can be of any age

    def send(self, batch: Batch) -> None:
        """Send rows, in batches of `batch_size`; the rest waits for more rows or the end of the round."""
        self.statistics.rows += batch.num_rows
        self.statistics.batches += 1
        if self._batch_size is None:
            self.route(batch)
        else:
            self._buffer.append(batch)
            self._n_buffered += batch.num_rows
            if self._n_buffered >= self._batch_size:
                self._send_buffer(self._batch_size)

    def route(self, batch: Batch) -> None:
        """Put the rows of a batch into the channels of the replicas that they are for: here, all."""
        for channel in self.channels:
            channel.push(batch)

    def begin_rows(self, schema: pa.Schema) -> bool:
        """Return whether rows can be sent singly to the only channel.

        They cannot if they are buffered, nor if the frontier is withheld.
        """
        self.channels[0].schema = schema
        return len(self.channels) == 1 and self._batch_size is None and self._has_watermark

    def end_round(self, round_group: int, number: int, frontier: Frontier) -> None:
        """End a round in all channels."""
        if self._buffer:
            self._send_buffer()
        if not self._has_watermark:
            frontier = OVER if frontier.over else Frontier()
        message = EndOfRound(round_group, number, frontier)
        for channel in self.channels:
            channel.push(message)

    def forward(self, message: int | ActiveReplicas | ControlMessage) -> None:
        """Forward a sequence number or a control message behind everything that was sent before it."""
        if self._buffer:
            self._send_buffer()
        for channel in self.channels:
            channel.push(message)

    def close(self, *, broken: bool = False) -> None:
        """Close all channels; `broken` if rows of the current round are missing."""
        for channel in self.channels:
            channel.push(BROKEN if broken else CLOSED)

    def _send_buffer(self, size: int | None = None) -> None:
        """Send all rows that are buffered, or as many batches of this size as they fill."""
        whole = merge_batches(self._buffer, self._buffer[0].schema)
        n_rows = whole.num_rows
        step = max(n_rows, 1) if size is None else size
        n_sent = n_rows // step * step
        for first in range(0, n_sent, step):
            self.route(slice_batch(whole, first, first + step) if step < n_rows else whole)
        self._n_buffered = n_rows - n_sent
        self._buffer = [slice_batch(whole, n_sent, n_rows)] if self._n_buffered else []


class PartitionedOutput(Output):
    """Sends each replica its partition: by key, by window or by slice, as the partitioner says."""

    def __init__(
        self, port: str, channels: Sequence[Channel], partitioner: Partitioner, batch_size: int | None = None
    ) -> None:
        super().__init__(port, channels, batch_size)
        self._partitioner = partitioner

    def route(self, batch: Batch) -> None:
        """Implement `Output.route`."""
        for replica, partition in self._partitioner(batch):
            self.channels[replica].push(partition)


class RoundRobinOutput(Output):
    """Sends batch after batch to replica after replica.

    sequenced  whether sequence numbers follow the batches, so that their order can be restored
    n_active   the first so many replicas get batches; the others wait until they are needed
    """

    def __init__(
        self,
        port: str,
        channels: Sequence[Channel],
        batch_size: int | None,
        *,
        sequenced: bool,
        n_active: int,
    ) -> None:
        super().__init__(port, channels, batch_size)
        self._sequenced, self._next, self._first = sequenced, 0, 0
        self.n_active = self._n_wanted = n_active

    @property
    def is_rescaling(self) -> bool:
        """Return whether a number of replicas was requested that no rows have been sent to yet."""
        return self._n_wanted != self.n_active

    def rescale(self, n_active: int) -> None:
        """Request a number of active replicas, for the rows that are sent next; any thread may call it."""
        assert 1 <= n_active <= len(self.channels), f"there are {len(self.channels)} replicas"
        self._n_wanted = n_active

    def route(self, batch: Batch) -> None:
        """Implement `Output.route`."""
        n_wanted = self._n_wanted  # read once: another thread may change it
        if n_wanted != self.n_active:
            self.n_active, self._first = n_wanted, self._next
            if self._sequenced:
                for channel in self.channels:
                    channel.push(ActiveReplicas(n_wanted))
        channel = self.channels[replica_for(self._next, self._first, self.n_active)]
        channel.push(batch)
        if self._sequenced:
            channel.push(self._next)
        self._next += 1


class EvenSplitOutput(RoundRobinOutput):
    """Splits the rows of a round into equal shares, one per replica; merged in order they are as before."""

    def route(self, batch: Batch) -> None:
        """Keep the rows until the round is complete."""
        self._buffer.append(batch)

    def end_round(self, round_group: int, number: int, frontier: Frontier) -> None:
        """Send the shares, then the end of the round."""
        batches, self._buffer = self._buffer, []
        n_active = self.n_active = self._n_wanted
        if batches:
            whole = merge_batches(batches, batches[0].schema)
            bounds = [whole.num_rows * i // n_active for i in range(n_active + 1)]
            for channel, first, end in zip(self.channels, bounds, bounds[1:], strict=False):
                if first < end:
                    channel.push(slice_batch(whole, first, end))
        super().end_round(round_group, number, frontier)


def replica_for(sequence: int, first: int, n_active: int) -> int:
    """Return the replica that gets a batch; `n_active` replicas are active since sequence number `first`."""
    return (sequence - first) % n_active


def slice_batch(batch: Batch, first: int, end: int) -> Batch:
    """Return rows first to end of a batch, without copying columns."""
    if batch.plain is not None:
        return batch.take(np.arange(first, end))
    rows = batch.rows.slice(first, end - first)
    return Batch(rows, batch.times[first:end], tuple(column[first:end] for column in batch.order))
