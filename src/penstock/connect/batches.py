"""Python rows and foreign columns, turned into batches of a schema.

Rows are dicts, dataclass instances or named tuples. A missing key is null, because that is how optional
fields look in practice; a key that the schema does not know is a mistake and fails its row. May assume
canonical schemas.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connect.protocol import BadRow, SourceBatch
from penstock.errors import ConnectorError, RowFailure, SchemaError, nearest_first
from penstock.expr.types import canonical_batch, from_plain, from_python
from penstock.expr.values import from_list, from_numpy
from penstock.frozen import dataclass

_Given = TypeVar("_Given")

# Types whose values Arrow takes as they are, and the Python types for which it does so strictly.
_EXACT_TYPES: dict[pa.DataType, frozenset[type]] = {
    pa.bool_(): frozenset({bool, type(None)}),
    pa.string(): frozenset({str, type(None)}),
    pa.float64(): frozenset({float, int, type(None)}),
    **{integer: frozenset({int, type(None)}) for integer in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
}


def fields_of(row: object) -> Mapping[str, object] | None:
    """The row's values by column name, or None when it is not a row."""
    if isinstance(row, Mapping):
        return row
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    if isinstance(row, tuple) and hasattr(row, "_fields"):
        return dict(zip(row._fields, row, strict=True))
    return None


def plain_values(row: object, schema: pa.Schema) -> list[object]:
    """The row's plain values in schema order; RowFailure when it does not fit."""
    fields = fields_of(row)
    if fields is None:
        raise RowFailure(f"{type(row).__name__} {row!r:.80} is not a dict, dataclass or NamedTuple")
    unknown = [name for name in fields if name not in schema.names]
    if unknown:
        known = ", ".join(nearest_first(str(unknown[0]), schema.names))
        raise RowFailure(f"{unknown[0]!r} is not a column; the columns are {known}")
    return [plain_value(fields.get(field.name), field) for field in schema]


def plain_value(value: object, field: pa.Field) -> object:
    """One value of a column; RowFailure names the column."""
    try:
        return from_python(value, field.type)
    except RowFailure as failure:
        raise RowFailure(f'column "{field.name}": {failure.reason}') from None


@dataclass(frozen=True, slots=True)
class ConvertedRows:
    """Rows that fit, where they stood among those given, and the failures of those that do not."""

    rows: pa.RecordBatch
    positions: list[int]
    failures: list[tuple[int, str]]


def convert_rows(given: Sequence[object], schema: pa.Schema) -> ConvertedRows:
    """Turn rows into columns, setting aside those that do not fit."""
    mappings = [row for row in given if isinstance(row, Mapping)]
    if len(mappings) == len(given) and set().union(*mappings) <= set(schema.names):
        quick = columns_if_exact(mappings, schema)
        if quick is not None:
            return ConvertedRows(quick, list(range(len(given))), [])
    return convert_each(given, schema, plain_values)


def convert_each(
    given: Iterable[_Given],
    schema: pa.Schema,
    plain: Callable[[_Given, pa.Schema], Sequence[object]],
) -> ConvertedRows:
    """Turn rows into columns, setting aside those for which `plain` fails."""
    good: list[Sequence[object]] = []
    positions: list[int] = []
    failures: list[tuple[int, str]] = []
    for position, row in enumerate(given):
        try:
            good.append(plain(row, schema))
            positions.append(position)
        except RowFailure as failure:
            failures.append((position, failure.reason))
    columns = list(zip(*good, strict=True)) or [() for _ in schema]
    arrays = [from_plain(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return ConvertedRows(pa.RecordBatch.from_arrays(arrays, schema=schema), positions, failures)


def columns_if_exact(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> pa.RecordBatch | None:
    """The rows as columns where every value is plainly of its type; None when any needs a closer look."""
    arrays = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if not set(map(type, values)) <= _EXACT_TYPES.get(field.type, frozenset()):
            return None
        try:
            arrays.append(from_list(values, field.type))
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            return None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """No rows of the schema."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def concat_batches(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """The batches as one."""
    if not batches:
        return empty_batch(schema)
    try:
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    except pa.ArrowInvalid as problem:
        raise SchemaError(
            "a batch holds more than 2 GiB of one column",
            detail=str(problem),
            hint="cut smaller batches: batch=1_000_000",
        ) from problem


def schema_difference(given: pa.Schema, schema: pa.Schema) -> str | None:
    """Why columns `given` cannot be read as `schema`: the first column that is missing or of another type."""
    for field in schema:
        if field.name not in given.names:
            there = ", ".join(nearest_first(field.name, given.names))
            return f'it has no column "{field.name}"; its columns are {there}'
        found = given.field(field.name).type
        if found != field.type:
            return f'its column "{field.name}" is {found}, not {field.type}'
    return None


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The schema's columns out of a foreign batch, cast where no value changes; SchemaError otherwise."""
    missing = [name for name in schema.names if name not in batch.schema.names]
    if missing:
        raise SchemaError(
            f'there is no column "{missing[0]}"',
            detail="the columns are " + ", ".join(nearest_first(missing[0], batch.schema.names)),
            hint="name only columns that exist in schema=",
        )
    picked = batch.select(schema.names)
    nothing = [i for i, field in enumerate(picked.schema) if pa.types.is_null(field.type)]
    for i in nothing:  # a column without any value takes the declared type
        picked = picked.set_column(i, schema.field(i), pa.nulls(picked.num_rows, schema.field(i).type))
    picked = canonical_batch(picked)
    arrays = [_cast(column, field) for column, field in zip(picked.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column if column.type == field.type else column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise SchemaError(
            f'column "{field.name}" of type {column.type} cannot be read as {field.type}',
            detail=str(problem),
            hint=f'declare "{field.name}" as {column.type}',
        ) from problem


# How a read is cut into batches: by rows or by files.
#
# The cut is part of a program's meaning, so it depends on row numbers and files alone, never on how a format
# happened to deliver its rows. Bad rows count: mending one moves no other row into another batch.


@dataclass(frozen=True, slots=True)
class RowRange:
    """Consecutive rows of a read.

    rows     those that could be read
    numbers  int64[n] their numbers, rising, all >= start and < end
    bad      the others, with their numbers
    start    number of the first row
    end      number after the last row
    """

    rows: pa.RecordBatch
    numbers: npt.NDArray[np.int64]
    bad: tuple[tuple[int, BadRow], ...]
    start: int
    end: int

    @classmethod
    def whole(cls, rows: pa.RecordBatch, start: int) -> RowRange:
        """Rows without a bad one."""
        end = start + rows.num_rows
        return cls(rows, np.arange(start, end, dtype=np.int64), (), start, end)

    def split(self, n_rows: int) -> tuple[RowRange, RowRange]:
        """The first `n_rows` rows, and the rest."""
        border = self.start + n_rows
        at = int(np.searchsorted(self.numbers, border))
        head_bad = tuple(pair for pair in self.bad if pair[0] < border)
        tail_bad = tuple(pair for pair in self.bad if pair[0] >= border)
        head = RowRange(self.rows.slice(0, at), self.numbers[:at], head_bad, self.start, border)
        return head, RowRange(self.rows.slice(at), self.numbers[at:], tail_bad, border, self.end)


def batch_by_rows(pieces: Iterable[RowRange], schema: pa.Schema, n_rows: int) -> Iterator[SourceBatch]:
    """Batches of `n_rows` rows; the last may be shorter."""
    held: list[RowRange] = []
    n_held = 0
    for arrived in pieces:
        piece = arrived
        while n_held + piece.end - piece.start >= n_rows:
            head, piece = piece.split(n_rows - n_held)
            yield to_source_batch([*held, head], schema)
            held, n_held = [], 0
        if piece.end > piece.start:
            held.append(piece)
            n_held += piece.end - piece.start
    if held:
        yield to_source_batch(held, schema)


def batch_by_files(
    pieces: Iterable[RowRange | None], schema: pa.Schema, n_files: int
) -> Iterator[SourceBatch]:
    """Batches of `n_files` files, whose ends are None; a file without rows still counts."""
    held: list[RowRange] = []
    n_ended = 0
    for piece in pieces:
        if piece is not None:
            held.append(piece)
            continue
        n_ended += 1
        if n_ended == n_files:
            yield to_source_batch(held, schema)
            held, n_ended = [], 0
    if n_ended:
        yield to_source_batch(held, schema)


def to_source_batch(pieces: list[RowRange], schema: pa.Schema) -> SourceBatch:
    """The pieces as one batch."""
    numbers = [piece.numbers for piece in pieces] or [np.empty(0, np.int64)]
    whole = numbers[0] if len(numbers) == 1 else np.concatenate(numbers)
    return SourceBatch(
        rows=concat_batches([piece.rows for piece in pieces], schema),
        seq=from_numpy(whole),
        bad=tuple(bad for piece in pieces for _, bad in piece.bad),
    )


def check_size(name: str, value: object) -> int | None:
    """A `batch=` or `files=` that a user gave: a whole number above zero, or None."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ConnectorError(
        f"{name}={value!r} is not a number of rows or files",
        hint=f"give a whole number above zero: {name}=1000",
    )
