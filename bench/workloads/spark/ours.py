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
from bench.workloads.spark.rows import Answer, Rows, Shape, read_back
from penstock.events import BatchDone, Event

BYTES, PER_BATCH = "checkpoint per batch (bytes)", "per batch (s)"
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("key", pa.int64()), ("value", pa.float64())])
FIRST = 2
"""Batches at the start of a run that are not looked at: they make folders and warm up."""


@dataclass(frozen=True, slots=True)
class Told:
    """Where a run wrote its windows and its checkpoint, and how long each batch took in seconds."""

    out: Path
    start: str
    n_batches: int
    batches: list[float] = field(default_factory=list)

    def __call__(self) -> Answer:
        """Return the windows."""
        return read_back(self.out / "windows", self.start)


def run(rows: Rows) -> Told:
    """Return the whole run, from the first file to the last manifest; windows that are open stay so."""
    out = rows.new_folder()
    graph = ps.PipeGraph("bench")
    source = graph.source(ps.read.parquet(rows.path), time="ts", delay="2 s")
    _windows(source, rows.shape).sink(ps.write.parquet(out / "windows"), name="out")
    graph.run(engine="spark", checkpoint=str(out / "checkpoint"), drain=False)
    return Told(out, "window_start", rows.shape.n_files)


def live(rows: Rows) -> Told:
    """Return the same from a source that never ends, so that nothing is read ahead: a batch at a time."""
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
    _windows(source, rows.shape).sink(ps.write.parquet(out / "windows"), name="out")
    n = rows.shape.n_files
    graph.run(engine="spark", checkpoint=str(out / "checkpoint"), drain=False, until=n, events=tell)
    # From one batch's end to the next one's: with all that Spark does between them.
    return Told(out, "window_start", n, [after - before for before, after in pairwise(done)])


def _windows(source: ps.MultiPipe, shape: Shape) -> ps.MultiPipe:
    sliding = ps.sliding(f"{shape.size} us", every=f"{shape.every} us")
    windows = source.key_by("key").window(sliding, name="windows")
    return windows.aggregate(total=ps.sum("value"), n=ps.count())


def fold(rows: Rows) -> int:
    """Windows with a function that the user wrote: how many rows are in them."""
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
    graph.run(engine="spark", checkpoint=str(out / "checkpoint"))
    return int(sum(pq.read_table(out / "windows").column("n").to_pylist()))


def lift(row: Any) -> tuple[float, float, float]:
    """Return a row as (least, most, how many)."""
    return row.value, row.value, 1.0


def combine(a: tuple[float, float, float], b: tuple[float, float, float]) -> tuple[float, float, float]:
    """Return two of them together."""
    return min(a[0], b[0]), max(a[1], b[1]), a[2] + b[2]


def lower(part: tuple[float, float, float]) -> float:
    """Return the number of rows."""
    return part[2]


def n_rows(rows: Rows) -> int:
    """Return the number of there should be."""
    return rows.shape.n_rows


def notes(told: Told) -> Mapping[str, float]:
    """Return the bytes of the checkpoint by batches, and the time of a batch where that is known."""
    kept = sum(path.stat().st_size for path in (told.out / "checkpoint").rglob("*") if path.is_file())
    noted: dict[str, float] = {BYTES: kept / told.n_batches}
    return noted | ({PER_BATCH: median(told.batches[FIRST:])} if told.batches else {})
