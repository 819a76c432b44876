"""A task: one co-routine that reads channels, works, and writes channels, until its inputs are over.

The co-routine is a plain generator; it gives way by yielding the state it goes into. It looks for room in all
its outputs before it takes a message, so what one message becomes always fits: a channel may go over its size
by that much, as C-Stream allows (3.2.5), and no work is ever half done when a task sleeps.

Rows as they come: a batch is processed at once, by the watermark of the task; a round of a group is over when
it has ended on all channels that the group comes through. Round by round (`deterministic=True`, checkpoint=):
a channel whose round has ended waits for the others, so that a round sees all its rows and no others; rows
are merged in the order of the feeds and replicas, so that nothing depends on which was faster.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

from penstock.engines.frontiers import Frontier, merge_frontiers
from penstock.engines.local.channels import (
    BROKEN,
    CLOSED,
    ActiveReplicas,
    Channel,
    ControlMessage,
    EndOfRound,
    OneRow,
    OrderedMerge,
    row_order,
)
from penstock.engines.local.metrics.statistics import READ_BLOCKED, READY, WRITE_BLOCKED, TaskStatistics
from penstock.engines.local.progress import Progress
from penstock.engines.local.tasks.chain import ChainedStep, count_written, find_round_end_steps
from penstock.plan.plan import Step
from penstock.stages.rows.batch import Batch, RowBatch

if TYPE_CHECKING:
    from penstock.engines.local.elastic.barrier import Barrier
    from penstock.engines.local.row_path import RowInput


TaskRoutine = Generator[str, None, None]


class Task(ABC):
    """One replica of a step, or of chained steps.

    number     its place among all tasks, feeds first
    steps      the steps it works for
    chain      these steps at work
    dedicated  it has a thread of its own, which sleeps on `woken`
    preferred  the pinned worker that takes it before others do
    row_input  where rows can be handed to it directly, if they can
    deadline   when its quantum is over
    round      the number of rounds it has completed
    now        the dispatcher's clock
    """

    def __init__(self, number: int, steps: tuple[Step, ...], replica: int) -> None:
        self.number, self.steps, self.replica = number, steps, replica
        self.statistics = TaskStatistics(steps[0].name, replica)
        self.chain: list[ChainedStep] = []
        self.outs: list[Channel] = []
        self.dedicated = False
        self.row_input: RowInput | None = None
        self.preferred: int | None = None
        self.woken = threading.Condition()
        self.deadline = self.round = 0
        self.now: Callable[[], int] = lambda: 0
        self.quanta: TaskRoutine = self.routine()

    @abstractmethod
    def routine(self) -> TaskRoutine:
        """Runs the task; yields the state it goes into whenever it gives way."""

    def on_connected(self) -> None:
        """Prepares the task, once all channels are known."""
        return

    @abstractmethod
    def can_run(self) -> bool:
        """Returns whether what the task waits for is there; asked while it is blocked."""

    @abstractmethod
    def complete(self, *, failed: bool) -> None:
        """Closes what is written and abandons what is read, after the routine has ended, well or not."""

    def full(self) -> list[Channel]:
        """Returns the outputs that have no room."""
        return [channel for channel in self.outs if channel.is_full]

    def has_room(self) -> bool:
        """Returns whether all outputs have room."""
        # Why: asked before every message, hence no generator.
        for channel in self.outs:  # noqa: SIM110
            if channel.is_full:
                return False
        return True

    def wait_for_room(self) -> TaskRoutine:
        """Gives way until all outputs have room."""
        while full := self.full():
            for channel in full:
                channel.statistics.mark_full(self.now())
            yield WRITE_BLOCKED
            for channel in full:
                channel.statistics.mark_free(self.now())


class InputTask(Task):
    """A task that reads channels.

    channels  all of them, in the order of the step's feeds and of the replicas before
    data      those whose frontiers and ends count
    open      those that may be read now
    barriers  where rescales are waited for (`elastic/barrier.py`)
    """

    def __init__(self, number: int, steps: tuple[Step, ...], replica: int) -> None:
        super().__init__(number, steps, replica)
        self.channels: list[Channel] = []
        self.open: list[Channel] = []
        self.data: list[Channel] = []
        self.barriers: list[Barrier] = []
        self.frontier = Frontier()
        self.broken = False
        self._n_open = 0
        self._done: dict[int, int] = {}
        self._merges: dict[int, OrderedMerge] = {}

    @abstractmethod
    def on_rows(self, channel: Channel, batch: Batch) -> None:
        """Takes rows."""

    @abstractmethod
    def on_end_of_round(self, channel: Channel, end: EndOfRound) -> None:
        """Handles the end of a round on a channel."""

    @abstractmethod
    def on_closed(self, channel: Channel) -> None:
        """Handles the end of a channel."""

    def on_sequence(self, channel: Channel, message: int | ActiveReplicas) -> None:
        """Handles the end of a numbered batch, or a change of the number of replicas."""

    @property
    def is_over(self) -> bool:
        """Returns whether all data channels are closed."""
        return not self._n_open

    def keep_order(self, channels: list[Channel], n_active: int) -> None:
        """Reads these channels in the order of the numbered batches; the first `n_active` take part."""
        merge = OrderedMerge(channels, n_active)
        self._merges |= {id(channel): merge for channel in channels}

    def on_connected(self) -> None:
        """Implements `Task.on_connected`."""
        self.data = [channel for channel in self.channels if not channel.control]
        self._n_open = len(self.data)
        self.reopen()
        self.statistics.inputs = tuple(channel.statistics for channel in self.channels)

    def routine(self) -> TaskRoutine:
        """Takes message after message, single rows many at a time, as long as the quantum lasts."""
        now = self.now
        while not self.is_over and not self.broken:
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

    def done_everywhere(self, round_group: int) -> int | None:
        """Returns the round of a group that has just ended on all channels it comes through, if one has."""
        one = len(self.data) == 1
        number = self.data[0].reached.get(round_group, -1) if one else self._least_reached(round_group)
        if number <= self._done.get(round_group, -1):
            return None
        self._done[round_group] = number
        return number

    def _least_reached(self, round_group: int) -> int:
        channels = [channel for channel in self.data if round_group in channel.round_groups]
        waiting = [channel for channel in channels if not channel.ended]
        return min(channel.reached.get(round_group, -1) for channel in waiting or channels)

    def skip_to_round(self, round_group: int, number: int) -> None:
        """Goes on with this round: those before it came row by row, and have ended on the only channel."""
        (channel,) = self.channels
        channel.reached[round_group] = self._done[round_group] = number - 1
        self.round = number

    def next_channel(self) -> Channel | None:
        """Returns a channel with something to take."""
        for channel in self.open:
            if channel.items:
                return channel
        return None

    def can_run(self) -> bool:
        """Implements `Task.can_run`."""
        if self.statistics.state is WRITE_BLOCKED:
            return self.has_room()
        return self.next_channel() is not None

    def take(self, channel: Channel, message: Any) -> None:
        """Handles one message."""
        kind = type(message)
        if kind is Batch or kind is RowBatch:
            self.on_rows(channel, message)
            return
        if kind is tuple:
            self._take_row(channel, message)
            return
        if id(channel) in self._merges:
            self._advance_merge(channel, message)
        if kind is EndOfRound:
            channel.frontier = message.frontier
            channel.reached[message.round_group] = message.number
            self.on_end_of_round(channel, message)
        elif kind is int or kind is ActiveReplicas:
            self.on_sequence(channel, message)
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

    def _take_row(self, channel: Channel, message: OneRow) -> None:
        """Takes a single row as a batch, where there is no row path."""
        values, number, time, shift, origin, frontier, _ = message
        if values is not None:
            assert channel.schema is not None, "whoever sends single rows has set their schema"
            order = row_order(origin, number + shift)
            self.on_rows(channel, RowBatch.single(values, channel.schema, time, order))
        self.take(channel, EndOfRound(origin[0], number, frontier))

    def _advance_merge(self, channel: Channel, message: Any) -> None:
        """Finds the replica to be read next among those that are read in order."""
        merge = self._merges[id(channel)]
        if type(message) is int:
            merge.advance(message)
        elif type(message) is ActiveReplicas:
            merge.rescale(channel, message.n)
        else:
            channel.ended = message is CLOSED
            merge.align(channel)
        self.reopen()

    def reopen(self) -> None:
        """Finds the channels that may be read now."""
        merges = self._merges
        self.open = [
            channel
            for channel in self.channels
            if not (channel.ended or channel.halted)
            and (id(channel) not in merges or channel in merges[id(channel)].readable)
        ]


class ChainTask(InputTask):
    """Chained steps behind channels.

    round_end_steps    the steps to which the end of a round means something
    forwards_sequence  whether the ends of numbered batches are forwarded
    """

    def __init__(
        self, number: int, steps: tuple[Step, ...], replica: int, chain: list[ChainedStep], progress: Progress
    ) -> None:
        super().__init__(number, steps, replica)
        self.chain, self.progress = chain, progress
        self.round_end_steps = chain
        self.round = progress.first
        self.forwards_sequence = False

    def on_connected(self) -> None:
        """Implements `Task.on_connected`."""
        super().on_connected()
        self.round_end_steps = find_round_end_steps(self.chain)

    def end_round(self, round_group: int, number: int) -> None:
        """Ends a round that has ended on all channels."""
        self.frontier = merge_frontiers((channel.frontier for channel in self.data), self.frontier)
        self.end_chain_round(round_group, number, self.frontier)

    def end_chain_round(self, round_group: int, number: int, frontier: Frontier) -> None:
        """Ends a round step by step, and reports it."""
        for chained in self.round_end_steps:
            frontier = chained.end_round(round_group, number, self.round, frontier)
        self.round += 1
        if self.progress.is_observed:
            self.progress.complete_round(self, round_group, number, count_written(self.chain))

    def complete(self, *, failed: bool) -> None:
        """Implements `Task.complete`."""
        for channel in self.channels:
            channel.abandon()
        for barrier in self.barriers:
            barrier.leave(failed=failed or self.broken)
        self.progress.end_task(self, failed=failed or self.broken)
        for chained in self.chain:
            chained.close(broken=failed or self.broken)


class PipelinedTask(ChainTask):
    """Rows as they come; where branches of one source merge again, a round of all before the next.

    Batch n is judged by the watermark that the batches before it have reached. A branch that runs ahead would
    bring its rows before the other has said how far that is, and fewer of them would be late.
    """

    def __init__(
        self, number: int, steps: tuple[Step, ...], replica: int, chain: list[ChainedStep], progress: Progress
    ) -> None:
        super().__init__(number, steps, replica, chain, progress)
        self._feed = chain[0].feed
        self._merged_group: int | None = None

    def on_connected(self) -> None:
        """Implements `Task.on_connected`."""
        super().on_connected()
        self._merged_group = common_round_group(self.data) if len(self.data) > 1 else None

    def next_channel(self) -> Channel | None:
        """Returns a channel with something to take, of those that are not ahead of others."""
        round_group = self._merged_group
        if round_group is None:
            return super().next_channel()
        done = self._done.get(round_group, -1)
        for channel in self.open:
            if channel.items and channel.reached.get(round_group, -1) <= done:
                return channel
        return None

    def on_rows(self, channel: Channel, batch: Batch) -> None:
        """Processes the rows."""
        self._feed(batch)

    def on_sequence(self, channel: Channel, message: int | ActiveReplicas) -> None:
        """Forwards the message, if a task behind restores the order."""
        if self.forwards_sequence:
            for chained in self.chain:
                chained.forward(message)

    def on_end_of_round(self, channel: Channel, end: EndOfRound) -> None:
        """Ends the round, if it has ended on all channels."""
        self._end_round_everywhere(end.round_group)

    def on_closed(self, channel: Channel) -> None:
        """Ends rounds that waited for this channel only."""
        for round_group in sorted(channel.round_groups):
            self._end_round_everywhere(round_group)

    def _end_round_everywhere(self, round_group: int) -> None:
        number = self.done_everywhere(round_group)
        if number is not None:
            self.end_round(round_group, number)


class RoundBarrierTask(ChainTask):
    """A task that waits on every channel for the end of the round, and then processes all of it."""

    @abstractmethod
    def process_round(self, number: int) -> None:
        """Processes a round, whose rows are kept by channel."""

    def on_rows(self, channel: Channel, batch: Batch) -> None:
        """Keeps the rows until the end of the round."""
        channel.kept.append(batch)

    def on_end_of_round(self, channel: Channel, end: EndOfRound) -> None:
        """Lets this channel wait for the others."""
        self.open.remove(channel)
        if not self.open:
            self._process_round()

    def on_closed(self, channel: Channel) -> None:
        """Processes a round that waited for this channel only."""
        if self._n_open and not self.open and not any(other.halted for other in self.channels):
            self._process_round()

    def _process_round(self) -> None:
        number = max(channel.reached[0] for channel in self.data if 0 in channel.reached)
        self.open = [channel for channel in self.channels if not channel.ended]
        self.process_round(number)


class RoundTask(RoundBarrierTask):
    """Rows round by round."""

    def process_round(self, number: int) -> None:
        """Processes the rows in the order of the channels."""
        feed = self.chain[0].feed
        for channel in self.channels:
            for batch in take_batches(channel):
                feed(batch)
        self.end_round(0, number)


def common_round_group(channels: Iterable[Channel]) -> int | None:
    """Returns the round group of channels that all carry one and the same, None otherwise."""
    groups = {channel.round_groups for channel in channels}
    (common,) = groups if len(groups) == 1 else (frozenset[int](),)
    return next(iter(common)) if len(common) == 1 else None


def take_batches(channel: Channel) -> list[Batch]:
    """Takes the rows of a round that a channel has kept."""
    batches, channel.kept = channel.kept, []
    return batches
