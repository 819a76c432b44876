"""The harness: feed a pipe by hand, one batch at a time, and look at what comes out."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest

import penstock as ps
from penstock import EngineError, GraphError, SchemaError, TimeError, col
from penstock.events import Event
from penstock.testing import Harness

SCHEMA = {"t": "int64", "key": "string", "value": "int64"}


def source(graph: ps.PipeGraph | None = None, name: str = "rows", **options: Any) -> ps.MultiPipe:
    """Rows whose time is whole seconds, in order."""
    arguments = {"time": "t", "time_unit": "s", "delay": "0 s", **options}
    return (graph or ps.PipeGraph("test")).source(ps.read.rows([], schema=SCHEMA), name=name, **arguments)


def row(t: int, key: str = "a", value: int = 1) -> dict[str, Any]:
    return {"t": t, "key": key, "value": value}


def counts(pipe: ps.MultiPipe, **options: Any) -> ps.MultiPipe:
    return pipe.key_by("key").window(ps.tumbling("10 s"), **options).aggregate(n=ps.count())


def test_rows_go_in_and_come_out_once() -> None:
    harness = Harness(source().with_columns(value=col("value") * 2), engine="reference")
    harness.push([row(1), row(2, value=5)])
    assert harness.take() == [row(1, value=2), row(2, value=10)]
    assert harness.take() == []


def test_an_empty_batch_is_a_batch() -> None:
    harness = Harness(source(), engine="reference")
    harness.push([])
    assert harness.take() == []


def test_rows_may_be_dataclasses_and_must_fit_the_schema() -> None:
    harness = Harness(source(), engine="reference")
    with pytest.raises(SchemaError, match="does not fit its schema"):
        harness.push([{"t": "soon"}])


def test_a_window_leaves_when_the_watermark_passes_it_and_later_rows_are_late() -> None:
    harness = Harness(counts(source()), engine="reference")
    harness.push([row(1), row(9)])
    assert harness.take() == []
    harness.push([row(10)])
    assert harness.take() == [{"key": "a", "window_start": 0, "window_end": 10, "n": 2}]
    harness.push([row(5)])
    assert (harness.take(), harness.late()) == ([], [row(5)])
    assert harness.late() == []


def test_a_watermark_can_be_moved_by_hand() -> None:
    harness = Harness(counts(source()), engine="reference")
    harness.push([row(1)])
    harness.watermark(10)
    assert [result["n"] for result in harness.take()] == [1]


def test_a_watermark_is_given_as_the_time_column_has_it() -> None:
    for type_, time, moved in (
        ("timestamp[us]", datetime(1970, 1, 1, 0, 0, 4), datetime(1970, 1, 1, 0, 0, 10)),
        ("date", date(1970, 1, 1), date(1970, 1, 11)),
    ):
        graph = ps.PipeGraph("test")
        rows = graph.source(ps.read.rows([], schema={"at": type_}), time="at", delay="0 s")
        size = "10 s" if type_ != "date" else "10 d"
        harness = Harness(rows.window(ps.tumbling(size)).aggregate(n=ps.count()), engine="reference")
        harness.push([{"at": time}])
        assert harness.take() == []
        harness.watermark(moved)
        assert [row["n"] for row in harness.take()] == [1]


def test_the_end_closes_every_window() -> None:
    harness = Harness(counts(source(), name="counts"), engine="reference")
    harness.push([row(1), row(11), row(12, "b")])
    harness.take()
    result = harness.end()
    assert sorted((row["key"], row["n"]) for row in harness.take()) == [("a", 1), ("b", 1)]
    assert (result.outcome, result.accounts["counts"].is_balanced) == ("drained", True)


def test_failed_rows_are_looked_at_apart() -> None:
    pipe = source().with_columns(value=lit_over(), on_error="dead_letter")
    harness = Harness(pipe, engine="reference")
    harness.push([row(1, value=0), row(2, value=4)])
    assert harness.take() == [row(2, value=25)]
    (failed,) = harness.errors()
    assert (failed["value"], failed["error_step"]) == (0, "with_columns")


def lit_over() -> ps.Expr:
    return 100 // col("value")


def test_accounts_are_there_at_any_time() -> None:
    harness = Harness(source().filter(col("value") > 1, name="large"), engine="reference")
    harness.push([row(1), row(2, value=3)])
    assert (harness.accounts["large"].filtered, harness.accounts["large"].passed) == (1, 1)


def test_several_sources_are_fed_by_name_one_at_a_time_or_in_one_round() -> None:
    graph = ps.PipeGraph("test")
    merged = source(graph, "left").merge(source(graph, "right"))
    harness = Harness(merged.filter(col("value") > 0), engine="reference")
    harness.push([row(1)], source="left")
    harness.push_all({"left": [row(2)], "right": [row(3)]})
    assert [result["t"] for result in harness.take()] == [1, 2, 3]


def test_a_window_over_two_sources_waits_for_the_slower_one() -> None:
    graph = ps.PipeGraph("test")
    harness = Harness(counts(source(graph, "left").merge(source(graph, "right"))), engine="reference")
    harness.push([row(1), row(20)], source="left")
    assert harness.take() == []
    harness.push([row(2), row(12)], source="right")
    assert [(result["window_start"], result["n"]) for result in harness.take()] == [(0, 2)]


def test_a_merged_pipe_gives_the_rows_of_all_its_feeds() -> None:
    graph = ps.PipeGraph("test")
    harness = Harness(source(graph, "left").merge(source(graph, "right")), engine="reference")
    harness.push_all({"left": [row(1)], "right": [row(2)]})
    assert [result["t"] for result in harness.take()] == [1, 2]


def test_the_clock_is_held_until_it_is_moved() -> None:
    clock = ps.ManualClock(5_000_000)
    rows = ps.PipeGraph("test").source(ps.read.rows([], schema={"n": "int64"}), time=ps.ingest_time())
    harness = Harness(
        rows.window(ps.tumbling("10 s")).aggregate(n=ps.count()), engine="reference", clock=clock
    )
    harness.push([{"n": 1}])
    clock.advance(10_000_000)
    harness.push([{"n": 2}])
    assert [row["n"] for row in harness.take()] == [1]


def test_events_of_the_run_can_be_listened_to() -> None:
    heard: list[Event] = []
    harness = Harness(source(), engine="reference", events=heard.append)
    harness.push([row(1)])
    harness.end()
    assert {"BatchDone", "RunEnded"} <= {type(event).__name__ for event in heard}


MISUSES = {
    "which source? None is none of left, right": lambda h: h.push([]),
    "which source? 'lft' is none of left, right": lambda h: h.push([], source="lft"),
    "the pipe under test has no .late": lambda h: h.late(),
    "the pipe under test has no .errors": lambda h: h.errors(),
    "no source of this pipe has event time": lambda h: h.watermark(3),
}


@pytest.mark.parametrize("fact", list(MISUSES))
def test_misuse_of_the_harness_is_explained(fact: str) -> None:
    graph = ps.PipeGraph("test")
    left, right = (graph.source(ps.read.rows([], schema=SCHEMA), name=name) for name in ("left", "right"))
    harness = Harness(left.merge(right), engine="reference")
    with pytest.raises(EngineError) as caught:
        MISUSES[fact](harness)
    assert caught.value.fact.startswith(fact)
    assert caught.value.hint
    assert str(caught.value.where).startswith("tests/testing/test_harness.py:")


@pytest.mark.parametrize("time", ["x", 1.5, None, datetime(2020, 1, 1)])
def test_what_is_no_time_of_the_column_is_no_watermark(time: Any) -> None:
    with pytest.raises(TimeError, match="is not a time of the source") as caught:
        Harness(counts(source()), engine="reference").watermark(time)
    assert caught.value.hint == "give a value of its time column, int64 in s"


@pytest.mark.parametrize("rows", [None, 3, {"t": 1}, "t"])
def test_what_is_no_list_of_rows_cannot_be_pushed(rows: Any) -> None:
    with pytest.raises(SchemaError, match="must be a list") as caught:
        Harness(source(), engine="reference").push(rows)
    assert (caught.value.step, caught.value.where is not None) == ("rows", True)


def test_what_is_no_pipe_cannot_be_tested() -> None:
    wrong: Any = 3
    with pytest.raises(GraphError, match="Harness takes a pipe, and got int"):
        Harness(wrong, engine="reference")
