"""The same on Structured Streaming by hand: its own windows, and group-bys that have none.

Each reads one file a batch and writes parquet with a checkpoint on the same disk. The group-bys are what no
window plan can beat: panes are the least that sliding windows need, keys have no time at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from penstock.bench.workloads.spark.rows import Given, Rows, read_back

SCHEMA = "ts timestamp, key long, value double"


def windows(rows: Rows) -> Given:
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
    return lambda: read_back(out / "windows", "start")


def panes(rows: Rows) -> int:
    """A stateful group-by of (pane, key): how many groups there are in the end."""
    from pyspark.sql import functions as F

    micros = F.unix_micros("ts")
    pane = (micros - F.pmod(micros, F.lit(rows.shape.every))).alias("pane")
    grouped = (
        _stream(rows).groupBy(pane, "key").agg(F.sum("value").alias("total"), F.count(F.lit(1)).alias("n"))
    )
    out = _updates(grouped, rows)
    return len(set(zip(*(out.column(name).to_pylist() for name in ("pane", "key")), strict=True)))


def n_panes(rows: Rows) -> int:
    """How many there should be."""
    return len(set(zip((rows.times // rows.shape.every).tolist(), rows.keys.tolist(), strict=True)))


def sums(rows: Rows) -> int:
    """A stateful group-by of the key alone: how many groups there are in the end."""
    from pyspark.sql import functions as F

    grouped = _stream(rows).groupBy("key").agg(F.sum("value").alias("total"), F.count(F.lit(1)).alias("n"))
    return len(set(_updates(grouped, rows).column("key").to_pylist()))


def n_keys(rows: Rows) -> int:
    """How many there should be."""
    return len(set(rows.keys.tolist()))


def _stream(rows: Rows) -> Any:
    from penstock.engines.spark.engine import Defaults
    from penstock.engines.spark.session import open_session

    spark = open_session(Defaults()).spark
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(rows.path))


def _updates(grouped: Any, rows: Rows) -> Any:
    """Run a query in update mode; everything it wrote."""
    out: Path = rows.new_folder()

    def write(frame: Any, number: int) -> None:
        frame.write.mode("append").parquet(str(out / "rows"))

    query = grouped.writeStream.outputMode("update").foreachBatch(write)
    query = query.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True)
    query.start().awaitTermination()
    return pq.read_table(out / "rows")
