"""Rows of one side of a join as they come: a batch with the codes by which rows meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.frozen import Frozen
from penstock.stages.rows.batch import Ints, Mask, Selection, take_values
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
        """Return int64[n]: of the rows as they came, each once."""

    @property
    def has_pair(self) -> Mask:
        """Return bool[n]: which have a partner; this is written."""

    def take_batch(self, at: Ints) -> pa.RecordBatch:
        """Return all columns of some rows."""

    def take_column(self, name: str, at: Ints) -> pa.Array:
        """Return one column of some rows."""


class JoinRows(Frozen):
    """New rows of one side.

    codes    int64[k, n]  the clock, and a code for each condition; of rows that meet nothing, the clock only
    times    int64[n]     microseconds
    order    their place among rows of equal time
    rows     all their columns
    buckets  int64[n]     by which they are saved, and spread over cells
    numbers  int64[n]     of the rows as they came, each once
    has_pair bool[n]      which have a partner; the one thing that changes
    """

    codes: Ints
    times: Ints
    order: Order
    rows: pa.RecordBatch
    buckets: Ints
    numbers: Ints
    has_pair: Mask

    def __len__(self) -> int:
        return len(self.times)

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        arrays: list[Any] = [self.codes, self.times, *self.order, self.buckets, self.numbers, self.has_pair]
        return sum(int(array.nbytes) for array in arrays) + int(self.rows.nbytes)

    def take_batch(self, at: Ints) -> pa.RecordBatch:
        """Implement `RowsOfSide.take_batch`."""
        selection = Selection(len(at), lambda: at)
        columns = [take_values(column, selection) for column in self.rows.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.rows.schema)

    def take_column(self, name: str, at: Ints) -> pa.Array:
        """Implement `RowsOfSide.take_column`."""
        return self.rows.column(name).take(pa.array(at))

    def take(self, indices: Ints) -> JoinRows:
        """Return the rows at these indices."""
        return take_join_rows(self, indices)


def take_join_rows(rows: RowsOfSide, at: Ints) -> JoinRows:
    """Return some rows, with all that is known of them."""
    return JoinRows(
        np.ascontiguousarray(rows.codes[:, at]),
        rows.times[at],
        tuple(column[at] for column in rows.order),
        rows.take_batch(at),
        rows.buckets[at],
        rows.numbers[at],
        rows.has_pair[at],
    )


def concat_join_rows(parts: Sequence[JoinRows]) -> JoinRows:
    """Return several lots of rows of one side as one; their places may be of different lengths."""
    if len(parts) == 1:
        return parts[0]
    return JoinRows(
        np.concatenate([part.codes for part in parts], axis=1),
        np.concatenate([part.times for part in parts]),
        concat_orders([(part.order, len(part)) for part in parts]),
        pa.concat_batches([part.rows for part in parts]),
        np.concatenate([part.buckets for part in parts]),
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.has_pair for part in parts]),
    )
