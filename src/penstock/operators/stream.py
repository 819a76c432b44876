"""What flows on an edge: the columns, the type of time, and the key the rows are grouped by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from penstock.errors import SchemaError, TimeError, nearest_first
from penstock.expr.types import check_column_name
from penstock.frozen import dataclass
from penstock.timing.column import TimeType


@dataclass(frozen=True, slots=True)
class Stream:
    """The type of an edge.

    schema  columns in canonical types
    time    type of event time, or None when the source has none; the time itself travels beside the row
    key     columns that equal rows are grouped by after `key_by`; () for none
    """

    schema: pa.Schema
    time: TimeType | None = None
    key: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the column names in order."""
        return tuple(self.schema.names)

    def require(self, *names: str) -> None:
        """Raise a SchemaError, nearest names first, unless all the columns exist."""
        for name in names:
            if not isinstance(name, str):
                raise SchemaError(
                    f"{name!r} is not the name of a column", hint=f"name it by a string, {_spelt(name)}"
                )
            if name not in self.schema.names:
                raise unknown_column(name, self.schema.names)

    def require_key(self, *names: str) -> None:
        """Raise a SchemaError unless all the columns exist, once each, and can tell rows apart."""
        self.require(*names)
        if len(set(names)) < len(names):
            raise SchemaError(f"a key names a column twice: {', '.join(names)}", hint="name it once")
        for name in names:
            type_ = self.schema.field(name).type
            if pa.types.is_nested(type_):
                raise SchemaError(
                    f'column "{name}" of type {type_} cannot be a key',
                    hint="use a plain column, e.g. a field of it computed with .with_columns(...)",
                )

    def require_time(self, who: str) -> TimeType:
        """Return the time type, or a TimeError: `who` needs it."""
        if self.time is None:
            raise TimeError(
                f"{who} needs event time, and its input has none",
                detail="without time there is no watermark, so nothing could ever leave",
                hint='name the time column at the source: graph.source(reader, time="ts", delay="2 s")',
            )
        return self.time

    def with_schema(self, schema: pa.Schema) -> Stream:
        """Return the same stream with other columns; the key stays if all its columns do."""
        key = self.key if all(name in schema.names for name in self.key) else ()
        return replace(self, schema=schema, key=key)

    def without_key(self) -> Stream:
        """Return the same stream with no key."""
        return replace(self, key=())


def _spelt(name: object) -> str:
    return ", ".join(f'"{part}"' for part in name) if isinstance(name, (list, tuple)) else 'e.g. "price"'


def unknown_column(name: str, available: Iterable[str]) -> SchemaError:
    """Return the error for a column that is not there."""
    names = nearest_first(name, available)
    hint = f'did you mean "{names[0]}"?' if names else "the stream has no columns"
    return SchemaError(
        f'there is no column "{name}"', detail=f"the columns are {', '.join(names)}", hint=hint
    )


def with_columns(schema: pa.Schema, added: Iterable[tuple[str, pa.DataType]]) -> pa.Schema:
    """Return a schema with columns replaced in place, or added at the end."""
    fields = {field.name: field for field in schema}
    for name, type_ in added:
        check_column_name(name)
        fields[name] = pa.field(name, type_)
    return pa.schema(list(fields.values()))


def join_columns(parts: Iterable[tuple[str, pa.Schema]], *, hint: str) -> pa.Schema:
    """Schemas side by side; a name that occurs twice is a SchemaError naming both parts."""
    fields: dict[str, pa.Field] = {}
    owner: dict[str, str] = {}
    for part, schema in parts:
        for field in schema:
            if field.name in fields:
                raise SchemaError(
                    f'column "{field.name}" comes twice',
                    detail=f"once from {owner[field.name]} and once from {part}",
                    hint=hint,
                )
            fields[field.name], owner[field.name] = field, part
    return pa.schema(list(fields.values()))


def columns(*pairs: tuple[str, pa.DataType]) -> pa.Schema:
    """Return a schema from (name, type) pairs."""
    for name, _ in pairs:
        check_column_name(name)
    return pa.schema([pa.field(name, type_) for name, type_ in pairs])
