"""The types that columns have inside Penstock, how foreign ones become them, and how users declare them.

Canonical: bool, int8 to int64, float32, float64, string, binary, date32, timestamp[us] (with or without a
zone), decimal128, and lists and structs of these. Readers cast what they read; everything after a reader
may assume canonical types.

A schema, as in the `schema=` of readers and functions and in return annotations, is an Arrow schema; a
dataclass, NamedTuple or TypedDict class; or a dict of column name to type. A type is an Arrow type, a name
such as "int64", a Python type, or (for a struct) any of the forms of a schema. What comes out is always
canonical, and every column may be null: `Optional[T]` is `T`, so that a stream's schema does not depend on
how careful its author was.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError, nearest_first
from penstock.expr import compute as pc
from penstock.expr.arrow.columnar_value import from_numbers
from penstock.expr.values import numbers_of

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
_CANONICAL = (kind.is_boolean, kind.is_signed_integer, kind.is_floating, kind.is_string, kind.is_binary)
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
        if type.tz not in (None, "UTC") and not is_time_zone(type.tz):
            raise SchemaError(
                f'"{type.tz}" is not a time zone that this machine knows' + _at(name),
                hint=f'did you mean "timestamp[us, {_nearest_zone(type.tz)}]"?',
            )
        return pa.timestamp("us", type.tz)
    if kind.is_decimal(type) and not kind.is_decimal256(type):
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
    raise SchemaError(
        f'column "{name.strip(".") or "?"}" has type {type}, which rows cannot hold',
        detail="rows hold bool, int8 to int64, float32, float64, string, binary, date, timestamp[us],"
        " decimal128, and lists and structs of these",
        hint=next((text for test, text in _HINTS if test(type)), "cast it to a type that Penstock has"),
    )


@cache
def is_time_zone(name: str) -> bool:
    """Return whether a time zone is known: by its name, or as an offset such as +02:00.

    A machine that has no time zones at all cannot tell. Arrow computes with +0200 too, but makes no datetime
    of it.
    """
    from zoneinfo import ZoneInfo, available_timezones

    if _OFFSET.fullmatch(name):
        return True
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        return not available_timezones()
    return True


def _nearest_zone(name: str) -> str:
    """Return what a zone that is not known may be meant to be."""
    from zoneinfo import available_timezones

    if offset := _LOOSE_OFFSET.fullmatch(name):
        sign, hours, minutes = offset.groups("00")
        return f"{sign}{hours:0>2}:{minutes}"
    return nearest_first(name, available_timezones())[0]


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
        return from_numbers(numbers_of(array) // 86_400_000, target, [array]).values
    if kind.is_list(target):
        # Only a plain list has 32-bit offsets of its own; Arrow's cast gives the other kinds theirs.
        plain = array.cast(pa.list_(array.type.value_type))
        values, buffers = _convert(plain.values, target.value_type, name), plain.buffers()[:2]
        return pa.Array.from_buffers(target, len(plain), buffers, offset=plain.offset, children=[values])
    if kind.is_struct(target):
        fields = [_convert(array.field(i), target.field(i).type, name) for i in range(target.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(target), mask=array.is_null())
    return array.cast(target)


def _microseconds(array: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    if array.type.unit == "ns":  # one nanosecond before 1970 is in the microsecond before 1970
        return from_numbers(numbers_of(array) // 1_000, target, [array]).values
    try:
        counts = pc.multiply_checked(array.view(pa.int64()), _MICROS_PER.get(array.type.unit, 1))
    except pa.ArrowInvalid as problem:
        raise SchemaError(
            f'column "{name}" holds a time too far away for microseconds in 64 bits',
            detail=f"its type is {array.type}",
            hint="filter such rows before reading, or make them null",
        ) from problem
    return counts.view(target)


BY_PYTHON_TYPE: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    date: pa.date32(),
    datetime: pa.timestamp("us"),
}

_ARROW_NAMES = "int8 int16 int32 int64 float32 float64 double string binary date32 timestamp[us]"
_BY_NAME: dict[str, pa.DataType] = {
    **{name: pa.type_for_alias(name) for name in _ARROW_NAMES.split()},
    **{python.__name__: type_ for python, type_ in BY_PYTHON_TYPE.items() if python is not datetime},
    "timestamp": pa.timestamp("us"),
}

_REFUSED: dict[type, str] = {
    timedelta: 'declare "int64" and keep microseconds',
    time: 'declare "int64" and keep microseconds of the day',
    Decimal: 'say how many digits: "decimal(10, 2)", or Annotated[Decimal, "decimal(10, 2)"]',
    list: "say what it holds: list[int]",
    tuple: "say what it holds: list[int]",
    dict: "declare a dataclass, or {name: type}, which becomes a struct",
}

_OFFSET = re.compile(r"[+-]([01]\d|2[0-3]):[0-5]\d")
_LOOSE_OFFSET = re.compile(r"([+-])([01]?\d|2[0-3]):?([0-5]\d)?")
_DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)")
_ZONED = re.compile(r"timestamp\[us, *([^\]]+)\]")
_LIST = re.compile(r"list<(.+)>")


def parse_schema(declared: object) -> pa.Schema:
    """Return the canonical Arrow schema that a user declared.

    >>> parse_schema({"ad_id": "int64", "price": float}).names
    ['ad_id', 'price']
    """
    return pa.schema(_fields(declared, "", ()))


def optional_columns(declared: object) -> frozenset[str]:
    """Return the columns of a schema that input may lack: `T | None`, and fields of Arrow that may be null.

    >>> sorted(optional_columns({"ad_id": "int64", "price": float | None}))
    ['price']
    """
    if isinstance(declared, pa.Schema):
        return frozenset(field.name for field in declared if field.nullable)
    pairs = _named_types(declared, "", ())
    return frozenset(name for name, type_ in pairs if type(None) in typing.get_args(type_))


def parse_type(declared: object) -> pa.DataType:
    """Return the canonical Arrow type that a user declared.

    >>> parse_type(list[int])
    ListType(list<item: int64>)
    """
    return _type(declared, "", ())


def check_column_name(name: object) -> None:
    """Raise unless a column can have this name: text, not nothing, and no half of a surrogate pair."""
    if not isinstance(name, str) or not name or name.encode(errors="ignore").decode() != name:
        raise SchemaError(f"{name!r} cannot name a column", hint='name columns by strings: {"price": float}')


def _fields(declared: object, inside: str, open_classes: tuple[type, ...]) -> list[pa.Field]:
    """Return the fields of a schema, or of the struct column `inside`; `open_classes` contain it."""
    pairs = _named_types(declared, inside, open_classes)
    if isinstance(declared, type):
        open_classes = (*open_classes, declared)
    seen: set[str] = set()
    for name, _ in pairs:
        check_column_name(name)
        if name in seen:
            raise SchemaError(f'two columns are named "{name}"', hint="rename one of them")
        seen.add(name)
    if not pairs:
        raise SchemaError(f"{_show(declared)} declares no columns", hint='{"price": float}')
    return [pa.field(name, _type(type_, inside + name, open_classes)) for name, type_ in pairs]


def _named_types(
    declared: object, inside: str, open_classes: tuple[type, ...]
) -> list[tuple[typing.Any, object]]:
    if isinstance(declared, pa.Schema | pa.StructType):
        return [(field.name, field.type) for field in declared]
    if isinstance(declared, Mapping):
        return list(declared.items())
    if is_row_class(declared):
        if declared in open_classes:
            raise SchemaError(
                f"{declared.__name__} contains itself" + _at(inside), hint="a column's type must be finite"
            )
        try:
            hints = typing.get_type_hints(declared, include_extras=True)
        except (NameError, TypeError) as problem:
            raise SchemaError(
                f"the annotations of {declared.__name__} cannot be read: {problem}",
                hint="define the class and the types it names at the top of a module",
            ) from problem
        names: Iterable[str] = hints
        if dataclasses.is_dataclass(declared):
            names = [field.name for field in dataclasses.fields(declared)]
        elif not typing.is_typeddict(declared):
            names = getattr(declared, "_fields", ())
        for name in names:
            if name not in hints:
                raise SchemaError(
                    f'"{name}" of {declared.__name__} has no type', hint="use typing.NamedTuple"
                )
        return [(name, hints[name]) for name in names]
    raise SchemaError(
        f"{_show(declared)} is not a schema",
        hint="give a pyarrow.Schema, a dataclass, NamedTuple or TypedDict class, or {name: type}",
    )


def is_row_class(declared: object) -> typing.TypeGuard[type]:
    """Return whether something is a dataclass, NamedTuple or TypedDict class."""
    if not isinstance(declared, type):
        return False
    named_tuple = issubclass(declared, tuple) and hasattr(declared, "_fields")
    return dataclasses.is_dataclass(declared) or named_tuple or typing.is_typeddict(declared)


def _type(declared: object, path: str, open_classes: tuple[type, ...]) -> pa.DataType:
    if isinstance(declared, pa.DataType):
        return canonical(declared, path)
    if isinstance(declared, str):
        return _by_name(declared, path)
    if isinstance(declared, type) and declared in BY_PYTHON_TYPE:
        return BY_PYTHON_TYPE[declared]
    if isinstance(declared, type) and issubclass(declared, np.generic):
        try:
            return canonical(pa.from_numpy_dtype(np.dtype(declared)), path)
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as problem:
            raise _refuse(declared, path) from problem
    if isinstance(declared, Mapping) or is_row_class(declared):
        return pa.struct(_fields(declared, f"{path}.", open_classes))
    # A type with arguments: Optional[T], list[T], Annotated[T, "name"]; anything else is refused.
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin is typing.Annotated:
        exact = [extra for extra in arguments[1:] if isinstance(extra, pa.DataType | str)]
        return _type(exact[0] if exact else arguments[0], path, open_classes)
    if origin in (typing.Required, typing.NotRequired):
        return _type(arguments[0], path, open_classes)
    if origin in (typing.Union, types.UnionType):
        present = [argument for argument in arguments if argument is not type(None)]
        if len(present) == 1:
            return _type(present[0], path, open_classes)
    if origin is list or (origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis):
        return pa.list_(_type(arguments[0], f"{path}[]", open_classes))
    raise _refuse(declared, path)


def _refuse(declared: object, path: str) -> SchemaError:
    accepted = ", ".join(python_type.__name__ for python_type in BY_PYTHON_TYPE)
    hint = f'use a pyarrow type, a name such as "int64", or {accepted}'
    if isinstance(declared, type) and declared in _REFUSED:
        hint = _REFUSED[declared]
    return SchemaError(f"{_show(declared)} is not a column type" + _at(path), hint=hint)


def _by_name(name: str, path: str) -> pa.DataType:
    plain = name.strip()
    if plain in _BY_NAME:
        return _BY_NAME[plain]
    if match := _LIST.fullmatch(plain):
        return pa.list_(_by_name(match[1], path))
    if match := _ZONED.fullmatch(plain):
        return canonical(pa.timestamp("us", match[1].strip()), path)
    if match := _DECIMAL.fullmatch(plain):
        precision, scale = int(match[1]), int(match[2])
        if not (1 <= precision <= 38 and scale <= precision):
            raise SchemaError(
                f'"{name}" is not a decimal type' + _at(path), hint="at most 38 digits: decimal(38, 2)"
            )
        return pa.decimal128(precision, scale)
    nearest = nearest_first(plain, [*_BY_NAME, "decimal(10, 2)", "list<int64>", "timestamp[us, UTC]"])
    raise SchemaError(f'"{name}" is not the name of a type' + _at(path), hint="one of " + ", ".join(nearest))


def _at(path: str) -> str:
    column = path.strip(".")
    return f' (column "{column}")' if column else ""


def _show(declared: object) -> str:
    return declared.__name__ if isinstance(declared, type) else repr(declared)
