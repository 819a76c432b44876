"""Pairs of a join, and what leaves it: their columns, times and places.

A pair has the later of the two times; its place among rows of one time is that of the left row and then that
of the right row. A row without a partner keeps its own, and so does a left row of a semi or anti join.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.operators.join_predicate import LEFT, RIGHT, Equal
from penstock.operators.op import OUT, Stream
from penstock.operators.stream_join import StreamJoin
from penstock.stages import policy
from penstock.stages.join.bounds import LEFT_SIDE
from penstock.stages.join.conditions import CLOCK
from penstock.stages.join.join_rows import RowsOfSide
from penstock.stages.rows.batch import Batch, Ints, Mask, RowBatch
from penstock.stages.rows.input import build_time_column
from penstock.stages.rows.order import (
    NO_ORDER,
    Order,
    append_order,
    concat_orders,
    merge_batches,
    sort_indices,
)


class Pairs:
    """Pairs that may join, or do: a place among left rows and one among right rows for each."""

    def __init__(self, left: RowsOfSide, left_at: Ints, right: RowsOfSide, right_at: Ints) -> None:
        self.left, self.left_at, self.right, self.right_at = left, left_at, right, right_at

    def __len__(self) -> int:
        return len(self.left_at)

    def where(self, mask: Mask) -> Pairs:
        """Return the pairs for which the mask is true."""
        if mask.all():
            return self
        return Pairs(self.left, self.left_at[mask], self.right, self.right_at[mask])

    @cached_property
    def left_batch(self) -> pa.RecordBatch:
        """Return the left rows, one for each pair."""
        return self.left.take_batch(self.left_at)

    @cached_property
    def right_batch(self) -> pa.RecordBatch:
        """Return the right rows, one for each pair."""
        return self.right.take_batch(self.right_at)


class JoinResults:
    """Builds the rows that leave a join.

    schema  their columns
    """

    def __init__(self, op: StreamJoin, left: Stream, right: Stream) -> None:
        self.schema: pa.Schema = op.outputs({LEFT: left, RIGHT: right})[OUT].schema
        resolved = op.resolve(left, right)
        self._left_names = left.columns
        self._right_fields = op.right_columns(left, right)
        self._names, self._n_right = self.schema.names, len(right.schema)
        self._right_places = [right.schema.get_field_index(name) for name, _ in self._right_fields]
        self._shared = {term.left for term in op.terms if isinstance(term, Equal) and term.left == term.right}
        self._window = resolved.window if resolved.has_window_columns else None
        self._time = left.require_time("the left side of a join")

    def join(self, lots: Sequence[Pairs], *, in_order: bool = False) -> Batch:
        """Return the columns of both rows of all pairs, at the later time.

        in_order  by time and place, if that is easy: rows that are taken in order are not taken again
        """
        if len(lots) == 1 and len(lots[0]) <= policy.SIZES.few_rows:
            return self._join_few(lots[0], in_order=in_order)
        if in_order and len(lots) == 1:
            lots = [_sort_pairs(lots[0])]
        left = _take_rows([(pairs.left, pairs.left_at) for pairs in lots])
        right = _take_rows([(pairs.right, pairs.right_at) for pairs in lots])
        columns = [*left.rows.columns, *(right.rows.column(name) for name, _ in self._right_fields)]
        columns += self._window_columns(left.clock)
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return Batch(rows, np.maximum(left.times, right.times), _join_orders(left.order, right.order))

    def _join_few(self, pairs: Pairs, *, in_order: bool) -> Batch:
        """Return what `join` does of a few pairs; as plain rows if the new ones are such."""
        left, left_at, right, right_at = pairs.left, pairs.left_at, pairs.right, pairs.right_at
        keys = [
            (max(one[0], other[0]), *_join_places(one[1:], other[1:]))
            for one, other in zip(left.take_keys(left_at), right.take_keys(right_at), strict=True)
        ]
        if in_order and len(keys) > 1:
            places = np.array(sorted(range(len(keys)), key=keys.__getitem__))
            left_at, right_at = left_at[places], right_at[places]
            keys.sort()
        times, *order = zip(*keys, strict=True)
        is_plain = left.is_plain or right.is_plain or len(keys) <= policy.SIZES.plain_pairs
        if is_plain and self._window is None:
            names, of_result = self._names, self._right_places
            both = zip(left.take_plain(left_at), right.take_plain(right_at), strict=True)
            if len(of_result) == self._n_right:
                rows = [dict(zip(names, own + opposite, strict=True)) for own, opposite in both]
            else:
                of_right = [(own, [opposite[place] for place in of_result]) for own, opposite in both]
                rows = [dict(zip(names, (*own, *values), strict=True)) for own, values in of_right]
            return RowBatch(rows, self.schema, times, tuple(order))
        columns, of_right = left.take_columns(left_at), right.take_columns(right_at)
        columns += [of_right[place] for place in self._right_places]
        columns += self._window_columns(left.codes[CLOCK][left_at])
        # Why no array: often nobody asks for them any more.
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self.schema), times, tuple(order))  # type: ignore[arg-type]

    def leave_alone(self, side: int, rows: RowsOfSide, at: Ints) -> Batch:
        """Return rows of one side, with nulls for the other, but a shared column is a right row's own."""
        own, times, order, clock = _take_rows([(rows, at)])
        if side == LEFT_SIDE:
            columns = list(own.columns)
            columns += [pa.nulls(len(at), field.type) for _, field in self._right_fields]
        else:
            columns = [
                own.column(name) if name in self._shared else pa.nulls(len(at), self.schema.field(name).type)
                for name in self._left_names
            ]
            columns += [own.column(name) for name, _ in self._right_fields]
        columns += self._window_columns(clock)
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self.schema), times, order)

    def merge(self, batches: Sequence[Batch]) -> Batch:
        """Return all rows by (time, place, columns)."""
        whole = merge_batches(batches, self.schema)
        if whole.num_rows <= policy.SIZES.few_rows:
            times, order = whole.plain_times_and_order()
            places = list(zip(times, *order, strict=True))
            if all(before < after for before, after in pairwise(places)):
                return whole
        keys = [whole.times, *whole.order]
        at = sort_indices(keys, whole.rows)
        return whole if (at[1:] > at[:-1]).all() else whole.take(at)

    def _window_columns(self, starts: Ints) -> list[pa.Array]:
        """Return the bounds of the window of each row, where results name them."""
        if self._window is None:
            return []
        return [build_time_column(bounds, self._time) for bounds in (starts, starts + self._window.size)]


def _sort_pairs(pairs: Pairs) -> Pairs:
    """Return pairs by time and place, as far as these tell them apart."""
    left, left_at, right, right_at = pairs.left, pairs.left_at, pairs.right, pairs.right_at
    if len(pairs) == 1:
        return pairs
    order = _join_orders(
        tuple(column[left_at] for column in left.order), tuple(column[right_at] for column in right.order)
    )
    places = sort_indices([np.maximum(left.times[left_at], right.times[right_at]), *order])
    return Pairs(left, left_at[places], right, right_at[places])


class _RowsAt(NamedTuple):
    """What results need of rows: columns, times, places, and the clock."""

    rows: pa.RecordBatch
    times: Ints
    order: Order
    clock: Ints


def _take_rows(lots: Sequence[tuple[RowsOfSide, Ints]]) -> _RowsAt:
    """Return the rows at some places of several lots, one after the other; of one lot in one step."""
    if all(rows is lots[0][0] for rows, _ in lots):
        rows, at = lots[0][0], np.concatenate([at for _, at in lots])
        order = tuple(column[at] for column in rows.order)
        return _RowsAt(rows.take_batch(at), rows.times[at], order, rows.codes[CLOCK][at])
    parts = [_take_rows([lot]) for lot in lots]
    return _RowsAt(
        pa.concat_batches([part.rows for part in parts]),
        np.concatenate([part.times for part in parts]),
        concat_orders([(part.order, len(part.times)) for part in parts]),
        np.concatenate([part.clock for part in parts]),
    )


def _join_places(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """Return the place of one pair, as `_join_orders` does."""
    if NO_ORDER not in left:
        return left + right
    n_left = left.index(NO_ORDER)
    return left[:n_left] + right + left[n_left:]


def _join_orders(left: Order, right: Order) -> Order:
    """Return the places of pairs: the numbers of the left, then those of the right."""
    if not any((column == NO_ORDER).any() for column in left):
        return (*left, *right)
    order = left
    for column in right:
        order = append_order(order, column)
    return order
