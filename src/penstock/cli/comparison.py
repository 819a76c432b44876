"""The throughput of the demo's program beside the same in Spark's own words, on the same files in one run.

Both read parquet files, join them with the campaigns, count in the same windows, write parquet files and keep
a checkpoint; both stop when all files are read, and leave the windows open that may still get rows. The
session is one that Penstock started, with as many shuffle partitions for Spark's query as there are cores,
which is good for it. No event is late, so that both have the same windows.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

import penstock as ps
from penstock import col
from penstock.apps.campaign_views import ad_events, campaigns

N_FILES = 4
ROUNDS = 2
"""Rounds that are counted, of each."""
SCHEMA = "event_time timestamp, ad_id long, event_type string, price double"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What both took, and whether they agree.

    rows       events that each read
    ours       rows per second of Penstock, the median of the rounds
    spark      rows per second of Spark's window()
    windows    windows of both that were compared
    different  those of them that differ
    """

    rows: int
    ours: float
    spark: float
    windows: int
    different: int


def compare(folder: Path, *, rows: int, seed: int) -> Comparison:
    """Run both in turn over the same files, after a round that is not counted."""
    events, seconds = folder / "events", max(60, rows // 2_000)
    shutil.rmtree(folder, ignore_errors=True)
    events.mkdir(parents=True)
    table = ad_events(rows, seconds=seconds, seed=seed, late_share=0.0)
    share = -(-rows // N_FILES)
    for i in range(N_FILES):
        pq.write_table(table.slice(i * share, share), events / f"part-{i}.parquet")
    pq.write_table(campaigns(), folder / "campaigns.parquet")
    session = ps.PipeGraph("session").source(ps.read.rows([{"a": 1}])).to_spark().sparkSession.newSession()
    session.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count() or 1))
    took: dict[Callable[..., None], list[float]] = {run_penstock: [], run_spark: []}
    for number in range(ROUNDS + 1):
        for run, times in took.items():
            began = time.perf_counter()
            run(folder, folder / f"{run.__name__}-{number}", session)
            times.append(time.perf_counter() - began)
    ours, theirs = (read_windows(folder / f"{run.__name__}-{ROUNDS}") for run in took)
    both = ours.keys() & theirs.keys()
    different = sum(ours[key] != theirs[key] for key in both)
    rates = [rows / median(times[1:]) for times in took.values()]
    return Comparison(rows, rates[0], rates[1], len(both), different)


def run_penstock(folder: Path, out: Path, session: Any) -> None:
    """Count with Penstock."""
    graph = ps.PipeGraph("campaign-views")
    events = graph.source(ps.read.parquet(folder / "events"), time="event_time", delay="2 s", name="events")
    views = (
        events.filter(col("event_type") == "view", name="only-views")
        .join_table(campaigns(), on="ad_id", name="campaigns")
        .key_by("campaign_id")
        .window(ps.sliding("10 s", every="1 s"), name="views")
        .aggregate(views=ps.count(), revenue=ps.sum("price"))
    )
    views.sink(ps.write.parquet(out / "views"), name="results")
    graph.run("spark", checkpoint=str(out / "checkpoint"), drain=False)


def run_spark(folder: Path, out: Path, session: Any) -> None:
    """Count with Structured Streaming's own window()."""
    names = session.read.parquet(str(folder / "campaigns.parquet"))
    events = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "events"))
    joined = events.where("event_type = 'view'").join(names, "ad_id").withWatermark("event_time", "2 seconds")
    joined.createOrReplaceTempView("campaign_views")
    views = session.sql(
        "SELECT campaign_id, window.start AS window_start, window.end AS window_end, count(*) AS views, "
        "sum(price) AS revenue FROM campaign_views "
        "GROUP BY window(event_time, '10 seconds', '1 second'), campaign_id"
    )
    writer = views.writeStream.outputMode("append").format("parquet").option("path", str(out / "views"))
    writer = writer.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()


def read_windows(out: Path) -> dict[Any, int]:
    """Return the views by campaign and window."""
    table = pq.read_table(out / "views", columns=["campaign_id", "window_start", "views"])
    rows = table.to_pylist()
    return {(row["campaign_id"], row["window_start"].timestamp()): row["views"] for row in rows}
