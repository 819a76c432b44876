"""Joins on Spark, files to files: the band join and a join on a key, beside what Spark's users can write.

Spark joins two streams only on an equality. So a band join is written with a constant as the key, and the
band as a filter: all rows meet in one partition. A join on a key with bounds of time is Spark's own strength.
Each way reads as many files a batch, has a watermark, a checkpoint and the rows of the other, and writes
parquet; what it wrote is compared with the right pairs.

The same band join of DataFrames, in batches and as streams, is `window_join` beside what users write: for a
batch a condition on both frames, which Spark compares pair by pair.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from bench.workload import Case, Cell, Claim, Way
from bench.workloads.join.streams import VALUES, WIDTH, Ints, encode_pairs
from bench.workloads.spark.peers import open_spark

OURS, SPARKS = "penstock on Spark", "Spark's stream-stream join"
FRAMES, STREAMS = "window_join of batch frames", "window_join of streaming frames"
CONDITION = "Spark's join on a condition"
BAND, KEY = "spark: band join", "spark: equality join within a time"
BATCH_FRAMES, STREAM_FRAMES = "spark: band join of batch frames", "spark: band join of streaming frames"
SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
SPARK_SCHEMA = "ts timestamp, key long, {} long, {} double, {} long"
NAMES = (("x", "y", "id"), ("a", "b", "other"))


@dataclass(frozen=True, slots=True)
class SparkShape:
    """What is joined: files of both sides, one of each a batch.

    n_keys    0 for the band join
    window_s  how far apart in time the rows of a pair may be
    """

    n_files: int
    batch: int
    rate: int
    window_s: int
    n_keys: int = 0

    @property
    def n_rows(self) -> int:
        """Return the rows of one side."""
        return self.n_files * self.batch


@dataclass(frozen=True, slots=True, eq=False)
class SparkRows:
    """The files of a case, and the same rows in memory: times, keys, first and second of each side."""

    shape: SparkShape
    folder: Any
    sides: tuple[tuple[Ints, Ints, Ints, Ints], ...]

    def path(self, side: int) -> Path:
        """Return the folder of the files of a side."""
        return Path(self.folder.name) / ("left", "right")[side]

    def new_folder(self) -> Path:
        """Return an empty folder for one run's output and checkpoint."""
        return Path(tempfile.mkdtemp(dir=self.folder.name))

    def expected_answer(self) -> Ints:
        """Return the right pairs, in order."""
        (times, keys, x, y), (times_right, keys_right, a, b) = self.sides
        window, pairs = self.shape.window_s * SECOND, []
        # By key, or by the value of one attribute: what is near in it is compared in the others.
        own, other, reach = (keys, keys_right, 0) if self.shape.n_keys else (x, a, WIDTH - 1)
        order = np.argsort(other, kind="stable")
        lows = np.searchsorted(other[order], own - reach)
        highs = np.searchsorted(other[order], own + reach, side="right")
        for left, (low, high) in enumerate(zip(lows.tolist(), highs.tolist(), strict=True)):
            rights = order[low:high]
            near = np.abs(times_right[rights] - times[left]) <= window
            if not self.shape.n_keys:
                near &= np.abs(b[rights] - y[left]) < WIDTH
            hits = rights[near]
            pairs.append(encode_pairs(np.full(len(hits), left), hits))
        return np.sort(np.concatenate(pairs))


def write_rows(shape: SparkShape, seed: int) -> SparkRows:
    """Draw the rows of both sides and write their files; rows come in order of time."""
    folder = tempfile.TemporaryDirectory(prefix="penstock-bench-")
    sides = []
    for side, names in enumerate(NAMES):
        rng = np.random.default_rng([seed, side])
        n_rows = shape.n_rows
        times = BEGIN + np.arange(n_rows, dtype=np.int64) * SECOND // shape.rate
        keys = rng.integers(0, max(1, shape.n_keys), n_rows)
        first, second = rng.integers(0, VALUES, n_rows), rng.integers(0, VALUES, n_rows)
        sides.append((times, keys, first, second))
        where = Path(folder.name) / ("left", "right")[side]
        where.mkdir()
        columns = (
            pa.array(times, pa.timestamp("us", "UTC")),
            pa.array(keys),
            pa.array(first),
            pa.array(second.astype(np.float64)),
            pa.array(np.arange(n_rows)),
        )
        table = pa.table(dict(zip(("ts", "key", *names), columns, strict=True)))
        for number in range(shape.n_files):
            file = where / f"{number:05d}.parquet"
            pq.write_table(table.slice(number * shape.batch, shape.batch), file)
            os.utime(file, (number + 1, number + 1))  # Spark takes the oldest first
    return SparkRows(shape, folder, tuple(sides))


@dataclass(frozen=True, slots=True)
class SparkPairs:
    """The output of a run, which is read outside of the clock."""

    out: Path

    def __call__(self) -> Ints:
        """Return the pairs that the run wrote, in order."""
        files = [str(file) for file in self.out.rglob("*.parquet") if not file.name.startswith((".", "_"))]
        table = pq.ParquetDataset(files).read(columns=["id", "other"])
        return np.sort(encode_pairs(table.column("id").to_numpy(), table.column("other").to_numpy()))


def _predicate(shape: SparkShape) -> Any:
    if shape.n_keys:
        return "key"
    return [ps.band("x", "a", WIDTH, strict=True), ps.band("y", "b", WIDTH, strict=True)]


def run_ours(rows: SparkRows) -> SparkPairs:
    """Run the join as a graph on the Spark engine, from the first file to the last manifest."""
    out, shape = rows.new_folder(), rows.shape
    graph = ps.PipeGraph("bench")
    left, right = (
        graph.source(ps.read.parquet(rows.path(side)), time="ts", delay="1 s", name=name)
        for side, name in enumerate(("left", "right"))
    )
    pairs = left.join(
        right, on=_predicate(shape), within=f"{shape.window_s} s", suffix="_right", name="pairs"
    )
    pairs.sink(ps.write.parquet(out / "pairs"), name="out")
    graph.run(engine="spark", checkpoint=str(out / "checkpoint"), drain=True)
    return SparkPairs(out / "pairs")


def run_frames(rows: SparkRows, *, streams: bool) -> SparkPairs:
    """Run `window_join` of two DataFrames."""
    from penstock.spark import window_join

    left, right = (_read_frame(rows, side, streams=streams) for side in (0, 1))
    pairs = window_join(
        left,
        right,
        on=_predicate(rows.shape),
        time="ts",
        within=f"{rows.shape.window_s} s",
        suffix="_right",
        delay="1 s" if streams else None,
    )
    return _write_frame(rows, pairs, streams=streams)


def run_condition(rows: SparkRows) -> SparkPairs:
    """Run Spark's join of two batch frames on the bands and the bound of time, as a condition."""
    from pyspark.sql import functions as F

    left, right = (_read_frame(rows, side, streams=False) for side in (0, 1))
    right = right.withColumnRenamed("ts", "ts_right").withColumnRenamed("key", "key_right")
    apart = F.expr(f"INTERVAL {rows.shape.window_s} SECONDS")
    near = (F.col("ts_right") >= F.col("ts") - apart) & (F.col("ts_right") <= F.col("ts") + apart)
    test = (F.abs(F.col("x") - F.col("a")) < WIDTH) & (F.abs(F.col("y") - F.col("b")) < WIDTH)
    if rows.shape.n_keys:
        test = F.col("key") == F.col("key_right")
    return _write_frame(rows, left.join(right, near & test), streams=False)


def _write_frame(rows: SparkRows, pairs: Any, *, streams: bool) -> SparkPairs:
    out = rows.new_folder()
    if not streams:
        pairs.write.parquet(str(out / "pairs"))
        return SparkPairs(out / "pairs")
    writer = pairs.writeStream.outputMode("append").format("parquet").option("path", str(out / "pairs"))
    writer = writer.option("checkpointLocation", str(out / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return SparkPairs(out / "pairs")


def run_sparks(rows: SparkRows) -> SparkPairs:
    """Run Spark's stream-stream join; without a key, on a constant and with a filter."""
    from pyspark.sql import functions as F

    shape = rows.shape
    left, right = (_read_frame(rows, side, streams=True) for side in (0, 1))
    if not shape.n_keys:
        left, right = (frame.drop("key").withColumn("key", F.lit(1)) for frame in (left, right))
    left = left.withWatermark("ts", "1 second").alias("l")
    right = right.withWatermark("ts", "1 second").alias("r")
    apart = F.expr(f"INTERVAL {shape.window_s} SECONDS")
    near = (F.col("r.ts") >= F.col("l.ts") - apart) & (F.col("r.ts") <= F.col("l.ts") + apart)
    pairs = left.join(right, (F.col("l.key") == F.col("r.key")) & near)
    if not shape.n_keys:
        pairs = pairs.filter(
            (F.abs(F.col("x") - F.col("a")) < WIDTH) & (F.abs(F.col("y") - F.col("b")) < WIDTH)
        )
    chosen = pairs.select("l.ts", "x", "y", "id", F.col("r.ts").alias("ts_right"), "a", "b", "other")
    return _write_frame(rows, chosen, streams=True)


def _read_frame(rows: SparkRows, side: int, *, streams: bool) -> Any:
    spark, path = open_spark(), str(rows.path(side))
    if not streams:
        return spark.read.schema(SPARK_SCHEMA.format(*NAMES[side])).parquet(path)
    reader = spark.readStream.schema(SPARK_SCHEMA.format(*NAMES[side]))
    return reader.option("maxFilesPerTrigger", 1).parquet(path)


def build_cases(*, full: bool) -> list[Case]:
    """Build the band join, the join on a key, and the band join of frames."""
    # All rows of the band join are in one window, so that the pairs to look at are the product.
    n_rows = 6_000 if full else 3_000
    shapes = {
        BAND: SparkShape(4, n_rows, rate=100, window_s=n_rows * 4 // 100),
        KEY: SparkShape(4, 500_000 if full else 100_000, rate=20_000, window_s=5, n_keys=50_000),
        BATCH_FRAMES: SparkShape(4, n_rows, rate=100, window_s=n_rows * 4 // 100),
        STREAM_FRAMES: SparkShape(4, n_rows, rate=100, window_s=n_rows * 4 // 100),
    }
    return [
        Case(name, partial(write_rows, shape), {"rows": 2 * shape.n_rows}, group="spark")
        for name, shape in shapes.items()
    ]


def build_ways() -> list[Way]:
    """Build the ways: ours, and Spark's."""
    return [
        Way(OURS, run_ours, open_first, only=(BAND, KEY)),
        Way(SPARKS, run_sparks, open_first, only=(BAND, KEY, STREAM_FRAMES)),
        Way(FRAMES, partial(run_frames, streams=False), open_first, only=(BATCH_FRAMES,)),
        Way(STREAMS, partial(run_frames, streams=True), open_first, only=(STREAM_FRAMES,)),
        Way(CONDITION, run_condition, open_first, only=(BATCH_FRAMES,)),
    ]


def open_first(rows: SparkRows) -> SparkRows:
    """Open the session that both ways share, with its memory, before either is timed."""
    open_spark()
    return rows


def build_claims() -> Sequence[Claim]:
    """Build the claims: twenty times Spark's band join, no slower on a key, and faster between frames."""
    return (
        Claim(
            "on Spark: the band join is 20 times a constant key and a filter",
            Cell(BAND, OURS),
            1 / 20,
            Cell(BAND, SPARKS),
            "rows",
        ),
        Claim(
            "on Spark: an equality join within a time is at least as fast as Spark's own",
            Cell(KEY, OURS),
            1,
            Cell(KEY, SPARKS),
            "rows",
        ),
        Claim(
            "on Spark: window_join of batch frames is 5 times a join on a condition",
            Cell(BATCH_FRAMES, FRAMES),
            1 / 5,
            Cell(BATCH_FRAMES, CONDITION),
            "rows",
        ),
        Claim(
            "on Spark: window_join of streams is 1.5 times a constant key and a filter",
            Cell(STREAM_FRAMES, STREAMS),
            1 / 1.5,
            Cell(STREAM_FRAMES, SPARKS),
            "rows",
        ),
    )
