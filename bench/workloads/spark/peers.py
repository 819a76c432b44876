"""Structured Streaming written by hand: its own windows, and group-bys without windows.

Each reads one file a batch and writes parquet with a checkpoint on the same disk. The group-bys are a
lower bound for any window plan: sliding windows need at least panes, and keys alone ignore time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.workloads.spark.ours import FIRST, PER_BATCH, SparkRun
from bench.workloads.spark.rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "ts timestamp, key long, value double"


def run_windows(rows: Rows) -> SparkRun:
    """Run `groupBy(window(...))` in append mode."""
    from pyspark.sql import functions as F

    out, shape = rows.new_folder(), rows.shape
    grouped = (
        _read_stream(rows)
        .withWatermark("ts", "2 seconds")
        .groupBy(F.window("ts", f"{shape.size} microseconds", f"{shape.every} microseconds"), "key")
        .agg(F.sum("value").alias("total"), F.count(F.lit(1)).alias("n"))
        .select(F.col("window.start").alias("start"), "key", "total", "n")
    )
    writer = grouped.writeStream.outputMode("append").format("parquet").option("path", str(out / "windows"))
    writer.option("checkpointLocation", str(out / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    return SparkRun(out, "start", shape.n_files)


def run_panes(rows: Rows) -> int:
    """Run a stateful group-by of (pane, key), and return the number of groups."""
    return _count_distinct(_run_updates(_group_panes(rows), rows)[0], "pane", "key")


class TimedAnswer(NamedTuple):
    """An answer, and the seconds of each batch."""

    answer: int
    batches: list[float]

    def __eq__(self, other: object) -> bool:
        return self.answer == other

    def __hash__(self) -> int:
        return hash(self.answer)


def run_live_panes(rows: Rows) -> TimedAnswer:
    """Run the same group-by and return the times of its batches as Spark reports them."""
    out, took = _run_updates(_group_panes(rows), rows)
    return TimedAnswer(_count_distinct(out, "pane", "key"), took)


def batch_notes(timed: TimedAnswer) -> Mapping[str, float]:
    """Return the median time of a batch."""
    return {PER_BATCH: median(timed.batches[FIRST:])}


def run_identity(rows: Rows) -> int:
    """Pass every row to a Python worker and back unchanged, and return the number of rows."""
    from pyspark.sql import functions as F

    out = rows.new_folder()
    counts: list[int] = []

    def write(frame: Any, number: int) -> None:
        counts.append(frame.agg(F.count("value")).first()[0])

    query = _read_stream(rows).mapInArrow(_pass_on, SCHEMA).writeStream.foreachBatch(write)
    query = query.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True)
    query.start().awaitTermination()
    return sum(counts)


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _group_panes(rows: Rows) -> Any:
    from pyspark.sql import functions as F

    stream = _read_stream(rows)  # Invariant: the session is open before a Column is built
    micros = F.unix_micros("ts")
    pane = (micros - F.pmod(micros, F.lit(rows.shape.every))).alias("pane")
    return stream.groupBy(pane, "key").agg(F.sum("value").alias("total"), F.count(F.lit(1)).alias("n"))


def _count_distinct(table: pa.Table, *names: str) -> int:
    return len(set(zip(*(table.column(name).to_pylist() for name in names), strict=True)))


def count_panes(rows: Rows) -> int:
    """Return the number of (pane, key) groups of the case."""
    return len(np.unique(rows.times // rows.shape.every * rows.shape.n_keys + rows.keys))


def run_sums(rows: Rows) -> int:
    """Run a stateful group-by of the key alone, and return the number of groups."""
    from pyspark.sql import functions as F

    grouped = (
        _read_stream(rows).groupBy("key").agg(F.sum("value").alias("total"), F.count(F.lit(1)).alias("n"))
    )
    return _count_distinct(_run_updates(grouped, rows)[0], "key")


def count_keys(rows: Rows) -> int:
    """Return the number of keys of the case."""
    return len(np.unique(rows.keys))


def open_spark() -> SparkSession:
    """Return the session that all ways share, with memory for the state of a million keys."""
    from penstock.engines.spark.session.session import open_session
    from penstock.options import SparkOptions

    return open_session(SparkOptions(conf={"spark.driver.memory": "4g"})).spark


def _read_stream(rows: Rows) -> Any:
    reader = open_spark().readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(rows.path))


def _run_updates(grouped: Any, rows: Rows) -> tuple[pa.Table, list[float]]:
    """Run a query in update mode, and return the rows it wrote and the seconds of its batches."""
    out: Path = rows.new_folder()

    def write(frame: Any, number: int) -> None:
        frame.write.mode("append").parquet(str(out / "rows"))

    query = grouped.writeStream.outputMode("update").foreachBatch(write)
    query = query.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True)
    started = query.start()
    started.awaitTermination()
    took = [progress["durationMs"]["triggerExecution"] / 1e3 for progress in started.recentProgress]
    return pq.read_table(out / "rows"), took
