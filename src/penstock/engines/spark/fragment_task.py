"""A fragment at work on one partition, inside a Python worker of Spark: the same stages as in process.

A task runs some rounds through one fragment, or through all fragments at once. Rows of sources pass through
fragment 0 as they come, because no step there waits for anything. In the others, round by round, every step
takes its rows in, admitted by the watermark before the round, then emits what the watermark after it has
passed: batches leave before the watermark they came with. Rows for a sink of files are written to staged
files right here; the driver is told which, and makes exactly those visible.

Time windows take rows and partials alike: whoever is before the exchange decides which it sends. Rows are
admitted here by the watermark before their round; partials were admitted where they were made, by the same
one. The state is that of keyed windows, so a run may go on from a checkpoint whatever was sent before.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, field
from typing import Protocol

from penstock.accounts import Accounts
from penstock.engines.checkpoint.state_files import state_size
from penstock.engines.frontiers import WatermarkAdvance
from penstock.engines.spark.fragments import FILES, Edge, FragmentPlan, JobTask, RoundClock, RoundPlan
from penstock.engines.spark.join_exchange import JoinLayout, plan_join_exchange
from penstock.engines.spark.wire import (
    JoinWirePartitioner,
    Kind,
    WirePartitioner,
    WireRow,
    build_partitioner,
    report,
)
from penstock.engines.wire import unpack_batch
from penstock.errors import NotSupported
from penstock.frozen import dataclass
from penstock.operators.op import ERRORS, LATE, Routing
from penstock.operators.stream_join import StreamJoin
from penstock.operators.windows import Windows
from penstock.plan.check import find_spark_sql
from penstock.plan.plan import Ref, Step
from penstock.stages.build import build_join_stage, build_stage
from penstock.stages.join.stage import JoinStage
from penstock.stages.patterns.partials import FinalAggregateStage, PartialAggregateStage
from penstock.stages.patterns.pattern import PARTIALS
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.order import merge_batches
from penstock.stages.stage import Outputs, Stage, StageContext
from penstock.stages.state.keyed import KeyedStage
from penstock.stages.window.stage import Emitted, WindowStage
from penstock.timing.windows import AFTER_ALL

ROWS_PER_PARTIAL = 2
"""Partials go over the exchange while there are at least this many rows to each."""


class FragmentInput:
    """What arrived for a partition of a keyed fragment.

    rows      (round, step, port) -> batches
    copies    the same, of rows whose home is another partition
    partials  (round, step) -> packed partials; the stage knows their columns
    """

    def __init__(self, edges: Mapping[int, Edge]) -> None:
        self._edges = edges
        self.rows: dict[tuple[int, str, str], list[Batch]] = {}
        self.copies: dict[tuple[int, str, str], list[Batch]] = {}
        self.partials: dict[tuple[int, str], list[bytes]] = {}
        self.partition = 0

    @property
    def is_empty(self) -> bool:
        """Return whether nothing has arrived."""
        return not (self.rows or self.copies or self.partials)

    def add(self, row: WireRow) -> None:
        """Add a wire row."""
        self.partition = row.partition
        if row.body is None or row.kind is Kind.WAKE:
            return
        edge = self._edges[row.edge]
        assert edge.step is not None, "only steps take rows in"
        if edge.ref.port == PARTIALS:
            self.partials.setdefault((row.round, edge.step), []).append(row.body)
        else:
            at = row.round, edge.step, edge.port
            there = self.copies if row.kind is Kind.COPY else self.rows
            there.setdefault(at, []).append(unpack_batch(row.body, edge.schema))

    def take_rows(self, round_: int, step: Step) -> dict[str, list[Batch]]:
        """Take the rows of a step in a round out, by port."""
        ports = [port.port for port in step.inputs]
        return {port: rows for port in ports if (rows := self.rows.pop((round_, step.name, port), []))}

    def take_copies(self, round_: int, step: Step) -> dict[str, Batch]:
        """Take the copies of a join in a round out, by port, each as one batch."""
        return {
            port.port: merge_batches(rows, port.stream.schema)
            for port in step.inputs
            if (rows := self.copies.pop((round_, step.name, port.port), []))
        }


class AdaptiveFinalStage(FinalAggregateStage):
    """The window stage behind the exchange, which takes rows and partials."""

    def on_batch(self, batch: Batch, watermark: float) -> Emitted:
        """Take rows in, as keyed windows do."""
        return WindowStage.on_batch(self, batch, watermark)

    def on_partials(self, partials: Batch) -> None:
        """Take partials in; those admitted by a later watermark wait for it."""
        self._waiting.append(partials)
        self._merge_waiting()


class AdaptivePartials:
    """Before the exchange: turns the rows of each round into partials, as long as those are fewer."""

    def __init__(self, step: Step, site: StageContext) -> None:
        assert isinstance(step.op, Windows), "only windows have partials"
        self.step, self.accounts = step, site.accounts
        self._stage = PartialAggregateStage(step.op, step.up, site)
        self.format = self._stage.format
        self.pending: list[Batch] = []
        self.worthwhile = True

    def aggregate(self, watermark: float) -> tuple[list[tuple[str, Batch]], list[Batch]]:
        """Return the outputs of the pending rows, by port, and the rows that are better sent as they are."""
        pending, self.pending = self.pending, []
        if not pending or not self.worthwhile:
            return [], pending
        rows = merge_batches(pending, self.step.up.schema) if len(pending) > 1 else pending[0]
        self._stage.restore({})  # a round that is done again is admitted by its own watermark
        outputs = [*self._stage.on_batch(rows, watermark), *self._stage.flush()]
        assert all(port in (PARTIALS, LATE, ERRORS) for port, _ in outputs), (
            "results leave behind the exchange"
        )
        n_partials = sum(batch.num_rows for port, batch in outputs if port == PARTIALS)
        self.worthwhile = n_partials * ROWS_PER_PARTIAL <= rows.num_rows
        return outputs, []


@dataclass(slots=True)
class _ChainedStep:
    """A step in its fragment; `replicas` are the other copies of a step whose every replica gets all rows."""

    step: Step
    stage: Stage | JoinStage
    accounts: Accounts
    replicas: tuple[Stage, ...] = ()
    pending: list[Batch] = field(default_factory=list)


class SinkRows(Protocol):
    """Who takes the rows of sinks that are written by tasks."""

    def write(self, sink: str, batch: Batch, round_: int) -> None:
        """Take rows of a round."""


class FragmentTask:
    """The stages of a fragment on one partition.

    files         takes the rows of sinks; None until a job begins
    n_partitions  of the exchanges of a job
    layouts       join -> its cells in a job
    n_saved       bytes of its state, as it was last saved
    """

    files: SinkRows | None = None
    n_saved = 0

    def __init__(
        self,
        plan: FragmentPlan,
        partition: int,
        n_partitions: int = 1,
        layouts: Mapping[str, JoinLayout] | None = None,
    ) -> None:
        self._plan, self.partition, self.n_partitions = plan, partition, n_partitions
        self.layouts = layouts or {}
        self._round_accounts: dict[int, dict[str, Accounts]] = {}
        self._clock = RoundClock()
        self._reasons: dict[str, list[str]] = {}
        self._join_seconds: dict[str, float] = {}
        steps = plan.fragment.steps
        self._steps = {s.name: self._chained_step(s) for s in steps if find_spark_sql(s.op) is None}
        self._only_in_jvm = {s.name: s for s in steps if s.name not in self._steps}
        self._partitioners = {
            edge.number: build_partitioner(edge) for edges in plan.edges_out.values() for edge in edges
        }
        self._partials = {step.name: AdaptivePartials(step, self._site(step)) for step, _ in plan.sends}
        for step, edge in plan.sends:
            format_ = self._partials[step.name].format
            self._partitioners[edge.number] = WirePartitioner(format_.key, format_.schema)
        self.at = 0  # the number of the current step, for failures

    def _chained_step(self, step: Step) -> _ChainedStep:
        site, takes_partials = self._site(step), Ref(step.name, PARTIALS)
        if any(edge.ref == takes_partials for edge in self._plan.edges_in.values()):
            assert isinstance(step.op, Windows), "only windows have partials"
            return _ChainedStep(step, AdaptiveFinalStage(step.op, step.up, site), site.accounts)
        if isinstance(step.op, StreamJoin):
            left, right = (port.stream for port in step.inputs)
            place = plan_join_exchange(step.op, left, right).place(self.partition, self.layouts[step.name])
            return _ChainedStep(
                step, build_join_stage(step.op, left, right, site, place=place), site.accounts
            )
        is_copied = step.routing == Routing.BROADCAST and not step.op.stateful
        n_stages = max(1, step.degree.least) if is_copied else 1
        stage, *replicas = (build_stage(step.op, step.up, site) for _ in range(n_stages))
        return _ChainedStep(step, stage, site.accounts, tuple(replicas))

    def _site(self, step: Step) -> StageContext:
        reasons = self._reasons.setdefault(step.name, [])
        ports = self._plan.ports[step.name]
        return StageContext(step.name, step.where, Accounts(), self._clock, ports, reasons, step.history)

    def restore(self, task: JobTask) -> None:
        """Restore the buckets of this partition from the state files."""
        for name in self._steps:
            own = task.state_of(self._steps[name].step, self.partition)
            if own:
                stage, saved = self._steps[name].stage, task.files.read(own, name)
                if isinstance(stage, JoinStage):
                    # Why: others may hold what was saved last, and how far it had come all know.
                    before = task.rounds[0].advances[name].before
                    stage.restore(saved, before, anew=name in task.respread)
                    continue
                stage.restore(saved)

    def run_round(self, round_: RoundPlan, inputs: FragmentInput) -> Iterator[WireRow]:
        """Run the rows of one round through all steps; yield what leaves."""
        self._clock.us = round_.now
        for number, chained in enumerate(self._steps.values()):
            self.at = number
            step, stage = chained.step, chained.stage
            by_port = inputs.take_rows(round_.number, step)
            batches = [*itertools.chain(*by_port.values()), *chained.pending]
            chained.pending = []
            if isinstance(stage, WindowStage) and step.name in round_.fired:
                stage.fired_at = round_.fired[step.name]
            for body in inputs.partials.pop((round_.number, step.name), []):
                assert isinstance(stage, AdaptiveFinalStage), "partials go to windows that take them"
                partials = unpack_batch(body, stage.format.schema)
                if partials.num_rows:
                    stage.on_partials(partials)
            advance = round_.advances[step.name]
            if isinstance(stage, JoinStage):
                copies = inputs.take_copies(round_.number, step)
                outputs = self._run_join(step, stage, by_port, copies, advance)
            else:
                outputs = self._run_step(chained, stage, batches, advance)
            for port, batch in outputs:
                if batch.num_rows:
                    yield from self._emit(Ref(step.name, port), batch, round_.number)
        yield from self._emit_partials(round_)
        counted = self._round_accounts.setdefault(round_.number, {})
        for name, accounts in self._accounts():
            if accounts != _NOTHING:
                counted.setdefault(name, Accounts()).add(accounts.take())
        reasons = {name: texts.pop() for name, texts in self._reasons.items() if texts}
        if reasons:
            yield report(Kind.REASONS, round_.number, self.partition, reasons)

    def run_rows(self, ref: Ref, batch: Batch, round_: RoundPlan) -> Iterator[WireRow]:
        """Run rows through the fragment that were read, or computed by the JVM, as those of a port."""
        yield from self._emit(ref, batch, round_.number)
        yield from self.run_round(round_, _NO_INPUT)

    def sample(self, ref: Ref, batches: Iterable[Batch], round_: RoundPlan) -> Iterator[WireRow]:
        """Run rows through the fragment, and yield only what can be told of those that would go to joins."""
        self.files = _NoFiles()
        for batch in batches:
            for _ in self.run_rows(ref, batch, round_):
                pass
        yield from self.report_joins(round_.number)

    def report_accounts(self) -> Iterator[WireRow]:
        """Yield what was counted, round by round."""
        counted, self._round_accounts = self._round_accounts, {}
        for round_, accounts in counted.items():
            counts = {name: _nonzero(of_step) for name, of_step in accounts.items()}
            if counts:
                yield report(Kind.ACCOUNTS, round_, self.partition, counts)

    def report_joins(self, round_: int) -> Iterator[WireRow]:
        """Yield what was sent to joins from here, and what the cells here did, since the last report."""
        sent = [
            [edge.step, *partitioner.partitioner.take_sample()]
            for edges in self._plan.edges_out.values()
            for edge in edges
            if isinstance(partitioner := self._partitioners[edge.number], JoinWirePartitioner)
        ]
        cells = []
        for name, seconds in self._join_seconds.items():
            stage = self._steps[name].stage
            assert isinstance(stage, JoinStage), "only joins are timed"
            work = stage.take_work()
            cells.append([name, sum(work.n_rows), seconds, work.n_compared, work.n_searches])
        self._join_seconds = {}
        if sent or cells:
            yield report(Kind.JOIN_ROWS, round_, self.partition, {"sent": sent, "cells": cells})

    def _accounts(self) -> Iterator[tuple[str, Accounts]]:
        for name, chained in self._steps.items():
            yield name, chained.accounts
        for name, partials in self._partials.items():
            yield name, partials.accounts

    def _run_step(
        self, chained: _ChainedStep, first: Stage, batches: list[Batch], advance: WatermarkAdvance
    ) -> Outputs:
        if len(batches) > 1:
            batches = [merge_batches(batches, chained.step.up.schema)]
        for stage in (first, *chained.replicas):
            for batch in batches:
                yield from stage.on_batch(batch, advance.before)
            yield from stage.drain() if advance.over else stage.on_watermark(advance.after)

    def _run_join(
        self,
        step: Step,
        stage: JoinStage,
        by_port: Mapping[str, list[Batch]],
        copies: Mapping[str, Batch],
        advance: WatermarkAdvance,
    ) -> Outputs:
        schemas = {port.port: port.stream.schema for port in step.inputs}
        rows = {port: merge_batches(batches, schemas[port]) for port, batches in by_port.items()}
        outputs = stage.on_round(rows, advance.before, AFTER_ALL if advance.over else advance.after, copies)
        while True:  # one batch of pairs at a time, so that no more of them are in memory
            began = time.perf_counter()
            output = next(outputs, None)
            took = time.perf_counter() - began
            self._join_seconds[step.name] = self._join_seconds.get(step.name, 0.0) + took
            if output is None:
                return
            yield output

    def _emit(self, ref: Ref, batch: Batch, round_: int) -> Iterator[WireRow]:
        """Hand a batch to the steps of this fragment that read it, and pack it for those of others."""
        for name in self._plan.fragment.inside.get(ref, ()):
            self._refuse_outside_jvm(name)
            self._steps[name].pending.append(batch)
        for edge in self._plan.edges_out.get(ref, ()):
            if edge.fragment == FILES:
                assert self.files is not None, "a job begins before rows come"
                self.files.write(edge.step or "", batch, round_)
            elif edge.fragment == self._plan.fragment.number and edge.step is not None:
                self._refuse_outside_jvm(edge.step)
                self._steps[edge.step].pending.append(batch)
            elif edge.step in self._partials:
                self._partials[edge.step].pending.append(batch)
            else:
                yield from self._pack(edge, batch, round_)

    def _refuse_outside_jvm(self, name: str) -> None:
        """Raise if rows reached a step whose expressions only the JVM can compute."""
        if name in self._only_in_jvm:
            step = self._only_in_jvm[name]
            raise NotSupported(
                f"{find_spark_sql(step.op)} runs in the JVM, and a batch had to be read outside of it",
                step=name,
                where=step.where,
                detail="a row of it failed, a time was null or out of range, or a column had to be cast",
                hint="filter such rows before, or use functions of Penstock: ps.col(...)",
            )

    def _pack(self, edge: Edge, batch: Batch, round_: int) -> Iterator[WireRow]:
        partitioner = self._partitioners[edge.number]
        if isinstance(partitioner, JoinWirePartitioner):
            layout = self.layouts[edge.step or ""]
            return partitioner.pack(edge, batch, round_, layout, self.n_partitions)
        return partitioner.pack(edge, batch, round_, self.partition, self.n_partitions)

    def _emit_partials(self, round_: RoundPlan) -> Iterator[WireRow]:
        """Pack what is sent to windows behind the exchange: partials, or rows where those are not more."""
        for number, (step, edge) in enumerate(self._plan.sends, len(self._steps)):
            self.at = number
            outputs, rows = self._partials[step.name].aggregate(round_.advances[step.name].before)
            for port, batch in outputs:
                if port == PARTIALS:
                    yield from self._pack(edge, batch, round_.number)
                else:
                    yield from self._emit(Ref(step.name, port), batch, round_.number)
            if rows:
                # All edges to one step lead to the same place.
                edges = (edge for edges in self._plan.edges_out.values() for edge in edges)
                rows_edge = next(edge for edge in edges if edge.step == step.name)
                for batch in rows:
                    yield from self._pack(rows_edge, batch, round_.number)

    def save(self, task: JobTask) -> list[WireRow]:
        """Write the state that has changed; return where it is."""
        if not self._plan.fragment.keyed:
            return []
        changes: dict[str, set[int]] = {}
        pieces: dict[str, dict[int, bytes]] = {}
        for name, chained in self._steps.items():
            stage, changes[name] = chained.stage, set[int]()
            if isinstance(stage, KeyedStage | JoinStage):
                handles = task.state.get(name, {})
                if name not in task.respread:  # there, everything is written again
                    changes[name] = {bucket for bucket, of in handles.items() if of.takes_changes(bucket)}
                pieces[name] = stage.snapshot_changes(changes[name])
            else:
                pieces[name] = dict(stage.snapshot())
        last = task.rounds[-1].number
        places = task.files.write(last + 1, f"{self._plan.fragment.number}-{self.partition}", pieces)
        for name, by_bucket in places.items():
            stage = self._steps[name].stage
            idle = stage.idle_buckets(by_bucket) if isinstance(stage, KeyedStage) else set[int]()
            for bucket, handle in by_bucket.items():
                if bucket in idle or bucket in changes[name]:
                    before = task.state[name][bucket].pieces if bucket in changes[name] else ()
                    by_bucket[bucket] = handle._replace(idle=bucket in idle, before=before)
        known = {
            name: task.state_of(chained.step, self.partition) | places.get(name, {})
            for name, chained in self._steps.items()
        }
        self.n_saved, _ = state_size(known)
        written = {step: list(by_bucket.items()) for step, by_bucket in places.items() if by_bucket}
        return [report(Kind.STATE, last, self.partition, written)] if written else []


class _NoFiles:
    """Stands for the files of sinks where rows are only looked at."""

    def write(self, sink: str, batch: Batch, round_: int) -> None:
        pass


_NO_INPUT, _NOTHING = FragmentInput({}), Accounts()


def _nonzero(accounts: Accounts) -> dict[str, object]:
    return {name: count for name, count in asdict(accounts).items() if count}
