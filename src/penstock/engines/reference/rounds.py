"""From a step to the node that does its work: one rule per operator, an honest refusal for the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import singledispatch

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch
from penstock.engines.reference.functions import FailedRows
from penstock.engines.reference.joins import StreamJoinNode
from penstock.engines.reference.node import OVER, Frontier, Node, Outputs, RoundInput, Site, merge_frontiers
from penstock.engines.reference.source import SinkNode, SourceNode
from penstock.engines.reference.state import (
    AccumulateNode,
    ProcessNode,
    StateFilterNode,
    StateFlatMapNode,
    StateMapNode,
)
from penstock.engines.reference.stateless import (
    BatchFilterNode,
    BatchFlatMapNode,
    BatchMapNode,
    FilterNode,
    FlatMapNode,
    MapNode,
    RelayNode,
    Replicas,
    SelectNode,
    SplitNode,
    TableJoinNode,
)
from penstock.engines.reference.windows import WindowNode
from penstock.engines.rows import TimedRow, rows_to_batch
from penstock.errors import NotSupported, PenstockError
from penstock.events import BatchDone, EventSink, RowsErrored, RowsLate, StepFailed, WatermarkMoved
from penstock.expr import Expr
from penstock.operators.accumulate import Accumulate
from penstock.operators.columns import Select, WithColumns
from penstock.operators.function import BatchFunction, RowFunction
from penstock.operators.map import Filter, FlatMap, Map
from penstock.operators.op import ERRORS, LATE, LATE_RIGHT, Op, Routing
from penstock.operators.process import Process
from penstock.operators.sink import Sink
from penstock.operators.source import Source
from penstock.operators.split import Relay, Split
from penstock.operators.stream_join import StreamJoin
from penstock.operators.table_join import TableJoin
from penstock.operators.windows import Windows
from penstock.plan.plan import Input, Plan, Ref, Step
from penstock.timing.watermark import AFTER_ALL

_COPIED = (Map, WithColumns, Filter, FlatMap, Split, Relay, TableJoin)
"""Operators whose every replica works on every row of a broadcast; the others have a routing of their own."""


def node_for(site: Site) -> Node:
    """The node of a step. The degree changes nothing, except that a broadcast copies rows per replica."""
    op = site.step.op
    if site.step.routing == Routing.BROADCAST and isinstance(op, _COPIED) and not op.stateful:
        replicas = site.step.degree.least
        if replicas > 1:
            return Replicas(site, [lower(op, site) for _ in range(replicas)])
    return lower(op, site)


@singledispatch
def lower(op: Op, site: Site) -> Node:
    """Return the node of one replica."""
    raise NotSupported(
        f"the reference engine has no rule for {type(op).__name__}",
        step=site.step.name,
        where=site.step.where,
        hint="add it in engines/reference/rounds.py",
    )


@lower.register
def _source(op: Source, site: Site) -> Node:
    rank = [step.name for step in site.plan.sources].index(site.step.name)
    return SourceNode(site, op, rank)


@lower.register
def _map(op: Map, site: Site) -> Node:
    if isinstance(op.how, BatchFunction):
        return BatchMapNode(site, op.how)
    if op.state is not None and isinstance(op.how, RowFunction):
        return StateMapNode(site, op.how, op.state)
    return MapNode(site, op.how)


@lower.register
def _filter(op: Filter, site: Site) -> Node:
    if isinstance(op.how, Expr):
        return FilterNode(site, op.how)
    if isinstance(op.how, BatchFunction):
        return BatchFilterNode(site, op.how)
    return StateFilterNode(site, op.how, op.state) if op.state is not None else FilterNode(site, op.how)


@lower.register
def _flat_map(op: FlatMap, site: Site) -> Node:
    if isinstance(op.how, BatchFunction):
        return BatchFlatMapNode(site, op.how)
    if op.state is not None and isinstance(op.how, RowFunction):
        return StateFlatMapNode(site, op.how, op.state)
    return FlatMapNode(site, op.how)


@lower.register
def _relay(op: Relay, site: Site) -> Node:
    return RelayNode(site)


lower.register(WithColumns, lambda op, site: MapNode(site, op.how))
lower.register(Select, lambda op, site: SelectNode(site, op))
lower.register(Split, lambda op, site: SplitNode(site, op))
lower.register(TableJoin, lambda op, site: TableJoinNode(site, op))
lower.register(Accumulate, lambda op, site: AccumulateNode(site, op))
lower.register(Windows, lambda op, site: WindowNode(site, op))
lower.register(StreamJoin, lambda op, site: StreamJoinNode(site, op))
lower.register(Process, lambda op, site: ProcessNode(site, op))
lower.register(Sink, lambda op, site: SinkNode(site, op))

# Rounds: the n-th batch of every source, through all steps, in the order of the plan.
#
# The watermark that judges a step's rows is the one its input had after the round before; the one that
# says what leaves is the one its input has after this round. Watermarks go forward only. Rows that flow
# back into a control port from a later step are delivered in the next round.

_SIDE = (LATE, LATE_RIGHT, ERRORS)


class Interpreter:
    """A plan at work; who calls `round`, and with which batches, is the run's or the session's affair."""

    def __init__(self, plan: Plan, *, clock: Clock, events: EventSink) -> None:
        self.plan, self.clock, self.events = plan, clock, events
        self.accounts = {step.name: Accounts() for step in plan}
        self.batches = 0
        self.collected: dict[Ref, list[TimedRow]] = {ref: [] for ref in plan.collects}
        self._nodes: dict[str, Node] = {}
        self._failed_rows: dict[str, FailedRows] = {}
        self._inputs: dict[str, Frontier] = {step.name: Frontier() for step in plan}
        self._outputs: dict[str, Frontier] = {step.name: Frontier() for step in plan}
        self._last: dict[Ref, list[TimedRow]] = {}

    def open(self) -> None:
        """Make all nodes, then open all sinks; if one fails, what was opened is closed again."""
        try:
            for step in self.plan:
                with self._in(step):
                    self._failed_rows[step.name] = FailedRows(step, self.accounts[step.name])
                    self._nodes[step.name] = node_for(self._site(step))
            for step in self.plan.sinks:
                with self._in(step):
                    self._sink(step).open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all nodes, whatever happens to one of them; the first error is raised at the end."""
        first: Exception | None = None
        for name, node in self._nodes.items():
            try:
                with self._in(self.plan[name]):
                    node.close()
            except Exception as failure:
                first = first or failure
        if first is not None:
            raise first

    def source(self, name: str) -> SourceNode:
        """Return the node of a source."""
        node = self._nodes[name]
        assert isinstance(node, SourceNode), f"{name} is a source"
        return node

    def round(self, batches: Mapping[str, SourceBatch], *, ended: Collection[str] = ()) -> None:
        """Carry one batch per source through; `ended` sources have none any more, and hold nothing back."""
        began = self.clock.now()
        before = {step.name: self.accounts[step.name].rows_in for step in self.plan.sources}
        flowed: dict[Ref, list[TimedRow]] = {}
        for step in self.plan:
            with self._in(step):
                late = self.accounts[step.name].late
                outputs = self._step(step, batches, ended, flowed)
                outputs[ERRORS] = self._failed_rows[step.name].take_dead_letters()
                self._flow(step, outputs, flowed)
                self._tell(step, self.accounts[step.name].late - late)
        self._last = flowed
        read = {name: self.accounts[name].rows_in - rows for name, rows in before.items()}
        written = {step.name: self._sink(step).written for step in self.plan.sinks}
        now = self.clock.now()
        self.events(BatchDone(now, self.batches, read, written, now - began))
        self.batches += 1

    def drain(self) -> None:
        """End all sources: a round without rows, at the watermark +infinity, that closes everything."""
        self.round({}, ended=[step.name for step in self.plan.sources])
        self.batches -= 1  # it brought no batches, so it is not counted as a round of them

    def table(self, ref: Ref, first: int = 0) -> pa.Table:
        """Return the collected rows of a port, from the given one on."""
        rows = self.collected[ref][first:]
        return pa.Table.from_batches([rows_to_batch(rows, self.plan[ref.step].outputs[ref.port].schema)])

    def _step(
        self,
        step: Step,
        batches: Mapping[str, SourceBatch],
        ended: Collection[str],
        flowed: Mapping[Ref, list[TimedRow]],
    ) -> Outputs:
        node = self._nodes[step.name]
        if isinstance(node, SourceNode):
            outputs = node.read(batches.get(step.name))
            if step.name in ended:
                node.end()
            self._move_source(step, node.frontier)
            return outputs
        given_round = self._round_input(step, flowed)
        n_rows = sum(len(rows) for rows in given_round.rows.values())
        self.accounts[step.name].rows_in += n_rows * node.replicas
        outputs = node.round(given_round)
        self._outputs[step.name] = node.forward(self._inputs[step.name])
        return outputs

    def _round_input(self, step: Step, flowed: Mapping[Ref, list[TimedRow]]) -> RoundInput:
        """Return what comes in: rows that flow together one feed after the other, and the two watermarks."""
        before = self._inputs[step.name]
        after = merge_frontiers((self._frontier(ref) for ref in step.data_feeds), before)
        self._inputs[step.name] = after
        rows = {given.port: self._rows(given, flowed) for given in step.inputs}
        over = frozenset(
            given.port
            for given in step.inputs
            if not given.control and all(self._frontier(ref).over for ref in given.feeds)
        )
        return RoundInput(rows, before.watermark, after.watermark, over)

    def _rows(self, given: Input, flowed: Mapping[Ref, list[TimedRow]]) -> list[TimedRow]:
        """The rows on one input port; a feed that comes later in the plan gives those of the last round."""
        done = {ref.step for ref in flowed}
        return [
            row for ref in given.feeds for row in (flowed if ref.step in done else self._last).get(ref, [])
        ]

    def _frontier(self, ref: Ref) -> Frontier:
        """How far a port has come. Late rows can be of any age: nothing is promised there but the end."""
        frontier = self._outputs[ref.step]
        if ref.port in (LATE, LATE_RIGHT):
            return OVER if frontier.over else Frontier()
        return frontier

    def _flow(self, step: Step, outputs: Outputs, flowed: dict[Ref, list[TimedRow]]) -> None:
        """Put what left on the ports; keep what is collected; count what left on main ports."""
        for port in step.outputs:
            ref, rows = Ref(step.name, port), outputs.get(port, [])
            flowed[ref] = rows
            if ref in self.collected:
                self.collected[ref] += rows
            if port not in _SIDE:
                self.accounts[step.name].rows_out += len(rows)

    def _move_source(self, step: Step, frontier: Frontier) -> None:
        moved = frontier.watermark > self._outputs[step.name].watermark
        self._outputs[step.name] = frontier
        if moved:
            at = None if frontier.watermark == AFTER_ALL else int(frontier.watermark)
            self.events(WatermarkMoved(self.clock.now(), step.name, at))

    def _tell(self, step: Step, n_late: int) -> None:
        """The events of one step's round."""
        if n_late:
            self.events(RowsLate(self.clock.now(), step.name, n_late))
        n_failed, example = self._failed_rows[step.name].take()
        if n_failed:
            policy = self._failed_rows[step.name].policy
            self.events(RowsErrored(self.clock.now(), step.name, n_failed, policy, example))

    def _site(self, step: Step) -> Site:
        name = step.name
        return Site(step, self.plan, self.clock, self.accounts[name], self._failed_rows[name])

    def _sink(self, step: Step) -> SinkNode:
        node = self._nodes[step.name]
        assert isinstance(node, SinkNode), f"{step.name} is a sink"
        return node

    @contextmanager
    def _in(self, step: Step) -> Iterator[None]:
        """Name the step in whatever goes wrong in it."""
        try:
            yield
        except Exception as failure:
            if isinstance(failure, PenstockError):
                failure.at(step.name, step.where)
            self.events(StepFailed(self.clock.now(), step.name, str(failure)))
            raise
