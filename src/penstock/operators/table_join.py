"""TableJoin: look every row up in a table that does not change (AIR, 3.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

import pyarrow as pa

from penstock.connect.protocol import Reader
from penstock.errors import ConnectorError, GraphError, SchemaError
from penstock.expr.values import to_plain
from penstock.operators.op import IN, OUT, Op, Stream


class TableJoin(Op, kind="SJ", verb="join_table"):
    """Add the columns of the table row with the same key.

    A stream row without a table row is dropped and counted as unmatched (how="inner"), or passed on
    with nulls (how="left"). Null keys match nothing.

    columns     those to look up by
    new_fields  the table's other columns
    """

    table: Reader
    on: str | Sequence[str]
    how: str = "inner"
    columns: tuple[str, ...] = field(init=False, repr=False)
    new_fields: tuple[pa.Field, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        columns = tuple(self.on) if isinstance(self.on, list | tuple) else (self.on,)
        object.__setattr__(self, "columns", columns)
        if not columns:
            raise GraphError("a table join needs a column", hint='say which: on="ad_id"')
        if self.how not in ("inner", "left"):
            raise GraphError(f"how={self.how!r} is unknown", hint='use "inner" or "left"')
        if not self.table.bounded:
            raise GraphError("a joined table must end", hint="use join() for two streams")
        for name in self.columns:
            if name in self.table.schema.names and pa.types.is_nested(self.table.schema.field(name).type):
                raise SchemaError(
                    f'column "{name}" of type {self.table.schema.field(name).type} cannot be looked up by',
                    hint="use a plain column, e.g. a field of it computed with .with_columns(...)",
                )
        new = tuple(column.with_nullable(True) for column in self.table.schema if column.name not in columns)
        object.__setattr__(self, "new_fields", new)

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the stream's columns, then the table's other columns; still keyed."""
        up = inputs[IN]
        up.require(*self.columns)
        table = Stream(self.table.schema)
        table.require(*self.columns)
        for name in self.columns:
            in_table, in_stream = table.schema.field(name).type, up.schema.field(name).type
            if in_table != in_stream:
                raise SchemaError(
                    f'column "{name}" is {in_stream} in the stream and {in_table} in the table',
                    hint="cast one of them",
                )
        clash = [column.name for column in self.new_fields if column.name in up.schema.names]
        if clash:
            raise SchemaError(
                f'the stream and the table both have a column "{clash[0]}"',
                hint="rename or drop it on one side before the join",
            )
        return {
            OUT: up.with_schema(pa.schema(list(up.schema) + list(self.new_fields))),
            **self.errors_port(up),
        }

    def load(self) -> pa.Table:
        """Read the table; raise a SchemaError for two rows with one key."""
        batches = []
        for batch in self.table.batches():
            for bad in batch.bad:
                raise bad.failure or ConnectorError(
                    f"the joined table has a bad row at {bad.place}", detail=bad.error
                )
            batches.append(batch.rows)
        loaded = pa.Table.from_batches(batches, self.table.schema)
        seen: set[tuple[object, ...]] = set()
        columns = (to_plain(loaded[name].combine_chunks()) for name in self.columns)
        for key in zip(*columns, strict=True):
            # Why: all NaNs are one key, though Python says that none equals another.
            same = tuple(math.nan if isinstance(v, float) and math.isnan(v) else v for v in key)
            if same in seen and None not in key:  # null keys match nothing, so may repeat
                text = ", ".join(f"{name}={value!r}" for name, value in zip(self.columns, key, strict=True))
                raise SchemaError(f"the joined table has two rows with {text}", hint="keep one row per key")
            seen.add(same)
        return loaded

    def describe(self) -> str:
        """Return the table and the columns."""
        return f"{self.how} join with table {self.table.describe()} on {', '.join(self.columns)}"
