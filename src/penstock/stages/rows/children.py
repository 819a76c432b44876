"""Rows that were made of others: of any number for each, at the time of the row they were made of.

Few of them are plain rows, whose times and places are numbers of Python; many become columns at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.stages import policy
from penstock.stages.rows.batch import Batch, Ints, Plain, RowBatch, rows_to_columns
from penstock.stages.rows.order import append_order, append_plain_order


def expand_rows(batch: Batch, children: Sequence[Sequence[Plain]], schema: pa.Schema) -> Batch:
    """Return the rows that were returned for each row of a batch."""
    rows = [row for rows in children for row in rows]
    if len(rows) == batch.num_rows <= policy.SIZES.few_rows and all(map(len, children)):
        times, order = batch.plain_times_and_order()  # one for each
        return RowBatch(rows, schema, times, append_plain_order(order, [0] * len(rows)))
    if len(rows) > policy.SIZES.plain_rows:
        parents = np.repeat(np.arange(batch.num_rows), np.array([len(rows) for rows in children], np.int64))
        return place_children(batch, parents, rows_to_columns(rows, schema))
    return Children.of(children).place(batch, rows, schema)


class Children(NamedTuple):
    """Of few rows that were made of others, which of the others, and their numbers among their siblings."""

    parents: list[int]
    numbers: list[int]

    @classmethod
    def of(cls, siblings: Sequence[Sequence[Any]]) -> Children:
        """Return which rows were made of which, from those that were made of each."""
        parents = [parent for parent, of_one in enumerate(siblings) for _ in of_one]
        return cls(parents, [number for of_one in siblings for number in range(len(of_one))])

    def repeat(self, values: Sequence[Any]) -> list[Any]:
        """Return the value of its parent for each."""
        return [values[parent] for parent in self.parents]

    def place(self, parents: Batch, rows: Sequence[Plain], schema: pa.Schema) -> Batch:
        """Return the new rows, at the times of their parents."""
        if len(rows) <= policy.SIZES.few_rows:
            times, order = parents.plain_times_and_order()
            places = append_plain_order(order, self.numbers, self.parents)
            return RowBatch(rows, schema, self.repeat(times), places)
        at = np.array(self.parents)
        return RowBatch(
            rows, schema, parents.times[at], append_order(parents.order, np.array(self.numbers), at)
        )


def place_children(batch: Batch, parents: Ints, children: pa.RecordBatch) -> Batch:
    """Return new rows at the times of their parents; those of one parent stand together, in order."""
    first = np.append(True, parents[1:] != parents[:-1])[: len(parents)]
    starts = np.flatnonzero(first)
    index = np.arange(len(parents)) - np.repeat(starts, np.diff(np.append(starts, len(parents))))
    return Batch(children, batch.times[parents], append_order(batch.order, index, parents))
