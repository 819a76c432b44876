"""Read a schema as users write it down: the `schema=` of readers and functions, and return annotations.

Accepted: an Arrow schema; a dataclass, NamedTuple or TypedDict class; or a dict of column name to type.
A type is an Arrow type, a name such as "int64", a Python type, or (for a struct) any of the forms of a
schema. What comes out is always canonical, and every column may be null: `Optional[T]` is `T`, so that a
stream's schema does not depend on how careful its author was.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa

from penstock.errors import SchemaError, nearest_first
from penstock.expr.types import canonical

_BY_NAME: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "int": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "string": pa.string(),
    "str": pa.string(),
    "binary": pa.binary(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "date32": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamp[us]": pa.timestamp("us"),
}

_BY_PYTHON_TYPE: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    date: pa.date32(),
    datetime: pa.timestamp("us"),
}

_REFUSED: dict[type, str] = {
    timedelta: 'declare "int64" and keep microseconds',
    time: 'declare "int64" and keep microseconds of the day',
    Decimal: 'say how many digits: "decimal(10, 2)", or Annotated[Decimal, "decimal(10, 2)"]',
    list: "say what it holds: list[int]",
    tuple: "say what it holds: list[int]",
    dict: "declare a dataclass, or {name: type}, which becomes a struct",
}

_DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)")
_ZONED = re.compile(r"timestamp\[us, *([^\]]+)\]")
_LIST = re.compile(r"list<(.+)>")


def parse_schema(declared: object) -> pa.Schema:
    """Return the canonical Arrow schema that a user declared.

    >>> parse_schema({"ad_id": "int64", "price": float}).names
    ['ad_id', 'price']
    """
    return pa.schema(_fields(declared, "", ()))


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
    if isinstance(declared, type) and _is_row_class(declared):
        if declared in open_classes:
            raise SchemaError(
                f"{declared.__name__} contains itself" + _at(inside), hint="a column's type must be finite"
            )
        return _class_fields(declared)
    raise SchemaError(
        f"{_show(declared)} is not a schema",
        hint="give a pyarrow.Schema, a dataclass, NamedTuple or TypedDict class, or {name: type}",
    )


def _is_row_class(declared: type) -> bool:
    named_tuple = issubclass(declared, tuple) and hasattr(declared, "_fields")
    return dataclasses.is_dataclass(declared) or named_tuple or typing.is_typeddict(declared)


def _class_fields(declared: type) -> list[tuple[str, object]]:
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
            raise SchemaError(f'"{name}" of {declared.__name__} has no type', hint="use typing.NamedTuple")
    return [(name, hints[name]) for name in names]


def _type(declared: object, path: str, open_classes: tuple[type, ...]) -> pa.DataType:
    if isinstance(declared, pa.DataType):
        return canonical(declared, path)
    if isinstance(declared, str):
        return _by_name(declared, path)
    if isinstance(declared, type) and declared in _BY_PYTHON_TYPE:
        return _BY_PYTHON_TYPE[declared]
    if isinstance(declared, type) and issubclass(declared, np.generic):
        return _by_numpy_type(declared, path)
    if isinstance(declared, Mapping) or (isinstance(declared, type) and _is_row_class(declared)):
        return pa.struct(_fields(declared, f"{path}.", open_classes))
    return _generic(declared, path, open_classes)


def _generic(declared: object, path: str, open_classes: tuple[type, ...]) -> pa.DataType:
    """Resolve a type with arguments: Optional[T], list[T], Annotated[T, "name"]; refuse anything else."""
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
    hint = _REFUSED.get(declared) if isinstance(declared, type) else None
    raise SchemaError(
        f"{_show(declared)} is not a column type" + _at(path), hint=hint or _list_accepted_types()
    )


def _by_name(name: str, path: str) -> pa.DataType:
    plain = name.strip()
    if plain in _BY_NAME:
        return _BY_NAME[plain]
    if match := _LIST.fullmatch(plain):
        return pa.list_(_by_name(match[1], path))
    if match := _ZONED.fullmatch(plain):
        return pa.timestamp("us", match[1])
    if match := _DECIMAL.fullmatch(plain):
        precision, scale = int(match[1]), int(match[2])
        if not (1 <= precision <= 38 and scale <= precision):
            raise SchemaError(
                f'"{name}" is not a decimal type' + _at(path), hint="at most 38 digits: decimal(38, 2)"
            )
        return pa.decimal128(precision, scale)
    nearest = nearest_first(plain, [*_BY_NAME, "decimal(10, 2)", "list<int64>", "timestamp[us, UTC]"])
    raise SchemaError(f'"{name}" is not the name of a type' + _at(path), hint="one of " + ", ".join(nearest))


def _by_numpy_type(declared: type, path: str) -> pa.DataType:
    try:
        return canonical(pa.from_numpy_dtype(np.dtype(declared)), path)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as problem:
        raise SchemaError(
            f"{_show(declared)} is not a column type" + _at(path), hint=_list_accepted_types()
        ) from problem


def _at(path: str) -> str:
    column = path.strip(".")
    return f' (column "{column}")' if column else ""


def _show(declared: object) -> str:
    return declared.__name__ if isinstance(declared, type) else repr(declared)


def _list_accepted_types() -> str:
    return 'use a pyarrow type, a name such as "int64", or ' + ", ".join(t.__name__ for t in _BY_PYTHON_TYPE)
