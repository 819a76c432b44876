"""Time, watermarks and bad rows at the source."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.clock import ManualClock
from penstock.connect.protocol import BadRow
from penstock.errors import ConnectorError, FunctionError, TimeError
from penstock.events import Event, WatermarkMoved
from penstock.expr import col
from penstock.operators.aggregates import count
from penstock.operators.ends import ingest_time, source_watermark
from penstock.operators.windows import KeyedWindows
from penstock.timing.units import LIMIT
from penstock.timing.windows import tumbling
from tests.support.plans import KTV, PlanBuilder, batch, errors_port


def moves(events: list[Event]) -> list[int | None]:
    return [event.watermark for event in events if isinstance(event, WatermarkMoved)]


def watermarks(*batches: Any, clock: ManualClock | None = None, **options: Any) -> list[int | None]:
    builder = PlanBuilder()
    builder.source(*batches, **options)
    return moves(builder.run(clock=clock).events)


def test_the_watermark_is_the_greatest_time_so_far_minus_the_delay_and_never_goes_back() -> None:
    assert watermarks([("a", 10, 1), ("a", 30, 1)], [("a", 20, 1)], [("a", 40, 1)], delay=5) == [25, 35, None]


def test_the_watermark_may_be_an_expression() -> None:
    assert watermarks([("a", 10, 7), ("a", 11, None)], [("a", 12, 3)], watermark="v") == [7, None]
    assert watermarks([("a", 10, 7)], watermark=col("v") - 1) == [6, None]


@pytest.mark.parametrize(
    "function",
    [lambda batch: 8, lambda batch: pc.max(batch["v"]), lambda batch: int(pc.max(batch["v"]).as_py())],
)
def test_the_watermark_may_be_a_function_of_the_batch(function: Any) -> None:
    assert watermarks([("a", 10, 8)], [], watermark=function) == [8, None]


def test_a_watermark_function_may_give_a_datetime_or_a_date_or_no_news() -> None:
    stamps = pa.schema([("t", pa.timestamp("us", "UTC"))])
    moment = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    options: dict[str, Any] = {"schema": stamps, "time": "t"}
    assert watermarks([(moment,)], watermark=lambda batch: moment, **options) == [1_000_000, None]
    days = pa.schema([("t", pa.date32())])
    options = {"schema": days, "time": "t"}
    assert watermarks([(date(1970, 1, 3),)], watermark=lambda batch: date(1970, 1, 2), **options) == [
        86_400_000_000,
        None,
    ]
    assert watermarks([("a", 1, 1)], watermark=lambda batch: None) == [None]


@pytest.mark.parametrize("function", [lambda batch: "soon", lambda batch: 1 / 0, lambda batch: True])
def test_a_watermark_function_that_fails_or_gives_no_time_stops_the_run(function: Any) -> None:
    with pytest.raises(FunctionError, match=r"watermark function .* failed on a batch") as failure:
        watermarks([("a", 1, 1)], watermark=function)
    assert "test_source.py" in str(failure.value.where)


def test_the_watermark_may_be_what_the_source_yields_alone_or_beside_a_delay() -> None:
    promised = [batch([("a", 10, 1)], watermark=3), batch([("a", 11, 1)])]
    assert watermarks(*promised, watermark=source_watermark()) == [3, None]
    assert watermarks(batch([("a", 10, 1)], watermark=20), [("a", 11, 1)], delay=5) == [20, None]


def test_an_int_watermark_is_in_the_unit_of_the_time_column() -> None:
    promised = batch([("a", 10, 1)], watermark=3)
    assert watermarks(promised, time="t", time_unit="s", watermark=source_watermark()) == [3_000_000, None]


def test_ingest_time_is_the_clock_when_a_batch_arrives() -> None:
    clock = ManualClock(500)
    builder = PlanBuilder()
    rows = builder.source(name="s", time=ingest_time())
    out = builder.add(KeyedWindows(windows=tumbling("1 ms"), aggregates={"n": count()}), rows)
    harness = builder.open_harness(clock=clock)
    harness.push({"s": batch([("a", 0, 1)])})
    clock.advance(1_000)
    harness.push({"s": batch([("a", 0, 1)])})
    (row,) = harness.take(out).to_pylist()
    assert (row["window_start"].microsecond, row["n"]) == (0, 1)


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        (None, 'time column "t" is null'),
        (LIMIT + 1, f'time column "t" is {LIMIT + 1} us, further than 2^61 us from 1970'),
        (-LIMIT - 1, f'time column "t" is {-LIMIT - 1} us, further than 2^61 us from 1970'),
        (2_001, "the time is 1001 us ahead of the clock, and max_future is 1 ms"),
    ],
)
def test_a_row_without_a_proper_time_is_a_row_error_and_does_not_move_the_watermark(
    time: Any, reason: str
) -> None:
    builder = PlanBuilder()
    options: dict[str, Any] = {"on_error": "dead_letter", "max_future": "1 ms", "name": "s"}
    rows = builder.source([("a", time, 1), ("b", 5, 2)], **options)
    ran = builder.run(clock=ManualClock(1_000))
    assert ran.rows(rows) == [("b", 5, 2)]
    assert ran.rows(errors_port(rows)) == [("a", time, 1, reason, "s")]
    assert moves(ran.events) == [5, None]
    account = ran.account(rows)
    assert (account.rows_in, account.passed, account.errors) == (2, 1, 1)


@pytest.mark.parametrize(("time", "clock"), [(LIMIT, LIMIT), (-LIMIT, 0), (2_000, 1_000)])
def test_times_at_the_very_limits_are_proper(time: int, clock: int) -> None:
    builder = PlanBuilder()
    rows = builder.source([("a", time, 1)], max_future="1 ms")
    assert builder.run(clock=ManualClock(clock)).rows(rows) == [("a", time, 1)]


def test_a_row_without_a_time_stops_the_run_unless_errors_are_let_by() -> None:
    builder = PlanBuilder()
    builder.source([("a", None, 1)], name="s")
    with pytest.raises(TimeError, match="the time of a source failed on a row") as failure:
        builder.run()
    assert failure.value.step == "s"
    assert 'time column "t" is null' in str(failure.value.detail)


def test_a_row_on_which_the_watermark_expression_fails_is_a_row_error() -> None:
    builder = PlanBuilder()
    rows = builder.source([("a", 5, 0), ("a", 6, 2)], watermark=6 // col("v"), on_error="skip")
    ran = builder.run()
    assert (ran.account(rows).errors, moves(ran.events)) == (1, [3, None])


BAD = BadRow("{oops", "not JSON", "in.jsonl:2")


def test_what_the_reader_could_not_read_stops_the_run_with_its_place() -> None:
    builder = PlanBuilder()
    builder.source(batch([], bad=(BAD,)), keeps_raw=True, name="s")
    with pytest.raises(ConnectorError, match="the reader failed on a row") as failure:
        builder.run()
    assert "in.jsonl:2: not JSON" in str(failure.value.detail)
    assert "{oops" in str(failure.value.detail)


def test_what_the_reader_could_not_read_is_dead_lettered_with_its_raw_text() -> None:
    builder = PlanBuilder()
    batch_in = batch([("a", 1, 1)], bad=(BAD,))
    rows = builder.source(batch_in, keeps_raw=True, on_error="dead_letter", name="s")
    ran = builder.run()
    assert ran.rows(errors_port(rows)) == [(None, None, None, "{oops", "in.jsonl:2: not JSON", "s")]
    assert (ran.account(rows).rows_in, ran.account(rows).errors) == (2, 1)
    assert ran.account(rows).is_balanced


def two_sources(clock: ManualClock, *, idle: str | None) -> tuple[Any, Any]:
    builder = PlanBuilder()
    busy = builder.source(name="busy")
    quiet = builder.source(name="quiet", idle=idle)
    out = builder.add(KeyedWindows(windows=tumbling(10), aggregates={"n": count()}, name="w"), [busy, quiet])
    return builder.open_harness(clock=clock), out


def test_a_silent_source_holds_the_others_back() -> None:
    clock = ManualClock()
    harness, out = two_sources(clock, idle=None)
    clock.advance(5_000_000)
    harness.push({"busy": batch([("a", 1, 1), ("a", 30, 1)])})
    assert harness.take(out).num_rows == 0


def test_an_idle_source_is_ignored_and_its_return_does_not_move_the_watermark_back() -> None:
    clock = ManualClock()
    harness, out = two_sources(clock, idle="5 s")
    clock.advance(5_000_000)
    harness.push({"busy": batch([("a", 1, 1), ("a", 30, 1)])})
    assert [row["n"] for row in harness.take(out).to_pylist()] == [1]
    harness.push({"quiet": batch([("b", 2, 1)])})
    assert harness.metrics()["w"].late == 1
    harness.push({"busy": batch([("a", 50, 1)])})
    assert harness.take(out).num_rows == 0, "the quiet source is awake, at 2, and W stays at 30"
    harness.push({"quiet": batch([("b", 3, 1)])})
    assert harness.metrics()["w"].late == 2


def test_when_every_source_is_idle_the_watermark_stays() -> None:
    clock = ManualClock()
    builder = PlanBuilder()
    rows = builder.source(name="s", idle="1 s")
    out = builder.add(KeyedWindows(windows=tumbling(10), aggregates={"n": count()}), rows)
    harness = builder.open_harness(clock=clock)
    harness.push({"s": batch([("a", 1, 1)])})
    clock.advance(2_000_000)
    harness.push({})
    assert harness.take(out).num_rows == 0


def test_an_empty_source_drains() -> None:
    builder = PlanBuilder()
    rows = builder.source(schema=KTV)
    assert builder.run().rows(rows) == []
