"""Tasks of operators with a driver loop of their own (C-Stream, 3).

The loop itself is in `engines/process_operator.py`.

As rows come: only the ports that the co-routine waits for and that are short are read, so the others fill up
and hold back whoever writes them. Round by round: all ports get the rows of a round, in order, as in the
reference engine; rows that flow back into a control port are for the round after theirs.

When the operator returns, its outputs are over, and what is still sent to it is counted as unrouted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.engines.frontiers import OVER, Frontier, merge_frontiers
from penstock.engines.local.channels import Channel
from penstock.engines.local.metrics.statistics import READ_BLOCKED, READY
from penstock.engines.local.progress import Progress
from penstock.engines.local.tasks.chain import ChainedStep
from penstock.engines.local.tasks.task import InputTask, TaskRoutine
from penstock.engines.process_operator import MAX_IDLE_WAITS, ProcessRoutine
from penstock.engines.rows import TimedRow, batch_to_rows, sort_rows
from penstock.operators.process import Process
from penstock.stages.rows.batch import Batch, RowBatch
from penstock.stages.rows.order import NO_ORDER

PUSHED_AT_ONCE = 1024
"""Rows that an operator may push before they must be on their way."""


class ProcessTask(InputTask):
    """One operator; one replica, whatever the degree."""

    def __init__(self, number: int, replica: int, chain: list[ChainedStep], progress: Progress) -> None:
        super().__init__(number, replica, chain, progress)
        step, self._accounts = chain[0].step, chain[0].accounts
        assert isinstance(step.op, Process), "only operators of the user's have a loop of their own"
        self.loop = ProcessRoutine(
            step, step.op, self._accounts, has_room=self.room, stopping=self._is_stopping
        )
        self._n_asked = 0
        self._timed = {port.port for port in step.inputs if port.stream.time is not None}

    def room(self) -> bool:
        """Return whether the operator may push."""
        return True

    def _is_stopping(self) -> bool:
        """Return whether the operator is to leave: somebody has asked for it, or another step has failed.

        What came before a failure is still processed, so only a loop that does nothing but ask is told to
        leave then: it would never end.
        """
        if self.progress.failed:
            self._n_asked += 1
        return self.progress.shutdown_requested or self._n_asked > MAX_IDLE_WAITS

    def rows_of(self, channel: Channel, batches: Iterable[Batch]) -> list[TimedRow]:
        """Return rows for the operator, and count them."""
        timed, rows = channel.port in self._timed, list[TimedRow]()
        for batch in batches:
            order = zip(*(column.tolist() for column in batch.order), strict=True)
            places = list(order) or [()] * batch.num_rows
            plain = batch_to_rows(batch.rows) if batch.plain is None else batch.plain
            for values, time, place in zip(plain, batch.times.tolist(), places, strict=True):
                known = tuple(number for number in place if number != NO_ORDER)
                rows.append(TimedRow(values, time if timed else None, known))
        self._accounts.rows_in += len(rows)
        self._n_asked = 0
        return rows

    def emit_pushed(self) -> None:
        """Emit what the operator has pushed, in order."""
        for port, rows in self.loop.take_output().items():
            self._accounts.rows_out += len(rows)
            times, order = [row.time or 0 for row in rows], [row.order[0] for row in rows]
            schema = self.steps[0].outputs[port].schema
            self.chain[0].emit(((port, RowBatch([row.values for row in rows], schema, times, (order,))),))

    def process_round(self, round_group: int, number: int) -> None:
        """End a round that has ended on all data channels, or with the operator."""
        self.frontier = after = merge_frontiers((channel.frontier for channel in self.data), self.frontier)
        frontier = (
            OVER if self.loop.is_over else Frontier(self.loop.output_watermark(after.watermark), after.idle)
        )
        self.end_round(round_group, number, frontier)

    def complete(self, *, failed: bool) -> None:
        """End the operator, if that has not happened."""
        self.loop.close()
        super().complete(failed=failed)


class RoundProcessTask(ProcessTask):
    """Round by round: a channel whose round has ended waits for all others, control too."""

    def on_connected(self, now: Callable[[], int]) -> None:
        """Implement `Task.on_connected`: feedback is not waited for in the first round."""
        super().on_connected(now)
        self._merged_group = None
        self.open = [channel for channel in self.channels if not channel.feedback]

    def on_end_of_round(self, channel: Channel, round_group: int) -> None:
        """Let this channel wait for the others."""
        self.open.remove(channel)
        if not self.open:
            self._run_round()

    def on_closed(self, channel: Channel) -> None:
        """Process a round that waited for this channel only."""
        if self._n_open and not self.open:
            self._run_round()

    def _run_round(self) -> None:
        """Deliver the rows to their ports, in order, and run the operator until it waits."""
        self.open = [channel for channel in self.channels if not channel.ended]
        for step_input in self.steps[0].inputs:
            port = step_input.port
            channels = [channel for channel in self.channels if channel.port == port]
            rows = sort_rows(
                row for channel in channels for row in self.rows_of(channel, channel.take_kept())
            )
            if step_input.control:
                self.loop.control(port, rows)
            else:
                self.loop.deliver(port, rows)
                self.loop.ports[port].closed = all(channel.frontier.over for channel in channels)
        self.loop.resume()
        if all(port.closed for port in self.loop.ports.values()):
            self.loop.close()
        self.emit_pushed()
        self.process_round(0, max(channel.reached[0] for channel in self.data if 0 in channel.reached))
        if self.loop.is_over:
            self._n_open = 0


class PipelinedProcessTask(ProcessTask):
    """As rows come."""

    _n_pushed = 0

    def room(self) -> bool:
        """Return whether outputs have room, and not too much is on its way to them."""
        self._n_pushed += 1
        return self._n_pushed <= PUSHED_AT_ONCE and self.has_room()

    def routine(self) -> TaskRoutine:
        """Resume the operator, and bring it what it waits for."""
        self._advance()
        while not self.loop.is_over and not self.broken:
            yield from self.wait_for_room()
            if self.loop.context.wanted is None:
                self._advance()  # it waited for room
            elif self.loop.context.hopeless:
                self.loop.close()  # it was told that this is over, and waits for it again
            elif (channel := self.next_channel()) is not None:
                self.take(channel, channel.pop())
            else:
                yield READ_BLOCKED
                continue
            if self.now() >= self.deadline:
                yield READY
        # Nothing more comes from here, whatever round others are in, so all round groups end.
        for round_group in sorted(set().union(*(channel.round_groups for channel in self.data))):
            if not self.broken:
                self.process_round(round_group, self._done.get(round_group, -1) + 1)

    def next_channel(self) -> Channel | None:
        """Return a control channel, or one of a port that the operator waits for and that is short.

        Feedback is for the next round, so that round waits until all feedback of the last has arrived.
        """
        wanted, ports = self.loop.context.wanted or {}, self.loop.ports
        for channel in self.open:
            short = channel.control or len(ports[channel.port]) < wanted.get(channel.port, 0)
            if channel.items and short and (channel.control or self._has_all_feedback(channel)):
                return channel
        return None

    def _has_all_feedback(self, channel: Channel) -> bool:
        """Return whether all feedback of the rounds which a channel has brought has arrived."""
        feedback = [other for other in self.channels if other.feedback and not other.ended]
        return all(
            other.reached.get(round_group, -1) >= min(number, self._done.get(round_group, -1))
            for round_group, number in channel.reached.items()
            for other in feedback
            if round_group in other.round_groups
        )

    def on_rows(self, channel: Channel, batch: Batch) -> None:
        """Deliver rows to the operator's port, or to its control."""
        rows = sort_rows(self.rows_of(channel, [batch]))
        if channel.control:
            self.loop.control(channel.port, rows)
        else:
            self.loop.deliver(channel.port, rows)
            self._advance()

    def on_end_of_round(self, channel: Channel, round_group: int) -> None:
        """End a round that has ended on all channels."""
        if not channel.control:
            super().on_end_of_round(channel, round_group)

    def on_closed(self, channel: Channel) -> None:
        """Close a port when all its channels are closed."""
        if channel.control:
            return
        if all(other.ended for other in self.data if other.port == channel.port):
            self.loop.ports[channel.port].closed = True
            self._advance()
        super().on_closed(channel)

    def _advance(self) -> None:
        self._n_pushed = 0
        self.loop.resume()
        self.emit_pushed()
