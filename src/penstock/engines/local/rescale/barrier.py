"""Where a node waits for the word of a move: on all channels that it concerns, before it reads on from one.

For those that only read moved replicas this keeps the order per key. The replicas themselves hand state over
then, each straight to those that get it, by a channel from every replica to every other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.engines.local.channels.channel import BROKEN, Channel, ControlMessage
from penstock.engines.local.rescale.rescale import KeyGroupAssignment, Rescale, Rescaler
from penstock.engines.local.tasks.chain import ChainedStep, StageStep
from penstock.engines.local.tasks.task import InputTask
from penstock.stages.snapshot import BucketedStage

State = list[dict[int, Any]]
"""For each step of a node with state by key, what there is of some buckets."""


class Barrier:
    """Channels of one node in which the word of a leader's moves comes."""

    def __init__(
        self, node: InputTask, assignment: KeyGroupAssignment, rescaler: Rescaler, channels: Sequence[Channel]
    ) -> None:
        self.node, self.assignment, self.channels = node, assignment, tuple(channels)
        self._rescaler = rescaler
        self._move: Rescale | None = None
        self._last: Rescale | None = None

    def came(self, channel: Channel, move: Rescale) -> None:
        """The word came in a channel, which waits for the others."""
        channel.halted, self._move = True, move
        self.node.reopen()
        self.look()

    def look(self) -> None:
        """Perhaps the word has come in all channels that are not at their end."""
        move = self._move
        if move is None or not all(each.halted or each.ended for each in self.channels):
            return
        self._move, self._last = None, move
        for channel in self.channels:
            channel.halted = False
        self.node.reopen()
        self.passed(move)

    def passed(self, move: Rescale) -> None:
        """It has."""
        self._rescaler.through(move)

    def leave(self, *, failed: bool) -> None:
        """The node has ended."""
        self._rescaler.left(self.assignment, self._last)


class HandoverBarrier(Barrier):
    """The barrier of a moved replica: there its steps hand over the state of buckets that change hands.

    to, by  replica -> the channel to it, or from it
    """

    def __init__(
        self,
        node: InputTask,
        assignment: KeyGroupAssignment,
        rescaler: Rescaler,
        channels: Sequence[Channel],
        *,
        chain: Sequence[ChainedStep],
    ) -> None:
        super().__init__(node, assignment, rescaler, channels)
        self._seats = chain
        found = (chained.stage for chained in chain if isinstance(chained, StageStep))
        self._stages = [stage for stage in found if isinstance(stage, BucketedStage)]
        self.to: dict[int, Channel] = {}
        self.by: dict[int, Channel] = {}
        self._held: State = []
        self._finish: Callable[[], None] = lambda: None

    def passed(self, move: Rescale) -> None:
        """Hand over what goes, and wait for what comes."""
        me = self.node.replica
        gone = np.flatnonzero((move.before == me) & (move.owners != me)).tolist()
        came = np.flatnonzero((move.before != me) & (move.owners == me)).tolist()
        self._finish = lambda: self._finished(move, gone, came)
        givers: list[int] = []
        if self._stages and (gone or came):
            self._held = [stage.export_buckets() for stage in self._stages]
            takers = np.unique(move.owners[gone]).tolist()
            givers = np.unique(move.before[came]).tolist()
            for taker in takers:
                buckets = [bucket for bucket in gone if move.owners[bucket] == taker]
                self.to[taker].push(StateHandover([_out_of(held, buckets) for held in self._held]))
        if givers:
            self.node.open = [self.by[giver] for giver in givers]
        else:
            self._finish()

    def take(self, channel: Channel, state: State) -> None:
        """State from another replica."""
        for held, more in zip(self._held, state, strict=True):
            held.update(more)
        self.node.open.remove(channel)
        if not self.node.open:
            self._finish()

    def _finished(self, move: Rescale, gone: list[int], came: list[int]) -> None:
        for stage, held in zip(self._stages, self._held, strict=False):
            stage.replace_buckets(held, gone=gone, came=came)
        self._held = []
        self.node.reopen()
        for chained in self._seats:
            chained.forward(move)
        self._rescaler.through(move)

    def leave(self, *, failed: bool) -> None:
        """The node has ended; after a failure others wait in vain for what it has."""
        if failed:
            for channel in self.to.values():
                channel.push(BROKEN)
        super().leave(failed=failed)


class StateHandover(ControlMessage):
    """State that changes hands."""

    __slots__ = ("state",)

    def __init__(self, state: State) -> None:
        self.state = state

    def deliver(self, node: InputTask, channel: Channel) -> None:
        """To the barrier that waits for it."""
        for barrier in node.barriers:
            if isinstance(barrier, HandoverBarrier) and channel in barrier.by.values():
                barrier.take(channel, self.state)


def _out_of(held: dict[int, Any], buckets: Sequence[int]) -> dict[int, Any]:
    """What there is of some buckets, which is then no longer held here."""
    return {bucket: held.pop(bucket) for bucket in buckets if bucket in held}
