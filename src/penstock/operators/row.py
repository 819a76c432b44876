"""Rows as a user's function sees and gives them.

A function gets a read-only object with the columns as attributes, null as None, timestamps as datetime.
It gives a dict, a dataclass or a NamedTuple with all the columns of its schema, no more and no fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from penstock.connect.conversion import fields_of, plain_value
from penstock.errors import RowFailure, nearest_first
from penstock.expr.values import to_python


class Row:
    """One row, read only: `row.price`, `row["price"]`, `dict(row)`.

    A column whose name the row needs itself (`keys`) or that begins with `_` is reached as `row["keys"]`.
    """

    __slots__ = ("_schema", "_values")
    _schema: pa.Schema
    _values: Mapping[str, object]

    def __init__(self, values: Mapping[str, object], schema: pa.Schema) -> None:
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_schema", schema)

    def __getitem__(self, name: str) -> object:
        try:
            value = self._values[name]
        except KeyError:
            names = ", ".join(nearest_first(name, self._values))
            raise KeyError(f'no column "{name}"; the columns are {names}') from None
        return to_python(value, self._schema.field(name).type)

    def __getattr__(self, name: str) -> object:
        # Dunder look-ups by the interpreter (copy, pickle, inspect) must not be read as columns.
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as missing:
            raise AttributeError(missing.args[0]) from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"rows are read only; return a new row instead of setting {name!r}")

    def __reduce__(self) -> tuple[type[Row], tuple[Mapping[str, object], pa.Schema]]:
        # Copying would set attributes on an empty row, which is read only.
        return Row, (self._values, self._schema)

    def keys(self) -> list[str]:
        """Return the column names, so that `dict(row)` and `{**row, "new": 1}` work."""
        return list(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={self[name]!r}" for name in self._values)
        return f"Row({inside})"


def plain_row(result: object, schema: pa.Schema) -> dict[str, object]:
    """Return what a function gave as plain values of its schema; raise a RowFailure when it does not fit."""
    fields = {name: result[name] for name in result} if isinstance(result, Row) else fields_of(result)
    if fields is None:
        raise RowFailure(f"gave {type(result).__name__} {result!r:.80}, not a dict, dataclass or NamedTuple")
    missing = [name for name in schema.names if name not in fields]
    extra = [name for name in fields if name not in schema.names]
    if missing or extra:
        wrong = [f"lacks {', '.join(missing)}"] if missing else []
        wrong += [f"has unknown {', '.join(map(str, extra))}"] if extra else []
        raise RowFailure(f"gave a row that {' and '.join(wrong)}; its schema is {', '.join(schema.names)}")
    return {field.name: plain_value(fields[field.name], field) for field in schema}
