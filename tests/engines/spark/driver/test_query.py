"""Which runs are a query of Structured Streaming, and what its progress tells."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

import penstock as ps
from penstock import EngineError, col
from penstock.engines.spark.driver.progress import BatchProgress
from penstock.engines.spark.driver.query import RunQuery, read_log
from penstock.engines.spark.driver.run import SparkRun
from penstock.engines.spark.session.session import RunSession
from penstock.engines.spark.wire import NO_EDGE, Kind, WireRow

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[4]


@dataclass
class Queries(StreamingQueryListener):  # type: ignore[misc]
    """What a listener of the user's hears of the queries of a session."""

    started: list[str] = field(default_factory=list)
    input_rows: list[int] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    failures: list[str | None] = field(default_factory=list)
    watermarks: list[str | None] = field(default_factory=list)
    observed: list[dict[str, Any]] = field(default_factory=list)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self.started.append(str(event.name))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self.input_rows.append(event.progress.numInputRows)
        self.batches.append(event.progress.batchId)
        self.watermarks.append(event.progress.eventTime.get("watermark"))
        observed = event.progress.observedMetrics.get("penstock")
        self.observed.append({} if observed is None else observed.asDict())

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self.failures.append(event.exception)


@contextmanager
def queries_of(spark_session: RunSession) -> Iterator[Queries]:
    listener, session = Queries(), SparkSession.builder.getOrCreate()
    session.streams.addListener(listener)
    yield listener
    spark_session.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    session.streams.removeListener(listener)


def double_value(v: int) -> list[int]:
    rows = ps.PipeGraph("doubled").source(ps.read.rows([{"v": v}]))
    output: list[int] = rows.with_columns(v=col("v") * 2).collect("spark")["v"].to_pylist()
    return output


def test_a_bounded_run_is_plain_jobs_and_no_query(spark_session: RunSession) -> None:
    with queries_of(spark_session) as queries:
        assert double_value(1) == [2]
    assert not queries.started


def test_a_run_that_fails_does_not_disturb_the_next(spark_session: RunSession) -> None:
    graph = ps.PipeGraph("fails")
    with pytest.raises(ps.FunctionError):
        graph.source(ps.read.rows([{"v": 0}])).with_columns(v=ps.lit(1) % col("v")).collect("spark")
    assert double_value(3) == [6]


def test_the_progress_of_a_query_tells_the_rows_of_the_run(spark_session: RunSession, tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(pa.table({"v": list(range(100))}), tmp_path / f"{number}.parquet")
    graph = ps.PipeGraph("progress")
    rows = graph.source(ps.read.parquet(tmp_path / "*.parquet"), name="rows")
    rows.filter(col("v") < 10, name="few").sink(ps.write.jsonl(tmp_path / "out"), name="out")
    with queries_of(spark_session) as queries:
        trigger = ps.SparkOptions(trigger="10 milliseconds")
        graph.run("spark", checkpoint=str(tmp_path / "checkpoint"), options=trigger, drain=True)
    assert {name.rpartition("-")[0] for name in queries.started} == {"progress"}
    assert sum(queries.input_rows) == 300
    assert queries.failures[-1] is None


def write_times(folder: Path, *files: list[int]) -> None:
    """Write a file of rows with these seconds for each."""
    for number, seconds in enumerate(files):
        at = pa.array([s * 1_000_000 for s in seconds], pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"t": at, "k": [1] * len(seconds)}), folder / f"{number}.parquet")


def count_by_minute(rows: ps.MultiPipe, out: Path) -> ps.PipeGraph:
    counts = rows.key_by("k").window(ps.tumbling("1 min"), name="counts").aggregate(n=ps.count())
    counts.sink(ps.write.jsonl(out), name="out")
    return rows.graph


def test_the_progress_of_a_query_tells_watermarks_state_and_late_rows(
    spark_session: RunSession, tmp_path: Path
) -> None:
    write_times(tmp_path, [0, 70, 3_600], [5, 3_700])  # 5 s is an hour late
    graph = ps.PipeGraph("told")
    rows = graph.source(ps.read.parquet(tmp_path / "*.parquet"), time="t", delay="10 s", name="rows")
    count_by_minute(rows, tmp_path / "out")
    with queries_of(spark_session) as queries:
        options = ps.SparkOptions(max_files_per_batch=1)
        graph.run("spark", checkpoint=str(tmp_path / "checkpoint"), options=options, drain=False)
    metrics = [observed for observed in queries.observed if observed.get("rounds")]
    assert [observed["rounds"] for observed in metrics] == [1, 1]
    assert [observed["rows_late"] for observed in metrics] == [0, 1]
    assert [observed["state_rows"] for observed in metrics] == [1, 1]  # the window that is open
    assert all(observed["state_bytes"] > 0 for observed in metrics)
    at = [observed["watermark of rows"].strftime("%H:%M:%S") for observed in metrics]
    assert at == ["00:59:50", "01:01:30"]
    # Spark's own field says by which watermark a batch was judged.
    assert "1970-01-01T00:59:50.000Z" in queries.watermarks


def test_the_query_of_a_stream_of_sparks_tells_its_watermark_and_state_too(
    spark_session: RunSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    write_times(tmp_path / "in", [0, 70, 3_600])
    frames = SparkSession.builder.getOrCreate().readStream.schema("t timestamp, k long")
    stream = ps.read.spark(frames.parquet(str(tmp_path / "in")), follow=False)
    rows = ps.PipeGraph("followed").source(stream, time="t", delay="10 s", name="rows")
    graph = count_by_minute(rows, tmp_path / "out")
    with queries_of(spark_session) as queries:
        graph.run("spark", drain=False)
    (observed,) = [observed for observed in queries.observed if observed.get("rounds")]
    assert observed["watermark of rows"].strftime("%H:%M:%S") == "00:59:50"
    assert (observed["state_rows"], observed["rows_late"]) == (1, 0)
    assert sum(queries.input_rows) == 3


def test_a_bounded_run_with_a_checkpoint_is_a_query_whose_log_goes_on(
    spark_session: RunSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()

    def run(**options: Any) -> None:
        rows = ps.PipeGraph("logged").source(ps.read.parquet(tmp_path / "in"), name="rows")
        rows.filter(lambda row: row.v > 0, name="few").sink(ps.write.jsonl(tmp_path / "out"), name="out")
        rows.graph.run("spark", checkpoint=str(tmp_path / "checkpoint"), **{"drain": True, **options})

    pq.write_table(pa.table({"v": [1, 2]}), tmp_path / "in" / "a.parquet")
    with queries_of(spark_session) as queries:
        run(until=1, drain=False)
        pq.write_table(pa.table({"v": [3]}), tmp_path / "in" / "b.parquet")
        run()
    assert len(set(queries.started)) == 2  # a query that starts too slowly is started again
    assert queries.batches[0] == 0
    assert queries.batches[-1] > 0
    assert sum(queries.input_rows) == 3
    lines = [line for file in (tmp_path / "out").glob("part-*") for line in file.read_text().splitlines()]
    assert sorted(lines) == ['{"v":1}', '{"v":2}', '{"v":3}']


def test_a_log_that_cannot_be_read_counts_from_the_beginning(tmp_path: Path) -> None:
    assert read_log(tmp_path) == 0
    for folder, text in (("commits", "v1\n{}"), ("offsets", 'v1\n{}\n{"planned": 7}')):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "4").write_text(text)
    assert read_log(tmp_path) == 7
    (tmp_path / "offsets" / "4").write_text("v1\n{")
    assert read_log(tmp_path) == 0


def test_runs_at_the_same_time_do_not_wait_for_each_other(spark_session: RunSession) -> None:
    meet = threading.Barrier(2, timeout=60)

    def graph(name: str) -> ps.PipeGraph:
        graph = ps.PipeGraph(name)
        met = ps.write.callback(lambda batch: meet.wait() and None)
        graph.source(ps.read.rows([{"v": 1}])).with_columns(v=col("v") + 1).sink(met)
        return graph

    runs = [graph(name).start("spark") for name in "ab"]
    assert [run.wait(60).outcome for run in runs] == ["drained", "drained"]


def test_a_run_with_a_trigger_is_a_query(spark_session: RunSession) -> None:
    rows = ps.PipeGraph("slow").source(ps.read.rows([{"v": 1}]))
    rows.with_columns(v=col("v") + 1).sink(memory := ps.write.memory())
    with queries_of(spark_session) as queries:
        rows.graph.run("spark", options=ps.SparkOptions(trigger="10 milliseconds"))
    assert memory.table()["v"].to_pylist() == [2]
    assert len(queries.started) == 1
    assert sum(queries.input_rows) == 1


def test_a_query_that_spark_stops_ends_the_run_with_an_error(
    spark_session: RunSession, tmp_path: Path
) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    query = RunQuery(
        spark_session.spark, "stopped", checkpoint=str(tmp_path / "c"), folder=plans, trigger=None
    )
    query.wait_until_asked(threading.Event())
    query.close()
    with pytest.raises(EngineError, match="Spark stopped the query"):
        query.run([[WireRow(0, Kind.WAKE, NO_EDGE, 0, 0)]], lambda frame: BatchProgress())


def test_the_job_of_a_query_that_spark_stops_is_cancelled(spark_session: RunSession, tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def hold(row: dict[str, int]) -> dict[str, int]:
        begun.touch()
        while True:
            time.sleep(0.01)

    rows = ps.PipeGraph("held").source(ps.read.rows([{"v": 1}]))
    rows.map(hold, schema={"v": int}).sink(ps.write.memory())
    run = rows.graph.start("spark", options=ps.SparkOptions(trigger="10 milliseconds"))
    while not begun.exists():
        time.sleep(0.01)
    (query,) = cast("SparkRun", run)._session.spark.streams.active
    query.stop()
    with pytest.raises(EngineError, match="Spark failed to run a batch"):
        run.wait(60)


STOPPED = """
from pyspark.sql import SparkSession
import penstock as ps

def run() -> int:
    rows = ps.PipeGraph("g").source(ps.read.rows([{"v": 1}]))
    return rows.with_columns(v=ps.col("v") + 1).collect("spark", options=options).num_rows

options = ps.SparkOptions(conf={"spark.driver.memory": "700m"})
print(run())
SparkSession.active().stop()
print(run())
SparkSession.active().stop()
options = ps.SparkOptions(conf={"spark.driver.memory": "800m"})
try:
    run()
except ps.EngineError as problem:
    print(problem.fact, problem.hint, sep="\\n")
"""


def test_runs_print_nothing_keep_neither_spark_nor_the_process_alive_and_cannot_change_java() -> None:
    # A run that is a query prints nothing and ends in test_killed.py.
    done: Any = subprocess.run(
        [sys.executable, "-c", STOPPED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "1\n1\nthe setting spark.driver.memory comes too late: the driver's Java is running already\n"
        "give it in the first run of the process\n",
        "",
    )
