"""Channels between nodes, and in which order they are read; `routes.py` says who gets what.

WindFlow's two other composition rules (5.3) put nodes between: "dedicated" one behind each producing node
which does nothing but deal its rows, "centralised" one node that deals the rows of all of them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from math import inf

from penstock.engines.local.channels.channel import Channel
from penstock.engines.local.channels.output import Dealt, InSlices, InTurn, Outlet
from penstock.engines.local.progress import Progress
from penstock.engines.local.scheduling.dispatch import Dispatcher
from penstock.engines.local.tasks.chain import SinkStep
from penstock.engines.local.tasks.operator import ChainTask
from penstock.engines.local.tasks.source import SourceTask
from penstock.engines.local.tasks.task import InputTask, Task
from penstock.engines.local.topology.build import Building
from penstock.engines.local.topology.network import Bench, Network, seats_of
from penstock.engines.local.topology.routes import Routes
from penstock.engines.local.topology.tasks import Part
from penstock.operators.op import OUT
from penstock.plan.plan import Input, Ref

MAX_ROWS = 4_000_000
"""Rows that wait in one channel, however few batches they are in."""


class Wiring:
    """Connects the nodes of a network."""

    def __init__(
        self,
        building: Building,
        dispatcher: Dispatcher,
        progress: Progress,
        *,
        queue_size: float,
        in_rounds: bool,
        composition: str,
    ) -> None:
        self._building, self._network, self._plan = building, building.network, building.network.plan
        self._dispatcher, self._progress = dispatcher, progress
        self._queue_size, self._composition = queue_size, composition
        self._routes, self._in_rounds = Routes(building.network, in_rounds=in_rounds), in_rounds
        self._paces: dict[int, frozenset[int]] = {}
        # The groups whose nodes pass tickets on -> replicas that have their turn when the run begins.
        self._ticketed: dict[int, int] = {}

    def connect(self) -> Network:
        """Put all channels in."""
        later: list[tuple[Bench, Input, Ref]] = []
        for bench in list(self._network.benches):
            self._inside(bench)
            if bench.group.part is Part.JOINING:
                self._joining(bench)
            else:
                later += self._enter(bench)
            self._pace(bench)
        for bench, given, ref in later:
            self._edge(self._producers(ref)[0], bench, ref, given, feedback=True)
        for ref in self._plan.collects:
            self._collect(ref)
        if self._network.leaders:
            from penstock.engines.local.rescale.owner import lead

            lead(self._network, self._routes, self._dispatcher, in_rounds=self._in_rounds)
        for node in self._network.nodes:
            self._ready(node)
        return self._network

    def _inside(self, bench: Bench) -> None:
        """Rows pass from chained to chained by a direct call."""
        for node in bench.nodes:
            chain = seats_of(node)
            for chained in chain[1:]:
                ref = chained.step.feeds[0]
                before = next(each for each in chain if each.step.name == ref.step)
                before.targets[ref.port] = (*before.targets.get(ref.port, ()), chained.feed)

    def _enter(self, bench: Bench) -> list[tuple[Bench, Input, Ref]]:
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

    def _producers(self, ref: Ref) -> list[Bench]:
        """The groups whose nodes give rows on a port; results of spread windows come from behind."""
        found = [bench for bench in self._network.benches if bench.group.has(ref.step)]
        if ref.port == OUT:
            found = [bench for bench in found if not bench.group.gives_parts_of(ref.step)]
        return found

    def _joining(self, bench: Bench) -> None:
        """From the replicas of spread windows to those that put their work together."""
        step = bench.group.head
        pattern = self._network.patterns[step.name]
        assert pattern.between is not None, "spread windows are put together"
        (replicas,) = (each for each in self._network.benches if each.group.gives_parts_of(step.name))
        for node in replicas.nodes:
            assert pattern.joining_deal is not None, "by a deal"
            channels = [self._channel(node, reader, step.inputs[0]) for reader in bench.nodes]
            outlet = Dealt(pattern.between, channels, copy.deepcopy(pattern.joining_deal))
            _attach(node, step.name, pattern.between, outlet)

    def _edge(self, producer: Bench, bench: Bench, ref: Ref, given: Input, *, feedback: bool = False) -> None:
        """From one group to another, by way of nodes that only deal if the composition has them."""
        deals = len(bench.nodes) > 1 and not self._routes.is_straight(producer, bench)
        if deals and self._composition != "combined":
            width = len(producer.nodes) if self._composition == "dedicated" else 1
            dealers = self._building.dealing(ref, width)
            self._link(producer, dealers, ref, given)
            self._pace(dealers)
            producer = dealers
        self._link(producer, bench, ref, given, feedback=feedback)

    def _link(self, producer: Bench, bench: Bench, ref: Ref, given: Input, *, feedback: bool = False) -> None:
        """Channels from the nodes of one group to those of another."""
        straight = self._routes.is_straight(producer, bench)
        n_active = self._ticketed.get(producer.group.number)
        for place, node in enumerate(producer.nodes):
            readers: Sequence[Task] = [bench.nodes[place]] if straight else bench.nodes
            channels = [self._channel(node, reader, given, feedback=feedback) for reader in readers]
            outlet = self._routes.outlet(ref, producer, bench, channels)
            _attach(node, ref.step, ref.port, outlet)
            if isinstance(outlet, InTurn | InSlices) and bench.group.head.degree.elastic:
                self._network.dealers.setdefault(bench.group.head.name, []).append(outlet)
        if n_active is not None and not straight and not given.control:
            for reader in bench.nodes:
                assert isinstance(reader, InputTask), "tickets come through channels"
                reader.keep_order(reader.channels[-len(producer.nodes) :], n_active)
        if self._routes.is_numbered(producer, bench):
            self._pass_tickets(bench, bench.group.head.degree.least)
        elif straight and n_active is not None and len(bench.group.head.data_feeds) == 1:
            self._pass_tickets(bench, n_active)  # of as many as have their turn before it

    def _pass_tickets(self, bench: Bench, n_active: int) -> None:
        self._ticketed[bench.group.number] = n_active
        for reader in bench.nodes:
            assert isinstance(reader, ChainTask), "tickets go to stages"
            reader.tickets = True

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
        channel.paces = self._paces.get(writer.number, frozenset())
        writer.outs.append(channel)
        reader.channels.append(channel)
        return channel

    def _pace(self, bench: Bench) -> None:
        """Which sources' rounds come through the nodes of a group."""
        for node in bench.nodes:
            if isinstance(node, SourceTask):
                self._paces[node.number] = frozenset({node.pace})
                self._progress.source(node.pace, node.source.step.name)
            else:
                assert isinstance(node, InputTask), "what is no source reads channels"
                found = [channel.paces for channel in node.channels if not channel.control]
                self._paces[node.number] = frozenset().union(*found)

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
        self._pace(bench)

    def _ready(self, node: Task) -> None:
        """Everything about a node is known."""
        node.now = self._dispatcher.now
        chain = seats_of(node)
        node.statistics.outputs = tuple(outlet.statistics for chained in chain for outlet in chained.outlets)
        for chained in chain:
            chained.connected()
        node.connected()
        if all(channel.feedback for channel in node.outs):
            sinks = [chained.step.name for chained in chain if isinstance(chained, SinkStep)]
            for pace in self._paces[node.number]:
                self._progress.reaches(pace, node, sinks)


def _attach(node: Task, step: str, port: str, outlet: Outlet) -> None:
    """Let rows on a port of a chained leave through an outlet."""
    chained = next(chained for chained in seats_of(node) if chained.step.name == step)
    chained.outlets.append(outlet)
    chained.targets[port] = (*chained.targets.get(port, ()), outlet.send)
