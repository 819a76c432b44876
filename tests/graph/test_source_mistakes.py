"""Sources, time, delays and durations that do not fit together."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import penstock as ps
from penstock import GraphError, TimeError, col
from tests.support.mistakes import Mistake, check_refusal
from tests.support.trades import TRADES

ROWS = ps.read.rows([], schema=TRADES)


def at(**options: Any) -> dict[str, Any]:
    """Options of a source with event time in `at`."""
    return {"time": "at", "delay": "2 s", **options}


TIME = [
    Mistake("an int without a unit", lambda p: p.graph.source(ROWS, time="tick", delay="0 s"), TimeError,
            '"tick" is int64 and has no unit', "source", also='time_unit="s"'),
    Mistake("a unit that does not exist",
            lambda p: p.graph.source(ROWS, time="tick", time_unit="m", delay="0 s"), TimeError,
            "time_unit 'm' is unknown", "source"),
    Mistake("a unit on a timestamp", lambda p: p.graph.source(ROWS, **at(time_unit="s")), TimeError,
            "time_unit='s' does not go with", "source"),
    Mistake("a unit on a date", lambda p: p.graph.source(ROWS, time="day", time_unit="s", delay="0 s"),
            TimeError, "date32", "source"),
    Mistake("a unit on the time of arrival",
            lambda p: p.graph.source(ROWS, time=ps.ingest_time(), time_unit="s"), TimeError,
            "time_unit= does not go with ps.ingest_time()", "source"),
    Mistake("what names no column", lambda p: p.graph.source(ROWS, **at(time=5)), TimeError,
            "time=5 is not a column", "source"),
    Mistake("no delay", lambda p: p.graph.source(ROWS, time="at"), TimeError, "needs delay=", "source"),
    Mistake("a delay beside the source's own watermarks",
            lambda p: p.graph.source(ROWS, **at(watermark=ps.source_watermark())), TimeError,
            "contradict", "source"),
    Mistake("a negative delay", lambda p: p.graph.source(ROWS, **at(delay=timedelta(seconds=-1))), TimeError,
            "delay -1 s is negative", "source"),
    Mistake("a negative idle", lambda p: p.graph.source(ROWS, **at(idle=timedelta(seconds=-1))), TimeError,
            "idle -1 s is negative", "source"),
    Mistake("a negative max_future", lambda p: p.graph.source(ROWS, **at(max_future=timedelta(-1))),
            TimeError, "max_future -1 d is negative", "source"),
    Mistake("a bare number on a timestamp", lambda p: p.graph.source(ROWS, **at(delay=5)), TimeError,
            "delay 5 has no unit", "source", also='"5 s"'),
    Mistake("part of a microsecond",
            lambda p: p.graph.source(ROWS, time="tick", time_unit="ns", delay=1_500), TimeError,
            "delay 1500 ns is not a whole number of microseconds", "source"),
    Mistake("a watermark of another type", lambda p: p.graph.source(ROWS, **at(watermark="tick")), TimeError,
            'watermark col("tick") is int64, and time is timestamp[us]', "source"),
    Mistake("a watermark that is nothing", lambda p: p.graph.source(ROWS, **at(watermark=3)), TimeError,
            "watermark=3 is not", "source"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", TIME, ids=str)
def test_a_time_that_does_not_fit_is_refused(mistake: Mistake) -> None:
    check_refusal(mistake)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("time_unit", "s"),
        ("delay", "1 s"),
        ("idle", "1 s"),
        ("watermark", col("at")),
        ("max_future", "1 h"),
    ],
)
def test_options_of_time_say_nothing_without_a_time(option: str, value: object) -> None:
    with pytest.raises(TimeError, match=f"{option}= says nothing without time="):
        ps.PipeGraph("shop").source(ROWS, **{option: value})  # type: ignore[arg-type]  # any of them


@pytest.mark.parametrize(
    "text", ["", "10", "s", "ten s", "-1 s", "1 fortnight", "1e3 s", "1,5 s", "1 s 2 ms", "1.5.2 s"]
)
def test_a_duration_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(TimeError) as caught:
        ps.PipeGraph("shop").source(ROWS, time="at", delay=text)
    assert caught.value.fact == f"delay {text!r} is not a duration"
    assert '"10 s"' in str(caught.value.hint)


@pytest.mark.parametrize("text", ["0.5 us", "1.0000001 s", "0.0001 ms"])
def test_a_duration_is_never_rounded(text: str) -> None:
    with pytest.raises(TimeError, match="not a whole number of microseconds"):
        ps.PipeGraph("shop").source(ROWS, time="at", delay=text)


@pytest.mark.parametrize("duration", [1.5, True, None, ["1 s"]])
def test_only_texts_timedeltas_and_numbers_are_durations(duration: Any) -> None:
    with pytest.raises(TimeError, match="is not a duration"):
        ps.PipeGraph("shop").source(ROWS, time="at", delay="0 s").window(ps.tumbling(duration)).aggregate(
            n=ps.count()
        )


READERS_AND_WRITERS = [
    Mistake("a list as reader", lambda p: p.graph.source([{"n": 1}]), GraphError,
            "reads from a reader, and got list", "source", also="ps.read.rows"),
    Mistake("a path as writer", lambda p: p.sink("out/"), GraphError,
            "writes to a writer, and got str", "sink", also="ps.write.parquet"),
    Mistake("a writer as reader", lambda p: p.graph.source(ps.write.memory()), GraphError,
            "reads from a reader", "source"),
    Mistake("a reader as writer", lambda p: p.sink(ROWS), GraphError, "writes to a writer", "sink"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", READERS_AND_WRITERS, ids=str)
def test_a_source_needs_a_reader_and_a_sink_a_writer(mistake: Mistake) -> None:
    check_refusal(mistake)


def test_who_follows_the_hint_for_float_times_has_a_program_that_runs() -> None:
    """The hint names two ways, and each is taken literally."""

    def build(value: Callable[[], object], kind: str, **options: Any) -> ps.MultiPipe:
        rows = ps.read.generator(lambda: iter([{"ts": value()}]), schema={"ts": kind})
        source = ps.PipeGraph("clock").source(rows, time="ts", delay="1 s", **options)
        return source.window(ps.tumbling("1 h")).aggregate(n=ps.count())

    with pytest.raises(TimeError) as caught:
        build(time.time, "float64", time_unit="s")
    assert callable(datetime.now), UTC  # what the hint uses
    whole, moment = "int(time.time() * 1_000_000)", "datetime.now(UTC)"
    assert whole in str(caught.value.hint)
    assert 'time_unit="us"' in str(caught.value.hint)
    assert moment in str(caught.value.hint)
    for engine in ("reference", "local"):
        counts = build(lambda: eval(whole), "int64", time_unit="us").collect(engine)
        assert counts.column("n").to_pylist() == [1]
        counts = build(lambda: eval(moment), "timestamp[us, UTC]").collect(engine)
        assert counts.column("n").to_pylist() == [1]
