"""Channels between nodes, and in which order they are read; `routes.py` says who gets what.

WindFlow's two other composition rules (5.3) put nodes between: "dedicated" one behind each producing node
which does nothing but deal its rows, "centralised" one node that deals the rows of all of them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from math import inf

from penstock.engines.local.channels.channel import Channel
from penstock.engines.local.channels.output import (
    EvenSplitOutput,
    Output,
    PartitionedOutput,
    RoundRobinOutput,
)
from penstock.engines.local.progress import Progress
from penstock.engines.local.scheduling.dispatch import Dispatcher
from penstock.engines.local.tasks.chain import SinkStep
from penstock.engines.local.tasks.operator import ChainTask
from penstock.engines.local.tasks.source import SourceTask
from penstock.engines.local.tasks.task import InputTask, Task
from penstock.engines.local.topology.build import TaskBuilder
from penstock.engines.local.topology.network import ExecutionGraph, Replicas, chain_of
from penstock.engines.local.topology.routes import Routes
from penstock.engines.local.topology.tasks import Role
from penstock.operators.op import OUT
from penstock.plan.plan import Input, Ref

MAX_ROWS = 4_000_000
"""Rows that wait in one channel, however few batches they are in."""


class ChannelBuilder:
    """Connects the nodes of a graph."""

    def __init__(
        self,
        building: TaskBuilder,
        dispatcher: Dispatcher,
        progress: Progress,
        *,
        queue_size: float,
        in_rounds: bool,
        composition: str,
    ) -> None:
        self._building, self._graph, self._plan = building, building.graph, building.graph.plan
        self._dispatcher, self._progress = dispatcher, progress
        self._queue_size, self._composition = queue_size, composition
        self._routes, self._in_rounds = Routes(building.graph, in_rounds=in_rounds), in_rounds
        self._round_groups: dict[int, frozenset[int]] = {}
        # The groups whose nodes pass tickets on -> replicas that have their turn when the run begins.
        self._ticketed: dict[int, int] = {}

    def connect(self) -> ExecutionGraph:
        """Put all channels in."""
        later: list[tuple[Replicas, Input, Ref]] = []
        for bench in list(self._graph.replicas):
            self._inside(bench)
            if bench.group.role is Role.MERGE:
                self._joining(bench)
            else:
                later += self._enter(bench)
            self._assign_round_groups(bench)
        for bench, given, ref in later:
            self._edge(self._producers(ref)[0], bench, ref, given, feedback=True)
        for ref in self._plan.collects:
            self._collect(ref)
        if self._graph.assignments:
            from penstock.engines.local.rescale.owner import install_barriers

            install_barriers(self._graph, self._routes, self._dispatcher, in_rounds=self._in_rounds)
        for node in self._graph.tasks:
            self._ready(node)
        return self._graph

    def _inside(self, bench: Replicas) -> None:
        """Rows pass from chained to chained by a direct call."""
        for node in bench.nodes:
            chain = chain_of(node)
            for chained in chain[1:]:
                ref = chained.step.feeds[0]
                before = next(each for each in chain if each.step.name == ref.step)
                before.targets[ref.port] = (*before.targets.get(ref.port, ()), chained.feed)

    def _enter(self, bench: Replicas) -> list[tuple[Replicas, Input, Ref]]:
        """The edges into a group; gives those that come from later groups."""
        later = []
        for given in bench.group.head.inputs:
            for ref in given.feeds:
                producers = self._producers(ref)
                if given.control and producers[0].group.number >= bench.group.number:
                    later.append((bench, given, ref))
                    continue
                for producer in producers:
                    self._edge(producer, bench, ref, given)
        return later

    def _producers(self, ref: Ref) -> list[Replicas]:
        """The groups whose nodes give rows on a port; results of spread windows come from behind."""
        found = [bench for bench in self._graph.replicas if bench.group.has(ref.step)]
        if ref.port == OUT:
            found = [bench for bench in found if not bench.group.emits_partials_of(ref.step)]
        return found

    def _joining(self, bench: Replicas) -> None:
        """From the replicas of spread windows to those that put their work together."""
        step = bench.group.head
        pattern = self._graph.patterns[step.name]
        assert pattern.between is not None, "spread windows are put together"
        (replicas,) = (each for each in self._graph.replicas if each.group.emits_partials_of(step.name))
        for node in replicas.nodes:
            assert pattern.final_partitioner is not None, "by a deal"
            channels = [self._channel(node, reader, step.inputs[0]) for reader in bench.nodes]
            output = PartitionedOutput(pattern.between, channels, copy.deepcopy(pattern.final_partitioner))
            _attach(node, step.name, pattern.between, output)

    def _edge(
        self, producer: Replicas, bench: Replicas, ref: Ref, given: Input, *, feedback: bool = False
    ) -> None:
        """From one group to another, by way of nodes that only deal if the composition has them."""
        deals = len(bench.nodes) > 1 and not self._routes.is_straight(producer, bench)
        if deals and self._composition != "combined":
            width = len(producer.nodes) if self._composition == "dedicated" else 1
            dealers = self._building.dealing(ref, width)
            self._link(producer, dealers, ref, given)
            self._assign_round_groups(dealers)
            producer = dealers
        self._link(producer, bench, ref, given, feedback=feedback)

    def _link(
        self, producer: Replicas, bench: Replicas, ref: Ref, given: Input, *, feedback: bool = False
    ) -> None:
        """Channels from the nodes of one group to those of another."""
        straight = self._routes.is_straight(producer, bench)
        n_active = self._ticketed.get(producer.group.number)
        for place, node in enumerate(producer.nodes):
            readers: Sequence[Task] = [bench.nodes[place]] if straight else bench.nodes
            channels = [self._channel(node, reader, given, feedback=feedback) for reader in readers]
            output = self._routes.output(ref, producer, bench, channels)
            _attach(node, ref.step, ref.port, output)
            if isinstance(output, RoundRobinOutput | EvenSplitOutput) and bench.group.head.degree.elastic:
                self._graph.elastic_outputs.setdefault(bench.group.head.name, []).append(output)
        if n_active is not None and not straight and not given.control:
            for reader in bench.nodes:
                assert isinstance(reader, InputTask), "tickets come through channels"
                reader.keep_order(reader.channels[-len(producer.nodes) :], n_active)
        if self._routes.is_numbered(producer, bench):
            self._pass_tickets(bench, bench.group.head.degree.least)
        elif straight and n_active is not None and len(bench.group.head.data_feeds) == 1:
            self._pass_tickets(bench, n_active)  # of as many as have their turn before it

    def _pass_tickets(self, bench: Replicas, n_active: int) -> None:
        self._ticketed[bench.group.number] = n_active
        for reader in bench.nodes:
            assert isinstance(reader, ChainTask), "tickets go to stages"
            reader.forwards_sequence = True

    def _channel(self, writer: Task, reader: Task, given: Input, *, feedback: bool = False) -> Channel:
        assert isinstance(reader, InputTask), "sources read no channels"
        # A bound on what flows back could stop the stream for ever.
        bounded = not feedback and self._queue_size < inf
        channel = Channel(
            self._dispatcher,
            capacity=self._queue_size if bounded else inf,
            max_rows=MAX_ROWS if bounded else inf,
            port=given.port,
            control=given.control,
            feedback=feedback,
        )
        channel.writer, channel.reader = writer, reader
        channel.round_groups = self._round_groups.get(writer.number, frozenset())
        writer.outs.append(channel)
        reader.channels.append(channel)
        return channel

    def _assign_round_groups(self, bench: Replicas) -> None:
        """Which sources' rounds come through the nodes of a group."""
        for node in bench.nodes:
            if isinstance(node, SourceTask):
                self._round_groups[node.number] = frozenset({node.round_group})
                self._progress.add_source(node.round_group, node.source.step.name)
            else:
                assert isinstance(node, InputTask), "what is no source reads channels"
                found = [channel.round_groups for channel in node.channels if not channel.control]
                self._round_groups[node.number] = frozenset().union(*found)

    def _collect(self, ref: Ref) -> None:
        """Rows that are wanted in hand; of several replicas they are gathered first."""
        producers = self._producers(ref)
        if sum(len(bench.nodes) for bench in producers) == 1:
            chained = producers[0].chain(ref.step)[0]
            feed = self._building.collection(ref).feed
            chained.targets[ref.port] = (*chained.targets.get(ref.port, ()), feed)
            return
        bench = self._building.collecting(ref)
        given = Input("in", (ref,), self._plan[ref.step].outputs[ref.port])
        for producer in producers:
            self._link(producer, bench, ref, given)
        self._assign_round_groups(bench)

    def _ready(self, node: Task) -> None:
        """Everything about a node is known."""
        node.now = self._dispatcher.now
        chain = chain_of(node)
        node.statistics.outputs = tuple(output.statistics for chained in chain for output in chained.outputs)
        for chained in chain:
            chained.connected()
        node.connected()
        if all(channel.feedback for channel in node.outs):
            sinks = [chained.step.name for chained in chain if isinstance(chained, SinkStep)]
            for round_group in self._round_groups[node.number]:
                self._progress.add_terminal(round_group, node, sinks)


def _attach(node: Task, step: str, port: str, output: Output) -> None:
    """Let rows on a port of a chained leave through an output."""
    chained = next(chained for chained in chain_of(node) if chained.step.name == step)
    chained.outputs.append(output)
    chained.targets[port] = (*chained.targets.get(port, ()), output.send)
