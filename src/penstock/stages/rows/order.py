"""The order of rows: by time, then by the place the reader gave them, then by their columns.

Only rows that tie on all numbers are compared by columns, column by column as ranks: null first, NaN last,
-0.0 before 0.0, lists and structs part by part.

A place is a list of numbers, compared from the left; a list that ends comes before all that go on. In a
batch it is a tuple of columns. Where rows of one batch have lists of different lengths, because streams
with different histories have met, the shorter ones are filled up with `NO_ORDER`, and only at their ends.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import compute as pc
from penstock.expr.values import from_numpy, numbers_of, to_plain, valid_in
from penstock.kernels.ties import order_short_ties
from penstock.stages import policy
from penstock.stages.rows.batch import Batch, Ints, Mask, RowBatch, concat_rows

Keys = Sequence[npt.NDArray[Any]]
FEW = 128
"""So many rows are sorted by all keys at once; of more, by as many as fit into one number."""
SHORT = 32
"""Rows that tie, at most, where each tie is sorted by itself."""


class Rows(Protocol):
    """What columns are taken from where keys tie; a `RecordBatch` is that."""

    def take(self, places: Any) -> pa.RecordBatch:
        """Return the rows at some places, an Arrow array."""


def sort_indices(keys: Keys, rows: Rows | None = None, run: policy.JitPolicy | None = None) -> Ints:
    """Return the places of rows by `keys`, the most significant first, and where these are equal by columns.

    run  runs a loop over the ties, if they are short; else they are sorted together

    >>> rows = pa.RecordBatch.from_pydict({"x": [2, None, 1]})
    >>> sort_indices([np.array([7, 7, 5])], rows).tolist()
    [2, 1, 0]
    """
    if len(keys[0]) < 2:
        return np.arange(len(keys[0]), dtype=np.int64)
    if len(keys[0]) <= FEW:  # one call, whatever the keys are
        places = np.lexsort(tuple(reversed(keys)))
        if rows is None:
            return places
        tied = np.logical_and.reduce([key[places[1:]] == key[places[:-1]] for key in keys])
        rest: Keys = ()
    else:
        places, tied, rest = _sort_by_leading(keys)
    if (
        len(rest)
        and tied.any()
        and not (
            run is not None and run(order_short_ties, places, tied, np.array(rest), SHORT, work=len(places))
        )
    ):
        _order_ties(places, tied, lambda subset: [key[subset] for key in rest])
    if rows is not None and tied.any():
        _order_ties(
            places,
            tied,
            lambda subset: [rank_values(column) for column in rows.take(pa.array(subset)).columns],
        )
    return places


def is_sorted(keys: Keys) -> bool:
    """Return whether rows stand in order by `keys` alone, no two of them equal."""
    undecided = np.ones(max(len(keys[0]) - 1, 0), np.bool_)
    for key in keys:
        if (undecided & (key[1:] < key[:-1])).any():
            return False
        undecided &= key[1:] == key[:-1]
    return not undecided.any()


def sort_batch(batch: Batch) -> Ints | None:
    """Return the places of a batch's rows in their order; None if they stand in it.

    Plain rows are compared as values of Python, unless they are many: columns would take longer to make.
    """
    if batch.num_rows < 2:
        return None
    sizes = policy.SIZES
    if batch.num_rows > sizes.few_rows or batch.plain is None:
        keys = [batch.times, *batch.order]
        if batch.order and is_sorted(keys):
            return None
        if batch.plain is None or batch.num_rows > sizes.compiled_calls:
            return sort_indices(keys, batch.rows)
    times, order = batch.plain_times_and_order()
    places = list(zip(times, *order, strict=True))
    if order and all(map(operator.lt, places, islice(places, 1, None))):
        return None
    return np.array(_sort_plain(batch, places))


def _sort_plain(batch: Batch, places: list[tuple[int, ...]]) -> list[int]:
    """Return the order of plain rows by their places, and of those that tie by their columns."""
    rows = range(len(places))
    n_rows_at = Counter(places)
    if len(n_rows_at) == len(places):
        return sorted(rows, key=places.__getitem__)
    columns = [batch.values(name) for name in batch.schema.names]
    finer = [
        (place, *(_sort_key(column[row]) for column in columns)) if n_rows_at[place] > 1 else (place,)
        for row, place in enumerate(places)
    ]
    return sorted(rows, key=finer.__getitem__)


def _sort_by_leading(keys: Keys) -> tuple[Ints, Mask, Keys]:
    """Sort by as many keys as fit into one number together with the place: (places, ties, other keys).

    Sorting plain numbers takes a tenth of the time of sorting places by several keys. tied[i] says that i
    and i + 1 are equal so far.
    """
    bits = (len(keys[0]) - 1).bit_length()
    codes, span, used = np.zeros(len(keys[0]), np.int64), 1, 0
    for key in keys:
        least = int(key.min())
        size = int(key.max()) - least + 1
        if span * size >= 1 << (63 - bits):
            break
        codes, span, used = codes * size + (key - least), span * size, used + 1
    places = np.arange(len(codes), dtype=np.int64)
    if not (codes[1:] >= codes[:-1]).all():
        packed = np.sort((codes << bits) | places)
        codes, places = packed >> bits, packed & ((1 << bits) - 1)
    return places, np.asarray(codes[1:] == codes[:-1]), keys[used:]


def _order_ties(places: Ints, tied: Mask, finer_of: Callable[[Ints], Keys]) -> None:
    """Sort each tie of ties by what is finer, in place; `tied` then says which are equal still."""
    is_tied = np.append(tied, False) | np.append(False, tied)
    tie = np.cumsum(np.append(True, ~tied))[is_tied]
    subset = places[is_tied]
    finer = finer_of(subset)
    order = np.lexsort((*reversed(finer), tie))
    places[is_tied] = subset[order]
    before = np.flatnonzero(is_tied)[:-1]
    for key in finer:
        tied[before] &= key[order[1:]] == key[order[:-1]]


def rank_values(column: pa.Array) -> Ints:
    """Return integers in the order of a column's values: null is 0, equal values have equal ranks."""
    valid = valid_in(column)
    if kind.is_nested(column.type):
        # Value by value: only rows that tie on everything before come here.
        keys = [_sort_key(value) for value in to_plain(column)]
        rank_of = {key: rank for rank, key in enumerate(sorted(set(keys)), 1)}
        return np.where(valid, np.array([rank_of[key] for key in keys], np.int64), 0)
    if kind.is_floating(column.type):
        values = np.array(numbers_of(column), np.float64)
        values[np.isnan(values)] = np.nan
        bits = values.view(np.int64)
        # The bits of a float, but for its sign, are in its order, and -0.0 comes before 0.0.
        column = from_numpy(np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits), missing=~valid)
    ranks = pc.rank(column, tiebreaker="dense").to_numpy().astype(np.int64)
    return np.where(valid, ranks, 0)


def _sort_key(value: object) -> tuple[Any, ...]:
    match value:
        case None:
            return (0,)
        case float() if math.isnan(value):
            return (2,)
        case float():
            return (1, value, math.copysign(1.0, value))
        case list():
            return (1, tuple(map(_sort_key, value)))
        case dict():
            return (1, tuple(map(_sort_key, value.values())))
    return (1, value)


NO_ORDER = -(2**63)
"""Where a row's place has ended: before every number that a reader or a flat_map gives."""

Order = tuple[Ints, ...]


def append_order(order: Order, index: Ints, parents: Ints | None = None) -> Order:
    """Return the places of rows that were made of others: one number more, behind the last that each has.

    There is always one column more, so that all batches of a stream have the same number.

    order    the places of the others
    index    int64[n]  the new numbers
    parents  int64[n]  which of the others each row was made of; None if row i was made of row i

    >>> left = np.array([1, 1]), np.array([5, NO_ORDER])
    >>> [c.tolist() for c in append_order(left, np.array([0, 7]))]
    [[1, 1], [5, 7], [0, -9223372036854775808]]
    """
    columns, pending = [], index
    for column in order:
        places = column if parents is None else column.take(parents)
        if len(column) and column.min() == NO_ORDER:
            ended = places == NO_ORDER
            places, pending = np.where(ended, pending, places), np.where(ended, NO_ORDER, pending)
        columns.append(places)
    return (*columns, pending)


def append_plain_order(
    order: Sequence[Sequence[int]], index: Sequence[int], parents: Sequence[int] | None = None
) -> tuple[Sequence[int], ...]:
    """Do what `append_order` does, with numbers of Python: for few rows.

    >>> append_plain_order([[1, 1], [5, NO_ORDER]], [0, 7])
    ([1, 1], [5, 7], [0, -9223372036854775808])
    """
    columns, pending = list[Sequence[int]](), index
    for column in order:
        places = column if parents is None else [column[parent] for parent in parents]
        if NO_ORDER in places:
            both = list(zip(places, pending, strict=True))
            places = [after if place == NO_ORDER else place for place, after in both]
            pending = [NO_ORDER if place == NO_ORDER else after for place, after in both]
        columns.append(places)
    return (*columns, pending)


def merge_batches(batches: Sequence[Batch], schema: pa.Schema) -> Batch:
    """Return batches of streams that flow together, or of one at different times, as one batch."""
    if len(batches) == 1:
        return batches[0]
    n_rows = sum(batch.num_rows for batch in batches)
    plain = [batch.plain for batch in batches if batch.plain is not None]
    if len(plain) == len(batches) and n_rows <= policy.SIZES.plain_rows:
        rows = concat_rows(plain, schema.names)
        if n_rows <= policy.SIZES.few_rows:
            return RowBatch(rows, schema, *_concat_plain(batches))
        times = np.concatenate([batch.times for batch in batches])
        order = concat_orders([(batch.order, batch.num_rows) for batch in batches])
        return RowBatch(rows, schema, times, order)
    table = pa.Table.from_batches([batch.rows for batch in batches], schema=schema).combine_chunks()
    rows = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=schema)
    times = np.concatenate([np.empty(0, np.int64), *(batch.times for batch in batches)])
    return Batch(rows, times, concat_orders([(batch.order, batch.num_rows) for batch in batches]))


def _concat_plain(batches: Sequence[Batch]) -> tuple[list[int], tuple[list[int], ...]]:
    """Return the times and places of batches, one after the other, as numbers of Python."""
    parts = [batch.plain_times_and_order() for batch in batches]
    width = max(len(order) for _, order in parts)
    lots = [[*order, *([NO_ORDER] * len(times) for _ in range(width - len(order)))] for times, order in parts]
    places = tuple([list(chain.from_iterable(columns)) for columns in zip(*lots, strict=True)])
    return list(chain.from_iterable(times for times, _ in parts)), places


def concat_orders(parts: Sequence[tuple[Order, int]]) -> Order:
    """Return the places of several lots of rows, each given with their number, as one."""
    width = max((len(order) for order, _ in parts), default=0)
    orders = [
        order + (np.full(n_rows, NO_ORDER, np.int64),) * (width - len(order)) for order, n_rows in parts
    ]
    return tuple(np.concatenate(columns) for columns in zip(*orders, strict=True))
