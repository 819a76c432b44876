"""Tasks of operators with a driver loop of their own (C-Stream, 3).

The loop itself is in `engines/process_operator.py`.

As in the reference engine, the rows of a round come to the loop together, all ports at once and each by
(time, order), when the round has ended on every channel that its source comes through; then the loop runs
until it waits for rows, and only then is the round over for those behind it. Control rows of the same source
come before the rows of their round; rows that flow back into a control port are for the round after theirs.

Channels may be read further than rows have been delivered. So the loop goes by the frontiers that they had at
the end of what it was given: they say which ports are over, and how late the rows may be that still come.

Sources that go at their own pace make rounds of their own. Of these only those are read that bring a port
the rows which the loop waits for, so the others fill up and hold back whoever writes them. Ports of one
source are read together: if one of them held the source back, the other would wait for ever.

When the operator returns, its outputs are over, and what is still sent to it is counted as unrouted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

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
Round = tuple[int, int]
"""A round group, and the number of a round in it."""


class DeliveredFrontier:
    """How far a channel has come with the rounds that were delivered of it.

    ends      rounds that have ended on the channel, as they came, each with the channel's frontier then
    frontier  that of the last before which all were delivered
    """

    def __init__(self) -> None:
        self.ends: deque[tuple[Round, Frontier]] = deque()
        self.frontier = Frontier()

    def advance(self, delivered: Mapping[int, int]) -> None:
        """Go on to the first round that was not delivered; `delivered` has the last of every group."""
        while self.ends:
            (round_group, number), frontier = self.ends[0]
            if number > delivered.get(round_group, -1):
                return
            self.frontier = frontier
            self.ends.popleft()


class ProcessTask(InputTask):
    """One operator; one replica, whatever the degree.

    Invariant: a round is in `_kept` while some channel has not ended it, then in `_ended`, then it is
    `_current`, until the loop waits for rows again.
    """

    def __init__(self, number: int, replica: int, chain: list[ChainedStep], progress: Progress) -> None:
        super().__init__(number, replica, chain, progress)
        step, self._accounts = chain[0].step, chain[0].accounts
        assert isinstance(step.op, Process), "only operators of the user's have a loop of their own"
        self.loop = ProcessRoutine(
            step, step.op, self._accounts, has_room=self._may_push, stopping=self._is_stopping
        )
        self._n_asked = self._n_pushed = 0
        self._timed = {port.port for port in step.inputs if port.stream.time is not None}
        self._kept: dict[Round, list[tuple[Channel, list[Batch]]]] = {}
        self._ended: deque[Round] = deque()
        self._current: Round | None = None
        self._delivered: dict[int, int] = {}  # round group -> its last round that the loop was given
        self._frontiers: dict[int, DeliveredFrontier] = {}  # by channel
        self._sharing: dict[int, frozenset[int]] = {}

    def on_connected(self, now: Callable[[], int]) -> None:
        """Find which channels go in rounds together: those that share a source, directly or through others.

        A control channel is one of them if its source also brings rows.
        """
        super().on_connected(now)
        self._sharing = {}
        self._frontiers = {id(channel): DeliveredFrontier() for channel in self.data}
        for channel in self.data:
            together = channel.round_groups.union(
                *(groups for groups in self._sharing.values() if groups & channel.round_groups)
            )
            self._sharing |= dict.fromkeys(together, together)

    def routine(self) -> TaskRoutine:
        """Deliver round after round of what the operator waits for, and run it."""
        while (self._n_open or self._ended or self._current) and not self.loop.is_over and not self.broken:
            yield from self.wait_for_room()
            if self._current is not None:  # the operator waited for room
                self._advance()
            elif self._ended:
                self._current = self._ended.popleft()
                self._deliver(self._current)
                self._advance()
            elif (channel := self.next_channel()) is not None:
                self.take(channel, channel.pop())
            else:
                yield READ_BLOCKED
                continue
            if self.now() >= self.deadline:
                yield READY

    def next_channel(self) -> Channel | None:
        """Return a channel with something to take: control, or one whose source brings what is waited for.

        Feedback is for the next round, so that round waits until all feedback of the last has arrived.
        """
        ports, wanted = self.loop.ports, self.loop.context.wanted
        needed = frozenset[int]().union(
            *(
                self._sharing[group]
                for channel in self.data
                if wanted is None or len(ports[channel.port]) < wanted.get(channel.port, 0)
                for group in channel.round_groups
            )
        )
        for channel in self.open:
            if not channel.items:
                continue
            if channel.feedback or not self._goes_in_rounds(channel):
                return channel
            if channel.round_groups & needed and not self._is_ahead(channel):
                return channel
        return None

    def _goes_in_rounds(self, channel: Channel) -> bool:
        return not channel.round_groups.isdisjoint(self._sharing)

    def _is_ahead(self, channel: Channel) -> bool:
        """Return whether the next round of a channel must wait: for other channels, or for feedback.

        Where streams of several sources meet in several places, their rounds come in different orders, and
        channels that waited for each other might wait for ever: there the rows of rounds ahead are kept.
        """
        for round_group, number in channel.reached.items():
            done = self._done.get(round_group, -1)
            if number > done and len(self._sharing.get(round_group, ())) == 1:
                return True
            for other in self.channels:
                has_round = other.feedback and not other.ended and round_group in other.round_groups
                if has_round and other.reached.get(round_group, -1) < min(number, done):
                    return True
        return False

    def on_rows(self, channel: Channel, batch: Batch) -> None:
        """Keep rows for the end of their round; control by sources of its own takes effect at once."""
        if channel.feedback or self._goes_in_rounds(channel):
            channel.kept.append(batch)
        else:
            self.loop.control(channel.port, sort_rows(self._rows_of(channel, [batch])))

    def on_end_of_round(self, channel: Channel, round_group: int) -> None:
        """Note the rows of the round, and which rounds have now ended on all their channels."""
        if round_group not in self._sharing:
            return
        if id(channel) in self._frontiers and round_group in channel.reached:
            reached = round_group, channel.reached[round_group]
            self._frontiers[id(channel)].ends.append((reached, channel.frontier))
        if channel.kept and round_group in channel.reached:
            number = channel.reached[round_group] + channel.feedback
            self._kept.setdefault((round_group, number), []).append((channel, channel.take_kept()))
        if channel.feedback:
            return
        channels = [c for c in self.channels if round_group in c.round_groups and not c.feedback]
        waiting = [other for other in channels if not other.ended]
        number = min(other.reached.get(round_group, -1) for other in waiting or channels)
        done = self._done.get(round_group, -1)
        if number > done:
            self._done[round_group] = number
            rounds = {round_ for round_ in self._kept if round_[0] == round_group and round_[1] <= number}
            self._ended.extend(sorted(rounds | {(round_group, number)}))

    def _deliver(self, round_: Round) -> None:
        """Deliver the rows of a round to their ports, in order, control first; close ports that are over."""
        round_rows = self._kept.pop(round_, [])
        round_group, number = round_
        self._delivered[round_group] = number
        for frontier in self._frontiers.values():
            frontier.advance(self._delivered)
        for step_input in sorted(self.steps[0].inputs, key=lambda step_input: not step_input.control):
            port = step_input.port
            rows = sort_rows(
                row
                for channel, batches in round_rows
                if channel.port == port
                for row in self._rows_of(channel, batches)
            )
            if step_input.control:
                self.loop.control(port, rows)
            else:
                self.loop.deliver(port, rows)
                self.loop.ports[port].closed = all(
                    self._frontiers[id(channel)].frontier.over
                    for channel in self.data
                    if channel.port == port
                )

    def _advance(self) -> None:
        """Run the operator until it waits or ends; if it does not wait for room, its round is over."""
        self._n_pushed = 0
        loop = self.loop
        loop.resume()
        if loop.context.wanted is not None and all(port.closed for port in loop.ports.values()):
            loop.close()
        for port, rows in loop.take_output().items():
            self._accounts.rows_out += len(rows)
            times, order = [row.time or 0 for row in rows], [row.order[0] for row in rows]
            schema = self.steps[0].outputs[port].schema
            self.chain[0].emit(((port, RowBatch([row.values for row in rows], schema, times, (order,))),))
        if self._current is not None and (loop.is_over or loop.context.wanted is not None):
            delivered = (frontier.frontier for frontier in self._frontiers.values())
            after = merge_frontiers(delivered, self.frontier)
            self.frontier = after
            watermark = after.watermark if loop.is_over else loop.output_watermark(after.watermark)
            frontier = OVER if loop.is_over else Frontier(watermark, after.idle)
            round_group, number = self._current
            self._current = None
            self.end_round(round_group, number, frontier)

    def complete(self, *, failed: bool) -> None:
        """End the operator, if that has not happened; rows that it was not given are unrouted."""
        self.loop.close()
        unread = [batch for channel in self.channels if not channel.feedback for batch in channel.take_kept()]
        unread += [
            batch
            for round_rows in self._kept.values()
            for channel, batches in round_rows
            if not channel.feedback
            for batch in batches
        ]
        n_unread = sum(batch.num_rows for batch in unread)
        self._kept.clear()
        self._accounts.rows_in += n_unread
        self._accounts.unrouted += n_unread
        super().complete(failed=failed)

    def _may_push(self) -> bool:
        """Return whether outputs have room, and not too much is on its way to them."""
        self._n_pushed += 1
        return self._n_pushed <= PUSHED_AT_ONCE and self.has_room()

    def _is_stopping(self) -> bool:
        """Return whether the operator is to leave: somebody has asked for it, or another step has failed.

        What came before a failure is still processed, so only a loop that does nothing but ask is told to
        leave then: it would never end.
        """
        if self.progress.failed:
            self._n_asked += 1
        return self.progress.shutdown_requested or self._n_asked > MAX_IDLE_WAITS

    def _rows_of(self, channel: Channel, batches: Iterable[Batch]) -> list[TimedRow]:
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
