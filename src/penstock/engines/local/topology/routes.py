"""How rows reach the replicas of a step, as outputs.

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
from penstock.engines.local.channels.output import (
    BroadcastOutput,
    EvenSplitOutput,
    ForwardOutput,
    Output,
    PartitionedOutput,
    RoundRobinOutput,
)
from penstock.engines.local.topology.network import ExecutionGraph, Replicas
from penstock.engines.local.topology.tasks import Role, TaskGroup, can_rescale, is_broadcast, is_keyed
from penstock.operators.op import Routing
from penstock.plan.plan import Ref

if TYPE_CHECKING:
    from penstock.engines.local.rescale.rescale import KeyGroupAssignment
    from penstock.stages.patterns.partitioners import Partitioner


class Routes:
    """What the plan says about the way of rows, edge by edge."""

    def __init__(self, graph: ExecutionGraph, *, in_rounds: bool) -> None:
        self._graph, self._in_rounds = graph, in_rounds

    def is_straight(self, producer: Replicas, bench: Replicas) -> bool:
        """Whether each replica sends to the one at its own place, and to no other."""
        if len(producer.nodes) != len(bench.nodes) or len(bench.nodes) == 1:
            return False
        return bench.group.role is Role.PARTITION or bench.group.head.routing is Routing.FORWARD

    def output(self, ref: Ref, producer: Replicas, bench: Replicas, channels: Sequence[Channel]) -> Output:
        """The output of one producing node to these channels."""
        size = None if self._in_rounds else self._graph.plan[ref.step].op.batch_size
        if len(channels) == 1:
            return ForwardOutput(ref.port, channels, size)
        if is_broadcast(bench.group.head):
            return BroadcastOutput(ref.port, channels, size)
        deal = self._deal(ref, bench.group)
        if can_rescale(bench.group):
            from penstock.engines.local.rescale.rescale import KeyGroupOutput
            from penstock.stages.patterns.partitioners import KeyPartitioner

            assert isinstance(deal, KeyPartitioner), "what moves is dealt by key"
            assignment = self._assignment(bench.group)
            return KeyGroupOutput(
                ref.port, channels, deal, size, assignment=assignment, rescaler=self._graph.rescaler
            )
        if deal is not None:
            return PartitionedOutput(ref.port, channels, deal, size)
        if self._in_rounds:
            schema = self._graph.plan[ref.step].outputs[ref.port].schema
            return EvenSplitOutput(ref.port, channels, schema, n_active=bench.group.head.degree.least)
        head, numbered = bench.group.head, self.is_numbered(producer, bench)
        return RoundRobinOutput(ref.port, channels, size, numbered=numbered, n_active=head.degree.least)

    def is_numbered(self, producer: Replicas, bench: Replicas) -> bool:
        """Whether one node deals batches in turn, so that their order can be restored behind."""
        head, part = bench.group.head, bench.group.role
        one_deals = len(producer.nodes) == 1 and len(bench.nodes) > 1 and not self._in_rounds
        alone = part is Role.WHOLE and len(head.data_feeds) == 1
        return one_deals and alone and not is_broadcast(head) and not is_keyed(head)

    def _assignment(self, group: TaskGroup) -> KeyGroupAssignment:
        from penstock.engines.local.rescale.rescale import KeyGroupAssignment

        head = group.head
        found = KeyGroupAssignment(head.name, self._graph.rescaler, head.degree.least, group.width)
        return self._graph.assignments.setdefault(group.number, found)

    def _deal(self, ref: Ref, group: TaskGroup) -> Partitioner | None:
        if group.role is Role.PARALLEL:
            return copy.deepcopy(self._graph.patterns[group.head.name].partitioner)
        if is_keyed(group.head):
            from penstock.stages.patterns.partitioners import KeyPartitioner

            schema = self._graph.plan[ref.step].outputs[ref.port].schema
            return KeyPartitioner(schema, group.head.up.key, group.width)
        return None
