"""`pipe.to_spark()`: rows of a graph that ends, a stream where no run is needed, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import NotSupported, col
from tests.engines.spark.driver.test_stream_source import put, stream_of

pytestmark = pytest.mark.slow
ROWS = [{"t": 1, "key": "a", "v": 1}, {"t": 2, "key": "b", "v": 2}, {"t": 12, "key": "a", "v": 4}]


def sums(rows: ps.MultiPipe) -> ps.MultiPipe:
    windows = rows.key_by("key").window(ps.tumbling("10 s"), name="w")
    return windows.aggregate(s=ps.sum("v")).select("key", "s")


def test_a_pipe_of_a_graph_that_ends_is_a_dataframe_of_the_users_session(spark: Any) -> None:
    user = spark.newSession()
    rows = ps.PipeGraph("ends").source(ps.read.rows(ROWS), time="t", time_unit="s", delay="0 s")
    frame = sums(rows).to_spark(user)
    assert frame.sparkSession is user
    assert not frame.isStreaming
    assert sorted(map(tuple, frame.where("s > 1").collect())) == [("a", 4), ("b", 2)]


def test_a_dataframe_goes_through_a_graph_and_back(spark: Any) -> None:
    frame = spark.createDataFrame(ROWS)
    pipe = ps.PipeGraph("through").source(ps.read.spark(frame)).with_columns(v=col("v") * 10)
    assert sorted(row.v for row in pipe.to_spark().collect()) == [10, 20, 40]


def read_table(frame: Any, name: str) -> list[tuple[Any, ...]]:
    query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    return sorted(map(tuple, frame.sparkSession.table(name).collect()))


def test_a_stateless_pipe_of_a_stream_is_a_stream(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "in", 1, (1, "a", 1), (2, "b", 2))
    put(tmp_path / "in", 2, (12, "a", 4))
    stream = ps.read.spark(stream_of(spark, tmp_path / "in"))
    rows = ps.PipeGraph("stream").source(stream, time="t", time_unit="s", delay="0 s")

    def spell(row: Any) -> Iterator[dict[str, Any]]:
        yield {"key": row.key * row.v, "v": row.v}

    pipe = rows.filter(col("v") > 1).flat_map(spell, schema={"key": str, "v": int})
    frame = pipe.to_spark(spark)
    assert frame.isStreaming
    assert read_table(frame, "spelled") == [("aaaa", 4), ("bb", 2)]


def test_rows_of_a_stream_that_fail_are_a_stream_too(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "in", 1, (1, "a", 0), (2, "b", 2))
    rows = ps.PipeGraph("failed").source(ps.read.spark(stream_of(spark, tmp_path / "in")))
    rest = rows.with_columns(rest=ps.lit(7) % col("v"), on_error="dead_letter", name="rest")
    assert read_table(rest.select("rest").to_spark(spark), "rest") == [(1,)]
    assert read_table(rest.errors.select("key", "error_step").to_spark(spark), "failed") == [("a", "rest")]


def test_a_stream_with_state_is_refused(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "in", 1, (1, "a", 0))
    stream = ps.read.spark(stream_of(spark, tmp_path / "in"))
    rows = ps.PipeGraph("state").source(stream, time="t", time_unit="s", delay="0 s")
    with pytest.raises(NotSupported, match="a stream cannot be a DataFrame here") as failure:
        sums(rows).to_spark(spark)
    assert failure.value.step == "w"
    assert "write a table and read that" in str(failure.value.hint)


def test_streams_that_flow_together_are_refused(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "in", 1, (1, "a", 0))
    graph = ps.PipeGraph("two")
    one, other = (graph.source(ps.read.spark(stream_of(spark, tmp_path / "in"))) for _ in range(2))
    with pytest.raises(NotSupported, match="a stream cannot be a DataFrame here") as failure:
        one.merge(other).to_spark(spark)
    assert "several sources flow together" in str(failure.value.detail)


def test_a_source_without_an_end_that_spark_does_not_read_is_refused(spark: Any) -> None:
    endless = ps.read.generator(lambda: iter(ROWS), schema={"t": int}, bounded=False)
    with pytest.raises(NotSupported, match="a stream cannot be a DataFrame here") as failure:
        ps.PipeGraph("endless").source(endless, name="endless").to_spark(spark)
    assert failure.value.step == "endless"
