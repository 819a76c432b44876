"""What travels between driver and workers: few wide rows, each with a packed batch or a message.

Spark moves its own rows slowly and Arrow bytes fast, so rows of the program travel as Arrow IPC in one binary
cell per batch. The column `kind` tells batches and messages apart; messages to the driver are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engines.spark.fragments import DRIVER, Edge, Key
from penstock.engines.spark.join_exchange import JoinLayout, JoinPartitioner
from penstock.engines.wire import pack_batch
from penstock.frozen import Frozen
from penstock.operators.join_predicate import LEFT, RIGHT
from penstock.stages.keys.slots import BUCKETS, KeyBuckets
from penstock.stages.rows.batch import Batch

SCHEMA = pa.schema(
    [
        ("fragment", pa.int32()),
        ("kind", pa.int32()),
        ("edge", pa.int32()),
        ("round", pa.int32()),
        ("partition", pa.int32()),
        ("body", pa.binary()),
    ]
)
SPARK_SCHEMA = "fragment int, kind int, edge int, round int, partition int, body binary"

MAX_ROWS, MAX_BYTES = 1 << 17, 1 << 22
"""Rows of one packed batch, and bytes of their columns."""
MIN_ROWS = 10_000
"""Rows for fragment 0 are split into pieces of at least this many, so that all cores have work."""


class Kind(IntEnum):
    """What a wire row is, and what its body holds."""

    BATCH = 0
    """A packed batch of rows or partials, on the edge that it names."""
    WAKE = 1
    """Nothing: watermarks concern every partition of a keyed fragment, also one without rows."""
    READ = 2
    """A `FileSplit` that fragment 0 is to read: row groups of a file whose times the footer proves."""
    SOURCE_READ = 3
    """A `SourceSplit` that is to be read with a source stage, which finds times and bad rows."""
    SOURCE = 4
    """Rows of a source for fragment 0: `edge` is the number of the port, `round` the batch of the source."""
    FAILURE = 5
    """To the driver: what stopped a step (`engines/wire.py`)."""
    ACCOUNTS = 6
    """To the driver: step -> what a partition counted in a round."""
    STATE = 7
    """To the driver: step -> [bucket, place] of the pieces of state that were written."""
    OUTCOMES = 8
    """To the driver: a source, and outcome -> the number of its rows that had it before fragment 0."""
    WORK_TIME = 9
    """To the driver: how long a partition was at work, in microseconds."""
    REASONS = 10
    """To the driver: step -> why a row of it failed."""
    SOURCE_REPORT = 11
    """To the driver: what a source stage found in a split (`source_task.py`)."""
    STAGED = 12
    """To the driver: sink -> the files that a task has written for it, and the rows of every round."""
    ROWS_FILE = 13
    """To the driver: a file of packed batches that are too many to be sent."""
    COPY = 14
    """A packed batch of rows of a join whose home is another partition."""
    JOIN_ROWS = 15
    """To the driver: what was sent to joins, with quantiles of their attributes, and what their cells did."""


NO_EDGE = -1
SIDES = (LEFT, RIGHT)


class WireRow(Frozen):
    """One row on the wire: for which fragment and partition, what it is, and of which round."""

    fragment: int
    kind: Kind
    edge: int
    round: int
    partition: int
    body: bytes | None = None


def to_wire(rows: Sequence[WireRow]) -> pa.RecordBatch:
    """Return the rows as the columns that Spark carries."""
    columns = [[getattr(row, name) for row in rows] for name in SCHEMA.names]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def from_wire(batch: pa.RecordBatch | pa.Table) -> Iterator[WireRow]:
    """Return the rows of columns that Spark has carried."""
    columns = [batch.column(name).to_pylist() for name in SCHEMA.names]
    rows = zip(*columns, strict=True)
    return (WireRow(fragment, Kind(kind), *rest) for fragment, kind, *rest in rows)


def report(kind: Kind, round_: int, partition: int, message: Mapping[str, Any]) -> WireRow:
    """Return a message for the driver as a wire row."""
    return WireRow(DRIVER, kind, NO_EDGE, round_, partition, json.dumps(message).encode())


class WirePartitioner:
    """Sends rows to the partition of their key's bucket; rows without a key stay on their partition."""

    def __init__(self, key: Key | None, schema: pa.Schema) -> None:
        self._key = key
        self._buckets = None if key is None else KeyBuckets([schema.field(name).type for name in key])

    def partition(self, batch: Batch, here: int, n_partitions: int) -> Iterator[tuple[int, Batch]]:
        """Yield (partition, rows) for every partition that gets some."""
        if self._buckets is None or self._key is None or n_partitions == 1:
            yield here if self._buckets is None else 0, batch
            return
        buckets = self._buckets.of([batch.rows.column(name) for name in self._key], batch.num_rows)
        # Invariant: buckets are bytes, so 256 partitions or more have at most one bucket each.
        partitions = buckets % np.uint8(n_partitions) if n_partitions < BUCKETS else buckets
        order = np.argsort(partitions, kind="stable")
        ends = np.searchsorted(partitions[order], np.arange(min(n_partitions, BUCKETS)), side="right")
        start = 0
        for partition, end in enumerate(ends.tolist()):
            if end > start:
                yield partition, batch.take(order[start:end])
            start = end

    def pack(self, edge: Edge, batch: Batch, round_: int, here: int, n_partitions: int) -> Iterator[WireRow]:
        """Yield the rows of a batch as wire rows on an edge, for the partitions that they go to."""
        for partition, rows in self.partition(batch, here, n_partitions):
            for body in pack_pieces(rows):
                yield WireRow(edge.fragment, Kind.BATCH, edge.number, round_, partition, body)


class JoinWirePartitioner:
    """Sends rows of one side of a join to the cells that they may find a partner in, packed once for all."""

    def __init__(self, edge: Edge) -> None:
        assert edge.join is not None, "the edge leads to a join"
        self.partitioner = JoinPartitioner(edge.join, SIDES.index(edge.port), edge.schema)

    def pack(
        self, edge: Edge, batch: Batch, round_: int, layout: JoinLayout, n_partitions: int
    ) -> Iterator[WireRow]:
        """Yield the rows of a batch as wire rows on an edge, for the partitions that they go to."""
        for home, copies, rows in self.partitioner.partition(batch, n_partitions, layout):
            for body in pack_pieces(rows):
                if home is not None:
                    yield WireRow(edge.fragment, Kind.BATCH, edge.number, round_, home, body)
                for partition in copies:
                    yield WireRow(edge.fragment, Kind.COPY, edge.number, round_, partition, body)


def build_partitioner(edge: Edge) -> WirePartitioner | JoinWirePartitioner:
    """Return who sends the rows of an edge to their partitions."""
    return WirePartitioner(edge.key, edge.schema) if edge.join is None else JoinWirePartitioner(edge)


def pack_pieces(batch: Batch) -> Iterator[bytes]:
    """Pack a batch in pieces of bounded size, each the bytes of one cell."""
    n_rows = min(MAX_ROWS, MAX_BYTES * batch.num_rows // (batch.rows.nbytes + 1) + 1)
    for piece in _cut(batch, [*range(0, batch.num_rows, n_rows), batch.num_rows]):
        yield pack_batch(piece).to_pybytes()


def split_evenly(batch: Batch, n_pieces: int) -> list[Batch]:
    """Split a batch so that all cores have work, but not into crumbs."""
    n = min(n_pieces, max(1, batch.num_rows // MIN_ROWS))
    return _cut(batch, [batch.num_rows * i // n for i in range(n + 1)])


def _cut(batch: Batch, cuts: Sequence[int]) -> list[Batch]:
    if len(cuts) == 2:
        return [batch]
    return [
        Batch(
            batch.rows.slice(start, stop - start),
            batch.times[start:stop],
            tuple(column[start:stop] for column in batch.order),
        )
        for start, stop in pairwise(cuts)
    ]
