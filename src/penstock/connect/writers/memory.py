"""Keep results in memory, for tests and notebooks."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.connect.protocol import Delivery
from penstock.connect.writers.staged import StagedOutput
from penstock.errors import ConnectorError


class Memory:
    """What a run gave out: `.rows()`, `.table()`, `.batches()`. A new run starts it empty."""

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._committed: dict[int, pa.RecordBatch] = {}
        self._sink: str | None = None

    @property
    def delivery(self) -> Delivery:
        """Memory ends with the process."""
        return Delivery.AT_MOST_ONCE

    @property
    def accepts_updates(self) -> bool:
        """Early results are kept beside final ones; the reader of the list tells them apart."""
        return True

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> StagedOutput:
        """Forget the last run, unless this one resumes it."""
        if self._sink is not None:
            raise ConnectorError(
                f'memory() is being written by sink "{self._sink}"',
                hint=f'give sink "{sink}" a memory() of its own',
            )
        if not resume:
            self._committed = {}
        self._schema, self._sink = schema, sink
        return StagedOutput(self._committed.__setitem__, self._free, shown=self._committed)

    def describe(self) -> str:
        """For explain()."""
        return "memory"

    def batches(self) -> list[pa.RecordBatch]:
        """The rows of each batch that had any, in order."""
        return list(self._committed.values())

    def table(self) -> pa.Table:
        """All rows as one table."""
        if self._schema is None:
            raise ConnectorError("memory() holds no table yet", hint="run the graph first: graph.run()")
        return pa.Table.from_batches(self.batches(), schema=self._schema)

    def rows(self) -> list[dict[str, Any]]:
        """All rows as dicts."""
        return [row for batch in self.batches() for row in batch.to_pylist()]

    def _free(self) -> None:
        self._sink = None


def memory() -> Memory:
    """Keep rows in memory: `out = ps.write.memory()`, and after the run `out.rows()`."""
    return Memory()
