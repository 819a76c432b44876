"""Moves: the replicas of a keyed step become more or fewer while rows flow, and state moves by bucket.

Every one of the 256 buckets belongs to one replica. A move gives some of them to others, at the end of a
round: whoever deals rows to the step does so by the new owners from there on, and says so in every channel,
behind the end of that round (an aligned barrier, as for checkpoints). A replica that has the word from all
who deal has all rows from before the move and none from after it: it hands over what it has of the buckets
that go, waits for those that come (`hands.py`), and passes the word on. Whoever reads several of the replicas
reads all that came before the word before anything behind it, so the order per key stays as it was. Steps
that take rows replica by replica from the moved ones move with them. One move is under way at a time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock.engines.frontiers import Frontier
from penstock.engines.local.channels.channel import Channel, ControlMessage
from penstock.engines.local.channels.output import Output
from penstock.stages.rows.batch import Batch, Ints
from penstock.timing.bucket import BUCKETS

if TYPE_CHECKING:
    from penstock.engines.local.tasks.task import InputTask
    from penstock.stages.patterns.partitioners import KeyPartitioner


def initial_owners(n: int) -> Ints:
    """Who has which bucket when a run begins with so many replicas."""
    return np.arange(BUCKETS) % n


def reassign_buckets(owners: Ints, n: int) -> Ints:
    """Who has which bucket with `n` replicas: about as many each, and no more change hands than must.

    >>> (shared_out(first_owners(1), 4) == 3).sum(), (shared_out(first_owners(4), 3) != first_owners(4)).sum()
    (np.int64(64), np.int64(64))
    """
    found, share = owners.copy(), np.full(n, BUCKETS // n)
    counts = np.bincount(owners, minlength=n)
    # Those that have most keep one more, where buckets do not go round evenly.
    share[np.argsort(-counts[:n], kind="stable")[: BUCKETS % n]] += 1
    homeless = [np.flatnonzero(owners >= n)]
    homeless += [np.flatnonzero(owners == each)[share[each] :] for each in range(n)]
    lacking = np.maximum(share - counts[:n], 0)
    found[np.concatenate(homeless)] = np.repeat(np.arange(n), lacking)
    return found


class Rescale(ControlMessage):
    """One move, and the word of it that goes through the channels.

    before, owners  who has which bucket
    n               how many replicas are active behind it
    points          round_group -> the round at whose end it happens
    """

    __slots__ = ("assignment", "before", "n", "owners", "points")

    def __init__(self, assignment: KeyGroupAssignment, n: int) -> None:
        self.assignment, self.n = assignment, n
        self.before, self.owners = assignment.owners, reassign_buckets(assignment.owners, n)
        self.points: dict[int, int] = {}

    def deliver(self, node: InputTask, channel: Channel) -> None:
        """What was sent before the move has been read from a channel; the others may not be as far."""
        for barrier in node.barriers:
            if barrier.assignment is self.assignment and channel in barrier.channels:
                barrier.came(channel, self)


class KeyGroupAssignment:
    """The replicas of a keyed step that can be more or fewer.

    step      which
    n         how many are active
    most      how many there are
    n_barriers  the places where the word of a move is waited for
    """

    def __init__(self, step: str, rescaler: Rescaler, n: int, most: int) -> None:
        self.step, self._rescaler, self.n, self.most = step, rescaler, n, most
        self.owners = initial_owners(n)
        self.n_barriers = 0

    def ask(self, n: int) -> bool:
        """Have so many replicas, from the end of a round on; gives whether that can be."""
        return self._rescaler.ask(self, n)


class Rescaler:
    """The moves of a run: at most one at a time, others wait for it. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[KeyGroupAssignment, int]] = deque()
        self._n_waiting_barriers = 0
        self.now: Rescale | None = None

    def ask(self, assignment: KeyGroupAssignment, n: int) -> bool:
        """Move to `n` replicas as soon as may be."""
        if not 1 <= n <= assignment.most:
            return False
        with self._lock:
            self._waiting = deque(each for each in self._waiting if each[0] is not assignment)
            self._waiting.append((assignment, n))
            self._next()
        return True

    @property
    def under_way(self) -> bool:
        """Whether one is to happen, or happens."""
        return self.now is not None or bool(self._waiting)

    def is_asked(self, assignment: KeyGroupAssignment) -> bool:
        """Whether a move of this one is to happen, or happens."""
        move = self.now
        return (move is not None and move.assignment is assignment) or any(
            each is assignment for each, _ in [*self._waiting]
        )

    def begin(self, round_group: int, number: int) -> None:
        """The first source of a group begins a round: a move that is under way happens at the end of it."""
        move = self.now
        if move is not None:
            move.points.setdefault(round_group, number)

    def through(self, move: Rescale) -> None:
        """The word has come to one of the places where it is waited for."""
        with self._lock:
            self._one_less(move)

    def left(self, assignment: KeyGroupAssignment, last: Rescale | None) -> None:
        """One who would wait for the word has ended; the last move that it heard of."""
        with self._lock:
            assignment.n_barriers -= 1
            move = self.now
            if move is not None and move.assignment is assignment and move is not last:
                self._one_less(move)

    def _one_less(self, move: Rescale) -> None:
        self._n_waiting_barriers -= 1
        if not self._n_waiting_barriers:
            move.assignment.owners, move.assignment.n = move.owners, move.n
            self.now = None
            self._next()

    def _next(self) -> None:
        while self._waiting and self.now is None:
            assignment, n = self._waiting.popleft()
            if n != assignment.n:
                self._n_waiting_barriers = assignment.n_barriers
                self.now = Rescale(assignment, n)


class KeyGroupOutput(Output):
    """By key to the replica that has the key's bucket."""

    def __init__(
        self,
        port: str,
        channels: Sequence[Channel],
        deal: KeyPartitioner,
        size: int | None,
        *,
        assignment: KeyGroupAssignment,
        rescaler: Rescaler,
    ) -> None:
        super().__init__(port, channels, size)
        self._deal, self._assignment, self._rescaler = deal, assignment, rescaler
        self._owners = assignment.owners
        self._last: Rescale | None = None

    def deal(self, batch: Batch) -> None:
        """Each replica its share."""
        replicas = self._owners[self._deal.buckets(batch)]
        for place in np.unique(replicas).tolist():
            self.channels[place].push(batch.where(replicas == place))

    def end_round(self, round_group: int, number: int, frontier: Frontier) -> None:
        """The end of a round, and perhaps a move behind it."""
        super().end_round(round_group, number, frontier)
        move = self._rescaler.now
        if move is None or move is self._last or move.assignment is not self._assignment:
            return
        if number >= move.points.get(round_group, number + 1):
            self._last, self._owners = move, move.owners
            for channel in self.channels:
                channel.push(move)
