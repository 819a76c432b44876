"""The types that columns have inside Penstock, and how foreign ones become them.

Canonical: bool, int8 to int64, float32, float64, string, binary, date32, timestamp[us] (with or without a
zone), decimal128, and lists and structs of these. Readers cast what they read; everything after a reader
may assume canonical types.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError
from penstock.expr import compute as pc

_TEST_TO_TYPE: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (kind.is_uint8, pa.int16()),
    (kind.is_uint16, pa.int32()),
    (kind.is_uint32, pa.int64()),
    (kind.is_float16, pa.float32()),
    (kind.is_date, pa.date32()),
    (kind.is_large_string, pa.string()),
    (kind.is_string_view, pa.string()),
    (kind.is_large_binary, pa.binary()),
    (kind.is_binary_view, pa.binary()),
    (kind.is_fixed_size_binary, pa.binary()),
)
_CANONICAL = (
    kind.is_boolean,
    kind.is_signed_integer,
    kind.is_floating,
    kind.is_string,
    kind.is_binary,
    kind.is_decimal128,
)
_HINTS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (kind.is_uint64, "cast it to int64 or string before reading: not every uint64 fits in int64"),
    (kind.is_null, "say its type in the reader's schema=, for example int64"),
    (kind.is_time, "store microseconds of the day as int64"),
    (kind.is_duration, "store microseconds as int64"),
    (kind.is_interval, "store microseconds as int64"),
    (kind.is_map, "store a list of structs with the fields key and value"),
    (kind.is_union, "store a struct with one nullable field per case"),
    (kind.is_decimal256, "cast it to decimal128, which holds 38 digits"),
)
_MICROS_PER = {"s": 1_000_000, "ms": 1_000}


def canonical(type: pa.DataType, name: str = "") -> pa.DataType:
    """Return the type that a column of `type` is read as; raise SchemaError if there is none.

    >>> canonical(pa.dictionary(pa.int8(), pa.large_string()), "country")
    DataType(string)
    """
    if kind.is_dictionary(type) or kind.is_run_end_encoded(type):
        return canonical(type.value_type, name)
    if isinstance(type, pa.BaseExtensionType):
        return canonical(type.storage_type, name)
    if kind.is_timestamp(type):
        return pa.timestamp("us", type.tz)
    if kind.is_decimal32(type) or kind.is_decimal64(type):
        return pa.decimal128(type.precision, type.scale)
    if kind.is_list(type) or kind.is_large_list(type) or kind.is_fixed_size_list(type):
        return pa.list_(canonical(type.value_type, f"{name}[]"))
    if kind.is_struct(type):
        return pa.struct([field.with_type(canonical(field.type, f"{name}.{field.name}")) for field in type])
    for test, target in _TEST_TO_TYPE:
        if test(type):
            return target
    if any(test(type) for test in _CANONICAL):
        return type
    raise _no_such_type(type, name)


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema that rows have after a reader: the same names and order, canonical types."""
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise SchemaError(f'two columns are named "{name}"', hint="rename one of them before reading")
        seen.add(name)
    return pa.schema([pa.field(field.name, canonical(field.type, field.name)) for field in schema])


def canonical_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with canonical types: nanoseconds are rounded down, all else is exact or refused."""
    schema = canonical_schema(batch.schema)
    if batch.schema.equals(schema):
        return batch
    columns = [_convert(column, field.type, field.name) for column, field in zip(batch, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _convert(array: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    if array.type == target:
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        return _convert(array.storage, target, name)
    if kind.is_dictionary(array.type):
        # The values first: Arrow cannot pick from views, which is what Polars has its categories in.
        values = _convert(array.dictionary, target, name)
        return values.take(array.indices)
    if kind.is_run_end_encoded(array.type):
        return _convert(pc.run_end_decode(array), target, name)
    if kind.is_timestamp(target):
        return _microseconds(array, target, name)
    if kind.is_date64(array.type):
        return _floor_divide(array, 86_400_000, np.dtype(np.int32), target)
    if kind.is_list(target):
        return _convert_list(array, target, name)
    if kind.is_struct(target):
        fields = [_convert(array.field(i), target.field(i).type, name) for i in range(target.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(target), mask=array.is_null())
    return array.cast(target)


def _convert_list(array: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    # Only a plain list has 32-bit offsets of its own; Arrow's cast gives the other kinds theirs.
    plain = array.cast(pa.list_(array.type.value_type))
    values = _convert(plain.values, target.value_type, name)
    validity, offsets = plain.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(plain), [validity, offsets], offset=plain.offset, children=[values]
    )


def _microseconds(array: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    if array.type.unit == "ns":
        return _floor_divide(array, 1_000, np.dtype(np.int64), target)
    try:
        counts = pc.multiply_checked(array.view(pa.int64()), _MICROS_PER.get(array.type.unit, 1))
    except pa.ArrowInvalid as problem:
        raise SchemaError(
            f'column "{name}" holds a time too far away for microseconds in 64 bits',
            detail=f"its type is {array.type}",
            hint="filter such rows before reading, or make them null",
        ) from problem
    return counts.view(target)


def _floor_divide(
    array: pa.Array, divisor: int, width: np.dtype[np.signedinteger], target: pa.DataType
) -> pa.Array:
    """Divide towards minus infinity: one nanosecond before 1970 is in the microsecond before 1970."""
    counts = pc.fill_null(array.view(pa.int64()), 0).to_numpy(zero_copy_only=False)
    mask = array.is_null().to_numpy(zero_copy_only=False)
    return pa.array((counts // divisor).astype(width), mask=mask).view(target)


def _no_such_type(type: pa.DataType, name: str) -> SchemaError:
    column = name.strip(".") or "?"
    hint = next((text for test, text in _HINTS if test(type)), "cast it to a type that Penstock has")
    return SchemaError(
        f'column "{column}" has type {type}, which rows cannot hold',
        detail="rows hold bool, int8 to int64, float32, float64, string, binary, date, timestamp[us],"
        " decimal128, and lists and structs of these",
        hint=hint,
    )
