"""Files that Python workers read themselves: which pieces a batch comes in, and how a worker reads one.

Where nothing is to be done between a file and a stage, the JVM is only in the way: Arrow reads parquet into
the very columns that stages take, where Spark would make rows of them and columns again. So the driver sends
where rows are, a few bytes a task, and not the rows. Only columns that somebody looks at are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import pyarrow as pa

from penstock.engines.spark.jvm.source import RemoteBatch
from penstock.frozen import dataclass
from penstock.operators.ends import SourceTime
from penstock.plan.plan import Ref
from penstock.stages.rows.batch import Batch
from penstock.stages.source import read_times

AT_ONCE = 1 << 20
"""Rows that are carried together, and about the most that a piece has."""
_FEW = 4
"""With more columns than this, fewer rows are carried together."""


class FileChanged(Exception):
    """A file does not hold the rows any more that its footer told of."""


@dataclass(frozen=True, slots=True)
class FileSplit:
    """Consecutive row groups of a file.

    first, last  row groups, the last not included
    start        the number of the first row among all rows of the source
    """

    source: str
    path: str
    first: int
    last: int
    start: int
    n_rows: int

    def packed(self) -> bytes:
        """As the body of a wire row."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def unpacked(cls, body: bytes) -> FileSplit:
        """And back."""
        return cls(**json.loads(body))


def split_files(source: str, batch: RemoteBatch, n_tasks: int) -> list[FileSplit]:
    """A batch in pieces: row groups together, as long as every task gets some and none gets too many."""
    most = max(1, min(AT_ONCE, -(-batch.n_rows // n_tasks)))
    found: list[FileSplit] = []
    for file in batch.files:
        start, first, n_rows = file.start, 0, 0
        for number, n in enumerate(file.groups):
            if n_rows and n_rows + n > most:
                found.append(FileSplit(source, file.path, first, number, start, n_rows))
                start, first, n_rows = start + n_rows, number, 0
            n_rows += n
        if n_rows:
            found.append(FileSplit(source, file.path, first, len(file.groups), start, n_rows))
    return found


@dataclass(frozen=True, slots=True)
class FileReadPlan:
    """How the files of one source are read.

    ref     whose rows they are
    schema  of the source
    wanted  the columns that are looked at; others are nulls
    rank    of the source among several; None in a graph with one
    """

    ref: Ref
    schema: pa.Schema
    wanted: tuple[str, ...]
    time: SourceTime | None
    rank: int | None

    def read(self, piece: FileSplit) -> Iterator[Batch]:
        """The rows of a piece, as their source gives them."""
        import pyarrow.parquet as pq

        groups, start = list(range(piece.first, piece.last)), piece.start
        with pq.ParquetFile(piece.path) as file:
            at_once = -(-AT_ONCE * _FEW // max(_FEW, len(self.wanted)))
            cuts = file.iter_batches(at_once, row_groups=groups, columns=list(self.wanted), use_threads=False)
            for cut in cuts:
                yield self._batch(cut, start)
                start += cut.num_rows
        if start != piece.start + piece.n_rows:
            raise FileChanged(piece.path)

    def _batch(self, cut: pa.RecordBatch, start: int) -> Batch:
        n = cut.num_rows
        columns = [
            cut.column(field.name) if field.name in self.wanted else pa.nulls(n, field.type)
            for field in self.schema
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        times = read_times(rows, self.time, 0)
        if times.failed is not None and times.failed.any():
            raise FileChanged("a time is not within what the footer tells")
        ranks = () if self.rank is None else (np.full(n, self.rank, np.int64),)
        return Batch(rows, times.micros, (*ranks, np.arange(start, start + n, dtype=np.int64)))
