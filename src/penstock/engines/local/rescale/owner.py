"""Which nodes a move concerns: replicas that are dealt to by owner, those that follow them, and readers.

A group that takes rows replica by replica from moved ones follows them: its keys move with theirs, and so
does its state. Whoever reads all replicas waits at a gate, unless rows go in rounds, which keep order anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.engines.local.channels.channel import Channel
from penstock.engines.local.rescale.barrier import Gate, Handing
from penstock.engines.local.rescale.rescale import Leader
from penstock.engines.local.scheduling.dispatch import Dispatcher
from penstock.engines.local.tasks.task import InputTask, Task
from penstock.engines.local.topology.network import Bench, Network, seats_of
from penstock.engines.local.topology.routes import Routes


def lead(network: Network, routes: Routes, dispatcher: Dispatcher, *, in_rounds: bool) -> None:
    """Put gates wherever the word of a move is waited for; all channels are there."""
    benches = {bench.group.number: bench for bench in network.benches}
    for number, leader in list(network.leaders.items()):
        _Leading(network, routes, dispatcher, leader, in_rounds=in_rounds).follow(benches[number])
        _keep_if_it_could_wait(network, leader, benches[number])


class _Leading:
    """The gates of one leader."""

    def __init__(
        self, network: Network, routes: Routes, dispatcher: Dispatcher, leader: Leader, *, in_rounds: bool
    ) -> None:
        self._network, self._routes, self._dispatcher = network, routes, dispatcher
        self._leader, self._in_rounds = leader, in_rounds

    def follow(self, first: Bench) -> None:
        """From the replicas that are dealt to, as far as moves go."""
        self._hand_over(first, [_reading(node).channels for node in first.nodes])
        waiting = [first]
        while waiting:
            producer = waiting.pop()
            for bench in _readers(self._network, producer):
                given = [_from(producer, node) for node in bench.nodes]
                if self._routes.is_straight(producer, bench):
                    self._network.leaders[bench.group.number] = self._leader
                    self._hand_over(bench, given)
                    waiting.append(bench)
                elif not self._in_rounds:
                    for node, channels in zip(bench.nodes, given, strict=True):
                        self._add(Gate(_reading(node), self._leader, self._network.moves, channels))

    def _hand_over(self, bench: Bench, channels: Sequence[Sequence[Channel]]) -> None:
        """Gates of replicas, each with a channel to every other."""
        gates = [
            Handing(_reading(node), self._leader, self._network.moves, given, chain=seats_of(node))
            for node, given in zip(bench.nodes, channels, strict=True)
        ]
        for giver in gates:
            self._add(giver)
            for taker in gates:
                if taker is not giver:
                    channel = self._channel(giver.node, taker.node)
                    giver.to[taker.node.replica] = taker.by[giver.node.replica] = channel

    def _add(self, gate: Gate) -> None:
        gate.node.gates.append(gate)
        self._leader.n_places += 1

    def _channel(self, writer: InputTask, reader: InputTask) -> Channel:
        """Beside the channels of rows: nobody waits for room in it, and no round comes through."""
        boundless = float("inf")
        channel = Channel(self._dispatcher, capacity=boundless, max_rows=boundless, port="", control=True)
        channel.writer, channel.reader = writer, reader
        return channel


def _keep_if_it_could_wait(network: Network, leader: Leader, bench: Bench) -> None:
    """Where several sources go at paces of their own, a silent one would hold up a move and all rows."""
    paces = frozenset[int]().union(*(c.paces for node in bench.nodes for c in _reading(node).channels))
    if len(paces) > 1 and not all(reader.bounded for reader in network.readers.values()):
        leader.most = leader.n


def _readers(network: Network, producer: Bench) -> Iterable[Bench]:
    """The groups that read a group's channels, each once."""
    numbers = {channel.reader.number for node in producer.nodes for channel in node.outs}
    return [bench for bench in network.benches if any(node.number in numbers for node in bench.nodes)]


def _from(producer: Bench, node: Task) -> list[Channel]:
    numbers = {each.number for each in producer.nodes}
    return [channel for channel in _reading(node).channels if channel.writer.number in numbers]


def _reading(node: Task) -> InputTask:
    assert isinstance(node, InputTask), "who reads moved replicas reads channels"
    return node
