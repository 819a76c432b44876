"""Penstock on Spark, as a user would write it: files in, windows, files out, with a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from bench.workloads.spark.rows import Answer, Rows, Shape, read_answer
from penstock.events import BatchDone, Event

BYTES, PER_BATCH = "checkpoint per batch (bytes)", "per batch (s)"
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("key", pa.int64()), ("value", pa.float64())])
FIRST = 2
"""Batches at the start of a run that are not counted: they create folders and warm up."""


@dataclass(frozen=True, slots=True)
class SparkRun:
    """The output and the checkpoint of a run, and the seconds of each batch."""

    out: Path
    start: str
    n_batches: int
    batches: list[float] = field(default_factory=list)

    def __call__(self) -> Answer:
        """Return the windows that the run wrote."""
        return read_answer(self.out / "windows", self.start)


def run(rows: Rows) -> SparkRun:
    """Run from the first file to the last manifest; open windows stay open."""
    out = rows.new_folder()
    graph = ps.PipeGraph("bench")
    source = graph.source(ps.read.parquet(rows.path), time="ts", delay="2 s")
    _aggregate_windows(source, rows.shape).sink(ps.write.parquet(out / "windows"), name="out")
    graph.run(engine="spark", checkpoint=str(out / "checkpoint"), drain=False)
    return SparkRun(out, "window_start", rows.shape.n_files)


def run_live(rows: Rows) -> SparkRun:
    """Run from a source that never ends, so that nothing is read ahead: a batch at a time."""
    out, done = rows.new_folder(), list[float]()

    def files() -> Iterator[pa.RecordBatch]:
        for path in sorted(rows.path.iterdir()):
            yield pq.read_table(path).cast(SCHEMA).combine_chunks().to_batches()[0]

    def tell(event: Event) -> None:
        if isinstance(event, BatchDone):
            done.append(perf_counter())

    graph = ps.PipeGraph("bench")
    reader = ps.read.generator(files, schema=SCHEMA, bounded=False)
    source = graph.source(reader, time="ts", delay="2 s")
    _aggregate_windows(source, rows.shape).sink(ps.write.parquet(out / "windows"), name="out")
    n = rows.shape.n_files
    graph.run(engine="spark", checkpoint=str(out / "checkpoint"), drain=False, until=n, events=tell)
    # From the end of one batch to the end of the next, so all that Spark does between them counts.
    return SparkRun(out, "window_start", n, [after - before for before, after in pairwise(done)])


def _aggregate_windows(source: ps.MultiPipe, shape: Shape) -> ps.MultiPipe:
    sliding = ps.sliding(f"{shape.size} us", every=f"{shape.every} us")
    windows = source.key_by("key").window(sliding, name="windows")
    return windows.aggregate(total=ps.sum("value"), n=ps.count())


def run_fold(rows: Rows) -> int:
    """Run windows with a function of the user's, and return the number of rows in them."""
    out, shape = rows.new_folder(), rows.shape
    graph = ps.PipeGraph("bench")
    least_most_n = ps.fold(lift, combine, (1e300, -1e300, 0.0), lower, columns="value", type="float64")
    (
        graph.source(ps.read.parquet(rows.path), time="ts", delay="2 s")
        .key_by("key")
        .window(ps.tumbling(f"{shape.size} us"), name="windows")
        .aggregate(n=least_most_n)
        .sink(ps.write.parquet(out / "windows"), name="out")
    )
    graph.run(engine="spark", checkpoint=str(out / "checkpoint"), drain=True)
    return int(sum(pq.read_table(out / "windows").column("n").to_pylist()))


def lift(row: Any) -> tuple[float, float, float]:
    """Return the partial of a row: least, greatest, count."""
    return row.value, row.value, 1.0


def combine(a: tuple[float, float, float], b: tuple[float, float, float]) -> tuple[float, float, float]:
    """Return the partial of two partials."""
    return min(a[0], b[0]), max(a[1], b[1]), a[2] + b[2]


def lower(part: tuple[float, float, float]) -> float:
    """Return the count of a partial."""
    return part[2]


def count_rows(rows: Rows) -> int:
    """Return the number of rows of the case."""
    return rows.shape.n_rows


def run_notes(run: SparkRun) -> Mapping[str, float]:
    """Return the checkpoint bytes per batch, and the median time of a batch where it is known."""
    n_bytes = sum(path.stat().st_size for path in (run.out / "checkpoint").rglob("*") if path.is_file())
    noted: dict[str, float] = {BYTES: n_bytes / run.n_batches}
    return noted | ({PER_BATCH: median(run.batches[FIRST:])} if run.batches else {})
