"""Rows, parts and results as packed batches, dealt to groups of buckets: what travels between workers.

Spark rebuilds the input of its state operator row by row in Python, so few fat rows go in: (group, body), the
body a batch in Arrow's own form (`engines/spark/wire.py`). The number of groups is part of what a checkpoint
means and never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.engines.spark.dataframes.frame import as_ours
from penstock.engines.spark.dataframes.partials import ExecutionPath, JvmPartials, WindowTask
from penstock.engines.spark.wire import KeyPartitioner, pack_pieces
from penstock.engines.wire import unpack_batch
from penstock.stages.patterns.partial_stores import PARTIALS
from penstock.stages.rows.batch import Batch, concat_batches
from penstock.timing.watermark import BEFORE_ALL

GROUPS = 64  # of the 256 buckets: enough to spread, few enough that a small batch is soon done with them
GROUP, BODY = "group", "body"
SCHEMA = pa.schema([(GROUP, pa.int32()), (BODY, pa.binary())])
SPARK_SCHEMA = "`group` int, body binary"
AT_ONCE = 1 << 17
"""Rows that are packed together."""

Carry = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def pack_by_group(recipe: WindowTask) -> Carry:
    """What `mapInArrow` does before the exchange: rows, or what the JVM made of them, packed by group."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _pack_partitions(_to_batches(recipe, batches), recipe)

    return pack


def packed_schema(recipe: WindowTask) -> tuple[pa.Schema, tuple[str, ...]]:
    """The columns of packed batches, and the key among them."""
    if recipe.road is ExecutionPath.ROWS:
        return recipe.up.schema, recipe.up.key
    format_ = recipe.part_stage().format
    return format_.schema, format_.key


def _to_batches(recipe: WindowTask, batches: Iterator[pa.RecordBatch]) -> Iterator[Batch]:
    if recipe.road is ExecutionPath.NATIVE:
        native = JvmPartials(recipe)
        return (native.batch(batch) for batch in batches)
    rows = (rows_of(batch, recipe) for batch in batches)
    return rows if recipe.road is ExecutionPath.ROWS else _to_partials(recipe, rows)


def rows_of(batch: pa.RecordBatch, recipe: WindowTask) -> Batch:
    """Rows of the frame with their times beside them; none is null."""
    rows = as_ours(batch, recipe.up.schema)
    times = rows.column(recipe.time).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return Batch(rows, times)


def _to_partials(recipe: WindowTask, rows: Iterator[Batch]) -> Iterator[Batch]:
    """Slices of the rows of one task, put together before they travel."""
    stage = recipe.part_stage()
    for batch in rows:
        for _ in stage.on_batch(batch, BEFORE_ALL):
            raise AssertionError("before all time no row is late, and one that fails raises")
    for port, parts in stage.flush():
        assert port == PARTIALS, "a stage of parts gives parts"
        yield parts


def _pack_partitions(batches: Iterator[Batch], recipe: WindowTask) -> Iterator[pa.RecordBatch]:
    schema, key = packed_schema(recipe)
    partitioner = KeyPartitioner(key, schema, GROUPS)
    for batch in _coalesce(batches, schema):
        dealt = [
            (group, body) for group, rows in partitioner.partition(batch, 0) for body in pack_pieces(rows)
        ]
        groups, bodies = zip(*dealt, strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(groups, pa.int32()), pa.array(bodies, pa.binary())], schema=SCHEMA
        )


def _coalesce(batches: Iterator[Batch], schema: pa.Schema) -> Iterator[Batch]:
    """Batches put together until they are worth a body per group."""
    waiting: list[Batch] = []
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= AT_ONCE:
            yield concat_batches(waiting, schema)
            waiting = []
    if waiting:
        yield concat_batches(waiting, schema)


def unpack_bodies(bodies: Sequence[bytes], schema: pa.Schema) -> Batch | None:
    """Packed batches as one; None if there are none."""
    return concat_batches([unpack_batch(body, schema) for body in bodies], schema) if bodies else None


def compute_windows(recipe: WindowTask) -> Carry:
    """What `mapInArrow` does after the exchange of a batch frame: everything in, all windows out."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stage, (schema, _) = recipe.stage(), packed_schema(recipe)
        for batch in batches:
            came = unpack_bodies(batch.column(BODY).to_pylist(), schema)
            left = () if came is None else stage.on_batch(came, BEFORE_ALL)
            for _ in left:
                raise AssertionError("nothing leaves before all is in")
        for _, results in stage.drain():
            yield from _split(results.rows)

    return work


def unpack_results(recipe: WindowTask) -> Carry:
    """What `mapInArrow` does after the state operator: results unpacked."""

    def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = recipe.results
        for batch in batches:
            for body in batch.column(BODY).to_pylist():
                yield unpack_batch(body, schema).rows

    return unpacked


def _split(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in np.arange(0, rows.num_rows, AT_ONCE).tolist():
        yield rows.slice(start, AT_ONCE)
