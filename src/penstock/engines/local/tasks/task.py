"""A node: one co-routine that reads channels, works, and writes channels, until its inputs are over.

The co-routine is a plain generator; it gives way by yielding the state it goes into. It looks for room in all
its outputs before it takes a message, so what one message becomes always fits: a channel may go over its size
by that much, as C-Stream allows (3.2.5), and no work is ever half done when a node sleeps.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from penstock.engines.frontiers import Frontier
from penstock.engines.local.channels.channel import (
    BROKEN,
    CLOSED,
    ActiveReplicas,
    Channel,
    ControlMessage,
    EndOfRound,
    OneRow,
)
from penstock.engines.local.channels.output import OrderedMerge
from penstock.engines.local.fast_rows.context import row_order
from penstock.engines.local.metrics.statistics import READ_BLOCKED, READY, WRITE_BLOCKED, TaskStatistics
from penstock.plan.plan import Step
from penstock.stages.rows.batch import Batch, RowBatch

if TYPE_CHECKING:
    from penstock.engines.local.fast_rows.direct_call import RowTask
    from penstock.engines.local.rescale.barrier import Barrier
    from penstock.engines.local.tasks.chain import ChainedStep

TaskRoutine = Generator[str, None, None]


class Task(ABC):
    """One replica of a step, or of fused steps.

    number     its place among all nodes, feeds first
    steps      the steps it works for
    chain      the same steps with their stages, in the order in which rows pass
    dedicated  it has a thread of its own, which sleeps on `woken`
    preferred  the pinned worker that takes it before others do
    row_task the node itself, if rows can be brought to it by hand
    deadline   when its turn is over
    round      how many rounds it has carried through
    now        the dispatcher's clock
    """

    def __init__(self, number: int, steps: tuple[Step, ...], replica: int) -> None:
        self.number, self.steps, self.replica = number, steps, replica
        self.statistics = TaskStatistics(steps[0].name, replica)
        self.chain: list[ChainedStep] = []
        self.outs: list[Channel] = []
        self.dedicated = False
        self.row_task: RowTask | None = None
        self.preferred: int | None = None
        self.woken = threading.Condition()
        self.deadline = self.round = 0
        self.now: Callable[[], int] = lambda: 0
        self.quanta: TaskRoutine = self.routine()

    @abstractmethod
    def routine(self) -> TaskRoutine:
        """The driver loop."""

    def connected(self) -> None:
        """All channels are known."""
        return

    @abstractmethod
    def can_run(self) -> bool:
        """Whether what the node waits for is there; asked while it is blocked."""

    @abstractmethod
    def complete(self, *, failed: bool) -> None:
        """The loop has ended, well or not: close what is written, abandon what is read."""

    def full(self) -> list[Channel]:
        """The outputs that have no room."""
        return [channel for channel in self.outs if channel.is_full]

    def has_room(self) -> bool:
        """Whether all outputs have room."""
        for channel in self.outs:  # asked before every message, hence no generator  # noqa: SIM110
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
    """A node that reads channels.

    channels  all of them, in the order of the step's feeds and of the replicas before
    data      those whose marks and ends count
    open      those that may be read now
    barriers     where moves of replicas are waited for (`rescale/barrier.py`)
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
        self._lines: dict[int, OrderedMerge] = {}

    @abstractmethod
    def on_rows(self, channel: Channel, batch: Batch) -> None:
        """Rows came."""

    @abstractmethod
    def on_end_of_round(self, channel: Channel, end: EndOfRound) -> None:
        """A round has ended on a channel."""

    @abstractmethod
    def on_closed(self, channel: Channel) -> None:
        """Nothing more will come on a channel."""

    def on_sequence(self, channel: Channel, message: int | ActiveReplicas) -> None:
        """Everything that a numbered batch became has come, or the number of replicas has changed."""

    @property
    def is_over(self) -> bool:
        """Whether all data channels are closed."""
        return not self._n_open

    def keep_order(self, channels: list[Channel], n_active: int) -> None:
        """Read these channels by ticket; so many of them have their turn."""
        line = OrderedMerge(channels, n_active)
        self._lines |= {id(channel): line for channel in channels}

    def connected(self) -> None:
        """All channels are known."""
        self.data = [channel for channel in self.channels if not channel.control]
        self._n_open = len(self.data)
        self.reopen()
        self.statistics.inputs = tuple(channel.statistics for channel in self.channels)

    def routine(self) -> TaskRoutine:
        """Take message after message, as long as the turn lasts."""
        now = self.now
        while not self.is_over and not self.broken:
            if self.outs and not self.has_room():
                yield from self.wait_for_room()
            channel = self.next_channel()
            if channel is None:
                yield READ_BLOCKED
                continue
            self.take(channel, channel.pop())
            if now() >= self.deadline:
                yield READY

    def done_everywhere(self, round_group: int) -> int | None:
        """The round of a group that has just been seen on all channels that it comes through, if one has."""
        one = len(self.data) == 1
        number = self.data[0].reached.get(round_group, -1) if one else self._least_reached(round_group)
        if number <= self._done.get(round_group, -1):
            return None
        self._done[round_group] = number
        return number

    def _least_reached(self, round_group: int) -> int:
        channels = [channel for channel in self.data if round_group in channel.round_groups]
        waiting = [each.reached.get(round_group, -1) for each in channels if not each.ended]
        return min(waiting or (each.reached.get(round_group, -1) for each in channels))

    def next_channel(self) -> Channel | None:
        """A channel with something to take."""
        for channel in self.open:
            if channel.items:
                return channel
        return None

    def can_run(self) -> bool:
        """Something to take, or room to write."""
        if self.statistics.state is WRITE_BLOCKED:
            return self.has_room()
        return self.next_channel() is not None

    def take(self, channel: Channel, message: Any) -> None:
        """One message."""
        kind = type(message)
        if kind is Batch or kind is RowBatch:
            self.on_rows(channel, message)
            return
        if kind is tuple:
            self._take_row(channel, message)
            return
        if id(channel) in self._lines:
            self._in_line(channel, message)
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
        """A row by itself, where rows come as batches."""
        values, number, time, shift, origin, frontier, _ = message
        if values is not None:
            assert channel.schema is not None, "who sends rows by themselves has said what they are"
            order = row_order(origin, number + shift)
            self.on_rows(channel, RowBatch.single(values, channel.schema, time, order))
        self.take(channel, EndOfRound(origin[0], number, frontier))

    def _in_line(self, channel: Channel, message: Any) -> None:
        """Whose turn it is among replicas that are read by ticket."""
        line = self._lines[id(channel)]
        if type(message) is int:
            line.advance(message)
        elif type(message) is ActiveReplicas:
            line.rescale(channel, message.n)
        else:
            channel.ended = message is CLOSED
            line.align(channel)
        self.reopen()

    def reopen(self) -> None:
        """Read again whatever may be read now."""
        lines = self._lines
        self.open = [
            each
            for each in self.channels
            if not (each.ended or each.halted) and (id(each) not in lines or each in lines[id(each)].readable)
        ]
