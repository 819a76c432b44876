"""Which nodes a move concerns: replicas that are dealt to by owner, those that follow them, and readers.

A group that takes rows replica by replica from moved ones follows them: its keys move with theirs, and so
does its state. Whoever reads all replicas waits at a barrier unless rows go in rounds, which keep order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.engines.local.channels.channel import Channel
from penstock.engines.local.rescale.barrier import Barrier, HandoverBarrier
from penstock.engines.local.rescale.rescale import KeyGroupAssignment
from penstock.engines.local.scheduling.dispatch import Dispatcher
from penstock.engines.local.tasks.task import InputTask, Task
from penstock.engines.local.topology.network import ExecutionGraph, Replicas, chain_of
from penstock.engines.local.topology.routes import Routes


def install_barriers(
    graph: ExecutionGraph, routes: Routes, dispatcher: Dispatcher, *, in_rounds: bool
) -> None:
    """Put barriers wherever the word of a move is waited for; all channels are there."""
    benches = {bench.group.number: bench for bench in graph.replicas}
    for number, assignment in list(graph.assignments.items()):
        _Leading(graph, routes, dispatcher, assignment, in_rounds=in_rounds).follow(benches[number])
        _keep_if_it_could_wait(graph, assignment, benches[number])


class _Leading:
    """The barriers of one assignment."""

    def __init__(
        self,
        graph: ExecutionGraph,
        routes: Routes,
        dispatcher: Dispatcher,
        assignment: KeyGroupAssignment,
        *,
        in_rounds: bool,
    ) -> None:
        self._graph, self._routes, self._dispatcher = graph, routes, dispatcher
        self._assignment, self._in_rounds = assignment, in_rounds

    def follow(self, first: Replicas) -> None:
        """From the replicas that are dealt to, as far as moves go."""
        self._hand_over(first, [_reading(node).channels for node in first.nodes])
        waiting = [first]
        while waiting:
            producer = waiting.pop()
            for bench in _readers(self._graph, producer):
                given = [_from(producer, node) for node in bench.nodes]
                if self._routes.is_straight(producer, bench):
                    self._graph.assignments[bench.group.number] = self._assignment
                    self._hand_over(bench, given)
                    waiting.append(bench)
                elif not self._in_rounds:
                    for node, channels in zip(bench.nodes, given, strict=True):
                        self._add(Barrier(_reading(node), self._assignment, self._graph.rescaler, channels))

    def _hand_over(self, bench: Replicas, channels: Sequence[Sequence[Channel]]) -> None:
        """Gates of replicas, each with a channel to every other."""
        barriers = [
            HandoverBarrier(
                _reading(node), self._assignment, self._graph.rescaler, given, chain=chain_of(node)
            )
            for node, given in zip(bench.nodes, channels, strict=True)
        ]
        for giver in barriers:
            self._add(giver)
            for taker in barriers:
                if taker is not giver:
                    channel = self._channel(giver.node, taker.node)
                    giver.to[taker.node.replica] = taker.by[giver.node.replica] = channel

    def _add(self, barrier: Barrier) -> None:
        barrier.node.barriers.append(barrier)
        self._assignment.n_barriers += 1

    def _channel(self, writer: InputTask, reader: InputTask) -> Channel:
        """Beside the channels of rows: nobody waits for room in it, and no round comes through."""
        boundless = float("inf")
        channel = Channel(self._dispatcher, capacity=boundless, max_rows=boundless, port="", control=True)
        channel.writer, channel.reader = writer, reader
        return channel


def _keep_if_it_could_wait(graph: ExecutionGraph, assignment: KeyGroupAssignment, bench: Replicas) -> None:
    """Where several sources go at groups of their own, a silent one would hold up a move and all rows."""
    round_groups = frozenset[int]().union(
        *(c.round_groups for node in bench.nodes for c in _reading(node).channels)
    )
    if len(round_groups) > 1 and not all(reader.bounded for reader in graph.readers.values()):
        assignment.most = assignment.n


def _readers(graph: ExecutionGraph, producer: Replicas) -> Iterable[Replicas]:
    """The groups that read a group's channels, each once."""
    numbers = {channel.reader.number for node in producer.nodes for channel in node.outs}
    return [bench for bench in graph.replicas if any(node.number in numbers for node in bench.nodes)]


def _from(producer: Replicas, node: Task) -> list[Channel]:
    numbers = {each.number for each in producer.nodes}
    return [channel for channel in _reading(node).channels if channel.writer.number in numbers]


def _reading(node: Task) -> InputTask:
    assert isinstance(node, InputTask), "who reads moved replicas reads channels"
    return node
