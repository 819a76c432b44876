"""Folders named after values: `out/country=DE/day=2026-01-31/`, one level for each column of `partition_by`.

The columns in the names are left out of the files, as in Hive: Spark, pyarrow (`partitioning="hive"`) and
others put them back. A value is written as text, by its type:

    bool             true, false
    whole numbers    -7
    floats           0.1, 1e20, NaN, Infinity, -Infinity
    decimals         1.50, with all digits of the scale
    dates            2026-01-31
    times            2026-01-31 12:00:00, or with six digits of a second; `Z` at the end if the column has a
                     zone, in UTC then
    strings          as they are; an empty one is refused, because Spark reads no folder with one in its name
    null             __HIVE_DEFAULT_PARTITION__, which is refused as a string

Then ASCII characters but for letters, digits and `_.-~` are quoted by percent signs (a blank is %20), in the
names of columns too; a column's name that begins with `_` or `.` has that quoted, because readers skip such
folders. Other characters stay as they are: Spark would take their quoted bytes for characters.

Pyarrow and Spark guess types from the text (whole numbers and, in Spark, dates; else strings) unless they are
told a schema. Pyarrow takes decimals for strings only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.connect.conversion import format_times
from penstock.errors import ConnectorError, SchemaError, nearest_first
from penstock.expr import compute as pc
from penstock.expr.values import from_numpy, numbers_of, to_numpy, valid_in

NULL = "__HIVE_DEFAULT_PARTITION__"
_LONGEST = 255  # bytes, of a name in a folder, on the usual file systems
_QUOTED = re.compile(r"(?![A-Za-z0-9_.~-])[\x00-\x7f]")
_FLOATS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def parse_partition_by(columns: object) -> tuple[str, ...]:
    """Return the columns of a user's `partition_by=`."""
    names = (columns,) if isinstance(columns, str) else () if columns is None else columns
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ConnectorError(
            f"partition_by={columns!r:.80} does not name columns",
            hint='name one or several: partition_by=["country", "day"]',
        )
    for name in names:
        if names.count(name) > 1:
            raise ConnectorError(f'partition_by= names column "{name}" twice', hint="name it once")
    return tuple(names)


def check_partition_columns(schema: pa.Schema, columns: Sequence[str]) -> None:
    """Raise SchemaError unless these columns exist and can name folders, and files have others."""
    for name in columns:
        if name not in schema.names:
            nearest = nearest_first(name, schema.names)
            raise SchemaError(
                f'there is no column "{name}" to partition by',
                detail=f"the columns are {', '.join(nearest)}",
                hint=f'did you mean "{nearest[0]}"?',
            )
        type_ = schema.field(name).type
        if kind.is_nested(type_) or kind.is_binary(type_):
            raise SchemaError(
                f'column "{name}" of type {type_} cannot name folders',
                hint="partition by columns of text, numbers, dates or times",
            )
    if columns and len(columns) == len(schema.names):
        raise SchemaError(
            "partition_by= names every column, and files would have none",
            detail=f"the columns are {', '.join(schema.names)}",
            hint="take one of them out of partition_by=",
        )


def column_prefix(column: str) -> str:
    """Return how the names of a column's folders begin.

    >>> column_prefix("_day of week")
    '%5Fday%20of%20week='
    """
    first, rest = column[:1], column[1:]
    return f"{f'%{ord(first):02X}' if first in ('_', '.') else _quote(first)}{_quote(rest)}="


def split_by_partition(rows: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each partition folder, without the partition columns, in their order."""
    codes, folders = np.zeros(rows.num_rows, np.int64), [""]
    for name in columns:
        indices, names = _name_folders(rows.column(name), name)
        # Invariant: at most as many codes as rows, so that no product of the two numbers overflows.
        encoded = from_numpy(codes * len(names) + indices).dictionary_encode()
        pairs = [divmod(code, len(names)) for code in encoded.dictionary.to_pylist()]
        folders = [f"{folders[upper]}{names[lower]}/" for upper, lower in pairs]
        codes = to_numpy(encoded.indices).astype(np.int64)
    data = rows.select([name for name in rows.schema.names if name not in columns])
    if len(folders) > 1:
        # Why: NumPy sorts small integers by their digits, in time that grows with the rows only.
        order = np.argsort(codes.astype(np.min_scalar_type(len(folders))), kind="stable")
        data = pc.take(data, from_numpy(order))
    start = 0
    for folder, end in zip(folders, np.cumsum(np.bincount(codes, minlength=1)).tolist(), strict=True):
        yield folder.removesuffix("/"), data.slice(start, end - start)
        start = end


def _name_folders(array: pa.Array, column: str) -> tuple[npt.NDArray[Any], list[str]]:
    """Return the names of the folders of a column's values, and for every row the index of its own."""
    bits = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}.get(array.type)
    if bits is None:
        encoded = array.dictionary_encode()
        texts = _format_values(encoded.dictionary, column)
    else:  # as floats, zero and minus zero would be one value
        encoded = array.view(bits).dictionary_encode()
        texts = _format_values(encoded.dictionary.view(array.type), column)
    indices = numbers_of(encoded.indices).astype(np.int64)
    if array.null_count:
        indices = np.where(valid_in(encoded.indices), indices, len(texts))
    names = [*map(_quote, texts), *([NULL] if array.null_count else [])]
    prefix = column_prefix(column)
    longest = max((len(name.encode()) for name in names), default=0) + len(prefix.encode())
    if longest > _LONGEST:
        raise _value_error(column, f"a value that makes a name of {longest} bytes, too long for a folder")
    return indices, [prefix + name for name in names]


def _format_values(values: pa.Array, column: str) -> list[str]:
    """Return values without nulls as text."""
    if kind.is_string(values.type):
        texts: list[str] = values.to_pylist()
        for refused, why in (
            ("", "an empty text, which no folder can show"),
            (NULL, f'"{NULL}", which means null'),
        ):
            if refused in texts:
                raise _value_error(column, why)
        return texts
    if kind.is_temporal(values.type):
        zone = "Z" if kind.is_timestamp(values.type) and values.type.tz else ""
        times = format_times(values, column).to_pylist()
        return [text.replace("T", " ").removesuffix(".000000") + zone for text in times]
    if kind.is_decimal(values.type):
        return [format(value, "f") for value in values.to_pylist()]
    if kind.is_floating(values.type):
        # Why: Spark reads quoted times and strings, but no quoted numbers.
        texts = [str(value).replace("e+", "e") for value in to_numpy(values)]
        return [_FLOATS.get(text, text) for text in texts]
    return [str(value).lower() for value in values.to_pylist()]


def _quote(text: str) -> str:
    return _QUOTED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _value_error(column: str, why: str) -> ConnectorError:
    return ConnectorError(
        f'column "{column}" holds {why}',
        hint="replace such values before the sink, .with_columns(...), or partition by other columns",
    )
