"""How rows reach the replicas of a step, as outlets.

one node behind            everything straight to it
by key                     the replica of the key's bucket; where replicas come and go, its owner
windows, slices, parts     whatever the pattern deals
broadcast                  a copy to each
forward, equal widths      replica to replica
otherwise                  batches in turn; in rounds, equal slices of each round
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.engines.local.channels.channel import Channel
from penstock.engines.local.channels.output import Copied, Dealt, InSlices, InTurn, Outlet, Straight
from penstock.engines.local.topology.network import Bench, Network
from penstock.engines.local.topology.tasks import Group, Part, is_copied, is_keyed, moves
from penstock.operators.op import Routing
from penstock.plan.plan import Ref

if TYPE_CHECKING:
    from penstock.engines.local.rescale.rescale import Leader
    from penstock.stages.patterns import Deal


class Routes:
    """What the plan says about the way of rows, edge by edge."""

    def __init__(self, network: Network, *, in_rounds: bool) -> None:
        self._network, self._in_rounds = network, in_rounds

    def is_straight(self, producer: Bench, bench: Bench) -> bool:
        """Whether each replica sends to the one at its own place, and to no other."""
        if len(producer.nodes) != len(bench.nodes) or len(bench.nodes) == 1:
            return False
        return bench.group.part is Part.DEALING or bench.group.head.routing is Routing.FORWARD

    def outlet(self, ref: Ref, producer: Bench, bench: Bench, channels: Sequence[Channel]) -> Outlet:
        """The outlet of one producing node to these channels."""
        size = None if self._in_rounds else self._network.plan[ref.step].op.batch_size
        if len(channels) == 1:
            return Straight(ref.port, channels, size)
        if is_copied(bench.group.head):
            return Copied(ref.port, channels, size)
        deal = self._deal(ref, bench.group)
        if moves(bench.group):
            from penstock.engines.local.rescale.rescale import ByOwner
            from penstock.stages.patterns.partitioners import KeyDeal

            assert isinstance(deal, KeyDeal), "what moves is dealt by key"
            leader = self._leader(bench.group)
            return ByOwner(ref.port, channels, deal, size, leader=leader, moves=self._network.moves)
        if deal is not None:
            return Dealt(ref.port, channels, deal, size)
        if self._in_rounds:
            schema = self._network.plan[ref.step].outputs[ref.port].schema
            return InSlices(ref.port, channels, schema, n_active=bench.group.head.degree.least)
        head, numbered = bench.group.head, self.is_numbered(producer, bench)
        return InTurn(ref.port, channels, size, numbered=numbered, n_active=head.degree.least)

    def is_numbered(self, producer: Bench, bench: Bench) -> bool:
        """Whether one node deals batches in turn, so that their order can be restored behind."""
        head, part = bench.group.head, bench.group.part
        one_deals = len(producer.nodes) == 1 and len(bench.nodes) > 1 and not self._in_rounds
        alone = part is Part.WHOLE and len(head.data_feeds) == 1
        return one_deals and alone and not is_copied(head) and not is_keyed(head)

    def _leader(self, group: Group) -> Leader:
        from penstock.engines.local.rescale.rescale import Leader

        head = group.head
        found = Leader(head.name, self._network.moves, head.degree.least, group.width)
        return self._network.leaders.setdefault(group.number, found)

    def _deal(self, ref: Ref, group: Group) -> Deal | None:
        if group.part is Part.REPLICAS:
            return copy.deepcopy(self._network.patterns[group.head.name].deal)
        if is_keyed(group.head):
            from penstock.stages.patterns.partitioners import KeyDeal

            schema = self._network.plan[ref.step].outputs[ref.port].schema
            return KeyDeal(schema, group.head.up.key, group.width)
        return None
