"""The same on Structured Streaming by hand: its own windows, and group-bys that have none.

Each reads one file a batch and writes parquet with a checkpoint on the same disk. The group-bys are what no
window plan can beat: panes are the least that sliding windows need, keys have no time at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.workloads.spark.ours import FIRST, PER_BATCH, Told
from bench.workloads.spark.rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "ts timestamp, key long, value double"


def windows(rows: Rows) -> Told:
    """`groupBy(window(...))` in append mode."""
    from pyspark.sql import functions as F

    out, shape = rows.new_folder(), rows.shape
    grouped = (
        _stream(rows)
        .withWatermark("ts", "2 seconds")
        .groupBy(F.window("ts", f"{shape.size} microseconds", f"{shape.every} microseconds"), "key")
        .agg(F.sum("value").alias("total"), F.count(F.lit(1)).alias("n"))
        .select(F.col("window.start").alias("start"), "key", "total", "n")
    )
    writer = grouped.writeStream.outputMode("append").format("parquet").option("path", str(out / "windows"))
    writer.option("checkpointLocation", str(out / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    return Told(out, "start", shape.n_files)


def panes(rows: Rows) -> int:
    """Return a stateful group-by of (pane, key): how many groups there are in the end."""
    return _distinct(_updates(_panes(rows), rows)[0], "pane", "key")


class Timed(NamedTuple):
    """An answer, and how long each batch took in seconds."""

    answer: int
    batches: list[float]

    def __eq__(self, other: object) -> bool:
        return self.answer == other

    def __hash__(self) -> int:
        return hash(self.answer)


def live_panes(rows: Rows) -> Timed:
    """Return the same with the time of each batch, as Spark tells it."""
    out, took = _updates(_panes(rows), rows)
    return Timed(_distinct(out, "pane", "key"), took)


def notes(timed: Timed) -> Mapping[str, float]:
    """Return the time of a batch."""
    return {PER_BATCH: median(timed.batches[FIRST:])}


def identity(rows: Rows) -> int:
    """Return every row to a Python worker and back, and nothing done with it: how many came back."""
    from pyspark.sql import functions as F

    out = rows.new_folder()
    counts: list[int] = []

    def write(frame: Any, number: int) -> None:
        counts.append(frame.agg(F.count("value")).first()[0])

    query = _stream(rows).mapInArrow(_same, SCHEMA).writeStream.foreachBatch(write)
    query = query.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True)
    query.start().awaitTermination()
    return sum(counts)


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _panes(rows: Rows) -> Any:
    from pyspark.sql import functions as F

    stream = _stream(rows)  # first: Columns need a session
    micros = F.unix_micros("ts")
    pane = (micros - F.pmod(micros, F.lit(rows.shape.every))).alias("pane")
    return stream.groupBy(pane, "key").agg(F.sum("value").alias("total"), F.count(F.lit(1)).alias("n"))


def _distinct(table: pa.Table, *names: str) -> int:
    return len(set(zip(*(table.column(name).to_pylist() for name in names), strict=True)))


def n_panes(rows: Rows) -> int:
    """Return the number of there should be."""
    return len(np.unique(rows.times // rows.shape.every * rows.shape.n_keys + rows.keys))


def sums(rows: Rows) -> int:
    """Return a stateful group-by of the key alone: how many groups there are in the end."""
    from pyspark.sql import functions as F

    grouped = _stream(rows).groupBy("key").agg(F.sum("value").alias("total"), F.count(F.lit(1)).alias("n"))
    return _distinct(_updates(grouped, rows)[0], "key")


def n_keys(rows: Rows) -> int:
    """Return the number of there should be."""
    return len(np.unique(rows.keys))


def session() -> SparkSession:
    """The session that all ways have, with memory for the state of Spark's own windows of a million keys."""
    from penstock.engines.spark.session.session import open_session
    from penstock.options import SparkOptions

    return open_session(SparkOptions(conf={"spark.driver.memory": "4g"})).spark


def _stream(rows: Rows) -> Any:
    reader = session().readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(rows.path))


def _updates(grouped: Any, rows: Rows) -> tuple[pa.Table, list[float]]:
    """Run a query in update mode; everything it wrote, and how long its batches took in seconds."""
    out: Path = rows.new_folder()

    def write(frame: Any, number: int) -> None:
        frame.write.mode("append").parquet(str(out / "rows"))

    query = grouped.writeStream.outputMode("update").foreachBatch(write)
    query = query.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True)
    started = query.start()
    started.awaitTermination()
    took = [progress["durationMs"]["triggerExecution"] / 1e3 for progress in started.recentProgress]
    return pq.read_table(out / "rows"), took
