"""Windows of streaming frames: file sources, several batches, late rows, restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.engines.spark.dataframes.window_task import GROUPS, N_SLICE_GROUPS
from penstock.spark import window_aggregate
from tests.support.dataframes import Aggregates, Files, S, at, judged_stream, rows, same

pytestmark = pytest.mark.slow
SLIDING = ps.sliding("10 s", "3 s")
COUNTED: Aggregates = {"rows": ps.count(), "least": ps.min("price"), "total": ps.sum("n")}
FAR = at(1_000, page="end")  # closes all that came before
OUT_OF_ORDER = [
    at(-20, -3, 2, 9),
    at(15, 4, 25, -1),
    at(30, 21, 14, 12, page="b"),  # the last is late by one batch
    at(3, 31, 24, 60, -7),
    at(58, 20, 45, page="b"),
    FAR,
]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def windows(**asked: Any) -> Callable[[Any], Any]:
    return lambda df: window_aggregate(df, **{"keys": ["page"], "time": "ts", **asked})


def small(n: int, seed: int, *, first: int, last: int) -> pa.Table:
    """Rows whose sums fit."""
    table = rows(n, seed, first=first, last=last)
    place = table.schema.get_field_index("n")
    return table.set_column(place, "n", pa.array(range(n), pa.int64()))


def test_tumbling_windows_with_late_rows_are_those_of_spark(users: Any, files: Files) -> None:
    files.put(at(1, 4, 12), at(3, 25, 19), at(9, 14, 31, 22), at(5, 24, 26, page="b"), at(29, 41), FAR)
    rows = files.run(users, _ours_beside_spark)
    ours, theirs = list[dict[str, Any]](), list[dict[str, Any]]()
    for row in rows:
        (ours if row.pop("ours") else theirs).append(row)
    assert len(theirs) > 5
    assert same(ours, theirs)


def _spark_itself(df: Any) -> Any:
    own = df.withWatermark("ts", "2 seconds").groupBy("page", F.window("ts", "10 seconds").alias("w"))
    bounds = F.col("w.start").alias("window_start"), F.col("w.end").alias("window_end")
    return own.agg(F.count("*").alias("rows"), F.sum("n").alias("total")).select(
        "page", *bounds, "rows", "total"
    )


def _ours_beside_spark(df: Any) -> Any:
    ours, theirs = _ours(df).withColumn("ours", F.lit(True)), _spark_itself(df)
    return ours.unionByName(theirs.withColumn("ours", F.lit(False)))


def _ours(df: Any) -> Any:
    return window_aggregate(
        df.withWatermark("ts", "2 seconds"),
        keys=["page"],
        time="ts",
        window=ps.tumbling("10 seconds"),
        aggregates={"rows": ps.count(), "total": ps.sum("n")},
    )


def test_sliding_windows_leave_as_in_a_graph_also_before_1970_and_over_a_restart(
    users: Any, files: Files
) -> None:
    batches = [small(60, seed, first=(seed * 20 - 60) * S, last=(seed * 20 - 30) * S) for seed in range(4)]
    asked: dict[str, Any] = {"window": SLIDING, "aggregates": COUNTED, "delay": "15 s", "lateness": "1 s"}
    expected = judged_stream([*batches, FAR], ["page"], SLIDING, COUNTED, delay="15 s", lateness="1 s")
    files.put(*batches[:2])
    before = files.run(users, windows(**asked))
    files.put(*batches[2:], FAR)
    after = files.run(users, windows(**asked))
    assert before
    assert after
    assert min(row["window_start"].year for row in before) == 1969
    assert same(before + after, expected)


def fold_sum(a: float, b: float) -> float:
    return a + b


ROADS: list[Any] = [
    pytest.param(
        SLIDING,
        {"twice": ps.fold(lambda row: row.n * 2.0, fold_sum, 0.0, columns="n"), "rows": ps.count()},
        id="fold",
    ),
    pytest.param(ps.session("4 s"), {"rows": ps.count(), "total": ps.sum("n")}, id="session"),
    # These take the road of sessions; test_state.py tries all of them without Spark.
    pytest.param(
        SLIDING, {"all": ps.collect("n"), "last": ps.last("price")}, id="sliding", marks=pytest.mark.nightly
    ),
    pytest.param(ps.count_window(3, 2), {"all": ps.collect("n")}, id="count", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("window", "aggregates"), ROADS)
def test_by_parts_and_by_rows_late_rows_are_late_as_in_a_graph(
    users: Any, files: Files, window: Any, aggregates: Aggregates
) -> None:
    files.put(*OUT_OF_ORDER)
    expected = judged_stream(OUT_OF_ORDER, ["page"], window, aggregates, delay="5 s", lateness="2 s")
    rows = files.run(users, windows(window=window, aggregates=aggregates, delay="5 s", lateness="2 s"))
    assert len(expected) >= 5
    assert same(rows, expected)


@pytest.mark.nightly  # sliding windows do in make test; test_state.py takes sessions from state to state
def test_sessions_go_on_from_a_checkpoint(users: Any, files: Files) -> None:
    batches = [small(30, seed, first=(seed * 10) * S, last=(seed * 10 + 12) * S) for seed in range(4)]
    window, aggregates = ps.session("4 s"), {"rows": ps.count(), "total": ps.sum("n")}
    plan = windows(window=window, aggregates=aggregates, delay="2 s")
    files.put(*batches[:2])
    before = files.run(users, plan)
    files.put(*batches[2:], FAR)
    after = files.run(users, plan)
    expected = judged_stream([*batches, FAR], ["page"], window, aggregates, delay="2 s")
    assert before
    assert after
    assert same(before + after, expected)


def test_a_slice_that_has_closed_takes_no_more_rows_though_a_window_of_it_is_open(
    users: Any, files: Files
) -> None:
    #  slices of 5 s; the watermark is 12 after the first batch and 13 after the second
    #  row 6 comes in the third: its slice [5, 10) has closed, its window [5, 15) has not left
    files.put(at(1, 6, 12), at(13), at(6, 13), FAR)
    window, counts = ps.sliding("10 s", "5 s"), {"rows": ps.count()}
    rows = files.run(users, windows(window=window, aggregates=counts, delay="0 s"))
    by_start = {row["window_start"].second: row["rows"] for row in rows if row["page"] == "a"}
    assert by_start == {55: 1, 0: 2, 5: 4, 10: 3}


def test_groups_are_spread_evenly_over_partitions(users: Any) -> None:
    frame = users.createDataFrame([(group,) for group in GROUPS], "`group` int")
    counts_of = (1, 2, 3, 4, 5, 6, 7, 8, 16)
    partitions = [F.pmod(F.hash("group"), F.lit(n)).alias(str(n)) for n in counts_of]
    placed = {row["group"]: row for row in frame.select("group", *partitions).collect()}
    for groups in (GROUPS, GROUPS[:N_SLICE_GROUPS]):
        for n_partitions in counts_of:
            counts = Counter(placed[group][str(n_partitions)] for group in groups).values()
            assert len(counts) == min(n_partitions, len(groups))
            assert max(counts) - min(counts) <= 1
