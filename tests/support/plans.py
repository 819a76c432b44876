"""Builds plans by hand, so that engine tests do not depend on the graph layer above."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock, ManualClock
from penstock.connect.protocol import BadRow, Delivery, SourceBatch
from penstock.engines.protocol import Engine, EngineHarness, Run, RunOptions, RunResult
from penstock.engines.reference.engine import ReferenceEngine
from penstock.errors import Where
from penstock.events import Event, EventSink, ignore_event
from penstock.operators.ends import Source
from penstock.operators.op import Degree, Op, Routing, Stream
from penstock.plan.plan import Input, Plan, Ref, Step

KTV = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.int64())])
Rows = Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class BatchesReader:
    """Returns the given batches, one after the other."""

    source_batches: tuple[SourceBatch, ...]
    schema: pa.Schema
    keeps_raw: bool = False
    bounded: bool = True
    delivery: Delivery = Delivery.EXACTLY_ONCE

    def batches(self) -> Iterator[SourceBatch]:
        yield from self.source_batches

    def describe(self) -> str:
        return "rows of a test"


def batch(
    rows: Rows,
    schema: pa.Schema = KTV,
    *,
    seq: Sequence[int] | None = None,
    watermark: int | None = None,
    bad: tuple[BadRow, ...] = (),
) -> SourceBatch:
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    numbers = None if seq is None else pa.array(seq, pa.int64())
    return SourceBatch(pa.RecordBatch.from_arrays(columns, schema=schema), numbers, watermark, bad)


@dataclass
class PlanRun:
    """A run's result, as plain rows."""

    result: RunResult
    events: list[Event]

    def rows(self, ref: Ref) -> list[tuple[Any, ...]]:
        return table_rows(self.result.collected[ref])

    def account(self, ref: Ref) -> Accounts:
        return self.result.accounts[ref.step]


def table_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@dataclass
class PlanBuilder:
    """Builds a plan step by step; every step's outputs are collected unless `run` names some."""

    steps: list[Step] = field(default_factory=list)
    engine: Engine = field(default_factory=ReferenceEngine)
    engine_options: object = None  # the engine's own options

    def source(
        self, *batches: Rows | SourceBatch, schema: pa.Schema = KTV, keeps_raw: bool = False, **options: Any
    ) -> Ref:
        source_batches = tuple(
            rows_in if isinstance(rows_in, SourceBatch) else batch(rows_in, schema) for rows_in in batches
        )
        if "time" not in options and "t" in schema.names:
            options = {"time": "t", "time_unit": "us", **options}
            options.setdefault("delay", "0 s" if "watermark" not in options else None)
        return self.add(Source(reader=BatchesReader(source_batches, schema, keeps_raw), **options))

    def add(
        self,
        op: Op,
        *feeds: Ref | Sequence[Ref],
        key: tuple[str, ...] | None = None,
        degree: int = 1,
        routing: Routing | None = None,
        control: Mapping[str, Sequence[Ref]] | None = None,
        control_schema: pa.Schema | None = None,
    ) -> Ref:
        inputs = [self._input(port, feed, key) for port, feed in zip(op.ports, feeds, strict=False)]
        outputs = op.outputs({feed.port: feed.stream for feed in inputs})
        inputs += [
            Input(port, tuple(refs), Stream(control_schema), control=True)
            for port, refs in (control or {}).items()
        ]
        name = op.name or f"{op.verb}-{len(self.steps)}"
        step = Step(
            name,
            op,
            tuple(inputs),
            outputs,
            Degree(degree, degree),
            routing,
            False,
            Where("program.py", 1),
        )
        self.steps.append(step)
        return Ref(name, next(iter(outputs), "out"))

    def _input(self, port: str, feeds: Ref | Sequence[Ref], key: tuple[str, ...] | None) -> Input:
        refs = (feeds,) if isinstance(feeds, Ref) else tuple(feeds)
        by_name = {step.name: step for step in self.steps}
        stream = by_name[refs[0].step].outputs[refs[0].port]
        return Input(port, refs, stream if key is None else replace(stream, key=key))

    def plan(self, *collects: Ref) -> Plan:
        every = [Ref(step.name, port) for step in self.steps for port in step.outputs]
        return Plan("plan", tuple(self.steps), collects or tuple(every))

    def run(self, *collects: Ref, clock: Clock | None = None, **options: Any) -> PlanRun:
        events: list[Event] = []
        run = self.start(*collects, clock=clock, events=events.append, **options)
        return PlanRun(run.wait(timeout=60), events)

    def start(
        self, *collects: Ref, clock: Clock | None = None, events: EventSink = ignore_event, **options: Any
    ) -> Run:
        run_options = RunOptions(engine=self.engine_options, **options)
        return self.engine.start(
            self.plan(*collects), clock=clock or ManualClock(), events=events, options=run_options
        )

    def open_harness(self, *, clock: Clock | None = None, **options: Any) -> EngineHarness:
        run_options = RunOptions(engine=self.engine_options, **options)
        return self.engine.open_harness(
            self.plan(), clock=clock or ManualClock(), events=ignore_event, options=run_options
        )


def late_port(ref: Ref) -> Ref:
    return Ref(ref.step, "late")


def errors_port(ref: Ref) -> Ref:
    return Ref(ref.step, "errors")
