"""Penstock on Spark, as a user would write it: files in, windows, files out, with a checkpoint."""

from __future__ import annotations

import penstock as ps
from penstock.bench.workloads.spark.rows import Given, Rows, read_back


def run(rows: Rows) -> Given:
    """The whole run, from the first file to the last manifest; windows that are open stay so."""
    out, shape = rows.new_folder(), rows.shape
    graph = ps.PipeGraph("bench")
    size, every = f"{shape.size} us", f"{shape.every} us"
    windows = (
        graph.source(ps.read.parquet(rows.path), time="ts", delay="2 s")
        .key_by("key")
        .window(ps.sliding(size, every=every), name="windows")
        .aggregate(total=ps.sum("value"), n=ps.count())
    )
    windows.sink(ps.write.parquet(out / "windows"), name="out")
    graph.run(engine="spark", checkpoint=str(out / "checkpoint"), drain=False)
    return lambda: read_back(out / "windows", "window_start")
