"""Rows, partials and results as packed batches, by group of buckets: what travels between workers.

Spark rebuilds the input of its state operator row by row in Python, so few wide rows go in:
(group, body), the body a batch in Arrow's own form. Invariant: the number of groups is part of what
a checkpoint means and never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from penstock.engines.spark.dataframes.window_task import ExecutionPath, WindowTask
from penstock.engines.spark.types import from_spark
from penstock.engines.spark.wire import WirePartitioner, pack_pieces
from penstock.engines.wire import unpack_batch
from penstock.stages.patterns.partials import PARTIALS
from penstock.stages.rows.batch import Batch, concat_batches
from penstock.timing.windows import BEFORE_ALL

GROUPS = 64  # of the 256 buckets: enough to spread, few enough that a small batch is soon done with them
GROUP, BODY = "group", "body"
SCHEMA = pa.schema([(GROUP, pa.int32()), (BODY, pa.binary())])
SPARK_SCHEMA = "`group` int, body binary"
BATCH_ROWS = 1 << 17
"""Rows that are packed together."""

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What `mapInArrow` takes."""


def pack_by_group(task: WindowTask) -> ArrowFunction:
    """Returns what runs before the exchange: rows, or what the JVM made of them, packed by group."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema, key = packed_schema(task)
        partitioner = WirePartitioner(key, schema, GROUPS)
        for batch in _coalesce(_to_batches(task, batches), schema):
            packed = [
                (group, b) for group, rows in partitioner.partition(batch, 0) for b in pack_pieces(rows)
            ]
            groups, bodies = zip(*packed, strict=True)
            columns = [pa.array(groups, pa.int32()), pa.array(bodies, pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    return pack


def packed_schema(task: WindowTask) -> tuple[pa.Schema, tuple[str, ...]]:
    """Returns the columns of packed batches, and the key among them."""
    if task.path is ExecutionPath.ROWS:
        return task.up.schema, task.up.key
    format_ = task.partial_stage().format
    return format_.schema, format_.key


def _to_batches(task: WindowTask, batches: Iterator[pa.RecordBatch]) -> Iterator[Batch]:
    if task.path is ExecutionPath.JVM:
        return map(task.jvm_partials().to_batch, batches)
    rows = (to_batch(batch, task) for batch in batches)
    return rows if task.path is ExecutionPath.ROWS else _to_partials(task, rows)


def to_batch(columns: pa.RecordBatch, task: WindowTask) -> Batch:
    """Returns rows of the frame with their times beside them; none is null."""
    rows = from_spark(columns, task.up.schema)
    times = rows.column(task.time).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return Batch(rows, times)


def _to_partials(task: WindowTask, rows: Iterator[Batch]) -> Iterator[Batch]:
    """Aggregates the rows of one task to slices before they travel."""
    stage = task.partial_stage()
    for batch in rows:
        for _ in stage.on_batch(batch, BEFORE_ALL):
            raise AssertionError("before all time no row is late, and one that fails raises")
    for port, partials in stage.flush():
        assert port == PARTIALS, "a stage of partials gives partials"
        yield partials


def _coalesce(batches: Iterator[Batch], schema: pa.Schema) -> Iterator[Batch]:
    """Puts batches together until they are worth a body per group."""
    pending: list[Batch] = []
    for batch in batches:
        if batch.num_rows:
            pending.append(batch)
        if sum(waiting.num_rows for waiting in pending) >= BATCH_ROWS:
            yield concat_batches(pending, schema)
            pending = []
    if pending:
        yield concat_batches(pending, schema)


def unpack_bodies(bodies: Sequence[bytes], schema: pa.Schema) -> Batch | None:
    """Returns packed batches as one; None if there are none."""
    return concat_batches([unpack_batch(body, schema) for body in bodies], schema) if bodies else None


def compute_windows(task: WindowTask) -> ArrowFunction:
    """Returns what runs after the exchange of a batch frame: everything in, all windows out."""

    def compute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stage, (schema, _) = task.final_stage(), packed_schema(task)
        for columns in batches:
            batch = unpack_bodies(columns.column(BODY).to_pylist(), schema)
            for _ in () if batch is None else stage.on_batch(batch, BEFORE_ALL):
                raise AssertionError("nothing leaves before all is in")
        for _, results in stage.drain():
            for start in range(0, results.num_rows, BATCH_ROWS):
                yield results.rows.slice(start, BATCH_ROWS)

    return compute


def unpack_results(task: WindowTask) -> ArrowFunction:
    """Returns what runs after the state operator: results unpacked."""

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = task.results
        for columns in batches:
            for body in columns.column(BODY).to_pylist():
                yield unpack_batch(body, schema).rows

    return unpack
