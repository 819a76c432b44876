"""One window step twice, by the stage and by the reference engine, which is the judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.connect.protocol import SourceBatch
from penstock.expr import to_plain
from penstock.operators.op import IN, Stream
from penstock.operators.windows import Windows
from penstock.plan.plan import Ref
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import StageContext
from penstock.stages.window.stage import WindowStage
from penstock.testing.assertions import difference
from penstock.timing.units import TimeType
from penstock.timing.windows import SourceWatermark
from tests.support.plans import KTV, PlanBuilder, batch

STEP = "window-1"
Rows = Sequence[tuple[Any, ...]]


@dataclass
class Case:
    """Batches of rows for one window step: the column "t" is the time in microseconds."""

    op: Windows
    batches: list[SourceBatch]
    key: tuple[str, ...] = ("k",)
    delay: int = 0
    schema: pa.Schema = field(default_factory=lambda: KTV)

    @property
    def up(self) -> Stream:
        return Stream(self.schema, TimeType(pa.int64(), "us"), self.key)

    @property
    def has_numbers(self) -> bool:
        return all(batch.seq is not None for batch in self.batches)


def case(op: Windows, batches: Sequence[Rows], *, seq: bool = False, **options: Any) -> Case:
    """A case from plain rows; with `seq` the reader numbers them as they come."""
    schema = options.get("schema", KTV)
    batch_list, n = [], 0
    for rows in batches:
        batch_list.append(batch(rows, schema, seq=range(n, n + len(rows)) if seq else None))
        n += len(rows)
    return Case(op, batch_list, **options)


@dataclass
class PortTables:
    """What came out, by port, and the accounts."""

    tables: dict[str, pa.Table]
    accounts: Accounts


def by_reference(case: Case) -> PortTables:
    builder = PlanBuilder()
    source = builder.source(*case.batches, schema=case.schema, delay=case.delay)
    out = builder.add(case.op, source, key=case.key)
    ran = builder.run()
    ports = case.op.outputs({IN: case.up})
    return PortTables({port: ran.result.collected[Ref(out.step, port)] for port in ports}, ran.account(out))


def shown_by_reference(case: Case, ticks: Sequence[int]) -> PortTables:
    """As `by_reference`, with the clock moved on before every batch."""
    builder, clock = PlanBuilder(), ManualClock()
    source = builder.source(schema=case.schema, delay=case.delay)
    out = builder.add(case.op, source, key=case.key)
    harness = builder.open_harness(clock=clock)
    for batch_in, tick in zip(case.batches, ticks, strict=False):
        clock.advance(tick)
        harness.push({source.step: batch_in})
    result = harness.end()
    tables = {port: result.collected[Ref(out.step, port)] for port in case.op.outputs({IN: case.up})}
    return PortTables(tables, result.accounts[out.step])


class Driven:
    """A stage driven as an engine would: each batch judged by the watermark of those before it."""

    def __init__(self, case: Case) -> None:
        self.case, self.clock = case, ManualClock()
        self.accounts = Accounts()
        self.out: dict[str, list[Batch]] = {port: [] for port in case.op.outputs({IN: case.up})}
        self.stage = self.new_stage()
        self.watermark = SourceWatermark(case.delay)

    def new_stage(self) -> WindowStage:
        site = StageContext(STEP, None, self.accounts, self.clock)
        return WindowStage(self.case.op, self.case.up, site, totally_ordered=self.case.has_numbers)

    def batch_of(self, source: SourceBatch) -> Batch:
        return stage_batch(source)

    def push(self, source: SourceBatch) -> None:
        rows = self.batch_of(source)
        self._keep(self.stage.on_batch(rows, self.watermark.now))
        self.watermark.observe(int(rows.times.max()) if rows.num_rows else None)
        self._keep(self.stage.on_watermark(self.watermark.now))

    def end(self) -> PortTables:
        self._keep(self.stage.drain())
        streams = self.case.op.outputs({IN: self.case.up})
        tables = {
            port: pa.Table.from_batches([batch.rows for batch in self.out[port]], schema=stream.schema)
            for port, stream in streams.items()
        }
        return PortTables(tables, self.accounts)

    def _keep(self, outputs: Any) -> None:
        for port, rows in outputs:
            assert rows.num_rows == len(rows.times) > 0
            rows.rows.validate(full=True)
            self.out[port].append(rows)


def by_stage(case: Case, ticks: Sequence[int] | None = None) -> PortTables:
    """The stage on all batches; with ticks the clock is moved on before each."""
    driven = Driven(case)
    for number, source in enumerate(case.batches):
        driven.clock.advance(ticks[number] if ticks else 0)
        driven.push(source)
    return driven.end()


def stage_batch(source: SourceBatch) -> Batch:
    times = np.array(to_plain(source.rows.column("t")), np.int64)
    order = () if source.seq is None else (source.seq.to_numpy().astype(np.int64),)
    return Batch(source.rows, times, order)


def assert_same(actual: PortTables, judged: PortTables, *, approximate: Sequence[str] = ()) -> None:
    for port, table in judged.tables.items():
        report = difference(table, actual.tables[port], approximate=approximate)
        assert report is None, f"{port}: reference / stage: {report}"
    assert actual.accounts == judged.accounts
    assert actual.accounts.is_balanced


def agree(case: Case, *, approximate: Sequence[str] = ()) -> None:
    """Raise unless the stage and the reference engine give the same rows and accounts."""
    assert_same(by_stage(case), by_reference(case), approximate=approximate)


def with_op(case: Case, **changes: Any) -> Case:
    return replace(case, op=replace(case.op, **changes))
