"""TableJoin: look every row up in a table that is read once, before anything else.

The table's keys get slots, as the keys of windows do, so that both sides agree on what is equal: NaN matches
NaN, -0.0 matches 0.0. Null matches nothing. A batch is looked up column by column; whole numbers that lie
near one another are looked up by their distance from the least (`NearIndex`), and many texts where they lie
(`TextIndex`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr.arrow.columnar_value import numbers_of
from penstock.operators.op import IN, OUT
from penstock.operators.stream import Stream
from penstock.operators.table_join import TableJoin
from penstock.stages.keys.columns import is_large
from penstock.stages.keys.index import TextIndex
from penstock.stages.keys.slots import KeySlots
from penstock.stages.rows.batch import Batch, ColumnView, Ints, Mask, Selection, take_values
from penstock.stages.stage import Site
from penstock.stages.stateless import Outputs, StatelessStage

NO_MATCH = -1
DENSE_RANGE = 1 << 16
"""Places that an index by distance may always have; beyond it, four for each row of the table."""


class TableJoinStage(StatelessStage):
    """The table's other columns beside the row's.

    table  the table, if the engine has read it already; None to read it here
    """

    def __init__(self, op: TableJoin, up: Stream, site: Site, *, table: pa.Table | None = None) -> None:
        super().__init__(up, site)
        self._names, self._inner = op.columns, op.how == "inner"
        self._down = op.outputs({IN: up})[OUT].schema
        loaded = op.load() if table is None else table
        self._index = build_index([loaded.column(name).combine_chunks() for name in op.columns])
        self._added = [
            TableColumn(field.name, loaded.column(field.name).combine_chunks()) for field in op.new_fields
        ]
        self._n_rows = loaded.num_rows

    def made(self, batch: Batch) -> Outputs:
        """The rows with the table's columns; without a match, nulls (left) or nothing (inner)."""
        found = self._find(batch)
        missed = found == NO_MATCH
        some = bool(missed.any())
        if some and self._inner:
            self.site.accounts.unmatched += int(np.count_nonzero(missed))
            batch, found, some = batch.where(~missed), found[~missed], False
        self.site.accounts.passed += batch.num_rows
        if not some:
            pick = Selection.from_indices(found)
            yield OUT, batch.with_columns([each.at(pick) for each in self._added], self._down)
            return
        places = pa.array(found, mask=missed)
        columns = [*batch.rows.columns, *(each.column.take(places) for each in self._added)]
        yield OUT, Batch(pa.RecordBatch.from_arrays(columns, schema=self._down), batch.times, batch.order)

    def _find(self, batch: Batch) -> Ints:
        if isinstance(self._index, TextLookup):
            return self._index.find_view(batch.column_view(self._names[0]))
        return self._index.find([batch.column(name) for name in self._names])

    def explain(self) -> list[str]:
        """How rows are looked up."""
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

    def at(self, pick: Selection) -> ColumnView:
        """The column at some of the table's rows."""
        return ColumnView(self._values, pick if self._numbers is None else pick.map_through(self._numbers))


def build_index(columns: Sequence[pa.Array]) -> TableIndex | DenseIndex | TextLookup:
    """By distance where that takes little room, by text for a column of them, else by slots."""
    (first, *others) = columns
    if not others and (kind.is_string(first.type) or kind.is_binary(first.type)):
        return TextLookup(first)
    if not others and _is_integer_like(first.type) and len(first) > first.null_count:
        values = numbers_of(first.drop_null())
        least, most = int(values.min()), int(values.max())
        if most - least < max(DENSE_RANGE, 4 * len(values)):
            return DenseIndex(first, least, most)
    return TableIndex(columns)


def _is_integer_like(type_: pa.DataType) -> bool:
    return bool(kind.is_signed_integer(type_) or kind.is_timestamp(type_) or kind.is_date32(type_))


class DenseIndex:
    """The rows of a table by a whole number, each at its distance from the least."""

    def __init__(self, keys: pa.Array, least: int, most: int) -> None:
        self._least, self._most = least, most
        self._rows = np.full(most - least + 1, NO_MATCH, np.int64)
        rows = np.flatnonzero(_valid_rows([keys]))
        self._rows[numbers_of(keys)[rows].astype(np.int64) - least] = rows

    def find(self, columns: Sequence[pa.Array]) -> Ints:
        """The table's row of each key, or MISSING."""
        (column,) = columns
        values = numbers_of(column)
        near = None if column.null_count == 0 else _valid_rows(columns)
        if len(values) and (values.min() < self._least or values.max() > self._most):
            inside = (values >= self._least) & (values <= self._most)
            near = inside if near is None else near & inside
        if near is None:
            return self._rows.take(values.astype(np.int64, copy=False) - self._least)
        found = np.full(len(values), NO_MATCH, np.int64)
        found[near] = self._rows[values[near].astype(np.int64) - self._least]
        return found


class TextLookup:
    """The rows of a table by a text: few as keys are looked up, many by a compiled index."""

    def __init__(self, texts: pa.Array) -> None:
        self._texts, self._few, self._n_rows = texts, TableIndex([texts]), 0
        self._many: TextIndex | None = None

    def find(self, columns: Sequence[pa.Array]) -> Ints:
        """The table's row of each text, or MISSING."""
        (texts,) = columns
        return self.find_view(ColumnView(texts, None))

    def find_view(self, column: ColumnView) -> Ints:
        """The same for texts that were picked from a column, and not yet taken."""
        texts, pick = column
        n_rows = len(texts) if pick is None else pick.num_rows
        self._n_rows += n_rows
        if self._many is None and not is_large(n_rows, self._n_rows):
            return self._few.find([texts if pick is None else take_values(texts, pick)])
        if self._many is None:
            self._many = TextIndex(self._texts)
        return self._many.find(texts, None if pick is None else pick.indices)


class TableIndex:
    """The rows of a table by key; no two have one, except that keys with a null match nothing anyway."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        rows = np.flatnonzero(_valid_rows(columns))
        self._keys = KeySlots([column.type for column in columns])
        self._rows = np.empty(0, np.int64)
        if len(rows):
            slots = self._keys.assign([column.take(pa.array(rows)) for column in columns])
            self._rows = np.full(int(slots.max()) + 1, NO_MATCH, np.int64)
            self._rows[slots] = rows

    def find(self, columns: Sequence[pa.Array]) -> Ints:
        """The table's row of each key, or MISSING."""
        slots = self._keys.assign(columns)
        known = slots < len(self._rows)
        if known.all() and not any(column.null_count for column in columns):
            return self._rows.take(slots)
        found = np.full(len(slots), NO_MATCH, np.int64)
        found[known] = self._rows[slots[known]]
        # Keys that the table does not have were given slots of their own: they are not kept.
        self._keys.free(np.unique(slots[~known]))
        return np.where(_valid_rows(columns), found, NO_MATCH)


def _valid_rows(columns: Sequence[pa.Array]) -> Mask:
    masks = [column.is_valid().to_numpy(zero_copy_only=False) for column in columns]
    return np.asarray(np.logical_and.reduce(masks), np.bool_)
