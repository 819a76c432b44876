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
from penstock.engines.local.channels.channel import Channel, Word
from penstock.engines.local.channels.output import Outlet
from penstock.stages.rows.batch import Batch, Ints
from penstock.timing.bucket import BUCKETS

if TYPE_CHECKING:
    from penstock.engines.local.tasks.task import InputTask
    from penstock.stages.patterns.partitioners import KeyDeal


def first_owners(n: int) -> Ints:
    """Who has which bucket when a run begins with so many replicas."""
    return np.arange(BUCKETS) % n


def shared_out(owners: Ints, n: int) -> Ints:
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


class Move(Word):
    """One move, and the word of it that goes through the channels.

    before, owners  who has which bucket
    n               how many replicas are active behind it
    points          pace -> the round at whose end it happens
    """

    __slots__ = ("before", "leader", "n", "owners", "points")

    def __init__(self, leader: Leader, n: int) -> None:
        self.leader, self.n = leader, n
        self.before, self.owners = leader.owners, shared_out(leader.owners, n)
        self.points: dict[int, int] = {}

    def come(self, node: InputTask, channel: Channel) -> None:
        """What was sent before the move has been read from a channel; the others may not be as far."""
        for gate in node.gates:
            if gate.leader is self.leader and channel in gate.channels:
                gate.came(channel, self)


class Leader:
    """The replicas of a keyed step that can be more or fewer.

    step      which
    n         how many are active
    most      how many there are
    n_places  the places where the word of a move is waited for
    """

    def __init__(self, step: str, moves: Moves, n: int, most: int) -> None:
        self.step, self._moves, self.n, self.most = step, moves, n, most
        self.owners = first_owners(n)
        self.n_places = 0

    def ask(self, n: int) -> bool:
        """Have so many replicas, from the end of a round on; gives whether that can be."""
        return self._moves.ask(self, n)


class Moves:
    """The moves of a run: at most one at a time, others wait for it. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Leader, int]] = deque()
        self._places_left = 0
        self.now: Move | None = None

    def ask(self, leader: Leader, n: int) -> bool:
        """Move to `n` replicas as soon as may be."""
        if not 1 <= n <= leader.most:
            return False
        with self._lock:
            self._waiting = deque(each for each in self._waiting if each[0] is not leader)
            self._waiting.append((leader, n))
            self._next()
        return True

    @property
    def under_way(self) -> bool:
        """Whether one is to happen, or happens."""
        return self.now is not None or bool(self._waiting)

    def is_asked(self, leader: Leader) -> bool:
        """Whether a move of this one is to happen, or happens."""
        move = self.now
        return (move is not None and move.leader is leader) or any(
            each is leader for each, _ in [*self._waiting]
        )

    def begin(self, pace: int, number: int) -> None:
        """The first source of a pace begins a round: a move that is under way happens at the end of it."""
        move = self.now
        if move is not None:
            move.points.setdefault(pace, number)

    def through(self, move: Move) -> None:
        """The word has come to one of the places where it is waited for."""
        with self._lock:
            self._one_less(move)

    def left(self, leader: Leader, last: Move | None) -> None:
        """One who would wait for the word has ended; the last move that it heard of."""
        with self._lock:
            leader.n_places -= 1
            move = self.now
            if move is not None and move.leader is leader and move is not last:
                self._one_less(move)

    def _one_less(self, move: Move) -> None:
        self._places_left -= 1
        if not self._places_left:
            move.leader.owners, move.leader.n = move.owners, move.n
            self.now = None
            self._next()

    def _next(self) -> None:
        while self._waiting and self.now is None:
            leader, n = self._waiting.popleft()
            if n != leader.n:
                self._places_left = leader.n_places
                self.now = Move(leader, n)


class ByOwner(Outlet):
    """By key to the replica that has the key's bucket."""

    def __init__(
        self,
        port: str,
        channels: Sequence[Channel],
        deal: KeyDeal,
        size: int | None,
        *,
        leader: Leader,
        moves: Moves,
    ) -> None:
        super().__init__(port, channels, size)
        self._deal, self._leader, self._moves = deal, leader, moves
        self._owners = leader.owners
        self._last: Move | None = None

    def deal(self, batch: Batch) -> None:
        """Each replica its share."""
        replicas = self._owners[self._deal.buckets(batch)]
        for place in np.unique(replicas).tolist():
            self.channels[place].push(batch.where(replicas == place))

    def end_round(self, pace: int, number: int, frontier: Frontier) -> None:
        """The end of a round, and perhaps a move behind it."""
        super().end_round(pace, number, frontier)
        move = self._moves.now
        if move is None or move is self._last or move.leader is not self._leader:
            return
        if number >= move.points.get(pace, number + 1):
            self._last, self._owners = move, move.owners
            for channel in self.channels:
                channel.push(move)
