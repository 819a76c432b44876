"""Python rows and foreign columns as columns of a schema, and the schema of rows that declare none.

Rows are dicts, dataclass instances or named tuples. A missing key is null, because that is how optional
fields look in practice; a key that the schema does not know is a mistake and fails its row. May assume
canonical schemas.

A schema is inferred from all values of all rows, and inference refuses to guess: a column of only nulls, or
of values that share no type, is an error that names the rows. Whole numbers beside fractions make a float64
column; strings stay strings, even if they look like times.

Also times as text, in files and in the names of folders.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

import numpy as np
import pyarrow as pa

from penstock.errors import ConnectorError, RowFailure, SchemaError, nearest_first
from penstock.expr import compute as pc
from penstock.expr.types import BY_PYTHON_TYPE, canonical_batch, parse_schema
from penstock.expr.values import from_list, from_plain, from_python
from penstock.frozen import Frozen

_RawRow = TypeVar("_RawRow")

# Types whose values Arrow takes without conversion, and the Python types for which it does so strictly.
_EXACT_TYPES: dict[pa.DataType, frozenset[type]] = {
    pa.bool_(): frozenset({bool, type(None)}),
    pa.string(): frozenset({str, type(None)}),
    pa.float64(): frozenset({float, int, type(None)}),
    **{integer: frozenset({int, type(None)}) for integer in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
}
# ISO 8601 writes years with four digits: these are 0001-01-01 and the last moment of 9999.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_FLOAT_TEXT = object()
_DECLARE = 'say the types: schema={"price": "float64", …}'


def fields_of(row: object) -> Mapping[str, object] | None:
    """Return the row's values by column name, or None when it is not a row."""
    if isinstance(row, Mapping):
        return row
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    if isinstance(row, tuple) and hasattr(row, "_fields"):
        return dict(zip(row._fields, row, strict=True))
    return None


def plain_values(row: object, schema: pa.Schema) -> list[object]:
    """Return the row's plain values in schema order; raise RowFailure when it does not fit."""
    fields = fields_of(row)
    if fields is None:
        raise RowFailure(f"{type(row).__name__} {row!r:.80} is not a dict, dataclass or NamedTuple")
    unknown = [name for name in fields if name not in schema.names]
    if unknown:
        known = ", ".join(nearest_first(str(unknown[0]), schema.names))
        raise RowFailure(f"{unknown[0]!r} is not a column; the columns are {known}")
    return [plain_value(fields.get(field.name), field) for field in schema]


def plain_value(
    value: object, field: pa.Field, decode: Callable[[object, pa.DataType], object] | None = None
) -> object:
    """Return one plain value of a column; raise a RowFailure that names the column.

    `decode` turns it into the Python value that the type takes, where it is not one.
    """
    try:
        return from_python(decode(value, field.type) if decode else value, field.type)
    except RowFailure as failure:
        raise RowFailure(f'column "{field.name}": {failure.reason}') from None


class ConvertedRows(Frozen):
    """Columns of the rows that fit, the positions of these, and position and reason of each other row."""

    rows: pa.RecordBatch
    positions: list[int]
    failures: list[tuple[int, str]]


def convert_rows(rows: Sequence[object], schema: pa.Schema) -> ConvertedRows:
    """Convert rows to columns, setting aside those that do not fit."""
    mappings = [row for row in rows if isinstance(row, Mapping)]
    if len(mappings) == len(rows) and set().union(*mappings) <= set(schema.names):
        columns = columns_if_exact(mappings, schema)
        if columns is not None:
            return ConvertedRows(columns, list(range(len(rows))), [])
    return convert_each(rows, schema, plain_values)


def convert_each(
    rows: Iterable[_RawRow],
    schema: pa.Schema,
    convert: Callable[[_RawRow, pa.Schema], Sequence[object]],
) -> ConvertedRows:
    """Convert rows one by one, setting aside those for which `convert` fails."""
    good: list[Sequence[object]] = []
    positions: list[int] = []
    failures: list[tuple[int, str]] = []
    for position, row in enumerate(rows):
        try:
            good.append(convert(row, schema))
            positions.append(position)
        except RowFailure as failure:
            failures.append((position, failure.reason))
    columns = list(zip(*good, strict=True)) or [() for _ in schema]
    arrays = [from_plain(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return ConvertedRows(pa.RecordBatch.from_arrays(arrays, schema=schema), positions, failures)


def columns_if_exact(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> pa.RecordBatch | None:
    """Return the rows as columns if every value has its column's very type; None otherwise."""
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
    """Return a batch of the schema without rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def concat_batches(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return the batches as one."""
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


def format_times(array: pa.Array, name: str) -> pa.Array:
    """Return timestamps as `2026-01-31T12:00:00.000000`, in UTC without a zone; dates as `2026-01-31`."""
    is_date = pa.types.is_date32(array.type)
    counts = array.view(pa.int32() if is_date else pa.int64())
    first, last = (_FIRST_DAY, _LAST_DAY) if is_date else (_FIRST_US, _LAST_US)
    reach = pc.min_max(counts).as_py()
    if reach["min"] is not None and (reach["min"] < first or reach["max"] > last):
        far = reach["min"] if reach["min"] < first else reach["max"]
        raise ConnectorError(
            f'column "{name}" holds a time outside the years 1 to 9999, which text cannot show',
            detail=f"{far} {'days' if is_date else 'microseconds'} from 1970",
            hint="keep it as a column of parquet files, or filter such rows",
        )
    text = counts.view(pa.date32() if is_date else pa.timestamp("us")).cast(pa.string())
    return pc.replace_substring(text, " ", "T")


def schema_difference(actual: pa.Schema, schema: pa.Schema) -> str | None:
    """Return why columns cannot be read as `schema`: the first that is missing or of another type."""
    for field in schema:
        if field.name not in actual.names:
            names = ", ".join(nearest_first(field.name, actual.names))
            return f'it has no column "{field.name}"; its columns are {names}'
        type_ = actual.field(field.name).type
        if type_ != field.type:
            return f'its column "{field.name}" is {type_}, not {field.type}'
    return None


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the schema's columns of a foreign batch; raise SchemaError where a value would change."""
    missing = [name for name in schema.names if name not in batch.schema.names]
    if missing:
        raise SchemaError(
            f'there is no column "{missing[0]}"',
            detail="the columns are " + ", ".join(nearest_first(missing[0], batch.schema.names)),
            hint="name only columns that exist in schema=",
        )
    selected = batch.select(schema.names)
    for i, field in enumerate(schema):  # a column without any value takes the declared type
        if pa.types.is_null(selected.schema.field(i).type):
            selected = selected.set_column(i, field, pa.nulls(selected.num_rows, field.type))
    selected = canonical_batch(selected)
    arrays = []
    for column, field in zip(selected.columns, schema, strict=True):
        try:
            arrays.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
            raise SchemaError(
                f'column "{field.name}" of type {column.type} cannot be read as {field.type}',
                detail=str(problem),
                hint=f'declare "{field.name}" as {column.type}',
            ) from problem
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def add_null_columns(columns: pa.RecordBatch, schema: pa.Schema, n_rows: int | None = None) -> pa.RecordBatch:
    """Return rows of the whole schema: the columns that there are, by name, and nulls for the others.

    n_rows  the number of rows, where there may be no column to tell it
    """
    if columns.schema.names == schema.names:
        return columns
    read = dict(zip(columns.schema.names, columns.columns, strict=True))
    n = columns.num_rows if n_rows is None else n_rows
    arrays = [read[field.name] if field.name in read else pa.nulls(n, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def infer_schema(rows: Sequence[object], floats: Collection[str] = ()) -> pa.Schema:
    """Return the schema of the rows: from the annotations of their one class, else from every value.

    floats  texts that stand for floats, unless a column has other texts too
    """
    if not rows:
        raise SchemaError("there are no rows to take a schema from", hint=_DECLARE)
    classes = {type(row) for row in rows}
    if len(classes) == 1 and not isinstance(rows[0], Mapping) and fields_of(rows[0]) is not None:
        return parse_schema(classes.pop())
    columns: dict[str, list[tuple[int, object]]] = {}
    for position, row in enumerate(rows):
        fields = fields_of(row)
        if fields is None:
            raise SchemaError(
                f"row {position} is {type(row).__name__} {row!r:.80}, not a row",
                hint='give dicts, dataclass instances or NamedTuples: {"price": 1.5}',
            )
        for name, value in fields.items():
            columns.setdefault(name, []).append((position, value))
    types: dict[str, pa.DataType] = {}
    for name, values in columns.items():
        try:
            types[name] = _type_of(name, values, floats)
        except RecursionError:
            raise SchemaError(
                f'column "{name}" holds values nested too deep, or one that holds itself',
                hint="give lists and dicts of a few levels",
            ) from None
    return parse_schema(types)


def _type_of(name: str, values: Iterable[tuple[int, object]], floats: Collection[str] = ()) -> pa.DataType:
    """Return the one type of a column; `values` come with the number of their row, which errors name."""
    present = [(at, value.item() if isinstance(value, np.generic) else value) for at, value in values]
    present = [(at, value) for at, value in present if value is not None]
    if not present:
        raise SchemaError(f'column "{name}" holds only nulls, so its type is unknown', hint=_DECLARE)
    first_of: dict[object, tuple[int, object]] = {}
    for at, value in present:
        is_float = isinstance(value, str) and value in floats
        first_of.setdefault(_FLOAT_TEXT if is_float else _kind(value, name, at), (at, value))
    if _FLOAT_TEXT in first_of:
        text = first_of.pop(_FLOAT_TEXT)
        first_of.setdefault(pa.string() if pa.string() in first_of else pa.float64(), text)
    if set(first_of) == {pa.int64(), pa.float64()}:
        return pa.float64()
    if len(first_of) > 1:
        (at, one), (other_at, other) = list(first_of.values())[:2]
        raise SchemaError(
            f'column "{name}" holds values of different types',
            detail=f"row {at}: {_show(one)}; row {other_at}: {_show(other)}",
            hint=_DECLARE,
        )
    (kind,) = first_of
    if kind is Decimal:
        decimals = [value for _, value in present if isinstance(value, Decimal)]
        scale = max(0, *(-int(value.as_tuple().exponent) for value in decimals))
        whole = max(1, *(value.adjusted() + 1 for value in decimals))
        return pa.decimal128(min(38, whole + scale), scale)
    if kind is list:
        items = [(at, item) for at, value in present if isinstance(value, Iterable) for item in value]
        return pa.list_(_type_of(f"{name}[]", items, floats))
    if kind is Mapping:
        inner: dict[str, list[tuple[int, object]]] = {}
        for at, value in present:
            for key, item in (fields_of(value) or {}).items():
                inner.setdefault(key, []).append((at, item))
        return pa.struct([(key, _type_of(f"{name}.{key}", of, floats)) for key, of in inner.items()])
    return kind


def _kind(value: object, name: str, at: int) -> object:
    """Return the type of a value; of what has a type only together with others, a class."""
    if isinstance(value, datetime):
        return pa.timestamp("us", "UTC") if value.tzinfo else pa.timestamp("us")
    if isinstance(value, list | tuple | np.ndarray) and not hasattr(value, "_fields"):
        return list
    if fields_of(value) is not None:
        return Mapping
    if isinstance(value, Decimal) and value.is_finite():
        return Decimal
    for known, type_ in BY_PYTHON_TYPE.items():
        if isinstance(value, known):
            return type_
    raise SchemaError(f'column "{name}" cannot hold {_show(value)} (row {at})', hint=_DECLARE)


def _show(value: object) -> str:
    return f"{type(value).__name__} {value!r:.40}"
