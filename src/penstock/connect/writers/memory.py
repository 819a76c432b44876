"""Keep results in memory, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.connect.batches import concat_batches
from penstock.connect.protocol import Delivery
from penstock.connect.row_batch import Row, RowBatch
from penstock.errors import ConnectorError

CommittedRows: TypeAlias = Any
"""A RecordBatch, or a row of plain values. Of a batch: a list of these, or the row that is all of it."""


class Memory:
    """What a run gave out: `.rows()`, `.table()`, `.batches()`. A new run starts it empty."""

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._committed: dict[int, CommittedRows] = {}
        self._sink: str | None = None

    @property
    def delivery(self) -> Delivery:
        """Memory ends with the process."""
        return Delivery.AT_MOST_ONCE

    @property
    def accepts_updates(self) -> bool:
        """Early results are kept beside final ones; the reader of the list tells them apart."""
        return True

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> MemoryOutput:
        """Forget the last run, unless this one resumes it."""
        if self._sink is not None:
            raise ConnectorError(
                f'memory() is being written by sink "{self._sink}"',
                hint=f'give sink "{sink}" a memory() of its own',
            )
        if not resume:
            self._committed = {}
        self._schema, self._sink = schema, sink
        return MemoryOutput(self._committed, self._free)

    def describe(self) -> str:
        """For explain()."""
        return "memory"

    def batches(self) -> list[pa.RecordBatch]:
        """The rows of each batch that had any, in order."""
        found = [_to_record_batches(kept, self._schema) for kept in self._kept()]
        return [concat_batches(each, self._schema) for each in found]

    def table(self) -> pa.Table:
        """All rows as one table."""
        if self._schema is None:
            raise ConnectorError("memory() holds no table yet", hint="run the graph first: graph.run()")
        return pa.Table.from_batches(self._all(), schema=self._schema)

    def rows(self) -> list[dict[str, Any]]:
        """All rows as dicts."""
        return [row for batch in self._all() for row in batch.to_pylist()]

    def _all(self) -> list[pa.RecordBatch]:
        """All rows, those of many small batches together."""
        return _to_record_batches(chain.from_iterable(self._kept()), self._schema)

    def _kept(self) -> Iterator[Sequence[CommittedRows]]:
        """What was committed, batch by batch."""
        for kept in self._committed.values():
            yield (kept,) if isinstance(kept, dict) else kept

    def _free(self) -> None:
        self._sink = None


class MemoryOutput:
    """Rows of a batch, kept when it is committed; few and plain ones as they came.

    show_row  keeps a plain row that is all of a batch, once
    """

    def __init__(self, committed: dict[int, CommittedRows], on_close: Callable[[], None]) -> None:
        self._committed, self._on_close = committed, on_close
        self.show_row: Callable[[int, Row], object] = committed.setdefault
        self._staged: dict[int, list[CommittedRows]] = {}

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        """Hold the rows back."""
        if rows.num_rows:
            self._staged.setdefault(batch, []).append(rows)

    def write_plain(self, batch: int, rows: Sequence[Row], schema: pa.Schema) -> None:
        """Hold plain rows back: columns are made when somebody looks."""
        self._staged.setdefault(batch, []).extend(rows)

    def commit(self, batch: int) -> None:
        """Keep them, once."""
        staged = self._staged.pop(batch, None)
        if staged:
            self._committed.setdefault(batch, staged)

    def close(self) -> None:
        """Drop what was not committed."""
        self._staged.clear()
        self._on_close()


def _to_record_batches(kept: Iterable[CommittedRows], schema: pa.Schema) -> list[pa.RecordBatch]:
    """What was kept as columns, in order; plain rows that stand together as one batch."""
    found: list[pa.RecordBatch] = []
    for is_plain, group in groupby(kept, lambda each: isinstance(each, dict)):
        some = list(group)
        found += [RowBatch(some, schema, 0).rows] if is_plain else some
    return found


def memory() -> Memory:
    """Keep rows in memory: `out = ps.write.memory()`, and after the run `out.rows()`."""
    return Memory()
