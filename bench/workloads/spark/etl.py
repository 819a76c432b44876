"""Files to files without windows: Penstock beside plain PySpark, as each would be written by hand.

A filter and more columns by expressions; the same and a Python function of Arrow batches; and a folder with
many small files, worked off as a stream with a checkpoint. Both write parquet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import penstock as ps
from bench.workloads.spark.peers import SCHEMA, open_spark
from bench.workloads.spark.rows import Rows
from penstock import col

LIMIT = 500.0
FILES_PER_BATCH = 100
"""Small files that one batch of a stream takes, here and there."""
ETL_SCHEMA = f"{SCHEMA}, double double, bucket long"
SCORE_SCHEMA = f"{ETL_SCHEMA}, score double"

Totals = tuple[int, float, float, int]
"""Rows that are kept, and their sums: of values, of what is computed last, and of buckets."""


@dataclass(frozen=True, slots=True)
class EtlRun:
    """The output of a run; `last` names the column that is computed last."""

    out: Path
    last: str

    def __call__(self) -> Totals:
        """Add up what the run wrote."""
        # Why not the folder: Penstock and Spark keep metadata in it, under names that begin with `_`.
        files = [str(file) for file in self.out.rglob("*.parquet") if not file.name.startswith((".", "_"))]
        table = pq.ParquetDataset(files).read(columns=["value", self.last, "bucket"])
        sums = [pc.sum(table.column(name)).as_py() for name in ("value", self.last, "bucket")]
        return table.num_rows, sums[0], sums[1], sums[2]


def compute_etl(rows: Rows) -> Totals:
    """Return the totals of a run by expressions."""
    selected = rows.values < LIMIT
    doubles = rows.values[selected] * 2.0
    return _total(rows, doubles)


def compute_scores(rows: Rows) -> Totals:
    """Return the totals of a run with a function."""
    selected = rows.values < LIMIT
    return _total(rows, rows.values[selected] * 2.0 + rows.keys[selected])


def _total(rows: Rows, computed: np.ndarray[Any, Any]) -> Totals:
    selected = rows.values < LIMIT
    values, keys = rows.values[selected], rows.keys[selected]
    return len(values), float(values.sum()), float(computed.sum()), int((keys % 10).sum())


def _add_columns(source: ps.MultiPipe) -> ps.MultiPipe:
    selected = source.filter(col("value") < LIMIT)
    return selected.with_columns(double=col("value") * 2.0, bucket=col("key") % 10)


def run_expressions(rows: Rows) -> EtlRun:
    """Run expressions only."""
    out = rows.new_folder() / "rows"
    graph = ps.PipeGraph("etl")
    _add_columns(graph.source(ps.read.parquet(rows.path))).sink(ps.write.parquet(out), name="out")
    graph.run(engine="spark")
    return EtlRun(out, "double")


def run_batch_function(rows: Rows) -> EtlRun:
    """Run expressions, and a function of batches after them."""
    out = rows.new_folder() / "rows"
    graph = ps.PipeGraph("etl")
    added = _add_columns(graph.source(ps.read.parquet(rows.path)))
    schema = added.schema.append(pa.field("score", pa.float64()))
    added.map(ps.batch(add_score, schema=schema), name="scores").sink(ps.write.parquet(out), name="out")
    graph.run(engine="spark")
    return EtlRun(out, "score")


def run_backlog(rows: Rows) -> EtlRun:
    """Follow a folder that is full of small files, and stop when they are done."""
    out = rows.new_folder()
    graph = ps.PipeGraph("etl")
    reader = ps.read.parquet(rows.path, follow=True, files=FILES_PER_BATCH)
    _add_columns(graph.source(reader)).sink(ps.write.parquet(out / "rows"), name="out")
    n_batches = -(-rows.shape.n_files // FILES_PER_BATCH)
    graph.run(engine="spark", checkpoint=str(out / "checkpoint"), until=n_batches, drain=True)
    return EtlRun(out / "rows", "double")


def run_spark_expressions(rows: Rows) -> EtlRun:
    """Run the same expressions in Spark's own DataFrame code."""
    out = rows.new_folder() / "rows"
    _add_spark_columns(_read_frame(rows)).write.parquet(str(out))
    return EtlRun(out, "double")


def run_map_in_arrow(rows: Rows) -> EtlRun:
    """Run the same expressions in Spark, and the same function by `mapInArrow`."""
    out = rows.new_folder() / "rows"
    _add_spark_columns(_read_frame(rows)).mapInArrow(_add_scores, SCORE_SCHEMA).write.parquet(str(out))
    return EtlRun(out, "score")


def run_file_stream(rows: Rows) -> EtlRun:
    """Run Spark's file stream over the small files, until all that are there are done."""
    out = rows.new_folder()
    reader = open_spark().readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_BATCH)
    writer = _add_spark_columns(reader.parquet(str(rows.path))).writeStream.format("parquet")
    writer = writer.option("path", str(out / "rows")).option("checkpointLocation", str(out / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return EtlRun(out / "rows", "double")


def add_score(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with a column more, computed by Arrow."""
    score = pc.add(batch.column("double"), pc.cast(batch.column("key"), pa.float64()))
    return batch.append_column("score", score)


def _add_scores(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from map(add_score, batches)


def _read_frame(rows: Rows) -> Any:
    return open_spark().read.schema(SCHEMA).parquet(str(rows.path))


def _add_spark_columns(frame: Any) -> Any:
    from pyspark.sql import functions as F

    selected = frame.filter(F.col("value") < LIMIT)
    return selected.withColumn("double", F.col("value") * 2.0).withColumn("bucket", F.col("key") % 10)
