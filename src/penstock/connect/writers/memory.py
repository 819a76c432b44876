"""The writer that keeps results in memory, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.connect.conversion import concat_batches
from penstock.connect.protocol import Delivery
from penstock.connect.row_batch import Row, SourceRowBatch
from penstock.errors import ConnectorError

Part: TypeAlias = Any
"""A RecordBatch, or a row of plain values. A committed batch is a list of these, or its only row."""


class Memory:
    """The rows that a run wrote: `.rows()`, `.table()`, `.batches()`. A new run starts it empty.

    Early results are kept beside final ones, with a column that says which are final.
    """

    delivery = Delivery.AT_MOST_ONCE
    accepts_updates = True

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._committed: dict[int, Part] = {}
        self._sink: str | None = None

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> MemoryOutput:
        """Forgets the last run, unless this one resumes it."""
        if self._sink is not None:
            raise ConnectorError(
                f'memory() is being written by sink "{self._sink}"',
                hint=f'give sink "{sink}" a memory() of its own',
            )
        if not resume:
            self._committed = {}
        self._schema, self._sink = schema, sink
        return MemoryOutput(self._committed, self._release)

    def describe(self) -> str:
        """Returns one line for explain()."""
        return "memory"

    def batches(self) -> list[pa.RecordBatch]:
        """Returns the rows of each batch that had any, in order."""
        return [concat_batches(_to_record_batches(p, self._schema), self._schema) for p in self._parts()]

    def table(self) -> pa.Table:
        """Returns all rows as one table."""
        if self._schema is None:
            raise ConnectorError("memory() holds no table yet", hint="run the graph first: graph.run()")
        return pa.Table.from_batches(self._record_batches(), schema=self._schema)

    def rows(self) -> list[dict[str, Any]]:
        """Returns all rows as dicts."""
        return [row for batch in self._record_batches() for row in batch.to_pylist()]

    def _record_batches(self) -> list[pa.RecordBatch]:
        return _to_record_batches(chain.from_iterable(self._parts()), self._schema)

    def _parts(self) -> Iterator[Sequence[Part]]:
        """Yields the parts of each batch."""
        for batch in self._committed.values():
            yield (batch,) if isinstance(batch, dict) else batch

    def _release(self) -> None:
        self._sink = None


class MemoryOutput:
    """The output of one run; rows that come as plain values stay so until somebody reads them.

    commit_row  takes and commits a plain row that is all of a batch, once
    """

    def __init__(self, committed: dict[int, Part], on_close: Callable[[], None]) -> None:
        self._committed, self._on_close = committed, on_close
        self.commit_row: Callable[[int, Row], object] = committed.setdefault
        self._staged: dict[int, list[Part]] = {}

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        """Holds the rows back."""
        if rows.num_rows:
            self._staged.setdefault(batch, []).append(rows)

    def write_plain(self, batch: int, rows: Sequence[Row], schema: pa.Schema) -> None:
        """Holds plain rows back."""
        self._staged.setdefault(batch, []).extend(rows)

    def commit(self, batch: int) -> None:
        """Keeps the rows of a batch, once."""
        staged = self._staged.pop(batch, None)
        if staged:
            self._committed.setdefault(batch, staged)

    def close(self) -> None:
        """Drops what was not committed."""
        self._staged.clear()
        self._on_close()


def _to_record_batches(parts: Iterable[Part], schema: pa.Schema) -> list[pa.RecordBatch]:
    """Returns parts as columns, in order; plain rows that stand together as one batch."""
    batches: list[pa.RecordBatch] = []
    for is_plain, group in groupby(parts, lambda part: isinstance(part, dict)):
        members = list(group)
        batches += [SourceRowBatch(members, schema, 0).rows] if is_plain else members
    return batches


def memory() -> Memory:
    """Keep rows in memory: `out = ps.write.memory()`, and after the run `out.rows()`."""
    return Memory()
