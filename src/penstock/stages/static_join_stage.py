"""StaticJoin: look every row up in a table that is read once, before anything else.

The table's keys get slots, as the keys of windows do, so that both sides agree on what is equal: NaN matches
NaN, -0.0 matches 0.0. Null matches nothing. A batch is looked up column by column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.operators.op import IN, OUT
from penstock.operators.static_join import StaticJoin
from penstock.operators.stream import Stream
from penstock.stages.batch import Batch, Ints, Mask
from penstock.stages.keys import KeySlots
from penstock.stages.site import Site
from penstock.stages.stateless import Out, Stateless

MISSING = -1


class StaticJoinStage(Stateless):
    """The table's other columns beside the row's.

    table  the table, if the engine has read it already; None to read it here
    """

    def __init__(self, op: StaticJoin, up: Stream, site: Site, *, table: pa.Table | None = None) -> None:
        super().__init__(up, site)
        self._names, self._inner = op.columns, op.how == "inner"
        self._down = op.outputs({IN: up})[OUT].schema
        loaded = op.load() if table is None else table
        self._index = TableIndex([loaded.column(name).combine_chunks() for name in op.columns])
        self._added = [loaded.column(field.name).combine_chunks() for field in op.added]
        self._n_rows = loaded.num_rows

    def made(self, batch: Batch) -> Out:
        """The rows with the table's columns; without a match, nulls (left) or nothing (inner)."""
        found = self._index.find([batch.rows.column(name) for name in self._names])
        matched = found != MISSING
        if self._inner:
            self.site.accounts.unmatched += int((~matched).sum())
            batch, found = batch.where(matched), found[matched]
            matched = np.ones(len(found), np.bool_)
        self.site.accounts.passed += batch.num_rows
        places = pa.array(found, mask=None if matched.all() else ~matched)
        columns = [*batch.rows.columns, *(column.take(places) for column in self._added)]
        yield OUT, Batch(pa.RecordBatch.from_arrays(columns, schema=self._down), batch.times, batch.order)

    def explain(self) -> list[str]:
        """How rows are looked up."""
        return [f"a table of {self._n_rows:,} rows in memory, looked up a batch at a time"]


class TableIndex:
    """The rows of a table by key; no two have one, except that keys with a null match nothing anyway."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        rows = np.flatnonzero(_without_null(columns))
        self._keys = KeySlots([column.type for column in columns])
        self._rows = np.empty(0, np.int64)
        if len(rows):
            slots = self._keys.assign([column.take(pa.array(rows)) for column in columns])
            self._rows = np.full(int(slots.max()) + 1, MISSING, np.int64)
            self._rows[slots] = rows

    def find(self, columns: Sequence[pa.Array]) -> Ints:
        """The table's row of each key, or MISSING."""
        slots = self._keys.assign(columns)
        known = slots < len(self._rows)
        found = np.full(len(slots), MISSING, np.int64)
        found[known] = self._rows[slots[known]]
        # Keys that the table does not have were given slots of their own: they are not kept.
        self._keys.free(np.unique(slots[~known]))
        return np.where(_without_null(columns), found, MISSING)


def _without_null(columns: Sequence[pa.Array]) -> Mask:
    masks = [column.is_valid().to_numpy(zero_copy_only=False) for column in columns]
    return np.asarray(np.logical_and.reduce(masks), np.bool_)
