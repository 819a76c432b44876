"""Rescaling: the replicas of a keyed step become more or fewer while rows flow, and state moves by bucket.

Each of the 256 buckets (Flink's key groups) has one owner among the replicas. A rescale gives some buckets to
other owners at the end of a round. Whoever sends rows to the step partitions them by the new owners from
there on, and says so in every channel, behind the end of that round: an aligned barrier, as for checkpoints.
A replica that has the barrier from all senders has all rows from before the rescale and none from after it.
It hands over the state of the buckets it loses, waits for the state of those it gets (`barrier.py`), and
forwards the barrier. Whoever reads several of the replicas reads everything before the barrier before
anything behind it, so the order per key stays. Steps that take rows replica by replica from a rescaled step
rescale with it. One rescale runs at a time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock.engines.frontiers import Frontier
from penstock.engines.local.channels import Channel, ControlMessage, Output
from penstock.stages.keys.slots import BUCKETS
from penstock.stages.rows.batch import Batch, Ints

if TYPE_CHECKING:
    from penstock.engines.local.tasks.task import InputTask
    from penstock.stages.patterns.pattern import KeyPartitioner


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
    rounds          round group -> the round at whose end it happens
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

    def rescale(self, n: int) -> bool:
        """Request `n` replicas, from the end of a round on; return whether that is possible."""
        return self.rescaler.request(self, n)


class Rescaler:
    """Coordinates the rescales of a run: one at a time, the others wait. Any thread may request one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: deque[tuple[BucketAssignment, int]] = deque()
        self._n_waiting_barriers = 0
        self.current: Rescale | None = None

    def request(self, assignment: BucketAssignment, n: int) -> bool:
        """Rescale to `n` replicas as soon as possible; a later request for the step replaces this one."""
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

    def begin_round(self, round_group: int, number: int) -> None:
        """Let the current rescale happen at the end of this round, if it has no round of this group yet.

        The first source of a round group calls this, under the lock of `Progress`, before any row of the
        round is read: so all sources of the group agree on the round.
        """
        rescale = self.current
        if rescale is not None:
            rescale.rounds.setdefault(round_group, number)

    def pass_barrier(self, rescale: Rescale) -> None:
        """Count one of the tasks that the rescale waits for."""
        with self._lock:
            self._count_down(rescale)

    def leave(self, assignment: BucketAssignment, last: Rescale | None) -> None:
        """Remove an ended task from those that rescales wait for; `last` is the last one it has passed."""
        with self._lock:
            assignment.n_barriers -= 1
            rescale = self.current
            if rescale is not None and rescale.assignment is assignment and rescale is not last:
                self._count_down(rescale)

    def _count_down(self, rescale: Rescale) -> None:
        self._n_waiting_barriers -= 1
        if not self._n_waiting_barriers:
            rescale.assignment.owners, rescale.assignment.n = rescale.owners, rescale.n
            self.current = None
            self._start_next()

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
