"""Batches that the driver does not read, and how a Python worker reads row groups whose times are proven.

Where nothing is to be done between a file and a stage, the JVM is only in the way: Arrow reads parquet into
the very columns that stages take, where Spark would make rows of them and columns again. So the driver sends
where rows are, a few bytes per task, and not the rows. Only columns that are used are read.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.connect.conversion import add_null_columns
from penstock.frozen import Frozen
from penstock.operators.ends import SourceTime
from penstock.plan.plan import Ref
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.source import read_times

BATCH_ROWS = 1 << 20
"""Rows that go through a fragment together, and about the most that a split has."""
_NARROW = 4
"""With more columns than this, fewer rows go together."""
_BYTES_PER_ROW = 64
"""What a row is taken to have where only the size of a file is known."""


class FileChanged(Exception):
    """A file no longer holds the rows that its footer promised."""


class SourceFile(Frozen):
    """A file, the number of its first row among all rows of the source, and the rows of its row groups.

    groups       None where nobody has looked at a footer
    first, last  the bytes that are read, of a file that grows
    """

    path: str
    start: int
    groups: tuple[int, ...] | None = None
    first: int = 0
    last: int = sys.maxsize


class RemoteBatch(Frozen):
    """A batch that the driver does not read: it knows that all times are valid, and their range.

    files            none for a DataFrame, which is one batch
    least, greatest  of the times, in microseconds; 0 on a source without time
    by_workers       Python workers read it; else the JVM does
    rows_as_one      how many rows count as one when a micro-batch is filled, because there is little to do
    """

    files: tuple[SourceFile, ...]
    n_rows: int
    least: int
    greatest: int
    by_workers: bool = False
    rows_as_one: int = 1
    n_bytes: int = 0
    position: Any = None

    @property
    def load(self) -> int:
        """Return the number of rows, by how much there is to do for them."""
        return self.n_rows // self.rows_as_one


class UnreadBatch(Frozen):
    """A batch of which nothing is known before a source stage has seen its rows.

    files   none for a DataFrame, which is one batch
    n_rows  the row numbers that it may use, at least as many as it has rows
    """

    files: tuple[SourceFile, ...]
    n_rows: int
    n_bytes: int
    position: Any = None

    @property
    def load(self) -> int:
        """Return about how many rows there are."""
        return self.n_bytes // _BYTES_PER_ROW


class FileSplit(Frozen):
    """Consecutive row groups of a file.

    batch        the number of the source's batch that they belong to
    first, last  row groups, the last not included
    start        the number of the first row among all rows of the source
    """

    source: str
    batch: int
    path: str
    first: int
    last: int
    start: int
    n_rows: int

    def to_bytes(self) -> bytes:
        """Return the body of a wire row of kind READ."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> FileSplit:
        """Return the split of such a body."""
        return cls(**json.loads(body))


def split_files(source: str, number: int, batch: RemoteBatch, n_tasks: int) -> list[FileSplit]:
    """Split a batch between row groups, so that every task gets some and no split is too large."""
    most = max(1, min(BATCH_ROWS, -(-batch.n_rows // n_tasks)))
    splits: list[FileSplit] = []
    for file in batch.files:
        start, first, n_rows = file.start, 0, 0
        for group, n in enumerate(file.groups or ()):
            if n_rows and n_rows + n > most:
                splits.append(FileSplit(source, number, file.path, first, group, start, n_rows))
                start, first, n_rows = start + n_rows, group, 0
            n_rows += n
        if n_rows:
            splits.append(FileSplit(source, number, file.path, first, len(file.groups or ()), start, n_rows))
    return splits


class FileReadPlan(Frozen):
    """How the files of one source are read.

    ref     whose rows they are
    schema  of the source
    used    the columns that are used; others are nulls
    rank    of the source among several; None in a graph with one
    """

    ref: Ref
    schema: pa.Schema
    used: tuple[str, ...]
    time: SourceTime | None
    rank: int | None

    def read_first(self, split: FileSplit, n_rows: int) -> Iterator[Batch]:
        """Read some rows with which a split begins."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(split.path) as file:
            batches = file.iter_batches(
                n_rows, row_groups=[split.first], columns=list(self.used), use_threads=False
            )
            yield from (self._batch(columns, split.start) for columns in itertools.islice(batches, 1))

    def read(self, split: FileSplit) -> Iterator[Batch]:
        """Read the rows of a split, as the source gives them."""
        import pyarrow.parquet as pq

        groups, start = list(range(split.first, split.last)), split.start
        with pq.ParquetFile(split.path) as file:
            n_rows = -(-BATCH_ROWS * _NARROW // max(_NARROW, len(self.used)))
            batches = file.iter_batches(n_rows, row_groups=groups, columns=list(self.used), use_threads=False)
            for columns in batches:
                yield self._batch(columns, start)
                start += columns.num_rows
        if start != split.start + split.n_rows:
            raise FileChanged(split.path)

    def _batch(self, columns: pa.RecordBatch, start: int) -> Batch:
        n = columns.num_rows
        rows = add_null_columns(columns, self.schema)
        times = read_times(rows, self.time, 0)
        if times.failed is not None and times.failed.any():
            raise FileChanged("a time is not within what the footer says")
        numbers = np.arange(start, start + n, dtype=np.int64)
        return Batch(rows, times.micros, (*rank_column(self.rank, n), numbers))


def rank_column(rank: int | None, n_rows: int) -> tuple[Ints, ...]:
    """Return the first column of the order of rows: the rank of their source, in a graph with several."""
    return () if rank is None else (np.full(n_rows, rank, np.int64),)
