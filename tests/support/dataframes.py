"""Rows, the reference engine's answer on them, and streams of files for Spark."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import penstock as ps
from penstock.operators.aggregates import Aggregate
from penstock.testing import Harness
from penstock.timing.windows import WindowSpec

S = 1_000_000
UTC = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [("page", pa.string()), ("ts", UTC), ("n", pa.int64()), ("price", pa.float64()), ("ok", pa.bool_())]
)
Windows = WindowSpec | Mapping[str, WindowSpec]
Aggregates = Mapping[str, Aggregate]


def rows(n: int, seed: int = 0, *, first: int = -50 * S, last: int = 100 * S) -> pa.Table:
    """Rows at random times from before 1970 on; nulls in every column but time, NaN among prices."""
    draw = random.Random(seed)
    columns: dict[str, list[Any]] = {
        "page": [draw.choice([None, "a", "b", "c", "d"]) for _ in range(n)],
        "ts": [draw.randrange(first, last) for _ in range(n)],
        "n": [draw.choice([None, -3, 0, 1, 2**62, -(2**62)]) for _ in range(n)],
        "price": [draw.choice([None, float("nan"), -0.0, 0.0, 1.5, -2.25, 1e9]) for _ in range(n)],
        "ok": [draw.choice([None, True, False]) for _ in range(n)],
    }
    return pa.table(
        [pa.array(columns[field.name], _stored_type(field.type)).cast(field.type) for field in SCHEMA],
        schema=SCHEMA,
    )


def _stored_type(type_: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(type_) else type_


def at(*times: int, page: str = "a") -> pa.Table:
    """Rows of one page at some seconds, numbered by their place."""
    times_us = pa.array([round(time * S) for time in times], pa.int64()).cast(UTC)
    n = len(times)
    columns = [
        pa.array([page] * n),
        times_us,
        pa.array(range(n), pa.int64()),
        pa.array([float(i) for i in range(n)]),
        pa.array([True] * n),
    ]
    return pa.table(columns, schema=SCHEMA)


def pipe_of(
    reader: Any, keys: Sequence[str], window: Windows, aggregates: Aggregates, **options: Any
) -> ps.MultiPipe:
    """The same step in a graph."""
    delay = options.pop("delay", "0 s")
    source = ps.PipeGraph("judge").source(reader, time="ts", delay=delay)
    keyed: Any = source.key_by(*keys) if keys else source
    windows = {"": window} if not isinstance(window, Mapping) else window
    pipe = keyed.window(window, **options) if "" in windows else keyed.window(**windows, **options)
    result: ps.MultiPipe = pipe.aggregate(dict(aggregates))
    return result


def judge(
    table: pa.Table, keys: Sequence[str], window: Windows, aggregates: Aggregates, **options: Any
) -> pa.Table:
    """What the reference engine makes of one batch."""
    timed = table.filter(pc.is_valid(table.column("ts")))
    return pipe_of(ps.read.table(timed), keys, window, aggregates, **options).collect(engine="reference")


def judged_stream(
    batches: Sequence[pa.Table], keys: Sequence[str], window: Windows, aggregates: Aggregates, **options: Any
) -> list[dict[str, Any]]:
    """What has left the reference engine after some batches, while the stream goes on."""
    pipe = pipe_of(ps.read.table(batches[0].slice(0, 0)), keys, window, aggregates, **options)
    harness, rows = Harness(pipe, engine="reference"), list[dict[str, Any]]()
    for batch in batches:
        harness.push(batch.to_pylist())
        rows += harness.take()
    return rows


class Files:
    """A folder that a stream is read from, one file per batch."""

    def __init__(self, folder: Path) -> None:
        self._source, self.checkpoint = folder / "in", folder / "checkpoint"
        self._source.mkdir()
        self._n = 0

    def put(self, *batches: pa.Table) -> None:
        for batch in batches:
            file = self._source / f"{self._n}.parquet"
            pq.write_table(batch, file)
            os.utime(file, (self._n, self._n))  # files of one time would come in any order
            self._n += 1

    def read(self, spark: Any, schema: pa.Schema) -> Any:
        """Return the stream of the files."""
        frame = spark.createDataFrame(schema.empty_table()).schema
        return spark.readStream.schema(frame).option("maxFilesPerTrigger", 1).parquet(str(self._source))

    def run(self, spark: Any, plan: Callable[[Any], Any]) -> list[dict[str, Any]]:
        """Work off what is there, and give the results as they left."""
        left: list[dict[str, Any]] = []
        query = (
            plan(self.read(spark, SCHEMA))
            .writeStream.foreachBatch(lambda batch, _: left.extend(batch.toArrow().to_pylist()))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return left


def same(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> bool:
    """Whether both hold the same rows, in any order; for values without floats that were computed."""
    return sorted(map(_row_text, ours)) == sorted(map(_row_text, theirs))


def _row_text(row: Mapping[str, Any]) -> str:
    return repr({name: str(value) for name, value in row.items()})
