"""Which road a step takes: the JVM where it can, else rows."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock import col
from penstock.engines.spark.dataframes.window_task import ExecutionPath
from penstock.operators.aggregates import Aggregate
from tests.support.window_tasks import recipe

SLIDING = ps.sliding("10 s", "3 s")


def add(a: float, b: float) -> float:
    return a + b


@pytest.mark.parametrize(
    ("aggregate", "road"),
    [
        (ps.count(), ExecutionPath.JVM),
        (ps.sum("n"), ExecutionPath.JVM),
        (ps.mean("price"), ExecutionPath.JVM),
        (ps.min("ts"), ExecutionPath.JVM),
        (ps.std("n"), ExecutionPath.JVM),
        (ps.event_time_max(), ExecutionPath.JVM),
        (ps.max_count("n"), ExecutionPath.ROWS),
        (ps.fold(lambda row: row.n * 1.0, add, 0.0, columns="n"), ExecutionPath.ROWS),
        (ps.fold(lambda row: row.n * 1.0, add, 0.0, columns="n", commutative=False), ExecutionPath.ROWS),
        (ps.fold(lambda row: len(row.page), add, 0), ExecutionPath.ROWS),
        (ps.first("n"), ExecutionPath.ROWS),
        (ps.max("page"), ExecutionPath.ROWS),
        (ps.approx_distinct("n"), ExecutionPath.ROWS),
        (ps.collect("n"), ExecutionPath.ROWS),
    ],
    ids=str,
)
def test_the_road_of_time_windows_depends_on_the_aggregate(aggregate: Aggregate, road: ExecutionPath) -> None:
    assert recipe(SLIDING, {"result": aggregate}).path is road


def test_one_aggregate_that_needs_rows_takes_all_along() -> None:
    assert recipe(SLIDING, {"rows": ps.count(), "first": ps.first("n")}).path is ExecutionPath.ROWS


@pytest.mark.parametrize("window", [ps.session("4 s"), ps.count_window(3)], ids=str)
def test_sessions_and_count_windows_take_rows(window: object) -> None:
    assert recipe(window).path is ExecutionPath.ROWS


def test_windows_that_cannot_share_slices_take_rows() -> None:
    assert recipe({"a": SLIDING, "b": ps.tumbling("20 s")}).path is ExecutionPath.JVM
    assert recipe({"a": ps.tumbling("1.000001 s"), "b": ps.tumbling("20 s")}).path is ExecutionPath.ROWS


def test_expressions_are_left_to_the_jvm_only_where_its_zone_is_utc() -> None:
    hours = ps.sum(col("ts").dt.hour())
    assert recipe(SLIDING, {"hours": hours}).path is ExecutionPath.JVM
    assert recipe(SLIDING, {"hours": hours}, utc=False).path is ExecutionPath.ROWS
    assert recipe(SLIDING, {"n": ps.sum("n")}, utc=False).path is ExecutionPath.JVM
