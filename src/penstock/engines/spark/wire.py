"""What travels between driver and workers: few fat rows, each with a packed batch.

Spark moves its own rows slowly and Arrow bytes fast, so rows of the program travel as Arrow IPC in one binary
cell per batch. Beside batches there are failures, accounts and where state was written, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engines.spark.fragments import DRIVER, Key
from penstock.engines.wire import pack_batch
from penstock.frozen import dataclass
from penstock.stages.keys.slots import KeyBuckets
from penstock.stages.rows.batch import Batch

SCHEMA = pa.schema(
    [
        ("fragment", pa.int32()),
        ("edge", pa.int32()),
        ("round", pa.int32()),
        ("part", pa.int32()),
        ("body", pa.binary()),
    ]
)
SPARK_SCHEMA = "fragment int, edge int, round int, part int, body binary"

WAKE, FAILED, COUNTED, SAVED, FATES, WORKED, REASONS, READ = -1, -2, -3, -4, -5, -6, -7, -8
"""Edges that carry no rows: a part that must take its turn; a failure; accounts; where state was written;
what became of the rows of a chain in the JVM; how long a part was at work; why rows failed; which piece of a
file is to be read."""

MOST_ROWS = 1 << 17
"""Rows of one packed batch."""
LEAST_PIECE = 10_000
"""Rows for fragment 0 are cut into pieces of at least this many, so that all cores have work."""


@dataclass(frozen=True, slots=True)
class WireRow:
    """One row on the wire: for which fragment, on which edge, of which round, for which part."""

    fragment: int
    edge: int
    round: int
    part: int
    body: bytes | None = None


def to_wire(rows: Sequence[WireRow]) -> pa.RecordBatch:
    """Rows as the columns that Spark carries."""
    columns = [[getattr(row, name) for row in rows] for name in SCHEMA.names]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def from_wire(batch: pa.RecordBatch | pa.Table) -> Iterator[WireRow]:
    """And back."""
    columns = [batch.column(name).to_pylist() for name in SCHEMA.names]
    return (WireRow(*row) for row in zip(*columns, strict=True))


def pack(batch: Batch) -> bytes:
    """A batch as the bytes of one cell."""
    data: bytes = pack_batch(batch).to_pybytes()
    return data


class KeyPartitioner:
    """Deals rows to parts by the buckets of their keys; rows without a key stay on the part they are on."""

    def __init__(self, key: Key | None, schema: pa.Schema, n_partitions: int) -> None:
        self._key, self._n_partitions = key, n_partitions
        self._buckets = None if key is None else KeyBuckets([schema.field(name).type for name in key])

    def partition(self, batch: Batch, here: int) -> Iterator[tuple[int, Batch]]:
        """(part, rows) for every part that gets some."""
        if self._buckets is None or self._key is None or self._n_partitions == 1:
            yield here if self._buckets is None else 0, batch
            return
        buckets = self._buckets.of([batch.rows.column(name) for name in self._key], batch.num_rows)
        parts = buckets % np.uint8(self._n_partitions) if self._n_partitions < 256 else buckets
        order = np.argsort(parts, kind="stable")
        ends = np.searchsorted(parts[order], np.arange(min(self._n_partitions, 256)), side="right")
        start = 0
        for part, end in enumerate(ends.tolist()):
            if end > start:
                yield part, batch.take(order[start:end])
            start = end


def pack_pieces(batch: Batch) -> Iterator[bytes]:
    """A batch in pieces of bounded size."""
    for start in range(0, batch.num_rows, MOST_ROWS):
        stop = min(start + MOST_ROWS, batch.num_rows)
        if start == 0 and stop == batch.num_rows:
            yield pack(batch)
        else:
            yield pack(batch.take(np.arange(start, stop)))


def report(edge: int, round_: int, part: int, what: Mapping[str, Any]) -> WireRow:
    """Something for the driver that is not a batch."""
    return WireRow(DRIVER, edge, round_, part, json.dumps(what).encode())


def split_evenly(batch: Batch, n_partitions: int) -> list[Batch]:
    """A batch cut so that all cores have work, but not into crumbs."""
    n = min(n_partitions, max(1, batch.num_rows // LEAST_PIECE))
    if n == 1:
        return [batch]
    cuts = [batch.num_rows * i // n for i in range(n + 1)]
    return [
        Batch(
            batch.rows.slice(start, stop - start),
            batch.times[start:stop],
            tuple(each[start:stop] for each in batch.order),
        )
        for start, stop in pairwise(cuts)
    ]
