"""A task: one co-routine that reads channels, works, and writes channels, until its inputs are over.

The co-routine is a plain generator; it gives way by yielding the state it goes into. It looks for room in all
its outputs before it takes a message, so what one message becomes always fits: a channel may go over its size
by that much, as C-Stream allows (3.2.5), and no work is ever half done when a task sleeps.

Rows as they come: a batch is processed at once, by the watermark of the task; a round of a group is over when
it has ended on all channels that the group comes through. Round by round (`deterministic=True`, checkpoint=):
the rows of a round wait for its end, and are then processed in the order of the feeds and replicas, so that
nothing depends on which was faster.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from penstock.engines.frontiers import Frontier, merge_frontiers
from penstock.engines.local.channels import (
    BROKEN,
    CLOSED,
    ActiveReplicas,
    Channel,
    ControlMessage,
    EndOfRound,
    replica_for,
    row_order,
)
from penstock.engines.local.metrics.statistics import READ_BLOCKED, READY, WRITE_BLOCKED, TaskStatistics
from penstock.engines.local.progress import Progress
from penstock.engines.local.tasks.chain import ChainedStep, count_written
from penstock.stages.rows.batch import Batch, RowBatch

if TYPE_CHECKING:
    from penstock.engines.local.elastic.rescale import Barrier
    from penstock.engines.local.row_path import RowInput

TaskRoutine = Generator[str, None, None]


class Task(ABC):
    """One replica of a step, or of chained steps.

    number           its place among all tasks, feeds first
    steps            the steps it works for
    chain            these steps at work
    round_end_steps  those of them to which the end of a round means something, or that somebody hears of it
                     from
    channels         what it reads, in the order of the step's feeds and of the replicas before
    outs             what it writes
    barriers         where rescales are waited for (`elastic/rescale.py`)
    broken           whether a channel ended in the middle of a round
    dedicated        it has a thread of its own, which sleeps on `woken`
    abandoned        it has ended, while that thread waits for something that nobody wants any more
    preferred        the pinned worker that takes it before others do
    row_input        where rows can be handed to it directly, if they can
    deadline         when its quantum is over
    round            the number of rounds it has completed
    now              the dispatcher's clock
    """

    def __init__(self, number: int, replica: int, chain: list[ChainedStep], progress: Progress) -> None:
        self.number, self.replica, self.steps = number, replica, tuple(chained.step for chained in chain)
        self.statistics = TaskStatistics(chain[0].step.name, replica)
        self.chain = self.round_end_steps = chain
        self.progress, self.round = progress, progress.first
        self.channels: list[Channel] = []
        self.outs: list[Channel] = []
        self.barriers: list[Barrier] = []
        self.broken = self.dedicated = self.abandoned = False
        self.row_input: RowInput | None = None
        self.preferred: int | None = None
        self.woken = threading.Condition()
        self.deadline = 0
        self.now: Callable[[], int] = lambda: 0
        self.quanta: TaskRoutine = self.routine()

    @abstractmethod
    def routine(self) -> TaskRoutine:
        """Run the task; yield the state it goes into whenever it gives way."""

    @abstractmethod
    def can_run(self) -> bool:
        """Return whether what the task waits for is there; asked while it is blocked."""

    def on_connected(self, now: Callable[[], int]) -> None:
        """Prepare the task, once all channels are known."""
        self.now = now
        self.statistics.inputs = tuple(channel.statistics for channel in self.channels)
        self.statistics.outputs = tuple(
            output.statistics for chained in self.chain for output in chained.outputs
        )
        self.round_end_steps = [
            chained
            for chained in self.chain
            if not chained.is_stateless or chained.outputs or chained.listener is not None
        ]

    def end_round(self, round_group: int, number: int, frontier: Frontier) -> None:
        """End a round step by step, with the task at the frontier, and report it."""
        for chained in self.round_end_steps:
            frontier = chained.end_round(round_group, number, self.round, frontier)
        self.round += 1
        if self.progress.is_observed:
            self.progress.complete_round(self, round_group, number, count_written(self.chain))

    def complete(self, *, failed: bool) -> None:
        """Close what is written and abandon what is read, after the routine has ended, well or not."""
        failed = failed or self.broken
        for channel in self.channels:
            channel.abandon()
        for barrier in self.barriers:
            barrier.leave(failed=failed)
        if self.progress.is_observed:
            self.progress.end_task(self, failed=failed)
        for chained in self.chain:
            for output in chained.outputs:
                output.close(broken=failed)

    def full(self) -> list[Channel]:
        """Return the outputs that have no room."""
        return [channel for channel in self.outs if channel.is_full]

    def has_room(self) -> bool:
        """Return whether all outputs have room."""
        # Why: asked before every message, hence no generator.
        for channel in self.outs:  # noqa: SIM110
            if channel.is_full:
                return False
        return True

    def wait_for_room(self) -> TaskRoutine:
        """Give way until all outputs have room."""
        while full := self.full():
            for channel in full:
                channel.statistics.mark_full(self.now())
            yield WRITE_BLOCKED
            for channel in full:
                channel.statistics.mark_free(self.now())


class InputTask(Task):
    """Chained steps behind channels.

    Where branches of one source merge again, a round of all is taken before the next: batch n is judged by
    the watermark that the batches before it have reached. A branch that runs ahead would bring its rows
    before the other has said how far that is, and fewer of them would be late.

    data               the channels whose frontiers and ends count
    open               those that may be read now
    forwards_sequence  whether the ends of numbered batches are forwarded, for a task behind that restores the
                       order
    """

    def __init__(self, number: int, replica: int, chain: list[ChainedStep], progress: Progress) -> None:
        super().__init__(number, replica, chain, progress)
        self._in_rounds, self._feed = progress.in_rounds, chain[0].feed
        self.open: list[Channel] = []
        self.data: list[Channel] = []
        self.frontier = Frontier()
        self.forwards_sequence = False
        self._n_open = 0
        self._done: dict[int, int] = {}
        self._merges: dict[int, OrderedMerge] = {}
        self._merged_group: int | None = None  # the one round group of all channels, if there are several

    def keep_order(self, channels: list[Channel], n_active: int) -> None:
        """Read these channels in the order of the numbered batches; the first `n_active` take part."""
        merge = OrderedMerge(channels, n_active)
        self._merges |= {id(channel): merge for channel in channels}

    def on_connected(self, now: Callable[[], int]) -> None:
        """Implement `Task.on_connected`."""
        super().on_connected(now)
        self.data = [channel for channel in self.channels if not channel.control]
        self._n_open = len(self.data)
        groups = {channel.round_groups for channel in self.data}
        if len(self.data) > 1 and len(groups) == 1 and len(*groups) == 1:
            ((self._merged_group,),) = groups
        self.reopen()

    def routine(self) -> TaskRoutine:
        """Take message after message, single rows many at a time, as long as the quantum lasts."""
        now = self.now
        while self._n_open and not self.broken:
            if self.outs and not self.has_room():
                yield from self.wait_for_room()
            channel = self.next_channel()
            if channel is None:
                yield READ_BLOCKED
                continue
            if self.row_input is not None and type(channel.items[0]) is tuple:
                self.row_input.run()
            else:
                self.take(channel, channel.pop())
            if now() >= self.deadline:
                yield READY

    def next_channel(self) -> Channel | None:
        """Return a channel with something to take, of those that are not a round ahead of others."""
        round_group = self._merged_group
        if round_group is None:
            for channel in self.open:
                if channel.items:
                    return channel
            return None
        done = self._done.get(round_group, -1)
        for channel in self.open:
            if channel.items and channel.reached.get(round_group, -1) <= done:
                return channel
        return None

    def can_run(self) -> bool:
        """Implement `Task.can_run`."""
        if self.statistics.state is WRITE_BLOCKED:
            return self.has_room()
        return self.next_channel() is not None

    def take(self, channel: Channel, message: Any) -> None:
        """Handle one message."""
        kind = type(message)
        if kind is Batch or kind is RowBatch:
            self.on_rows(channel, message)
            return
        if kind is tuple:  # a single row, where there is no row path
            values, number, time, shift, origin, frontier, _ = message
            if values is not None:
                assert channel.schema is not None, "whoever sends single rows has set their schema"
                order = row_order(origin, number + shift)
                self.on_rows(channel, RowBatch.single(values, channel.schema, time, order))
            self.take(channel, EndOfRound(origin[0], number, frontier))
            return
        if id(channel) in self._merges:
            channel.ended = message is CLOSED
            self._merges[id(channel)].take(channel, message)
            self.reopen()
        if kind is EndOfRound:
            channel.frontier = message.frontier
            channel.reached[message.round_group] = message.number
            self.on_end_of_round(channel, message.round_group)
        elif kind is int or kind is ActiveReplicas:
            if self.forwards_sequence:
                self.forward(message)
        elif message is BROKEN:
            self.broken = True
        elif isinstance(message, ControlMessage):
            message.deliver(self, channel)
        else:
            assert message is CLOSED, f"{message!r} is no message"
            channel.ended = True
            self._n_open -= not channel.control
            if channel in self.open:
                self.open.remove(channel)
            self.on_closed(channel)
            for barrier in self.barriers:
                barrier.release_if_complete()

    def on_rows(self, channel: Channel, batch: Batch) -> None:
        """Process the rows, or keep them for the end of their round."""
        if self._in_rounds:
            channel.kept.append(batch)
        else:
            self._feed(batch)

    def on_end_of_round(self, channel: Channel, round_group: int) -> None:
        """Process a round of a group that has just ended on all channels it comes through."""
        if len(self.data) == 1:
            number = self.data[0].reached.get(round_group, -1)
        else:
            channels = [other for other in self.data if round_group in other.round_groups]
            waiting = [other for other in channels if not other.ended]
            number = min(other.reached.get(round_group, -1) for other in waiting or channels)
        if number > self._done.get(round_group, -1):
            self._done[round_group] = number
            self.process_round(round_group, number)

    def on_closed(self, channel: Channel) -> None:
        """End rounds that waited for this channel only."""
        for round_group in sorted(channel.round_groups):
            self.on_end_of_round(channel, round_group)

    def process_round(self, round_group: int, number: int) -> None:
        """Process the rows that were kept, and end the round."""
        if self._in_rounds:
            for channel in self.channels:
                for batch in channel.take_kept():
                    self._feed(batch)
        self.frontier = merge_frontiers((channel.frontier for channel in self.data), self.frontier)
        self.end_round(round_group, number, self.frontier)

    def skip_to_round(self, round_group: int, number: int) -> None:
        """Go on with this round: those before it came row by row, and have ended on the only channel."""
        (channel,) = self.channels
        channel.reached[round_group] = self._done[round_group] = number - 1
        self.round = number

    def forward(self, message: int | ActiveReplicas | ControlMessage) -> None:
        """Forward a message behind everything that was sent before it."""
        for chained in self.chain:
            for output in chained.outputs:
                output.forward(message)

    def reopen(self) -> None:
        """Find the channels that may be read now."""
        merges = self._merges
        self.open = [
            channel
            for channel in self.channels
            if not (channel.ended or channel.halted)
            and (id(channel) not in merges or channel in merges[id(channel)].readable)
        ]


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

    def take(self, channel: Channel, message: Any) -> None:
        """Go on after a message that is no batch.

        A sequence number says that all its results have been read. At any other message the other channels
        are waited for: a new number of active replicas counts from the next sequence number on.

        Invariant: the end of a round, of the stream and a new number of active replicas stand in all channels
        between the same two sequence numbers.
        """
        if type(message) is int:
            assert message == self._next, f"sequence number {message} came, and {self._next} was next"
            self._next += 1
        else:
            if type(message) is ActiveReplicas:
                self._first, self._n_active = self._next, message.n
            self._aligning = self._aligning or list(self._channels)
            self._aligning.remove(channel)
        current = self._channels[replica_for(self._next, self._first, self._n_active)]
        self.readable = self._aligning or [current]
