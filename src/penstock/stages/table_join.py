"""TableJoin: look every row up in a table that is read once, before anything else.

Null matches nothing. A batch is looked up column by column, and the table's columns are added to it as a
selection: values are copied when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr.values import from_numpy, valid_in
from penstock.operators.op import IN, OUT, Stream
from penstock.operators.table_join import TableJoin
from penstock.stages.keys.index import build_keys
from penstock.stages.rows.batch import Batch, ColumnView, Ints, Selection
from penstock.stages.stage import Outputs, StageContext, StatelessStage

NO_MATCH = -1


class TableJoinStage(StatelessStage):
    """The table's other columns beside the row's.

    table  the table, if the engine has read it already; None to read it here
    """

    def __init__(
        self, op: TableJoin, up: Stream, site: StageContext, *, table: pa.Table | None = None
    ) -> None:
        super().__init__(up, site)
        self._inner = op.how == "inner"
        self._down = op.outputs({IN: up})[OUT].schema
        loaded = op.load() if table is None else table
        self._index = TableIndex({name: loaded.column(name).combine_chunks() for name in op.columns})
        self._added = [
            TableColumn(field.name, loaded.column(field.name).combine_chunks()) for field in op.new_fields
        ]
        self._n_rows = loaded.num_rows

    def process(self, batch: Batch) -> Outputs:
        """Return the rows with the table's columns; without a match, nulls (left) or nothing (inner)."""
        rows = self._index.find(batch)
        is_missing = rows == NO_MATCH if len(rows) and rows.min() == NO_MATCH else None
        if is_missing is not None and self._inner:
            self.site.accounts.unmatched += int(np.count_nonzero(is_missing))
            batch, rows, is_missing = batch.where(~is_missing), rows[~is_missing], None
        self.site.accounts.passed += batch.num_rows
        if is_missing is None:
            selection = Selection(len(rows), lambda: rows)
            yield OUT, batch.with_columns([column.at(selection) for column in self._added], self._down)
            return
        indices = pa.array(rows, mask=is_missing)
        columns = [*batch.rows.columns, *(added.column.take(indices) for added in self._added)]
        yield OUT, Batch(pa.RecordBatch.from_arrays(columns, schema=self._down), batch.times, batch.order)

    def explain(self) -> list[str]:
        """Return how rows are looked up."""
        return [f"a table of {self._n_rows:,} rows in memory, looked up a batch at a time"]


class TableColumn:
    """A column of the table; where its values come again and again, each once and their numbers by row."""

    def __init__(self, name: str, column: pa.Array) -> None:
        self.column, self._numbers = column, None
        values = column
        if not (kind.is_floating(column.type) or kind.is_nested(column.type) or column.null_count):
            coded = column.dictionary_encode()
            if 2 * len(coded.dictionary) <= len(column):
                values = coded.dictionary
                self._numbers = np.asarray(coded.indices.to_numpy(), np.int64)
        self._values = pa.RecordBatch.from_arrays([values], names=[name])

    def at(self, selection: Selection) -> ColumnView:
        """Return the column at some of the table's rows."""
        if self._numbers is not None:
            numbers = self._numbers
            selection = selection.compose(Selection(len(numbers), lambda: numbers))
        return ColumnView(self._values, selection)


class TableIndex:
    """The rows of a table by key, no two of which have one key; keys with a null match nothing.

    The table's keys have the first slots of an index, as keys of windows have, so that both agree on what is
    equal: NaN matches NaN, -0.0 matches 0.0.
    """

    def __init__(self, columns: Mapping[str, pa.Array]) -> None:
        self._names = tuple(columns)
        self._keys = build_keys([column.type for column in columns.values()])
        valid = [valid_in(column) for column in columns.values()]
        rows = np.flatnonzero(np.logical_and.reduce(valid))
        slots = self._keys.assign([column.take(from_numpy(rows)) for column in columns.values()])
        self._rows = np.full(int(slots.max(initial=-1)) + 1, NO_MATCH, np.int64)
        self._rows[slots] = rows
        self._are_slots = np.array_equal(self._rows, np.arange(len(self._rows)))

    def find(self, batch: Batch) -> Ints:
        """Return the table's row of each row of a batch, or NO_MATCH."""
        slots = self._keys.assign_batch(batch, self._names)
        if len(slots) and slots.max() < len(self._rows):
            # Why: where slots are rows, a look-up less (`python -m bench peers`, YSB).
            return slots if self._are_slots else self._rows.take(slots)
        is_known = slots < len(self._rows)
        rows = np.full(len(slots), NO_MATCH, np.int64)
        rows[is_known] = self._rows[slots[is_known]]
        # Invariant: only the table's keys keep their slots; others, and null, had one for this batch.
        self._keys.free(np.unique(slots[~is_known]))
        return rows
