"""Barriers of a rescale: a task waits for the barrier message on all channels that the rescale concerns.

For a task that only reads rescaled replicas this keeps the order per key. The replicas themselves hand state
over there: each sends it straight to the new owners, through a channel from every replica to every other.
`install_barriers` puts barriers into the tasks of an execution graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np

from penstock.engines.local.build import ExecutionGraph, Replicas, is_forward
from penstock.engines.local.channels import BROKEN, Channel, ControlMessage
from penstock.engines.local.dispatch import Dispatcher
from penstock.engines.local.elastic.rescale import BucketAssignment, Rescale
from penstock.engines.local.tasks.chain import StageStep
from penstock.engines.local.tasks.task import InputTask, Task
from penstock.stages.snapshot import BucketedStage

State = list[dict[int, Any]]
"""For each stateful step of a task, the state of some buckets."""


class Barrier:
    """The channels of one task in which the barrier of a rescale arrives.

    Invariant: a channel in which it has arrived is halted until it has arrived in all the others that are
    still open. So nothing from after the rescale is read before everything from before it.
    """

    def __init__(self, task: Task, assignment: BucketAssignment, channels: Sequence[Channel]) -> None:
        assert isinstance(task, InputTask), "a task behind a rescaled step reads channels"
        self.task, self.assignment, self.channels = task, assignment, tuple(channels)
        self._arriving: Rescale | None = None
        self._last: Rescale | None = None
        task.barriers.append(self)
        assignment.n_barriers += 1

    def arrive(self, channel: Channel, rescale: Rescale) -> None:
        """Halt a channel in which the barrier has arrived, until it has arrived in all."""
        channel.halted, self._arriving = True, rescale
        self.task.reopen()
        self.release_if_complete()

    def release_if_complete(self) -> None:
        """Go on if the barrier has arrived in all channels that have not ended."""
        rescale = self._arriving
        if rescale is None or not all(channel.halted or channel.ended for channel in self.channels):
            return
        self._arriving, self._last = None, rescale
        for channel in self.channels:
            channel.halted = False
        self.task.reopen()
        self.complete(rescale)

    def complete(self, rescale: Rescale) -> None:
        """Do what the task must do between the rows before a rescale and those after it."""
        self.assignment.rescaler.pass_barrier(rescale)

    def leave(self, *, failed: bool) -> None:
        """End the barrier with its task."""
        self.assignment.rescaler.leave(self.assignment, self._last)


class HandoverBarrier(Barrier):
    """The barrier of a rescaled replica, at which it hands over the state of buckets that get another owner.

    to_peer, from_peer  replica -> the channel to it, and from it
    """

    def __init__(self, task: Task, assignment: BucketAssignment, channels: Sequence[Channel]) -> None:
        super().__init__(task, assignment, channels)
        stages = (chained.stage for chained in task.chain if isinstance(chained, StageStep))
        self._stages = [stage for stage in stages if isinstance(stage, BucketedStage)]
        self.to_peer: dict[int, Channel] = {}
        self.from_peer: dict[int, Channel] = {}
        self._state: State = []
        self._finish: Callable[[], None] = lambda: None

    def complete(self, rescale: Rescale) -> None:
        """Send the state of lost buckets to their new owners, and wait for that of gained ones."""
        replica = self.task.replica
        lost = np.flatnonzero((rescale.before == replica) & (rescale.owners != replica)).tolist()
        gained = np.flatnonzero((rescale.before != replica) & (rescale.owners == replica)).tolist()
        self._finish = lambda: self._take_over(rescale, lost, gained)
        senders: list[int] = []
        if self._stages and (lost or gained):
            self._state = [stage.export_buckets() for stage in self._stages]
            senders = np.unique(rescale.before[gained]).tolist()
            for receiver in np.unique(rescale.owners[lost]).tolist():
                buckets = [bucket for bucket in lost if rescale.owners[bucket] == receiver]
                pieces = [
                    {bucket: state.pop(bucket) for bucket in buckets if bucket in state}
                    for state in self._state
                ]
                self.to_peer[receiver].push(StateHandover(pieces))
        if senders:
            # Invariant: no row is read until all gained state is here, or it would be computed without it.
            self.task.open = [self.from_peer[sender] for sender in senders]
        else:
            self._finish()

    def receive(self, channel: Channel, state: State) -> None:
        """Take state from another replica, and finish when it was the last."""
        for own, more in zip(self._state, state, strict=True):
            own.update(more)
        self.task.open.remove(channel)
        if not self.task.open:
            self._finish()

    def _take_over(self, rescale: Rescale, lost: list[int], gained: list[int]) -> None:
        for stage, state in zip(self._stages, self._state, strict=False):
            stage.replace_buckets(state, removed=lost, added=gained)
        self._state = []
        self.task.reopen()
        self.task.forward(rescale)
        self.assignment.rescaler.pass_barrier(rescale)

    def leave(self, *, failed: bool) -> None:
        """End the barrier with its task; a failure breaks the channels on which others wait for state."""
        if failed:
            for channel in self.to_peer.values():
                channel.push(BROKEN)
        super().leave(failed=failed)


class StateHandover(ControlMessage):
    """State of buckets on its way to their new owner."""

    __slots__ = ("state",)

    def __init__(self, state: State) -> None:
        self.state = state

    def deliver(self, task: InputTask, channel: Channel) -> None:
        """Give the state to the barrier that waits for it."""
        for barrier in task.barriers:
            if isinstance(barrier, HandoverBarrier) and channel in barrier.from_peer.values():
                barrier.receive(channel, self.state)


def install_barriers(graph: ExecutionGraph, dispatcher: Dispatcher, *, in_rounds: bool) -> None:
    """Add barriers to all tasks that a rescale concerns; all channels of rows exist.

    These are the replicas that get rows by owner, the groups that take rows from them replica by replica,
    whose state moves with theirs, and the tasks that read all of them; not the last if rows go in rounds,
    which keep the order anyway.
    """
    by_number = {replicas.group.number: replicas for replicas in graph.replicas}
    for number, assignment in list(graph.assignments.items()):
        first = by_number[number]
        _install_handover(dispatcher, assignment, first, [task.channels for task in first.tasks])
        producers = [first]
        while producers:
            producer = producers.pop()
            for reader in graph.replicas:
                channels = [
                    [channel for channel in task.channels if channel.writer in producer.tasks]
                    for task in reader.tasks
                ]
                if any(channels) and is_forward(producer, reader):
                    graph.assignments[reader.group.number] = assignment
                    _install_handover(dispatcher, assignment, reader, channels)
                    producers.append(reader)
                elif any(channels) and not in_rounds:
                    for task, read in zip(reader.tasks, channels, strict=True):
                        Barrier(task, assignment, read)
        round_groups = {
            group for t in first.tasks for channel in t.channels for group in channel.round_groups
        }
        if len(round_groups) > 1 and not all(reader.bounded for reader in graph.readers.values()):
            # Why: a barrier waits for the end of a round of each group, so where one of the sources may be
            # silent it would hold up the rescale and all rows.
            assignment.max_replicas = assignment.n


def _install_handover(
    dispatcher: Dispatcher,
    assignment: BucketAssignment,
    replicas: Replicas,
    channels: Sequence[Sequence[Channel]],
) -> None:
    """Add barriers to replicas that exchange state, and a channel from each to every other."""
    barriers = [
        HandoverBarrier(task, assignment, read) for task, read in zip(replicas.tasks, channels, strict=True)
    ]
    for sender in barriers:
        for receiver in barriers:
            if receiver is not sender:
                # Why unbounded: it is beside the channels of rows, and nobody waits for room in it.
                channel = Channel(dispatcher, inf, inf, "", control=True)
                channel.writer, channel.reader = sender.task, receiver.task
                sender.to_peer[receiver.task.replica] = receiver.from_peer[sender.task.replica] = channel
