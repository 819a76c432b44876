"""Streaming DataFrames, batch by batch: `window_aggregate`, Spark's own windows, and two group-bys.

All of them read the same files, one a batch, in sessions with the same settings, those that
docs/spark-dataframes.md lists. Nothing is written: what leaves is counted and added up by Spark
(`observe`), so that a batch is the time of the operators and of the checkpoint. A figure is the median of the
batches of a query after the first two, per million rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import penstock as ps
from bench.workloads.spark.ours import FIRST
from bench.workloads.spark.peers import SCHEMA, open_spark
from bench.workloads.spark.rows import Rows, compute_answer, count_windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PER_MILLION = "per million rows (s)"
N_FEW = FIRST + 1
"""Files of a query of Spark's own windows: one batch of it takes longer than a whole query of the others."""
_LEFT = "left"
_STATE_STORE = "spark.sql.streaming.stateStore."
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    f"{_STATE_STORE}providerClass": _ROCKSDB,
    f"{_STATE_STORE}rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE_STORE}rocksdb.trackTotalNumberOfRows": "false",
}


class StreamTotals(NamedTuple):
    """What left a query, (rows, the sum of n, the sum of total), and the seconds of each batch with rows."""

    answer: tuple[int, int, float]
    batches: tuple[float, ...]
    batch_rows: int

    def __eq__(self, other: object) -> bool:
        return self.answer == other

    def __hash__(self) -> int:
        return hash(self.answer)


def batch_notes(totals: StreamTotals) -> Mapping[str, float]:
    """Return the time of a million rows once the query is warm."""
    return {PER_MILLION: median(totals.batches[FIRST:]) * 1e6 / totals.batch_rows}


def run_window_aggregate(rows: Rows) -> StreamTotals:
    """Run sliding windows by `penstock.spark.window_aggregate`."""
    from penstock.spark import window_aggregate

    stream, shape = _read_stream(rows), rows.shape
    windows = window_aggregate(
        stream.withWatermark("ts", "2 seconds"),
        keys=["key"],
        time="ts",
        window=ps.sliding(f"{shape.size} us", f"{shape.every} us"),
        aggregates={"total": ps.sum("value"), "n": ps.count()},
    )
    return _run(windows, "append", rows)


def run_own_windows(rows: Rows) -> StreamTotals:
    """Run the same windows by `groupBy(window(...))`, over the first files."""
    from pyspark.sql import functions as F

    stream, shape = _read_stream(rows, N_FEW), rows.shape
    window = F.window("ts", f"{shape.size} microseconds", f"{shape.every} microseconds")
    return _run(_sum(stream.withWatermark("ts", "2 seconds").groupBy(window, "key")), "append", rows)


def run_panes(rows: Rows) -> StreamTotals:
    """Run a stateful group-by of pane and key: what every plan of sliding windows has to do at least.

    Panes by integer arithmetic, which is the quickest that Spark has: its window() takes twice as long.
    """
    from pyspark.sql import functions as F

    stream, every = _read_stream(rows), rows.shape.every
    us = F.unix_micros("ts")
    end = F.timestamp_micros(us - F.pmod(us, F.lit(every)) + F.lit(every))
    # Why: by this mark Spark closes groups of the column by the watermark.
    pane = end.alias("pane", metadata={"spark.watermarkDelayMs": 2_000})
    panes = stream.withWatermark("ts", "2 seconds").select(pane, "key", "value")
    return _run(_sum(panes.groupBy("pane", "key")), "append", rows)


def run_group_by(rows: Rows) -> StreamTotals:
    """Run a stateful group-by of the key alone, without time."""
    return _run(_sum(_read_stream(rows).groupBy("key")), "update", rows)


def count_all_windows(rows: Rows) -> tuple[int, int, float]:
    """Return what leaves a query of windows over all files."""
    return count_windows(compute_answer(rows))


def count_first_windows(rows: Rows) -> tuple[int, int, float]:
    """Return what leaves a query of windows over the first files."""
    return count_windows(compute_answer(rows.first(N_FEW)))


def count_panes(rows: Rows) -> tuple[int, int, float]:
    """Return what leaves a group-by of panes over all files: the panes that the last watermark closes."""
    panes = replace(rows.shape, size=rows.shape.every)
    return count_windows(compute_answer(replace(rows, shape=panes)))


def count_updates(rows: Rows) -> tuple[int, int, float]:
    """Return what leaves a group-by in update mode: after every batch, the sums so far of all its keys."""
    updates = [compute_sums(rows.first(n)) for n in range(1, rows.shape.n_files + 1)]
    return (
        sum(n_keys for n_keys, _, _ in updates),
        sum(n for _, n, _ in updates),
        sum(total for _, _, total in updates),
    )


def compute_sums(rows: Rows) -> tuple[int, int, float]:
    """Return the number of keys, of rows, and the sum of all values."""
    return len(set(rows.keys.tolist())), len(rows.keys), float(rows.values.sum())


def _sum(grouped: Any) -> DataFrame:
    from pyspark.sql import functions as F

    frame: DataFrame = grouped.agg(F.sum("value").alias("total"), F.count(F.lit(1)).alias("n"))
    return frame


def _read_stream(rows: Rows, n_files: int | None = None) -> DataFrame:
    spark = open_spark()
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(rows.path if n_files is None else rows.link_first(n_files)))


def _run(frame: DataFrame, mode: str, rows: Rows) -> StreamTotals:
    from pyspark.sql import functions as F

    sums = F.count(F.lit(1)).alias("rows"), F.sum("n").alias("n"), F.sum("total").alias("total")
    writer = frame.observe(_LEFT, *sums).writeStream.format("noop").outputMode(mode)
    checkpoint = str(rows.new_folder() / "checkpoint")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    progress = query.recentProgress
    left = [one["observedMetrics"][_LEFT] for one in progress if _LEFT in one["observedMetrics"]]
    return StreamTotals(
        (
            sum(one["rows"] for one in left),
            sum(one["n"] or 0 for one in left),
            sum(one["total"] or 0.0 for one in left),
        ),
        tuple(one["durationMs"]["triggerExecution"] / 1e3 for one in progress if one["numInputRows"]),
        rows.shape.batch,
    )
