"""Outputs: how the rows of a task reach the replicas of the next step, with a channel to each of them.

Order behind round-robin replicas (C-Stream, 4.2): the single task that distributes batches numbers them. The
sequence number follows each batch to its replica, and is forwarded behind all results of the batch, even if
there are none. Whoever reads all replicas takes results sequence number by sequence number (`OrderedMerge`),
and so sees the order in which the batches were sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engines.frontiers import OVER, Frontier
from penstock.engines.local.channels.channel import (
    BROKEN,
    CLOSED,
    ActiveReplicas,
    Channel,
    ControlMessage,
    EndOfRound,
)
from penstock.engines.local.metrics.statistics import OutputStatistics
from penstock.operators.op import LATE, LATE_RIGHT
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.order import merge_batches

if TYPE_CHECKING:
    from penstock.stages.patterns.partitioners import Partitioner


class Output(ABC):
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
        """Sends rows, in batches of `batch_size`; the rest waits for more rows or the end of the round."""
        self.statistics.rows += batch.num_rows
        self.statistics.batches += 1
        if self._batch_size is None:
            self.route(batch)
        else:
            self._buffer.append(batch)
            self._n_buffered += batch.num_rows
            if self._n_buffered >= self._batch_size:
                self._send_full(self._batch_size)

    @abstractmethod
    def route(self, batch: Batch) -> None:
        """Puts the rows of a batch into the channels of the replicas that they are for."""

    def end_round(self, round_group: int, number: int, frontier: Frontier) -> None:
        """Ends a round in all channels."""
        if self._buffer:
            self._flush()
        if not self._has_watermark:
            frontier = OVER if frontier.over else Frontier()
        message = EndOfRound(round_group, number, frontier)
        for channel in self.channels:
            channel.push(message)

    def forward(self, message: int | ActiveReplicas | ControlMessage) -> None:
        """Forwards a sequence number or a control message behind everything that was sent before it."""
        if self._buffer:
            self._flush()
        for channel in self.channels:
            channel.push(message)

    def close(self, *, broken: bool = False) -> None:
        """Closes all channels; `broken` if rows of the current round are missing."""
        for channel in self.channels:
            channel.push(BROKEN if broken else CLOSED)

    def _send_full(self, size: int) -> None:
        whole = merge_batches(self._buffer, self._buffer[0].schema)
        n_full = whole.num_rows // size * size
        for first in range(0, n_full, size):
            self.route(slice_batch(whole, first, first + size))
        self._n_buffered = whole.num_rows - n_full
        self._buffer = [slice_batch(whole, n_full, whole.num_rows)] if self._n_buffered else []

    def _flush(self) -> None:
        whole = merge_batches(self._buffer, self._buffer[0].schema)
        self._buffer, self._n_buffered = [], 0
        self.route(whole)


class ForwardOutput(Output):
    """Sends everything to the only channel."""

    def __init__(self, port: str, channels: Sequence[Channel], batch_size: int | None = None) -> None:
        super().__init__(port, channels, batch_size)
        (self._channel,) = self.channels

    def route(self, batch: Batch) -> None:
        """Implements `Output.route`."""
        self._channel.push(batch)

    def begin_rows(self, schema: pa.Schema) -> bool:
        """Returns whether rows can be sent singly: not if buffered, nor if the frontier is withheld."""
        self._channel.schema = schema
        return self._batch_size is None and self._has_watermark


class PartitionedOutput(Output):
    """Sends each replica its partition: by key, by window or by slice, as the partitioner says."""

    def __init__(
        self, port: str, channels: Sequence[Channel], partitioner: Partitioner, batch_size: int | None = None
    ) -> None:
        super().__init__(port, channels, batch_size)
        self._partitioner = partitioner

    def route(self, batch: Batch) -> None:
        """Implements `Output.route`."""
        for replica, partition in self._partitioner(batch):
            self.channels[replica].push(partition)


class BroadcastOutput(Output):
    """Sends every batch to every replica."""

    def route(self, batch: Batch) -> None:
        """Implements `Output.route`."""
        for channel in self.channels:
            channel.push(batch)


class RoundRobinOutput(Output):
    """Sends batch after batch to replica after replica.

    sequenced  whether sequence numbers follow the batches, so that their order can be restored
    n_active   the first so many replicas get batches; the others wait until they are needed
    """

    def __init__(
        self,
        port: str,
        channels: Sequence[Channel],
        batch_size: int | None = None,
        *,
        sequenced: bool,
        n_active: int | None = None,
    ) -> None:
        super().__init__(port, channels, batch_size)
        self._sequenced, self._next, self._first = sequenced, 0, 0
        self.n_active = self._n_wanted = n_active or len(channels)

    @property
    def is_rescaling(self) -> bool:
        """Returns whether a number of replicas was requested that no batch has been sent to yet."""
        return self._n_wanted != self.n_active

    def rescale(self, n_active: int) -> None:
        """Requests a number of active replicas, from the next batch on; any thread may call it."""
        assert 1 <= n_active <= len(self.channels), f"there are {len(self.channels)} replicas"
        self._n_wanted = n_active

    def route(self, batch: Batch) -> None:
        """Implements `Output.route`."""
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


class EvenSplitOutput(Output):
    """Splits the rows of a round into equal shares, one per replica; merged in order they are as before."""

    def __init__(
        self, port: str, channels: Sequence[Channel], schema: pa.Schema, *, n_active: int | None = None
    ) -> None:
        super().__init__(port, channels)
        self._schema = schema
        self._round: list[Batch] = []
        self.n_active = n_active or len(channels)

    @property
    def is_rescaling(self) -> bool:
        """Always False: a new number of replicas counts from the end of the current round."""
        return False

    def rescale(self, n_active: int) -> None:
        """Requests a number of active replicas; any thread may call it."""
        assert 1 <= n_active <= len(self.channels), f"there are {len(self.channels)} replicas"
        self.n_active = n_active

    def route(self, batch: Batch) -> None:
        """Keeps the rows until the round is complete."""
        self._round.append(batch)

    def end_round(self, round_group: int, number: int, frontier: Frontier) -> None:
        """Sends the shares, then the end of the round."""
        batches, self._round = self._round, []
        if batches:
            whole = merge_batches(batches, self._schema)
            n_active = self.n_active
            bounds = [whole.num_rows * i // n_active for i in range(n_active + 1)]
            for channel, first, end in zip(self.channels, bounds, bounds[1:], strict=False):
                if first < end:
                    channel.push(slice_batch(whole, first, end))
        super().end_round(round_group, number, frontier)


class OrderedMerge:
    """The reader's side of sequence numbers: which of the replicas' channels may be read next.

    readable  the channels that may be read now: that of the next sequence number, or all that have not yet
              reached a message that stands in every channel
    """

    def __init__(self, channels: list[Channel], n_active: int) -> None:
        self._channels, self._next = channels, 0
        self._first, self._n_active = 0, n_active
        self._aligning: list[Channel] = []
        self.readable: list[Channel] = channels[:1]

    def advance(self, sequence: int) -> None:
        """Goes on to the next sequence number: all results of this one have been read."""
        assert sequence == self._next, f"sequence number {sequence} came, and {self._next} was next"
        self._next += 1
        self.readable = [self._current()]

    def align(self, channel: Channel) -> None:
        """Waits for the other channels at a message that each of them has.

        Invariant: the end of a round, of the stream and a new number of active replicas stand in all channels
        between the same two sequence numbers.
        """
        if not self._aligning:
            self._aligning = list(self._channels)
        self._aligning.remove(channel)
        self.readable = self._aligning or [self._current()]

    def rescale(self, channel: Channel, n_active: int) -> None:
        """Expects batches from so many replicas, from the next sequence number on."""
        self._first, self._n_active = self._next, n_active
        self.align(channel)

    def _current(self) -> Channel:
        return self._channels[replica_for(self._next, self._first, self._n_active)]


def replica_for(sequence: int, first: int, n_active: int) -> int:
    """Returns the replica that gets a batch; `n_active` replicas are active since sequence number `first`."""
    return (sequence - first) % n_active


def slice_batch(batch: Batch, first: int, end: int) -> Batch:
    """Returns rows first to end of a batch, without copying columns."""
    if batch.plain is not None:
        return batch.take(np.arange(first, end))
    rows = batch.rows.slice(first, end - first)
    return Batch(rows, batch.times[first:end], tuple(column[first:end] for column in batch.order))
