"""Tasks of stages and sinks: rows as they come, or round by round.

As they come: a batch is processed at once, by the watermark of the task; a round of a group is over when it
has ended on all channels that the group comes through. Round by round (`deterministic=True`, checkpoint=): a
channel whose round has ended waits for the others, so that a round sees all its rows and no others; rows
are merged in the order of the feeds and replicas, so that nothing depends on which was faster.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from penstock.engines.frontiers import Frontier, merge_frontiers
from penstock.engines.local.channels.channel import ActiveReplicas, Channel, EndOfRound
from penstock.engines.local.fast_rows.input import build_row_input
from penstock.engines.local.progress import Progress
from penstock.engines.local.tasks.chain import ChainedStep, count_written, find_round_end_steps
from penstock.engines.local.tasks.task import InputTask
from penstock.plan.plan import Step
from penstock.stages.rows.batch import Batch


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
        self.row_input = build_row_input(self)

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

    def on_connected(self) -> None:
        """Implements `Task.on_connected`."""
        super().on_connected()
        self.row_input = build_row_input(self)

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
