"""The systems under test: Penstock in process and on Spark, PySpark written by hand, and Flink SQL.

Each runs SWA, YSB or YSB* of AIR (5.1). Results go to the stop-watch of the feed in the process that started
the query: by a callback, by `foreachBatch`, by reading the result of the SQL.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from bench.peers.peer import FLINK_PACED, PeerProcess
from bench.sustainable import System, Trial
from bench.workloads.spark.peers import open_spark
from bench.workloads.sustainable.feed import (
    ADS_EACH,
    BEGIN,
    CLICK,
    N_ADS,
    SCHEMA,
    TICK_US,
    VIEW,
    Feed,
    FileFeed,
    Query,
)
from penstock import col

IN_PROCESS, ON_SPARK, BY_HAND = "penstock in process", "penstock on Spark", "PySpark by hand"
CAMPAIGNS = pa.table({"ad": np.arange(N_ADS), "campaign": np.arange(N_ADS) // ADS_EACH})


def build_system(name: str, query: Query) -> System:
    """Return the system of that name, for a query."""
    run = _RUNS[name]
    return lambda rate, seconds: run(query, rate, seconds)


def run_in_process(query: Query, rate: float, seconds: float) -> Trial:
    """Run in process, from columns in memory."""
    feed = Feed(query, rate, seconds)
    reader = ps.read.generator(feed.batches, schema=SCHEMA, bounded=False)
    build_graph(query, reader, feed).run(engine="local")
    return feed.watch.trial()


def run_on_spark(query: Query, rate: float, seconds: float) -> Trial:
    """Run on Spark, from a folder that is followed."""
    files = FileFeed(Feed(query, rate, seconds))
    try:
        graph = build_graph(query, ps.read.parquet(files.folder, follow=True, schema=SCHEMA), files.feed)
        options = ps.SparkOptions(session=open_spark())
        run = graph.start(engine="spark", checkpoint=str(files.new_folder()), options=options)
        files.start()
        files.feed.watch.await_end()
        run.stop()
        run.wait()
        return files.feed.watch.trial()
    finally:
        files.remove()


def build_graph(query: Query, reader: Any, feed: Feed) -> ps.PipeGraph:
    """Build the program, whose results go to the stop-watch."""
    graph = ps.PipeGraph("sustainable")
    events = graph.source(reader, time="ts", delay="0 s")
    windows = ps.sliding(f"{query.size} us", every=f"{query.every} us")
    results: ps.MultiPipe
    if query.kind == "swa":
        results = events.window(windows, name="count").aggregate(value=ps.count())
    elif query.kind == "ysb":
        results = _count_kind(events, VIEW, windows, "value")
    else:
        kinds = events.split(view=col("event_type") == VIEW, click=col("event_type") == CLICK)
        views = _count_kind(kinds["view"], VIEW, windows, "views")
        clicks = _count_kind(kinds["click"], CLICK, windows, "clicks")
        tumbling = ps.tumbling(f"{query.size} us")
        joined = views.join(clicks.select("campaign", "clicks"), on="campaign", window=tumbling, name="join")
        results = joined.with_columns(value=col("clicks") / col("views"))
    results.select("window_end", "value").sink(ps.write.callback(lambda rows: _take(feed, rows)))
    return graph


def _count_kind(events: ps.MultiPipe, kind: int, windows: Any, name: str) -> ps.MultiPipe:
    joined = events.filter(col("event_type") == kind).join_table(CAMPAIGNS, on="ad")
    return joined.key_by("campaign").window(windows, name=name).aggregate(**{name: ps.count()})


def _take(feed: Feed, rows: pa.RecordBatch) -> None:
    ends = rows.column("window_end").cast(pa.int64())
    feed.watch.take(ends.to_pylist(), rows.column("value").to_pylist())


def run_by_hand(query: Query, rate: float, seconds: float) -> Trial:
    """Run Structured Streaming as its manual writes it, from the same files."""
    files = FileFeed(Feed(query, rate, seconds))
    watch = files.feed.watch

    def take(frame: Any, number: int) -> None:
        rows = frame.collect()
        watch.take([int(row[0]) for row in rows], [float(row[1]) for row in rows])

    try:
        running = (
            _write_by_hand(query, files.folder)
            .writeStream.outputMode("append")
            .foreachBatch(take)
            .option("checkpointLocation", str(files.new_folder()))
            .start()
        )
        files.start()
        watch.await_end()
        running.stop()
        running.awaitTermination()
        return watch.trial()
    finally:
        files.remove()


def _write_by_hand(query: Query, folder: Path) -> Any:
    from pyspark.sql import functions as F

    spark = open_spark()
    schema = "ts timestamp, ad long, event_type long"
    events = spark.readStream.schema(schema).parquet(str(folder)).withWatermark("ts", "0 seconds")
    campaigns = F.broadcast(spark.createDataFrame(CAMPAIGNS.to_pandas()))
    window = F.window("ts", f"{query.size} microseconds", f"{query.every} microseconds")

    def count(kind: int, name: str) -> Any:
        joined = events.filter(F.col("event_type") == kind).join(campaigns, "ad")
        return joined.groupBy(window, "campaign").agg(F.count(F.lit(1)).alias(name))

    if query.kind == "swa":
        results = events.groupBy(window).agg(F.count(F.lit(1)).alias("value"))
    elif query.kind == "ysb":
        results = count(VIEW, "value")
    else:
        joined = count(VIEW, "views").join(count(CLICK, "clicks"), ["window", "campaign"])
        results = joined.withColumn("value", F.col("clicks") / F.col("views"))
    return results.select(F.unix_micros(F.col("window.end")), "value")


class FlinkSystem:
    """Flink SQL in a process of its own, fed by its own generator, which is paced by the same rate."""

    def __init__(self) -> None:
        self._process = PeerProcess(FLINK_PACED)

    def __call__(self, query: Query, rate: float, seconds: float) -> Trial:
        """Run a trial; the virtual clock starts at the earliest moment that the results allow."""
        feed = Feed(query, rate, seconds)
        with tempfile.TemporaryDirectory(prefix="penstock-flink-") as name:
            settings = {
                "begin": BEGIN,
                "tick_us": TICK_US,
                "per_tick": feed.per_tick,
                "n_rows": feed.per_tick * feed.n_ticks,
                "rate": round(feed.rate),
                "seconds": seconds,
                "size": query.size,
                "every": query.every,
            }
            (Path(name) / "feed.json").write_text(json.dumps(settings))
            self._process.prepare(query.kind, Path(name))
            results = self._process.run().answer()
        return build_flink_trial(feed, results)


def build_flink_trial(feed: Feed, results: list[Any]) -> Trial:
    """Return the trial of results of (end of window, moment, value)."""
    right, ends = feed.expected_value(), feed.window_ends()
    totals: dict[int, float] = {}
    counts: dict[int, int] = {}
    moments: dict[int, float] = {}
    for end, moment, value in results:
        totals[end] = totals.get(end, 0.0) + value
        counts[end] = counts.get(end, 0) + 1
        moments[end] = max(moments.get(end, 0.0), moment)
    whole = [end for end in ends if counts.get(end) == feed.query.n_keys]
    for end in whole:
        assert abs(totals[end] - right) <= 1e-6 * right, f"Flink counted {totals[end]}, not {right}"
    started = min((moments[end] - (end - BEGIN) / 1e6 for end in whole), default=0.0)
    delays = tuple(moments[end] - started - (end - BEGIN) / 1e6 for end in whole)
    return Trial(feed.rate, feed.seconds, delays, len(ends))


_RUNS: dict[str, Callable[[Query, float, float], Trial]] = {
    IN_PROCESS: run_in_process,
    ON_SPARK: run_on_spark,
    BY_HAND: run_by_hand,
    FLINK_PACED.name: FlinkSystem(),
}
