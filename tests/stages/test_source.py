"""The source stage, against the reference engine: times, places, failed rows, and the watermark."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.connect.protocol import BadRow, SourceBatch
from penstock.engines.reference.rounds import Interpreter
from penstock.errors import PenstockError
from penstock.events import ignore_event
from penstock.expr import col
from penstock.operators.ends import Source, ingest_time, source_watermark
from penstock.stages.functions.calls import plain_rows_of
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.order import NO_ORDER
from penstock.stages.source import SourceStage
from penstock.stages.stage import StageContext
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL
from tests.support.plans import PlanBuilder, batch
from tests.support.stage_steps import describe_error

LAW = settings(deadline=None, max_examples=60)
NOW = 1_000_000_000
TYPES: dict[str, tuple[pa.DataType, str | None]] = {
    "seconds": (pa.int64(), "s"),
    "milliseconds": (pa.int64(), "ms"),
    "microseconds": (pa.int64(), "us"),
    "nanoseconds": (pa.int64(), "ns"),
    "timestamps": (pa.timestamp("us"), None),
    "instants": (pa.timestamp("us", "UTC"), None),
    "dates": (pa.date32(), None),
}


class StageResult:
    """What a source gave: rows by port, the watermark after each batch, the accounts, and the error."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.errors: list[str] = []
        self.watermarks: list[float] = []
        self.accounts = Accounts()
        self.error: str | None = None

    def same_as(self, other: StageResult) -> None:
        assert (self.error, self.watermarks) == (other.error, other.watermarks)
        if self.error is None:
            assert sorted(self.out) == sorted(other.out)
            assert sorted(self.errors) == sorted(other.errors)
            assert self.accounts == other.accounts


def by_reference(builder: PlanBuilder, name: str, batches: list[SourceBatch]) -> StageResult:
    result, clock = StageResult(), ManualClock(NOW)
    judge = Interpreter(builder.plan(), clock=clock, events=ignore_event)
    try:
        judge.open()
        for batch in batches:
            clock.advance(1_000)
            judge.round({name: batch})
            result.watermarks.append(judge.source(name).frontier.watermark)
    except PenstockError as problem:
        result.error = describe_error(problem)
    for ref, rows in judge.collected.items():
        if ref.port == "errors":
            result.errors += [repr((dict(row.values), row.order)) for row in rows]
        else:
            result.out += [repr((dict(row.values), row.time or 0, row.order)) for row in rows]
    result.accounts = judge.accounts[name]
    return result


def by_stage(
    builder: PlanBuilder, name: str, batches: list[SourceBatch], *, rank: int | None = None
) -> StageResult:
    result, clock = StageResult(), ManualClock(NOW)
    (step,) = builder.steps
    assert isinstance(step.op, Source)
    stage = SourceStage(step.op, StageContext(name, step.where, result.accounts, clock), rank=rank)
    try:
        for batch in batches:
            clock.advance(1_000)
            for port, rows in stage.on_read(batch):
                assert rows.rows.schema == step.outputs[port].schema
                result.out += describe_batch(rows, timed=True) if port == "out" else []
                result.errors += describe_batch(rows, timed=False) if port == "errors" else []
            result.watermarks.append(stage.watermark)
    except PenstockError as problem:
        result.error = describe_error(problem.at(name, step.where))
    return result


def describe_batch(batch: Batch, *, timed: bool) -> list[str]:
    lines = []
    for i, values in enumerate(plain_rows_of(batch.rows)):
        order = tuple(int(column[i]) for column in batch.order if column[i] != NO_ORDER)
        lines.append(repr((values, int(batch.times[i]), order) if timed else (values, order)))
    return lines


def schema_of(kind: str) -> pa.Schema:
    return pa.schema([("t", TYPES[kind][0]), ("v", pa.int64())])


def raw_rows(schema: pa.Schema, rows: list[tuple[Any, Any]], **options: Any) -> SourceBatch:
    """A batch whose times are given as the integers below them."""
    width = pa.int32() if pa.types.is_date32(schema.field("t").type) else pa.int64()
    times = pa.array([row[0] for row in rows], width).view(schema.field("t").type)
    batch = pa.RecordBatch.from_arrays([times, pa.array([row[1] for row in rows], pa.int64())], schema=schema)
    return SourceBatch(batch, **options)


@st.composite
def streams(draw: st.DrawFn, kind: str) -> list[SourceBatch]:
    schema = schema_of(kind)
    widest = 2**31 - 1 if kind == "dates" else 2**63 - 1
    times = st.one_of(
        st.none(),
        st.integers(-2000, 2000),
        st.sampled_from([widest, -widest - 1, 2**31 - 2, NOW]).filter(lambda value: abs(value) <= widest + 1),
    )
    result = []
    for _ in range(draw(st.integers(0, 4))):
        rows = draw(st.lists(st.tuples(times, st.one_of(st.none(), st.integers(-3, 3))), max_size=6))
        numbers = pa.array(range(len(rows)), pa.int64()) if draw(st.booleans()) else None
        promised = draw(st.one_of(st.none(), st.integers(-2000, 2000)))
        bad = (BadRow("x;y", "not a number", "file:3"),) if draw(st.booleans()) else ()
        result.append(raw_rows(schema, rows, seq=numbers, watermark=promised, bad=bad))
    return result


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES)
@LAW
@given(st.data())
def test_times_failures_and_watermarks_are_those_of_the_reference_engine(
    kind: str, data: st.DataObject
) -> None:
    batches = data.draw(streams(kind))
    options: dict[str, Any] = {
        "time_unit": TYPES[kind][1],
        "delay": data.draw(st.sampled_from(["0 s", "1 d"])),
        "max_future": data.draw(st.sampled_from([None, "1 d"])),
        "on_error": data.draw(st.sampled_from(["fail", "skip", "dead_letter"])),
        "watermark": data.draw(st.sampled_from([None, "t", col("t")])),
    }
    builder = PlanBuilder()
    name = builder.source(*batches, schema=schema_of(kind), keeps_raw=True, time="t", **options).step
    by_stage(builder, name, batches).same_as(by_reference(builder, name, batches))


def told_both(options: dict[str, Any], *batches: SourceBatch) -> StageResult:
    builder = PlanBuilder()
    name = builder.source(*batches, schema=schema_of("microseconds"), **options).step
    ours, judged = by_stage(builder, name, list(batches)), by_reference(builder, name, list(batches))
    ours.same_as(judged)
    return ours


def rows(*times: int | None, **options: Any) -> SourceBatch:
    return batch([(time, 1) for time in times], schema_of("microseconds"), **options)


TIMED: dict[str, Any] = {"time": "t", "time_unit": "us"}


def test_the_watermark_follows_the_greatest_time_less_the_delay_and_never_goes_back() -> None:
    result = told_both({**TIMED, "delay": 2}, rows(), rows(3, 9), rows(8), rows(15))
    assert result.watermarks == [BEFORE_ALL, 7, 7, 13]


def test_a_watermark_function_is_asked_about_every_batch_that_has_rows() -> None:
    asked = []

    def watermark(rows: pa.RecordBatch) -> Any:
        asked.append(rows.num_rows)
        return [7, None, pa.scalar(9)][len(asked) - 1]

    builder, batches = PlanBuilder(), [rows(), rows(3, 9), rows(4), rows(5)]
    name = builder.source(*batches, schema=schema_of("microseconds"), **TIMED, watermark=watermark).step
    assert by_stage(builder, name, batches).watermarks == [BEFORE_ALL, 7, 7, 9]
    assert asked == [2, 1, 1]


@pytest.mark.parametrize("given_back", ["soon", True, 1.5, date(2020, 1, 1)])
def test_a_watermark_function_that_gives_no_time_stops_the_run(given_back: object) -> None:
    result = told_both({**TIMED, "watermark": lambda rows: given_back}, rows(3))
    assert result.error is not None
    assert "watermark function" in result.error


def test_a_watermark_expression_that_fails_on_a_row_fails_the_row() -> None:
    options = {**TIMED, "watermark": col("t") * 2**40, "delay": 0}
    for policy in ("fail", "skip", "dead_letter"):
        told_both({**options, "on_error": policy}, rows(3, 2**40, 5), rows(4))


def test_only_what_the_source_yields_counts_where_it_says_so() -> None:
    result = told_both(
        {**TIMED, "watermark": source_watermark()}, rows(3), rows(50, watermark=20), rows(watermark=10)
    )
    assert result.watermarks == [BEFORE_ALL, 20, 20]


def test_ingest_time_is_the_clock_when_the_batch_comes() -> None:
    result = told_both({"time": ingest_time()}, rows(None, 5), rows(6))
    assert result.watermarks == [NOW + 1_000, NOW + 2_000]


def test_rows_without_time_have_no_watermark() -> None:
    assert told_both({"time": None}, rows(3), rows(4)).watermarks == [BEFORE_ALL, BEFORE_ALL]


def test_a_source_among_several_puts_its_rank_before_the_reader_s_number() -> None:
    builder = PlanBuilder()
    given_rows = rows(3, 4, seq=[8, 9])
    name = builder.source(given_rows, schema=schema_of("microseconds"), **TIMED, delay=0).step
    assert by_stage(builder, name, [given_rows], rank=1).out == [
        "({'t': 3, 'v': 1}, 3, (1, 8))",
        "({'t': 4, 'v': 1}, 4, (1, 9))",
    ]


def new_stage(clock: ManualClock, **options: Any) -> SourceStage:
    builder = PlanBuilder()
    name = builder.source(schema=schema_of("microseconds"), **TIMED, **options).step
    op = builder.steps[0].op
    assert isinstance(op, Source)
    return SourceStage(op, StageContext(name, None, Accounts(), clock))


def test_a_silent_source_becomes_idle_and_wakes_with_the_next_rows() -> None:
    clock = ManualClock()
    stage = new_stage(clock, delay=0, idle=10)
    clock.advance(9)
    assert not stage.idle
    clock.advance(1)
    assert stage.idle
    list(stage.on_read(rows()))
    assert stage.idle
    list(stage.on_read(rows(1)))
    assert not stage.idle


def test_a_promised_watermark_is_enough_to_go_on_from_a_checkpoint() -> None:
    stage = new_stage(ManualClock(), delay=2)
    stage.promise(7)
    list(stage.on_read(rows(8)))
    assert stage.watermark == 7
    list(stage.on_read(rows(12)))
    assert stage.watermark == 10


def test_a_source_that_has_ended_holds_nothing_back() -> None:
    stage = new_stage(ManualClock(), delay=2)
    stage.end()
    assert stage.watermark == AFTER_ALL
