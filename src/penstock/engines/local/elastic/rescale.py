"""Rescaling: the replicas of a keyed step become more or fewer while rows flow, and state moves by bucket.

Each of the 256 buckets (Flink's key groups) has one owner among the replicas. A rescale gives some buckets to
other owners at the end of a round. Whoever sends rows to the step partitions them by the new owners from
there on, and says so in every channel, behind the end of that round: an aligned barrier, as for checkpoints.
A replica that has the barrier from all senders has all rows from before the rescale and none from after it.
It hands over the state of the buckets it loses, straight to the new owners, through a channel from every
replica to every other, waits for the state of those it gets, and forwards the barrier. Whoever reads several
of the replicas reads everything before the barrier before anything behind it, so the order per key stays.
Steps that take rows replica by replica from a rescaled step rescale with it. One rescale runs at a time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.engines.frontiers import Frontier
from penstock.engines.local.build import ExecutionGraph, Replicas, is_forward
from penstock.engines.local.channels import BROKEN, Channel, ControlMessage, Output
from penstock.engines.local.dispatch import Dispatcher
from penstock.engines.local.tasks.chain import StageStep
from penstock.engines.local.tasks.task import InputTask, Task
from penstock.stages.keys.slots import BUCKETS
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.snapshot import BucketedStage

if TYPE_CHECKING:
    from penstock.stages.patterns.pattern import KeyPartitioner

State = list[dict[int, Any]]
"""For each stateful step of a task, the state of some buckets."""


def initial_owners(n: int) -> Ints:
    """Return the owner of each bucket when a run begins with `n` replicas."""
    return np.arange(BUCKETS) % n


def reassign_buckets(owners: Ints, n: int) -> Ints:
    """Return the owner of each bucket with `n` replicas: equal shares, moving as few buckets as possible.

    >>> four = initial_owners(4)
    >>> (reassign_buckets(initial_owners(1), 4) == 3).sum(), (reassign_buckets(four, 3) != four).sum()
    (np.int64(64), np.int64(64))
    """
    reassigned, share = owners.copy(), np.full(n, BUCKETS // n)
    counts = np.bincount(owners, minlength=n)
    # Where buckets do not divide evenly, the replicas that own most already keep one more.
    share[np.argsort(-counts[:n], kind="stable")[: BUCKETS % n]] += 1
    without_owner = [np.flatnonzero(owners >= n)]
    without_owner += [np.flatnonzero(owners == replica)[share[replica] :] for replica in range(n)]
    n_missing = np.maximum(share - counts[:n], 0)
    reassigned[np.concatenate(without_owner)] = np.repeat(np.arange(n), n_missing)
    return reassigned


class Rescale(ControlMessage):
    """One rescale, and the barrier message of it that goes through the channels.

    before, owners  owner of each bucket before and after it
    n               number of active replicas after it
    rounds          round group -> the round at whose end it happens; the first source of the group sets it,
                    under the lock of `Progress`, before any row of the round is read, so all sources agree
    """

    __slots__ = ("assignment", "before", "n", "owners", "rounds")

    def __init__(self, assignment: BucketAssignment, n: int) -> None:
        self.assignment, self.n = assignment, n
        self.before, self.owners = assignment.owners, reassign_buckets(assignment.owners, n)
        self.rounds: dict[int, int] = {}

    def deliver(self, task: InputTask, channel: Channel) -> None:
        """Tell the barriers of the task that everything from before the rescale was read from a channel."""
        for barrier in task.barriers:
            if barrier.assignment is self.assignment and channel in barrier.channels:
                barrier.arrive(channel, self)


class BucketAssignment:
    """Which replica of a keyed step owns which bucket.

    step          the step
    n             number of active replicas
    max_replicas  number of replicas that exist
    n_barriers    number of tasks that wait for the barrier of a rescale
    """

    def __init__(self, step: str, rescaler: Rescaler, n: int, max_replicas: int) -> None:
        self.step, self.rescaler, self.n, self.max_replicas = step, rescaler, n, max_replicas
        self.owners = initial_owners(n)
        self.n_barriers = 0


class Rescaler:
    """Coordinates the rescales of a run: one at a time, the others wait. Any thread may request one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._requests: deque[tuple[BucketAssignment, int]] = deque()
        self._n_waiting_barriers = 0
        self.current: Rescale | None = None

    def request(self, assignment: BucketAssignment, n: int) -> bool:
        """Rescale to `n` replicas at the end of a round, if possible; return whether it is.

        A later request for the step replaces this one.
        """
        if not 1 <= n <= assignment.max_replicas:
            return False
        with self._lock:
            self._requests = deque(request for request in self._requests if request[0] is not assignment)
            self._requests.append((assignment, n))
            self._start_next()
        return True

    def is_requested(self, assignment: BucketAssignment) -> bool:
        """Return whether a rescale of this step is running or requested."""
        rescale = self.current
        if rescale is not None and rescale.assignment is assignment:
            return True
        return any(requested is assignment for requested, _ in [*self._requests])

    def pass_barrier(self, rescale: Rescale) -> None:
        """Count one of the tasks that the rescale waits for."""
        with self._lock:
            self._n_waiting_barriers -= 1
            if not self._n_waiting_barriers:
                rescale.assignment.owners, rescale.assignment.n = rescale.owners, rescale.n
                self.current = None
                self._start_next()

    def leave(self, assignment: BucketAssignment, last: Rescale | None) -> None:
        """Remove an ended task from those that rescales wait for; `last` is the last one it has passed."""
        with self._lock:
            assignment.n_barriers -= 1
            rescale = self.current
            if rescale is not None and rescale.assignment is assignment and rescale is not last:
                self.pass_barrier(rescale)

    def _start_next(self) -> None:
        while self._requests and self.current is None:
            assignment, n = self._requests.popleft()
            if n != assignment.n:
                # Invariant: set before `current`, which the sources read without the lock.
                self._n_waiting_barriers = assignment.n_barriers
                self.current = Rescale(assignment, n)


class BucketOutput(Output):
    """Sends rows to the replica that owns the bucket of their key."""

    def __init__(
        self,
        port: str,
        channels: Sequence[Channel],
        partitioner: KeyPartitioner,
        batch_size: int | None,
        *,
        assignment: BucketAssignment,
    ) -> None:
        super().__init__(port, channels, batch_size)
        self._partitioner, self._assignment = partitioner, assignment
        self._owners = assignment.owners
        self._last: Rescale | None = None

    def route(self, batch: Batch) -> None:
        """Implement `Output.route`."""
        replicas = self._owners[self._partitioner.buckets(batch)]
        for replica in np.unique(replicas).tolist():
            self.channels[replica].push(batch.where(replicas == replica))

    def end_round(self, round_group: int, number: int, frontier: Frontier) -> None:
        """End a round, and send the barrier behind it if a rescale happens at the end of this round."""
        super().end_round(round_group, number, frontier)
        rescale = self._assignment.rescaler.current
        if rescale is None or rescale is self._last or rescale.assignment is not self._assignment:
            return
        if number >= rescale.rounds.get(round_group, number + 1):
            # Invariant: owners change and the barrier is sent between the same two rows of every channel.
            self._last, self._owners = rescale, rescale.owners
            for channel in self.channels:
                channel.push(rescale)


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
