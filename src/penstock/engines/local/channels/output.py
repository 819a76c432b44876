"""Where rows go when they leave a node: an output per edge of the plan, with a channel to each replica.

Batches dealt in turn are numbered by the one node that deals them. A ticket with the number follows each
batch to its replica, and passes it behind everything that the batch has become, be it nothing; whoever reads
all replicas takes them ticket by ticket, and so has the order as it was (C-Stream, 4.2).
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
from penstock.engines.local.channels.order import replica_for
from penstock.engines.local.metrics.statistics import OutputStatistics
from penstock.operators.op import LATE, LATE_RIGHT
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.order import merge_batches

if TYPE_CHECKING:
    from penstock.stages.patterns.partitioners import Partitioner

_NOTHING = Frontier()


class Output(ABC):
    """One edge of the plan, seen from one node that writes it.

    port  the output port of the step
    size  rows in a batch that is sent; None sends batches as they come
    """

    def __init__(self, port: str, channels: Sequence[Channel], size: int | None = None) -> None:
        self.channels, self._size = tuple(channels), size
        self._gathered: list[Batch] = []
        self._n_gathered = 0
        self.statistics = OutputStatistics(tuple(channel.statistics for channel in channels))
        self._promises = port not in (LATE, LATE_RIGHT)  # late rows can be of any age

    def send(self, batch: Batch) -> None:
        """Rows leave."""
        self.statistics.rows += batch.num_rows
        self.statistics.batches += 1
        if self._size is None:
            self.deal(batch)
        else:
            self._gathered.append(batch)
            self._n_gathered += batch.num_rows
            self._send_full(self._size)

    @abstractmethod
    def deal(self, batch: Batch) -> None:
        """Rows to the channels."""

    def end_round(self, round_group: int, number: int, frontier: Frontier) -> None:
        """All rows of a round have left."""
        self._send_rest()
        if not self._promises:
            frontier = OVER if frontier.over else _NOTHING
        message = EndOfRound(round_group, number, frontier)
        for channel in self.channels:
            channel.push(message)

    def forward(self, message: int | ActiveReplicas | ControlMessage) -> None:
        """All rows of a numbered batch have left, or the number of replicas has changed."""
        self._send_rest()
        for channel in self.channels:
            channel.push(message)

    def close(self, *, broken: bool = False) -> None:
        """No more rows will leave; `broken` if some of the round at hand are missing."""
        for channel in self.channels:
            channel.push(BROKEN if broken else CLOSED)

    def _send_full(self, size: int) -> None:
        """Batches of `size` rows; what is left waits for more, or for the end of the round."""
        if self._n_gathered < size:
            return
        whole = merge_batches(self._gathered, self._gathered[0].schema)
        n_full = whole.num_rows // size * size
        for first in range(0, n_full, size):
            self.deal(slice_batch(whole, first, first + size))
        self._n_gathered = whole.num_rows - n_full
        self._gathered = [slice_batch(whole, n_full, whole.num_rows)] if self._n_gathered else []

    def _send_rest(self) -> None:
        if self._gathered:
            whole = merge_batches(self._gathered, self._gathered[0].schema)
            self._gathered, self._n_gathered = [], 0
            self.deal(whole)


class ForwardOutput(Output):
    """Everything to the only channel."""

    def __init__(self, port: str, channels: Sequence[Channel], size: int | None = None) -> None:
        super().__init__(port, channels, size)
        (self._channel,) = self.channels

    def deal(self, batch: Batch) -> None:
        """Rows to the channel."""
        self._channel.push(batch)

    def begin_rows(self, schema: pa.Schema) -> bool:
        """Whether rows can be sent by themselves: not if they are gathered, nor if marks are held back."""
        self._channel.schema = schema
        return self._size is None and self._promises


class PartitionedOutput(Output):
    """By key, by window or by slice: whatever the deal says."""

    def __init__(
        self, port: str, channels: Sequence[Channel], deal: Partitioner, size: int | None = None
    ) -> None:
        super().__init__(port, channels, size)
        self._deal = deal

    def deal(self, batch: Batch) -> None:
        """Each replica its share."""
        for replica, share in self._deal(batch):
            self.channels[replica].push(share)


class BroadcastOutput(Output):
    """Every batch to every replica."""

    def deal(self, batch: Batch) -> None:
        """The batch to all."""
        for channel in self.channels:
            channel.push(batch)


class RoundRobinOutput(Output):
    """Batch after batch to replica after replica; with tickets where order is to be restored.

    n_active  the replicas that have their turn, the first of them; the others wait to be needed
    """

    def __init__(
        self,
        port: str,
        channels: Sequence[Channel],
        size: int | None = None,
        *,
        numbered: bool,
        n_active: int | None = None,
    ) -> None:
        super().__init__(port, channels, size)
        self._numbered, self._next, self._first = numbered, 0, 0
        self.n_active = self._wanted = n_active or len(channels)

    @property
    def is_changing(self) -> bool:
        """Whether a number of replicas is wanted that no batch has been dealt to yet."""
        return self._wanted != self.n_active

    def rescale(self, n_active: int) -> None:
        """Let so many replicas have their turn, from the next batch on; any thread may ask for it."""
        assert 1 <= n_active <= len(self.channels), f"there are {len(self.channels)} replicas"
        self._wanted = n_active

    def deal(self, batch: Batch) -> None:
        """The batch to the next."""
        if self._wanted != self.n_active:
            self._follow(self._wanted)
        channel = self.channels[replica_for(self._next, self._first, self.n_active)]
        channel.push(batch)
        if self._numbered:
            channel.push(self._next)
        self._next += 1

    def _follow(self, n_active: int) -> None:
        self.n_active, self._first = n_active, self._next
        if self._numbered:
            for channel in self.channels:
                channel.push(ActiveReplicas(n_active))


class EvenSplitOutput(Output):
    """The rows of a round in equal slices, one per replica: put together in order, they are as they were."""

    def __init__(
        self, port: str, channels: Sequence[Channel], schema: pa.Schema, *, n_active: int | None = None
    ) -> None:
        super().__init__(port, channels)
        self._schema = schema
        self._waiting: list[Batch] = []
        self.n_active = n_active or len(channels)

    @property
    def is_changing(self) -> bool:
        """Never for long: the next slices are cut for as many as are wanted."""
        return False

    def rescale(self, n_active: int) -> None:
        """Slices for so many replicas, from the end of this round on; any thread may ask for it."""
        assert 1 <= n_active <= len(self.channels), f"there are {len(self.channels)} replicas"
        self.n_active = n_active

    def deal(self, batch: Batch) -> None:
        """Not before all are known."""
        self._waiting.append(batch)

    def end_round(self, round_group: int, number: int, frontier: Frontier) -> None:
        """Slices of about equal length."""
        batches, self._waiting = self._waiting, []
        if batches:
            whole = merge_batches(batches, self._schema)
            n_active = self.n_active
            bounds = [whole.num_rows * i // n_active for i in range(n_active + 1)]
            for channel, first, end in zip(self.channels, bounds, bounds[1:], strict=False):
                if first < end:
                    channel.push(slice_batch(whole, first, end))
        super().end_round(round_group, number, frontier)


def slice_batch(batch: Batch, first: int, end: int) -> Batch:
    """Rows first to end of a batch, without copying columns."""
    if batch.plain is not None:
        return batch.take(np.arange(first, end))
    rows = batch.rows.slice(first, end - first)
    return Batch(rows, batch.times[first:end], tuple(each[first:end] for each in batch.order))
