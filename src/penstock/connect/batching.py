"""Rows of a reader, numbered and cut into batches.

The cut is part of a program's meaning, so it depends on row numbers and files alone, never on how a format
happened to deliver its rows. Bad rows count: repairing one moves no other row into another batch.

Small batches may stay rows of plain values, whose columns are built when somebody asks for them: building a
batch of one row as columns costs more than calling a Python function, and the row path of the in-process
engine reads such batches (`python -m bench runtime`, tuple at a time). More than a few such rows are
`RowLists`: a list of values per column takes a quarter of the memory of a dict per row, and of the time to
make one (`python -m bench runtime`, group rows). May assume canonical schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connect.conversion import ConvertedRows, concat_batches
from penstock.connect.protocol import BadRow, SourceBatch
from penstock.errors import ConnectorError
from penstock.expr.python.lower import compile_row_check, compile_row_reader
from penstock.expr.values import from_checked, from_numpy
from penstock.frozen import Frozen
from penstock.options import is_positive


class RowRange(Frozen):
    """Consecutive rows of a read.

    rows     those that could be read
    numbers  int64[n] their numbers, rising, all >= start and < end
    bad      the others, with their numbers
    start    number of the first row
    end      number after the last row
    place    of the first row in its file: a byte, or a row
    origin   the number of the file, a place in it, and the number of the row there, from which on rows can be
             read again; None if nobody asks
    """

    rows: pa.RecordBatch
    numbers: npt.NDArray[np.int64]
    bad: tuple[tuple[int, BadRow], ...]
    start: int
    end: int
    place: int = 0
    origin: tuple[int, int, int] | None = None

    @staticmethod
    def no_numbers() -> npt.NDArray[np.int64]:
        """Return the numbers of no rows."""
        return np.empty(0, np.int64)

    @property
    def position(self) -> list[int] | None:
        """Return where to go on behind these rows: file, place, rows from there on, and all rows."""
        if self.origin is None:
            return None
        file, place, number = self.origin
        return [file, place, self.end - number, self.end]

    @classmethod
    def of_good(cls, rows: pa.RecordBatch, start: int) -> RowRange:
        """Return a range without bad rows."""
        end = start + rows.num_rows
        return cls(rows, np.arange(start, end, dtype=np.int64), (), start, end)

    @classmethod
    def of_converted(cls, converted: ConvertedRows, bad: Sequence[BadRow], start: int) -> RowRange:
        """Return the range of rows that were converted; `bad` are those that failed, in their order."""
        numbers = np.array(converted.positions, np.int64) + start
        numbered = tuple((start + at, row) for (at, _), row in zip(converted.failures, bad, strict=True))
        return cls(converted.rows, numbers, numbered, start, start + len(numbers) + len(bad))

    def split(self, n_rows: int) -> tuple[RowRange, RowRange]:
        """Return the first `n_rows` rows, and the rest."""
        border = self.start + n_rows
        at = int(np.searchsorted(self.numbers, border))
        head_bad = tuple(pair for pair in self.bad if pair[0] < border)
        tail_bad = tuple(pair for pair in self.bad if pair[0] >= border)
        origin = self.origin
        head = RowRange(self.rows.slice(0, at), self.numbers[:at], head_bad, self.start, border, 0, origin)
        tail = RowRange(self.rows.slice(at), self.numbers[at:], tail_bad, border, self.end, 0, origin)
        return head, tail


def batch_by_rows(ranges: Iterable[RowRange], schema: pa.Schema, n_rows: int) -> Iterator[SourceBatch]:
    """Yield batches of `n_rows` rows; the last may be shorter."""
    pending: list[RowRange] = []
    n_pending = 0
    for next_range in ranges:
        rest = next_range
        while n_pending + rest.end - rest.start >= n_rows:
            head, rest = rest.split(n_rows - n_pending)
            yield to_source_batch([*pending, head], schema, head.position)
            pending, n_pending = [], 0
        if rest.end > rest.start:
            pending.append(rest)
            n_pending += rest.end - rest.start
    if pending:
        yield to_source_batch(pending, schema, pending[-1].position)


def to_source_batch(ranges: Sequence[RowRange], schema: pa.Schema, position: Any = None) -> SourceBatch:
    """Return the ranges as one batch."""
    numbers = [part.numbers for part in ranges] or [np.empty(0, np.int64)]
    return SourceBatch(
        rows=concat_batches([part.rows for part in ranges], schema),
        seq=from_numpy(numbers[0] if len(numbers) == 1 else np.concatenate(numbers)),
        bad=tuple(row for part in ranges for _, row in part.bad),
        position=position,
    )


def check_size(name: str, value: object) -> int | None:
    """Return a `batch=` or `files=` of a user: a whole number above zero, or None."""
    if value is None or is_positive(value):
        return value
    raise ConnectorError(
        f"{name}={value!r} is not a number of rows or files",
        hint=f"give a whole number above zero: {name}=1000",
    )


MAX_ROWS = 1024
"""Batches of more rows are columns at once."""
FEW_ROWS = 16
"""Batches of more rows are lists of values per column, others dicts."""

Row = Mapping[str, object]


class RowLists(Sequence[Row]):
    """Rows of plain values, kept as one list per column; a row is a new dict whenever it is asked for.

    names  the columns, at least one
    lists  the values of each, as many as there are rows
    """

    __slots__ = ("lists", "names")

    def __init__(self, names: Sequence[str], lists: Sequence[list[Any]]) -> None:
        self.names, self.lists = names, lists

    @classmethod
    def of(cls, rows: Sequence[Row], names: Sequence[str]) -> RowLists:
        """Return rows as lists."""
        return rows if isinstance(rows, RowLists) else cls(names, [values_of(rows, name) for name in names])

    def __len__(self) -> int:
        return len(self.lists[0])

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> RowLists: ...
    def __getitem__(self, index: int | slice) -> Row | RowLists:
        if isinstance(index, slice):
            return RowLists(self.names, [values[index] for values in self.lists])
        return {name: values[index] for name, values in zip(self.names, self.lists, strict=True)}

    def __iter__(self) -> Iterator[Row]:
        names = self.names
        return (dict(zip(names, values, strict=True)) for values in zip(*self.lists, strict=True))

    def take(self, indices: Sequence[int]) -> RowLists:
        """Return the rows at these indices, in their order."""
        return RowLists(self.names, [[values[index] for index in indices] for values in self.lists])

    def where(self, holds: Sequence[bool]) -> RowLists:
        """Return the rows for which it holds."""
        return RowLists(self.names, [list(compress(values, holds)) for values in self.lists])


def values_of(rows: Sequence[Row], name: str) -> list[Any]:
    """Return the values of one column of plain rows."""
    if type(rows) is RowLists:  # quicker than to ask an abstract class
        return rows.lists[rows.names.index(name)]
    return [row[name] for row in rows]


class SourceRowBatch(SourceBatch):
    """A batch without bad rows whose rows are plain values, each with all columns in their order.

    start  the reader's number of the first row
    """

    __slots__ = ("_columns", "_schema", "plain", "start")
    plain: Sequence[Row]
    start: int
    _schema: pa.Schema
    _columns: pa.RecordBatch | None

    def __init__(
        self, plain: Sequence[Row], schema: pa.Schema, start: int, watermark: int | None = None
    ) -> None:
        assign = object.__setattr__  # batches are frozen
        assign(self, "plain", plain)
        assign(self, "start", start)
        assign(self, "_schema", schema)
        assign(self, "_columns", None)
        assign(self, "watermark", watermark)
        assign(self, "read_at", None)
        assign(self, "position", None)

    @property
    def bad(self) -> tuple[BadRow, ...]:
        """Return nothing: a batch with bad rows is made of columns."""
        return ()

    @property
    def rows(self) -> pa.RecordBatch:
        """Return the columns."""
        if self._columns is None:
            arrays = [from_checked(values_of(self.plain, field.name), field.type) for field in self._schema]
            object.__setattr__(self, "_columns", pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        return self._columns

    @property
    def num_rows(self) -> int:
        """Return the number of rows."""
        return len(self.plain)

    @property
    def seq(self) -> pa.Int64Array:
        """Return the row numbers, from `start` on."""
        return from_numpy(np.arange(self.start, self.start + len(self.plain), dtype=np.int64))

    def with_watermark(self, watermark: int) -> SourceRowBatch:
        """Return the same batch with a promise of the source."""
        batch = SourceRowBatch(self.plain, self._schema, self.start, watermark)
        object.__setattr__(batch, "position", self.position)
        return batch if self.read_at is None else batch.with_read_at(self.read_at)

    def with_position(self, position: Any) -> SourceRowBatch:
        """Return the same batch with a position behind it."""
        object.__setattr__(self, "position", position)  # nobody else has it yet
        return self

    def with_read_at(self, read_at: npt.NDArray[np.int64]) -> SourceRowBatch:
        """Return the same batch with the times at which its rows were read."""
        batch = SourceRowBatch(self.plain, self._schema, self.start, self.watermark)
        object.__setattr__(batch, "read_at", read_at)
        object.__setattr__(batch, "position", self.position)
        return batch


class NumberedBatch(SourceBatch):
    """A batch of columns without bad rows; the numbers of its rows are made when somebody asks for them.

    Most programs never do (`python -m bench peers`, YSB).

    numbers  the reader's numbers of the rows
    """

    __slots__ = ("numbers",)
    numbers: range

    def __init__(self, rows: pa.RecordBatch, start: int) -> None:
        assign = object.__setattr__  # batches are frozen
        assign(self, "rows", rows)
        assign(self, "numbers", range(start, start + rows.num_rows))
        assign(self, "bad", ())
        for name in ("watermark", "read_at", "position"):
            assign(self, name, None)

    @property
    def seq(self) -> pa.Int64Array:
        """Return the row numbers."""
        return from_numpy(np.arange(self.numbers.start, self.numbers.stop, dtype=np.int64))

    def with_watermark(self, watermark: int) -> SourceBatch:
        """Return the same batch with a promise of the source."""
        return SourceBatch(self.rows, self.seq, watermark)

    def with_position(self, position: Any) -> SourceBatch:
        """Return the same batch with a position behind it."""
        return SourceBatch(self.rows, self.seq, position=position)

    def with_read_at(self, read_at: npt.NDArray[np.int64]) -> SourceBatch:
        """Return the same batch with the times at which its rows were read."""
        return SourceBatch(self.rows, self.seq, read_at=read_at)


class RowConverter:
    """Turns rows as users give them into plain rows of one schema, where a quick check suffices.

    convert  a row as a dict of plain values; None where the checks of `conversion.py` are needed
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._names = schema, frozenset(schema.names)
        self._read_lists = compile_row_reader(schema) if schema.names else None
        self._convert_complete = compile_row_check(schema, lambda row: None)
        self.convert: Callable[[object], Row | None] = compile_row_check(schema, self._fill_nulls)

    def batch(self, rows: Sequence[object], start: int) -> SourceRowBatch | None:
        """Return the rows as a batch; None where one of them needs a closer check."""
        if len(rows) > FEW_ROWS and self._read_lists is not None:
            lists = self._read_lists(rows)
            if lists is not None:
                return SourceRowBatch(RowLists(self._schema.names, lists), self._schema, start)
        plain = [row for row in map(self.convert, rows) if row is not None]
        return SourceRowBatch(plain, self._schema, start) if len(plain) == len(rows) else None

    def _fill_nulls(self, row: object) -> Row | None:
        """Convert a row with missing keys, which are null; an unknown key needs a closer check."""
        if type(row) is not dict or len(row) == len(self._names) or not row.keys() <= self._names:
            return None
        converted: Row | None = self._convert_complete({name: row.get(name) for name in self._schema.names})
        return converted


def is_batch(item: object) -> bool:
    """Return whether what a generator yields is a batch of its own."""
    return isinstance(item, pa.RecordBatch | list | tuple) and not hasattr(item, "_fields")
