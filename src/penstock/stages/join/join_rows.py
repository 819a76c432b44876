"""Rows of one side of a join as they come: a batch with the codes by which rows meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.connect.batching import RowLists
from penstock.expr.values import to_plain
from penstock.frozen import Frozen
from penstock.stages import policy
from penstock.stages.join.payload import take_few
from penstock.stages.rows.batch import Batch, Ints, Mask, Selection, take_values
from penstock.stages.rows.order import Order, concat_orders


class RowsOfSide(Protocol):
    """Rows of one side, new or stored, of which some are asked for by their places."""

    @property
    def codes(self) -> Ints:
        """Return int64[k, n]: the clock, and a code for each condition."""

    @property
    def times(self) -> Ints:
        """Return int64[n], in microseconds."""

    @property
    def order(self) -> Order:
        """Return their places among rows of equal time."""

    @property
    def buckets(self) -> Ints:
        """Return int64[n]: by which they are saved, and spread over cells."""

    @property
    def numbers(self) -> Ints:
        """Return int64[n]: of the rows as they came to the cell of their bucket."""

    @property
    def has_pair(self) -> Mask:
        """Return bool[n]: which have a partner; this is written."""

    @property
    def is_plain(self) -> bool:
        """Return whether the rows are at hand as plain values."""

    def take_plain(self, at: Ints) -> list[tuple[object, ...]]:
        """Return some rows as plain values, in the order of their columns."""

    def take_keys(self, at: Ints) -> list[tuple[int, ...]]:
        """Return the time and the places of some rows."""

    def take_columns(self, at: Ints) -> list[pa.Array]:
        """Return all columns of some rows."""

    def take_batch(self, at: Ints) -> pa.RecordBatch:
        """Return all columns of some rows."""

    def take_column(self, name: str, at: Ints) -> pa.Array:
        """Return one column of some rows."""


class JoinRows(Frozen):
    """New rows of one side.

    codes    int64[k, n]  the clock, and a code for each condition; of rows that meet nothing, the clock only
    times    int64[n]     microseconds
    order    their place among rows of equal time
    batch    all their columns
    buckets  int64[n]     by which they are saved, and spread over cells
    numbers  int64[n]     of the rows as they came to the cell of their bucket
    has_pair bool[n]      which have a partner; the one thing that changes
    """

    codes: Ints
    times: Ints
    order: Order
    batch: Batch
    buckets: Ints
    numbers: Ints
    has_pair: Mask

    def __len__(self) -> int:
        return len(self.times)

    @property
    def rows(self) -> pa.RecordBatch:
        """Return all their columns."""
        return self.batch.rows

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        arrays: list[Any] = [self.codes, self.times, *self.order, self.buckets, self.numbers, self.has_pair]
        return sum(int(array.nbytes) for array in arrays) + int(self.rows.nbytes)

    def take_batch(self, at: Ints) -> pa.RecordBatch:
        """Implement `RowsOfSide.take_batch`."""
        return pa.RecordBatch.from_arrays(self.take_columns(at), schema=self.rows.schema)

    def take_columns(self, at: Ints) -> list[pa.Array]:
        """Implement `RowsOfSide.take_columns`."""
        if len(self) + len(at) <= policy.SIZES.few_rows:
            return take_few(self.rows.columns, at)
        selection = Selection(len(at), lambda: at)
        return [take_values(column, selection) for column in self.rows.columns]

    def take_keys(self, at: Ints) -> list[tuple[int, ...]]:
        """Implement `RowsOfSide.take_keys`."""
        keys = (self.times, *self.order)
        # Why no `take`: it lets other threads run, and with a few rows that takes longer than all the rest.
        return list(zip(*[key[at].tolist() for key in keys], strict=True))

    @property
    def is_plain(self) -> bool:
        """Implement `RowsOfSide.is_plain`."""
        return self.batch.plain is not None

    def take_plain(self, at: Ints) -> list[tuple[object, ...]]:
        """Implement `RowsOfSide.take_plain`."""
        plain = self.batch.plain
        if isinstance(plain, RowLists):
            rows = list(zip(*plain.lists, strict=True))
        else:
            rows = _few_to_plain(self.rows) if plain is None else [tuple(row.values()) for row in plain]
        return [rows[place] for place in at.tolist()]

    def take_column(self, name: str, at: Ints) -> pa.Array:
        """Implement `RowsOfSide.take_column`."""
        return self.rows.column(name).take(pa.array(at))

    def take(self, indices: Ints) -> JoinRows:
        """Return the rows at these indices."""
        return take_join_rows(self, indices)


def _few_to_plain(rows: pa.RecordBatch) -> list[tuple[object, ...]]:
    """Return a few rows as plain values: what `to_plain` does to a column costs more than its values."""
    columns = [
        column.to_pylist() if column.type.id in _PLAIN_IDS else to_plain(column) for column in rows.columns
    ]
    return list(zip(*columns, strict=True))


_PLAIN_IDS = frozenset([pa.int64().id, pa.float64().id, pa.string().id])
"""Types whose values Arrow gives as they are."""


def take_join_rows(rows: RowsOfSide, at: Ints) -> JoinRows:
    """Return some rows, with all that is known of them."""
    times, order = rows.times[at], tuple(column[at] for column in rows.order)
    return JoinRows(
        np.ascontiguousarray(rows.codes[:, at]),
        times,
        order,
        Batch(rows.take_batch(at), times, order),
        rows.buckets[at],
        rows.numbers[at],
        rows.has_pair[at],
    )


def concat_join_rows(parts: Sequence[JoinRows]) -> JoinRows:
    """Return several lots of rows of one side as one; their places may be of different lengths."""
    if len(parts) == 1:
        return parts[0]
    times = np.concatenate([part.times for part in parts])
    order = concat_orders([(part.order, len(part)) for part in parts])
    return JoinRows(
        np.concatenate([part.codes for part in parts], axis=1),
        times,
        order,
        Batch(pa.concat_batches([part.rows for part in parts]), times, order),
        np.concatenate([part.buckets for part in parts]),
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.has_pair for part in parts]),
    )
