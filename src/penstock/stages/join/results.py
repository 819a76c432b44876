"""What leaves a join: pairs, and rows without a partner, with their times and places.

A pair has the later of the two times; its place among rows of one time is that of the left row and then that
of the right row. A row alone keeps its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.operators.op import OUT, Stream
from penstock.operators.stream_join import LEFT, RIGHT, Equal, StreamJoin
from penstock.stages.join.bounds import LEFT_SIDE
from penstock.stages.join.predicate import Candidates
from penstock.stages.join.segments import JoinRows
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.order import NO_ORDER, Order, append_order, merge_batches, sort_indices


class JoinResults:
    """Builds what leaves a join."""

    def __init__(self, op: StreamJoin, left: Stream, right: Stream) -> None:
        self.schema: pa.Schema = op.outputs({LEFT: left, RIGHT: right})[OUT].schema
        self._left_names = left.columns
        self._right_names = [name for name, _ in op.right_columns(left, right)]
        self._shared = {term.left for term in op.terms if isinstance(term, Equal) and term.left == term.right}

    def pairs(self, pairs: Candidates) -> Batch:
        """Return the columns of both, at the later time."""
        right = pairs.right_batch
        columns = [*pairs.left_batch.columns, *(right.column(name) for name in self._right_names)]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        left_order = tuple(column[pairs.left_at] for column in pairs.left.order)
        right_order = tuple(column[pairs.right_at] for column in pairs.right.order)
        times = np.maximum(pairs.left.times[pairs.left_at], pairs.right.times[pairs.right_at])
        return Batch(rows, times, _join_orders(left_order, right_order))

    def alone(self, side: int, rows: JoinRows) -> Batch:
        """Return rows of one side, with nulls for the other, but a shared column is a right row's own."""
        n_rows = len(rows)
        if side == LEFT_SIDE:
            columns = list(rows.rows.columns)
            columns += [pa.nulls(n_rows, field.type) for field in list(self.schema)[len(columns) :]]
        else:
            columns = [
                rows.rows.column(name)
                if name in self._shared
                else pa.nulls(n_rows, self.schema.field(name).type)
                for name in self._left_names
            ]
            columns += [rows.rows.column(name) for name in self._right_names]
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self.schema), rows.times, rows.order)

    def merge(self, batches: Sequence[Batch]) -> Batch:
        """Return all rows by (time, place, columns)."""
        whole = merge_batches(batches, self.schema)
        places = sort_indices([whole.times, *whole.order], whole.rows)
        return whole.take(places)


def _join_orders(left: Order, right: Order) -> Order:
    """Return the places of pairs: the numbers of the left, then those of the right."""
    if not any((column == NO_ORDER).any() for column in left):
        return (*left, *right)
    order = left
    for column in right:
        order = append_order(order, column)
    return order
