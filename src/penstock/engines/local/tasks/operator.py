"""Nodes of stages and sinks: rows as they come, or round by round.

As they come: a batch is processed at once, by the watermark of the node; a round of a group is over when
it is on all channels that the group comes through. Round by round (`deterministic=True`, or a checkpoint):
a channel whose round has ended waits for the others, so that a round sees all its rows and no others; rows
flow together in the order of the feeds and replicas, so that nothing depends on who was faster.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from penstock.engines.frontiers import Frontier, merge_frontiers
from penstock.engines.local.channels.channel import ActiveReplicas, Channel, EndOfRound
from penstock.engines.local.fast_rows.context import RowContext
from penstock.engines.local.fast_rows.pipeline import RowPipeline, build_task_pipeline
from penstock.engines.local.metrics.statistics import READ_BLOCKED, READY, WRITE_BLOCKED
from penstock.engines.local.progress import Progress
from penstock.engines.local.tasks.chain import ChainedStep, SinkStep, link_stateless_steps
from penstock.engines.local.tasks.task import InputTask, TaskRoutine
from penstock.plan.plan import Step
from penstock.stages.rows.batch import Batch


class ChainTask(InputTask):
    """A line of chain behind channels.

    tickets  whether tickets are passed on
    """

    def __init__(
        self, number: int, steps: tuple[Step, ...], replica: int, chain: list[ChainedStep], progress: Progress
    ) -> None:
        super().__init__(number, steps, replica)
        self.chain, self.progress = chain, progress
        self._round_end_steps = chain
        self.round = progress.first
        self.forwards_sequence = False

    def connected(self) -> None:
        """Seats that the end of a round means nothing to are passed over."""
        super().connected()
        self._round_end_steps = [chained for chained in self.chain if chained.needs_round_end]
        link_stateless_steps(self.chain)

    def end_round(self, round_group: int, number: int) -> None:
        """A round is over on all channels: let go what can go, and say so."""
        self.frontier = merge_frontiers((channel.frontier for channel in self.data), self.frontier)
        self.end_chain_round(round_group, number, self.frontier)

    def end_chain_round(self, round_group: int, number: int, frontier: Frontier) -> None:
        """The end of a round, chained by chained."""
        for chained in self._round_end_steps:
            frontier = chained.end_round(round_group, number, self.round, frontier)
        self.round += 1
        if self.progress.is_observed:
            self.progress.complete_round(self, round_group, number, count_written(self.chain))

    def complete(self, *, failed: bool) -> None:
        """Close what is written; count what is still sent here."""
        for channel in self.channels:
            channel.abandon()
        for barrier in self.barriers:
            barrier.leave(failed=failed or self.broken)
        self.progress.end_task(self, failed=failed or self.broken)
        for chained in self.chain:
            chained.close(broken=failed or self.broken)


class PipelinedTask(ChainTask):
    """Rows as they come; where branches of one source flow together again, a round of all before the next.

    Batch n is to be judged by the watermark that the batches before it have come to. A branch that runs ahead
    would bring its rows before the other has said how far that is, and fewer of them would be late.
    """

    def __init__(
        self, number: int, steps: tuple[Step, ...], replica: int, chain: list[ChainedStep], progress: Progress
    ) -> None:
        super().__init__(number, steps, replica, chain, progress)
        self._feed = chain[0].feed
        self._line: RowPipeline | None = None
        self._n_before = self._round_group = 0
        self._meeting: int | None = None

    def connected(self) -> None:
        """Rows that come by themselves on the only channel may go on so."""
        super().connected()
        self._meeting = common_round_group(self.data) if len(self.data) > 1 else None
        if len(self.channels) == 1 and self.data and not self.progress.is_observed:
            self._line = build_task_pipeline(self.chain, self._round_end_steps)
        self.row_task = None if self._line is None else self

    def routine(self) -> TaskRoutine:
        """Message after message; rows by themselves many at a time."""
        while not self.is_over and not self.broken:
            if self.outs and not self.has_room():
                yield from self.wait_for_room()
            if self._line is None or not self._by_row(self._line):
                channel = self.next_channel()
                if channel is None:
                    yield READ_BLOCKED
                    continue
                self.take(channel, channel.pop())
            if self.now() >= self.deadline:
                yield READY

    def next_channel(self) -> Channel | None:
        """A channel with something to take, of those that are not ahead of others."""
        round_group = self._meeting
        if round_group is None:
            return super().next_channel()
        done = self._done.get(round_group, -1)
        for channel in self.open:
            if channel.items and channel.reached.get(round_group, -1) <= done:
                return channel
        return None

    def _by_row(self, line: RowPipeline) -> bool:
        """Rounds of single rows, as long as they come, the turn lasts and there is room; whether any came."""
        (channel,) = self.channels
        items, half, writer, clock = channel.items, channel.capacity / 2, channel.writer, self.now
        if not self.open or not items or type(items[0]) is not tuple:
            return False
        full, number, context, deadline = False, items[0][1], RowContext(items[0][4]), self.deadline
        self.begin_rows(context, number, channel.frontier)
        try:
            while not full and items and type(items[0]) is tuple:
                row, number, context.time, context.shift, _, frontier, _ = items.popleft()
                if writer.statistics.state is WRITE_BLOCKED and len(items) <= half:
                    channel.dispatcher.wake(writer, WRITE_BLOCKED)
                if frontier is not channel.frontier:
                    self.moved(frontier)
                full = line.put_row(None, number) if row is None else line.carry(row, number)
                number += 1
                full = full or clock() >= deadline
        finally:
            n_rows, behind = self._settled(number)
            self.statistics.exclude_borrowed(clock(), behind)
            channel.record_taken(n_rows)
        return True

    def moved(self, frontier: Frontier) -> None:
        """With the row that comes next, the input has come to the mark."""
        channel, line = self.channels[0], self._line
        assert line is not None, "rows come by themselves only where there is a line for them"
        channel.frontier = frontier
        self.frontier = merge_frontiers((frontier,), self.frontier)
        line.tail.moved(self.frontier)

    def begin_rows(self, context: RowContext, number: int, frontier: Frontier) -> RowPipeline:
        """Rows will come, of rounds from this number on; the input has come to the mark.

        Gives who takes them.
        """
        assert self.round == number, "rows by themselves are of one source, whose rounds are everybody's"
        assert self._line is not None, "rows come by themselves only where there is a line for them"
        self._n_before, self._round_group = self._line.n_in, context.origin[0]
        self._line.begin(context, number, self.frontier)
        if frontier is not self.channels[0].frontier:
            self.moved(frontier)
        return self._line

    def end_rows(self, number: int) -> tuple[int, int]:
        """No more for now; gives how many came, and the time that nodes behind it took for them."""
        n_rows, behind = self._settled(number)
        self.channels[0].record_direct(n_rows)
        return n_rows, behind

    def _settled(self, number: int) -> tuple[int, int]:
        """All rounds before the number are over."""
        assert self._line is not None, "rows come by themselves only where there is a line for them"
        if number > self.round:
            self.channels[0].reached[self._round_group] = self._done[self._round_group] = number - 1
            self.round = number
        return self._line.n_in - self._n_before, self._line.end(number)

    def on_rows(self, channel: Channel, batch: Batch) -> None:
        """Work on them."""
        self._feed(batch)

    def on_sequence(self, channel: Channel, message: int | ActiveReplicas) -> None:
        """Pass the ticket on, if somebody behind restores the order."""
        if self.forwards_sequence:
            for chained in self.chain:
                chained.forward(message)

    def on_end_of_round(self, channel: Channel, end: EndOfRound) -> None:
        """Over on this channel; perhaps on all."""
        self._look(end.round_group)

    def on_closed(self, channel: Channel) -> None:
        """Rounds no longer wait for this channel."""
        for round_group in sorted(channel.round_groups):
            self._look(round_group)

    def _look(self, round_group: int) -> None:
        """End the round that is over on all channels that the round_group comes through."""
        number = self.done_everywhere(round_group)
        if number is not None:
            self.end_round(round_group, number)


class RoundBarrierTask(ChainTask):
    """A node that waits on every channel for the end of the round, and then works on all of it."""

    @abstractmethod
    def carry(self, number: int) -> None:
        """All rows of the round are there, kept by channel."""

    def on_rows(self, channel: Channel, batch: Batch) -> None:
        """They wait for the end of the round."""
        channel.kept.append(batch)

    def on_end_of_round(self, channel: Channel, end: EndOfRound) -> None:
        """This channel waits for the others."""
        self.open.remove(channel)
        if not self.open:
            self._carry()

    def on_closed(self, channel: Channel) -> None:
        """The others no longer wait for this channel."""
        if self._n_open and not self.open and not any(each.halted for each in self.channels):
            self._carry()

    def _carry(self) -> None:
        number = max(channel.reached[0] for channel in self.data if 0 in channel.reached)
        self.open = [channel for channel in self.channels if not channel.ended]
        self.carry(number)


class RoundTask(RoundBarrierTask):
    """Rows round by round."""

    def carry(self, number: int) -> None:
        """In the order of the channels."""
        feed = self.chain[0].feed
        for channel in self.channels:
            for batch in take_batches(channel):
                feed(batch)
        self.end_round(0, number)


def common_round_group(channels: Iterable[Channel]) -> int | None:
    """The group of channels through which the rounds of one source come, None if they are of several."""
    round_groups = {channel.round_groups for channel in channels}
    (found,) = round_groups if len(round_groups) == 1 else (frozenset[int](),)
    return next(iter(found)) if len(found) == 1 else None


def take_batches(channel: Channel) -> list[Batch]:
    """The rows of a round that a channel has kept."""
    kept, channel.kept = channel.kept, []
    return kept


def count_written(chain: Iterable[ChainedStep]) -> dict[str, int]:
    """The rows that the sinks among chain wrote in the round."""
    return {chained.step.name: chained.written for chained in chain if isinstance(chained, SinkStep)}
