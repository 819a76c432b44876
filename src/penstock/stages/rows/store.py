"""Stored rows: blocks of Arrow batches with their slots and times, which windows and keyed state wait with.

A block is what came with one batch; small ones are put together, so that their number grows with the
logarithm of the rows, and one that is half taken is packed, so that memory follows what is there. Blocks
whose rows are all later than what is asked for are not looked into.

Also how stored rows go to a snapshot and back, and how the rows of windows are found and put in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr.values import from_numpy
from penstock.frozen import dataclass
from penstock.kernels.windows.ring import expand_ranges
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.input import (
    ENDED,
    NEVER,
    NOT_LIFTED,
    InputRows,
    Objects,
    Values,
    WindowRows,
    no_ints,
)
from penstock.stages.rows.order import concat_orders, sort_indices

MAX_MERGED_ROWS = 1 << 16
"""Blocks of so many rows are not put together with others."""

RowPredicate = Callable[[InputRows], Mask]


def all_rows(rows: InputRows) -> Mask:
    """Return all of the rows."""
    return np.ones(len(rows.slots), np.bool_)


def rows_of_slots(slots: Ints) -> RowPredicate:
    """Return the rows of some slots."""
    return rows_before(slots, np.full(len(slots), ENDED, np.int64))


def rows_before(slots: Ints, ends: Ints) -> RowPredicate:
    """Select rows of some slots before a time of the slot, the latest where a slot is named twice."""
    table = np.full(int(slots.max(initial=-1)) + 2, NEVER, np.int64)  # the last is for all other slots
    np.maximum.at(table, slots, ends)
    return lambda rows: np.asarray(rows.times < table[np.minimum(rows.slots, len(table) - 1)])


@dataclass(slots=True)
class RowBlock:
    """Some rows, those that are still there, and the least of all times."""

    rows: InputRows
    there: Mask
    n_there: int
    least: int

    @classmethod
    def of(cls, rows: InputRows) -> RowBlock:
        """Return a block with all of its rows there."""
        return cls(rows, all_rows(rows), len(rows.slots), int(rows.times.min()))

    def pack(self) -> InputRows:
        """Return the rows that are there."""
        return _select(self.rows, self.there)


class RowBlocks:
    """Rows of all slots, in no order."""

    def __init__(self) -> None:
        self._blocks: list[RowBlock] = []
        self._n_rows = no_ints()  # by slot

    def __len__(self) -> int:
        return sum(block.n_there for block in self._blocks)

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self._n_rows.nbytes + sum(
            rows_nbytes(block.rows) + block.there.nbytes for block in self._blocks
        )

    def holds(self, slots: Ints) -> Mask:
        """Return which slots have rows."""
        known = slots < len(self._n_rows)
        held = np.zeros(len(slots), np.bool_)
        held[known] = self._n_rows[slots[known]] > 0
        return held

    def add(self, rows: InputRows) -> None:
        """Keep rows."""
        if not len(rows.slots):
            return
        self._count(rows.slots, 1)
        self._blocks.append(RowBlock.of(rows))
        while (
            len(self._blocks) > 1 and self._blocks[-2].n_there <= self._blocks[-1].n_there < MAX_MERGED_ROWS
        ):
            last, before = self._blocks.pop(), self._blocks.pop()
            self._blocks.append(RowBlock.of(concat_rows([before.pack(), last.pack()])))

    def find(self, where: RowPredicate = all_rows, *, below: int | None = None) -> InputRows | None:
        """Return the rows with time < below for which `where` is true; None if there are none."""
        parts = [_select(block.rows, chosen) for block, chosen in self._select_blocks(where, below)]
        return concat_rows(parts) if parts else None

    def pull(self, where: RowPredicate = all_rows, *, below: int | None = None) -> InputRows | None:
        """Do what `find` does, and take the rows out."""
        parts = []
        for block, chosen in self._select_blocks(where, below):
            part = _select(block.rows, chosen)
            parts.append(part)
            block.there &= ~chosen
            block.n_there -= len(part.slots)
            self._count(part.slots, -1)
        self._blocks = [
            RowBlock.of(block.pack()) if 2 * block.n_there < len(block.there) else block
            for block in self._blocks
            if block.n_there
        ]
        if not self._blocks:
            self._n_rows = no_ints()
        return concat_rows(parts) if parts else None

    def _count(self, slots: Ints, change: int) -> None:
        n_slots = int(slots.max()) + 1
        if n_slots > len(self._n_rows):
            more = max(n_slots, 2 * len(self._n_rows)) - len(self._n_rows)
            self._n_rows = np.append(self._n_rows, np.zeros(more, np.int64))
        np.add.at(self._n_rows, slots, change)

    def _select_blocks(self, where: RowPredicate, below: int | None) -> Iterator[tuple[RowBlock, Mask]]:
        for block in self._blocks:
            if below is not None and block.least >= below:
                continue
            chosen = block.there & where(block.rows)
            if below is not None:
                chosen &= block.rows.times < below
            if chosen.any():
                yield block, chosen


def concat_rows(parts: list[InputRows]) -> InputRows:
    """Return several lots of rows as one; a missing part of the order comes before any there is."""
    if len(parts) == 1:
        return parts[0]
    batches = [part.rows for part in parts]
    tags = [part.tags for part in parts if part.tags is not None]
    return InputRows(
        np.concatenate([part.slots for part in parts]),
        np.concatenate([part.times for part in parts]),
        concat_orders([(part.order, len(part.slots)) for part in parts]),
        tuple(_concat_values(list(column)) for column in zip(*(part.values for part in parts), strict=True)),
        None if batches[0] is None else pa.concat_batches(batches),
        np.concatenate(tags) if tags else None,
        lifted=_concat_lifted(parts),
    )


def rows_nbytes(rows: InputRows) -> int:
    """Return the memory of some rows."""
    arrays: list[Any] = [rows.slots, rows.times, *rows.order]
    for values in rows.values:
        arrays += [values.data] if values.valid is None else [values.data, values.valid]
    arrays += [array for array in (rows.rows, rows.tags, *rows.lifted) if array is not None]
    return sum(int(array.nbytes) for array in arrays)


def _select(rows: InputRows, chosen: Mask) -> InputRows:
    return rows if chosen.all() else rows.at(np.flatnonzero(chosen))


def _concat_lifted(parts: list[InputRows]) -> tuple[Objects, ...]:
    """Return what lift gave, where it is known."""
    n_folds = max(len(part.lifted) for part in parts)
    unknown = [np.full(0 if part.lifted else len(part.slots), NOT_LIFTED) for part in parts]
    pairs = list(zip(parts, unknown, strict=True))
    return tuple(
        np.concatenate([part.lifted[fold] if part.lifted else none for part, none in pairs])
        for fold in range(n_folds)
    )


def _concat_values(parts: list[Values]) -> Values:
    data = np.concatenate([part.data for part in parts])
    if all(part.valid is None for part in parts):
        return Values(data)
    masks = [np.ones(len(part.data), np.bool_) if part.valid is None else part.valid for part in parts]
    return Values(data, np.concatenate(masks))


PLACE = "place"
_ROW = "row "
"""What the names of the rows' own columns begin with in a snapshot, so that they cannot clash with ours."""


def places_of(slots: Ints, wanted: Ints) -> Ints:
    """Return where each slot stands in `wanted`, in which each is once and all are."""
    order = np.argsort(wanted, kind="stable")
    return np.asarray(order[np.searchsorted(wanted[order], slots)], np.int64)


def rows_to_snapshot(rows: InputRows | None, wanted: Ints) -> pa.RecordBatch:
    """Return the rows to be saved; "place" says where in `wanted` the slot of each stands."""
    if rows is None:
        return pa.RecordBatch.from_pydict({PLACE: from_numpy(np.empty(0, np.int64))})
    saved = {PLACE: from_numpy(places_of(rows.slots, wanted)), "time": from_numpy(rows.times)}
    saved |= {f"order {place}": from_numpy(column) for place, column in enumerate(rows.order)}
    for place, values in enumerate(rows.values):
        mask = None if values.valid is None else ~values.valid
        saved[f"value {place}"] = _array(values.data, mask)
    if rows.tags is not None:
        saved["tag"] = from_numpy(rows.tags)
    batch = pa.RecordBatch.from_pydict(saved)
    if rows.rows is not None:
        for field, column in zip(rows.rows.schema, rows.rows.columns, strict=True):
            batch = batch.append_column(field.with_name(f"{_ROW}{field.name}"), column)
    return batch


def columns_from_snapshot(saved: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    """Return the columns of saved rows that a schema names; null where they had none of that type."""
    columns = []
    for field in schema:
        place = saved.schema.get_field_index(f"{_ROW}{field.name}")
        is_there = place >= 0 and saved.schema.field(place).type == field.type
        columns.append(saved.column(place) if is_there else pa.nulls(saved.num_rows, field.type))
    return columns


def has_row_columns(saved: pa.RecordBatch) -> bool:
    """Return whether saved rows have the columns that they came with."""
    return any(name.startswith(_ROW) for name in saved.schema.names)


def replace_row_columns(saved: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a snapshot of rows with other columns in place of those of its rows."""
    batch = saved.select([name for name in saved.schema.names if not name.startswith(_ROW)])
    for field, column in zip(rows.schema, rows.columns, strict=True):
        batch = batch.append_column(field.with_name(f"{_ROW}{field.name}"), column)
    return batch


def rows_from_snapshot(saved: pa.RecordBatch, slots: Ints) -> InputRows | None:
    """Return the rows of a snapshot, in the slots that their keys have now; None if it has none."""
    if saved.num_rows == 0:
        return None
    names = saved.schema.names
    fields = [field for field in saved.schema if field.name.startswith(_ROW)]
    schema = pa.schema([field.with_name(field.name.removeprefix(_ROW)) for field in fields])
    columns = [saved.column(field.name) for field in fields]
    return InputRows(
        slots[ints_of(saved, PLACE)],
        ints_of(saved, "time"),
        tuple(ints_of(saved, name) for name in names if name.startswith("order ")),
        tuple(_values_from_snapshot(saved.column(name)) for name in names if name.startswith("value ")),
        pa.RecordBatch.from_arrays(columns, schema=schema) if columns else None,
        ints_of(saved, "tag") if "tag" in names else None,
    )


def ints_of(saved: pa.RecordBatch, name: str) -> Ints:
    """Return an int64 column without nulls; a copy, because Arrow's memory is read-only."""
    return np.array(saved.column(name).to_numpy(zero_copy_only=False), np.int64)


def _array(data: npt.NDArray[Any], mask: Mask | None) -> pa.Array:
    """Return numbers, or the parts of a fold: a few numbers for each row."""
    if data.ndim == 1:
        return from_numpy(data, missing=mask)
    numbers = from_numpy(data.reshape(-1))
    nulls = None if mask is None else from_numpy(mask)
    return pa.FixedSizeListArray.from_arrays(numbers, data.shape[1], mask=nulls)


def _values_from_snapshot(array: pa.Array) -> Values:
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    if kind.is_fixed_size_list(array.type):
        width = array.type.list_size
        # Not flatten(), which leaves out the parts of rows that are null.
        parts = array.values.to_numpy()[array.offset * width : (array.offset + len(array)) * width]
        return Values(parts.reshape(-1, width), valid)
    return Values((array if valid is None else array.fill_null(0)).to_numpy(), valid)


def find_members(
    rows: InputRows | None,
    schema: pa.Schema,
    slots: Ints,
    starts: Ints,
    ends: Ints,
    *,
    numbered: bool = False,
) -> WindowRows:
    """Return the rows of windows: those of its slot from its start to its end, in order.

    Bounds are times, or of `numbered` rows their numbers, which stand in their order. Bounds and rows are
    sorted together, so a window has the rows between the number of rows before its start and before its end.
    """
    if rows is None:
        empty = pa.RecordBatch.from_pylist([], schema=schema)
        return WindowRows(empty, np.zeros(len(slots) + 1, np.int64), no_ints())
    assert rows.rows is not None, "a store that keeps rows is given rows"
    keys = [rows.slots, *rows.order] if numbered else [rows.slots, rows.times, *rows.order]
    order, n_bounds = sort_indices(keys, rows.rows), 2 * len(slots)
    together = sort_indices(
        [
            np.concatenate([slots, slots, rows.slots[order]]),
            np.concatenate([starts, ends, keys[1][order]]),
        ]
    )
    n_before = np.empty(len(together), np.int64)
    n_before[together] = np.cumsum(together >= n_bounds)
    lo, hi = n_before[:n_bounds].reshape(2, -1)
    places, _ = expand_ranges(lo, hi)
    return WindowRows(rows.rows, np.append(0, np.cumsum(hi - lo)), order[places], rows.lifted)
