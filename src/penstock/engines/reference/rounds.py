"""The interpreter: builds a node for each step, then runs round after round through all of them.

Round n carries the n-th batch of every source through all steps, in the order of the plan. Rows of a step are
late by the watermark that its input had after the round before; windows close by the one it has after this
round. Rows that flow back into a control port from a later step are delivered in the next round.

Invariant: watermarks never go back. Imports no stage and no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import singledispatch

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch
from penstock.engines.reference import steps
from penstock.engines.reference.joins import ProcessNode, join_streams, join_table
from penstock.engines.reference.node import (
    OVER,
    ErrorContext,
    FailedRows,
    Frontier,
    Node,
    Outputs,
    RoundInput,
    Site,
    merge_frontiers,
)
from penstock.engines.reference.source import SinkNode, SourceNode
from penstock.engines.reference.steps import AccumulateNode, RowNode, StateNode, error_context
from penstock.engines.reference.windows import WindowNode
from penstock.engines.rows import TimedRow, rows_to_batch
from penstock.errors import NotSupported, PenstockError, RowFailure
from penstock.events import BatchDone, EventSink, RowsErrored, RowsLate, StepFailed, WatermarkMoved
from penstock.operators.ends import Sink, Source
from penstock.operators.function import BatchFunction, Expressions
from penstock.operators.op import ERRORS, LATE, LATE_RIGHT, Op, Routing
from penstock.operators.process import Process
from penstock.operators.rows import Accumulate, Filter, FlatMap, Map, Relay, Split, WithColumns
from penstock.operators.stream_join import StreamJoin
from penstock.operators.table_join import TableJoin
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Ref, Step
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

_BROADCAST = (Map, WithColumns, Filter, FlatMap, Split, Relay, TableJoin)
"""Operators whose replicas each process every row of a broadcast; the others have a routing of their own."""


def build_node(site: Site) -> Node:
    """Return the node of a step; the degree matters only where a broadcast copies rows per replica."""
    op = site.step.op
    if site.step.routing == Routing.BROADCAST and isinstance(op, _BROADCAST) and not op.stateful:
        replicas = site.step.degree.least
        if replicas > 1:
            return steps.Replicas(site, [lower(op, site) for _ in range(replicas)])
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
    names = [step.name for step in site.plan.sources]
    return SourceNode(site, op, names.index(site.step.name) if len(names) > 1 else None)


_RULES: dict[type[Op], tuple[Callable[..., steps.RowProcess], type[steps.BatchNode]]] = {
    Map: (steps.map_rows, steps.BatchMapNode),
    Filter: (steps.filter_rows, steps.BatchFilterNode),
    FlatMap: (steps.flat_map_rows, steps.BatchFlatMapNode),
}
"""What a step does by rows, and by batches."""


@lower.register
def _function(op: Map | Filter | FlatMap, site: Site) -> Node:
    by_rows, by_batches = _RULES[type(op)]
    if isinstance(op.how, BatchFunction):
        return by_batches(site, op.how)
    context, process = error_context(op.how), by_rows(site, op.how)
    if op.state is not None:
        return StateNode(site, context, process, op.state)
    return RowNode(site, context, process)


@lower.register
def _split(op: Split, site: Site) -> Node:
    predicates = ErrorContext("a split predicate", catches=RowFailure)
    context = predicates if op.how is None else error_context(op.how)
    return RowNode(site, context, steps.split_rows(site, op))


@lower.register
def _columns(op: WithColumns, site: Site) -> Node:
    return RowNode(site, error_context(op.how), steps.map_rows(site, op.how))


_STEP = ErrorContext("the step")
lower.register(Relay, lambda _, site: RowNode(site, _STEP, steps.map_rows(site, Expressions(()))))
lower.register(TableJoin, lambda op, site: RowNode(site, _STEP, join_table(site, op)))
lower.register(Accumulate, lambda op, site: AccumulateNode(site, op))
lower.register(Windows, lambda op, site: WindowNode(site, op))
lower.register(StreamJoin, join_streams)
lower.register(Process, lambda op, site: ProcessNode(site, op))
lower.register(Sink, lambda op, site: SinkNode(site, op))

_SIDE = (LATE, LATE_RIGHT, ERRORS)


class Interpreter:
    """Runs a plan round by round; the run or the harness decides when, and with which batches."""

    def __init__(self, plan: Plan, *, clock: Clock, events: EventSink) -> None:
        self.plan, self.clock, self.events = plan, clock, events
        self.accounts = {step.name: Accounts() for step in plan}
        self.batches = 0
        self.collected: dict[Ref, list[TimedRow]] = {ref: [] for ref in plan.collects}
        self._nodes: dict[str, Node] = {}
        self._failed_rows: dict[str, FailedRows] = {}
        self._inputs: dict[str, Frontier] = {step.name: Frontier() for step in plan}
        self._outputs: dict[str, Frontier] = {step.name: Frontier() for step in plan}
        self._last_round: dict[Ref, list[TimedRow]] = {}

    def open(self) -> None:
        """Build all nodes, then open all sinks; if one fails, close what was opened."""
        try:
            for step in self.plan:
                with self.report_errors(step):
                    accounts = self.accounts[step.name]
                    failed_rows = self._failed_rows[step.name] = FailedRows(step, accounts)
                    self._nodes[step.name] = build_node(
                        Site(step, self.plan, self.clock, accounts, failed_rows)
                    )
            for step in self.plan.sinks:
                with self.report_errors(step):
                    self._sink(step).open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all nodes, whatever happens to one of them; the first error is raised at the end."""
        first: Exception | None = None
        for name, node in self._nodes.items():
            try:
                with self.report_errors(self.plan[name]):
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

    def source_frontiers(self) -> Mapping[str, Frontier]:
        """Return how far every source with a time has come, after the last round."""
        timed = [step.name for step in self.plan.sources if step.as_source.resolve() is not None]
        return {name: self._outputs[name] for name in timed}

    def round(
        self,
        batches: Mapping[str, SourceBatch],
        *,
        ended: Collection[str] = (),
        pending: Mapping[str, int | None] | None = None,
    ) -> None:
        """Process one batch per source; `ended` sources have no more and hold nothing back.

        pending  source -> when the first row was read that it has not handed on yet, None if there is no such
                 row; sources of which that is not known are left out. None: no source has such rows
        """
        started_at = self.clock.now()
        before = {step.name: self.accounts[step.name].rows_in for step in self.plan.sources}
        by_port: dict[Ref, list[TimedRow]] = {}
        for step in self.plan:
            with self.report_errors(step):
                late = self.accounts[step.name].late
                outputs = self._run_step(step, batches, ended, by_port, pending)
                failed = self._failed_rows[step.name]
                n_failed, example, outputs[ERRORS] = failed.take()
                for port in step.outputs:
                    ref, rows = Ref(step.name, port), outputs.get(port, [])
                    by_port[ref] = rows
                    if ref in self.collected:
                        self.collected[ref] += rows
                    if port not in _SIDE:
                        self.accounts[step.name].rows_out += len(rows)
                n_late = self.accounts[step.name].late - late
                if n_late:
                    self.events(RowsLate(self.clock.now(), step.name, n_late))
                if n_failed:
                    self.events(RowsErrored(self.clock.now(), step.name, n_failed, failed.policy, example))
        self._last_round = by_port
        read = {name: self.accounts[name].rows_in - rows for name, rows in before.items()}
        written = {step.name: self._sink(step).written for step in self.plan.sinks}
        now = self.clock.now()
        reached = {step.name: self._outputs[step.name].watermark for step in self.plan.sources}
        lag = {name: now - int(at) for name, at in reached.items() if BEFORE_ALL < at < AFTER_ALL}
        self.events(BatchDone(now, self.batches, read, written, now - started_at, lag_us=lag))
        self.batches += 1

    def drain(self) -> None:
        """End all sources: a round without rows, at the watermark +infinity, that closes everything."""
        self.round({}, ended=[step.name for step in self.plan.sources])
        self.batches -= 1  # it brought no batches, so it is not counted as a round of them

    def table(self, ref: Ref, first: int = 0) -> pa.Table:
        """Return the collected rows of a port, from the given one on."""
        rows = self.collected[ref][first:]
        return pa.Table.from_batches([rows_to_batch(rows, self.plan[ref.step].outputs[ref.port].schema)])

    def _run_step(
        self,
        step: Step,
        batches: Mapping[str, SourceBatch],
        ended: Collection[str],
        by_port: Mapping[Ref, list[TimedRow]],
        pending: Mapping[str, int | None] | None,
    ) -> Outputs:
        node = self._nodes[step.name]
        if isinstance(node, SourceNode):
            outputs = node.read(batches.get(step.name))
            if pending is None or step.name in pending:
                node.follow_clock(None if pending is None else pending[step.name])
            if step.name in ended:
                node.end()
            frontier, moved = node.frontier, node.frontier.watermark > self._outputs[step.name].watermark
            self._outputs[step.name] = frontier
            if moved:
                at = None if frontier.watermark == AFTER_ALL else int(frontier.watermark)
                self.events(WatermarkMoved(self.clock.now(), step.name, at))
            return outputs
        inputs = self._round_input(step, by_port)
        n_rows = sum(len(rows) for rows in inputs.rows.values())
        self.accounts[step.name].rows_in += n_rows * node.replicas
        outputs = node.round(inputs)
        self._outputs[step.name] = node.forward(self._inputs[step.name])
        return outputs

    def _round_input(self, step: Step, by_port: Mapping[Ref, list[TimedRow]]) -> RoundInput:
        """Return the input of a step: the rows of merged feeds one after the other, and both watermarks."""
        before = self._inputs[step.name]
        after = merge_frontiers((self._frontier(ref) for ref in step.data_feeds), before)
        self._inputs[step.name] = after
        # A later step in the plan feeds what it gave in the last round; nobody waits for it any more once
        # the operator has ended.
        done = {ref.step for ref in by_port}
        last_round = {} if self._nodes[step.name].is_over else self._last_round
        rows: dict[str, list[TimedRow]] = {port.port: [] for port in step.inputs}
        for port in step.inputs:
            for ref in port.feeds:
                rows[port.port] += (by_port if ref.step in done else last_round).get(ref, [])
        over = frozenset(
            port.port
            for port in step.inputs
            if not port.control and all(self._frontier(ref).over for ref in port.feeds)
        )
        return RoundInput(rows, before.watermark, after.watermark, over)

    def _frontier(self, ref: Ref) -> Frontier:
        """Return the frontier of a port. Late rows can have any age: their port promises only its end."""
        frontier = self._outputs[ref.step]
        if ref.port in (LATE, LATE_RIGHT):
            return OVER if frontier.over else Frontier()
        return frontier

    def _sink(self, step: Step) -> SinkNode:
        node = self._nodes[step.name]
        assert isinstance(node, SinkNode), f"{step.name} is a sink"
        return node

    @contextmanager
    def report_errors(self, step: Step) -> Iterator[None]:
        """Add the step to every error raised inside, and emit the event."""
        try:
            yield
        except Exception as failure:
            if isinstance(failure, PenstockError):
                failure.at(step.name, step.where)
            self.events(StepFailed(self.clock.now(), step.name, str(failure)))
            raise
