"""Pairs of a join, and what leaves it: their columns, times and places.

A pair has the later of the two times; its place among rows of one time is that of the left row and then that
of the right row. A row without a partner keeps its own, and so does a left row of a semi or anti join.

What leaves in a round leaves in order. Until then a pair is two places; its columns are taken once, in that
order, for a bounded number of pairs at a time (`python -m bench join`, band).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from operator import eq

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

FIRST_ROWS = 64
"""New rows that are joined at once while nothing is known of how many pairs they find."""


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

    def take(self, at: Ints) -> Pairs:
        """Return some of the pairs."""
        return Pairs(self.left, self.left_at[at], self.right, self.right_at[at])

    @cached_property
    def left_batch(self) -> pa.RecordBatch:
        """Return the left rows, one for each pair."""
        return self.left.take_batch(self.left_at)

    @cached_property
    def right_batch(self) -> pa.RecordBatch:
        """Return the right rows, one for each pair."""
        return self.right.take_batch(self.right_at)


class RoundResults:
    """What is to leave a join in a round.

    pairs  whose columns are not taken yet; rows that they name by a slot must not move before they leave
    alone  rows without a partner, or of one side only
    """

    def __init__(self) -> None:
        self.pairs: list[Pairs] = []
        self.alone: list[Batch] = []

    def __len__(self) -> int:
        return sum(map(len, self.pairs)) + sum(batch.num_rows for batch in self.alone)

    def name_stored(self, new: RowsOfSide, stored: RowsOfSide, first: int) -> None:
        """Take note that new rows are stored now, at the places from the first on.

        So the pairs of both sides' new rows are of the same rows, and all are taken in one step.
        """
        for pairs in self.pairs:
            if pairs.left is new:
                pairs.left, pairs.left_at = stored, pairs.left_at + first
            if pairs.right is new:
                pairs.right, pairs.right_at = stored, pairs.right_at + first

    def unite(self) -> None:
        """Put pairs of the same rows together."""
        if len(self.pairs) < 2:
            return
        lots: dict[tuple[int, int], list[Pairs]] = {}
        for pairs in self.pairs:
            lots.setdefault((id(pairs.left), id(pairs.right)), []).append(pairs)
        self.pairs = [
            Pairs(
                lot[0].left,
                np.concatenate([pairs.left_at for pairs in lot]),
                lot[0].right,
                np.concatenate([pairs.right_at for pairs in lot]),
            )
            for lot in lots.values()
        ]

    def clear(self) -> None:
        """Forget what has left."""
        self.pairs, self.alone = [], []


class RowQuota:
    """How many new rows are joined at once, so that about a bounded number of pairs waits to leave.

    It begins low, because nothing is known of the rows; then it follows the pairs that rows have found.

    n_rows  how many now
    """

    def __init__(self) -> None:
        self.n_rows = min(FIRST_ROWS, policy.SIZES.results_at_once)

    def note(self, n_rows: int, n_pairs: int) -> None:
        """Take note of how many pairs so many new rows have found; none say nothing."""
        if not n_rows:
            return
        most = policy.SIZES.results_at_once
        growth = min(most, max(self.n_rows, 2 * n_rows))
        self.n_rows = max(1, min(growth, n_rows * most // max(1, n_pairs)))

    def cut(self, lots: Sequence[Batch], floor: int) -> Iterator[tuple[list[Batch], int | None]]:
        """Yield rows of a round in steps, by time; and the time up to which a step has all, None in the last.

        What is found in a step has no earlier time than its rows, so results up to that time are complete.

        floor  rows of this time and before are in one step, as they came: they may be late
        """
        n_rows = sum(batch.num_rows for batch in lots)
        if n_rows <= self.n_rows:
            yield list(lots), None
            return
        times = [np.maximum(batch.times, floor) for batch in lots]
        orders = [np.argsort(of_lot, kind="stable") for of_lot in times]
        times = [of_lot[order] for of_lot, order in zip(times, orders, strict=True)]
        in_order = np.sort(np.concatenate(times))
        begins, end = [0] * len(lots), 0
        while end < n_rows:
            last = in_order[min(end + self.n_rows, n_rows) - 1]
            ends = [int(np.searchsorted(of_lot, last, side="right")) for of_lot in times]
            end = sum(ends)
            cuts = zip(lots, orders, begins, ends, strict=True)
            begins = ends
            yield [lot.take(order[a:b]) for lot, order, a, b in cuts], int(last) if end < n_rows else None


class JoinResults:
    """Builds the rows that leave a join.

    schema  their columns
    """

    def __init__(self, op: StreamJoin, left: Stream, right: Stream, run: policy.JitPolicy) -> None:
        self._run = run
        self.schema: pa.Schema = op.outputs({LEFT: left, RIGHT: right})[OUT].schema
        resolved = op.resolve(left, right)
        self._left_names = left.columns
        self._right_fields = op.right_columns(left, right)
        self._names, self._n_right = self.schema.names, len(right.schema)
        self._right_places = [right.schema.get_field_index(name) for name, _ in self._right_fields]
        self._shared = {term.left for term in op.terms if isinstance(term, Equal) and term.left == term.right}
        self._window = resolved.window if resolved.has_window_columns else None
        self._time = left.require_time("the left side of a join")

    def emit(self, leaving: RoundResults, until: int | None = None) -> Iterator[Batch]:
        """Yield what is to leave, by (time, place, columns), some rows at a time; it is forgotten.

        until  what has a later time stays; None if all leaves
        """
        n_rows = len(leaving)
        if not n_rows:
            return
        if until is None and n_rows <= policy.SIZES.few_rows:
            if len(leaving.pairs) == 1 and not leaving.alone:
                joined = self.join_in_order(leaving.pairs[0])
            else:
                batches = [self.join(pairs) for pairs in leaving.pairs]
                joined = self._merge([*batches, *(batch for batch in leaving.alone if batch.num_rows)])
            leaving.clear()
            yield joined
            return
        leaving.unite()
        lots = _ResultLots(self, leaving)
        places = sort_indices(lots.keys, lots, self._run)
        leaving.clear()
        if until is not None:
            n_now = int(np.searchsorted(lots.keys[0][places], until, side="right"))
            places, later = places[:n_now], places[n_now:]
            lots.put_back(later, leaving)
        for begin in range(0, len(places), policy.SIZES.results_at_once):
            yield lots.build(places[begin : begin + policy.SIZES.results_at_once])

    def join_in_order(self, pairs: Pairs) -> Batch:
        """Return the columns of both rows of a few pairs, by (time, place, columns)."""
        keys = _plain_keys(pairs)
        if len(keys) == 1:
            return self._join_few(pairs, keys)
        by_key = sorted(zip(keys, range(len(keys)), strict=True))
        in_order = [key for key, _ in by_key]
        joined = self._join_few(pairs.take(np.array([place for _, place in by_key])), in_order)
        return self._merge([joined]) if any(map(eq, in_order, in_order[1:])) else joined

    def join(self, pairs: Pairs) -> Batch:
        """Return the columns of both rows of pairs, at the later time."""
        if len(pairs) <= policy.SIZES.few_rows:
            return self._join_few(pairs, _plain_keys(pairs))
        times, *order = keys_of_pairs(pairs)
        return Batch(self.take_pairs(pairs), times, tuple(order))

    def take_pairs(self, pairs: Pairs) -> pa.RecordBatch:
        """Return the columns of both rows of pairs."""
        left, right = pairs.left_batch, pairs.right_batch
        columns = [*left.columns, *(right.column(name) for name, _ in self._right_fields)]
        if self._window is not None:
            columns += self._window_columns(pairs.left.codes[CLOCK][pairs.left_at])
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _join_few(self, pairs: Pairs, keys: Sequence[tuple[int, ...]]) -> Batch:
        """Return what `join` does of a few pairs, with these keys; as plain rows if the new ones are such."""
        left, left_at, right, right_at = pairs.left, pairs.left_at, pairs.right, pairs.right_at
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
        own, clock = rows.take_batch(at), rows.codes[CLOCK][at]
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
        order = tuple(column[at] for column in rows.order)
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self.schema), rows.times[at], order)

    def _merge(self, batches: Sequence[Batch]) -> Batch:
        """Return all of a few rows by (time, place, columns)."""
        whole = merge_batches(batches, self.schema)
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


class _ResultLots:
    """Pairs and rows alone that are to leave, one after the other; a place is a number among all of them.

    keys  their times, and their places among rows of one time
    """

    def __init__(self, results: JoinResults, leaving: RoundResults) -> None:
        self._results = results
        self._lots: list[Pairs | Batch] = [*leaving.pairs, *(one for one in leaving.alone if one.num_rows)]
        sizes = [len(lot) if isinstance(lot, Pairs) else lot.num_rows for lot in self._lots]
        self._begins = [0, *accumulate(sizes)]
        parts = [
            keys_of_pairs(lot) if isinstance(lot, Pairs) else (lot.times, *lot.order) for lot in self._lots
        ]
        self.keys = parts[0] if len(parts) == 1 else concat_orders(list(zip(parts, sizes, strict=True)))

    def build(self, places: Ints) -> Batch:
        """Return the rows at some places."""
        times, *order = (key[places] for key in self.keys)
        return Batch(self._take(places), times, tuple(order))

    def take(self, places: pa.Array) -> pa.RecordBatch:
        """Return the columns at some places."""
        return self._take(places.to_numpy())

    def _take(self, places: Ints) -> pa.RecordBatch:
        if len(self._lots) == 1:
            return self._take_of(self._lots[0], places)
        lot_of = np.searchsorted(self._begins, places, side="right") - 1
        by_lot = np.argsort(lot_of, kind="stable")
        ends = np.searchsorted(lot_of[by_lot], np.arange(len(self._lots) + 1))
        parts = [
            self._take_of(lot, places[by_lot[ends[number] : ends[number + 1]]] - self._begins[number])
            for number, lot in enumerate(self._lots)
            if ends[number + 1] > ends[number]
        ]
        back = np.empty(len(places), np.int64)
        back[by_lot] = np.arange(len(places))
        return pa.concat_batches(parts).take(pa.array(back))

    def _take_of(self, lot: Pairs | Batch, at: Ints) -> pa.RecordBatch:
        if isinstance(lot, Batch):
            return lot.rows.take(pa.array(at))
        return self._results.take_pairs(lot.take(at))

    def put_back(self, places: Ints, leaving: RoundResults) -> None:
        """Let what is at some places leave later."""
        if not len(places):
            return
        stays = np.zeros(self._begins[-1], np.bool_)
        stays[places] = True
        for begin, end, lot in zip(self._begins, self._begins[1:], self._lots, strict=False):
            if not stays[begin:end].any():
                continue
            if isinstance(lot, Batch):
                leaving.alone.append(lot.where(stays[begin:end]))
            else:
                leaving.pairs.append(lot.where(stays[begin:end]))


def keys_of_pairs(pairs: Pairs) -> tuple[Ints, ...]:
    """Return the times of pairs, and their places among those of one time."""
    left, left_at, right, right_at = pairs.left, pairs.left_at, pairs.right, pairs.right_at
    order = _join_orders(
        tuple(column[left_at] for column in left.order), tuple(column[right_at] for column in right.order)
    )
    return np.maximum(left.times[left_at], right.times[right_at]), *order


def _plain_keys(pairs: Pairs) -> list[tuple[int, ...]]:
    """Return what `keys_of_pairs` does, pair by pair, as Python numbers."""
    left, right = pairs.left.take_keys(pairs.left_at), pairs.right.take_keys(pairs.right_at)
    return [
        (max(one[0], other[0]), *_join_places(one[1:], other[1:]))
        for one, other in zip(left, right, strict=True)
    ]


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
