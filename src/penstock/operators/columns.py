"""Columns computed by expressions: `WithColumns` beside those that are there, `Select` instead of them.

An expression sees the row as it arrived: the columns of one step do not see each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import pyarrow as pa

from penstock.errors import FunctionError, SchemaError
from penstock.expr import Column, Expr
from penstock.frozen import dataclass
from penstock.operators.function import Expressions, as_expressions, keep_key
from penstock.operators.op import IN, OUT, Op
from penstock.operators.stream import Stream, with_columns

NamedColumns = Mapping[str, object] | Iterable[tuple[str, object]]


@dataclass(frozen=True, slots=True)
class WithColumns(Op):
    """Add columns, or replace those of the same name: `WithColumns({"total": col("price") * col("n")})`."""

    columns: NamedColumns

    kind: ClassVar[str] = "M"
    verb: ClassVar[str] = "with_columns"

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        if not isinstance(self.columns, Expressions):
            object.__setattr__(self, "columns", as_expressions(named_columns(self.columns), self.verb))

    @property
    def how(self) -> Expressions:
        """Return the expressions, checked."""
        assert isinstance(self.columns, Expressions), "made so by __post_init__"
        return self.columns

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the old columns and the new ones; the key stays unless one of its columns is replaced."""
        up = inputs[IN]
        schema = with_columns(up.schema, self.how.types(up.schema))
        return {OUT: keep_key(up, self.how.names, schema), **self.errors_port(up)}

    def describe(self) -> str:
        """Return the verb and the columns."""
        return f"{self.verb} {self.how}"


@dataclass(frozen=True, slots=True)
class Select(WithColumns):
    """Keep only these columns, in this order: `Select({"user": col("user"), "c": col("price") * 100})`."""

    verb: ClassVar[str] = "select"

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the columns selected; the key stays if its columns are all passed on as they are."""
        up = inputs[IN]
        for name in self.how.names:
            if self.how.names.count(name) > 1:
                raise SchemaError(
                    f'select gives column "{name}" twice', hint="leave one out, or give it another name"
                )
        up.require(*(name for _, expr in self.how.columns for name in expr.columns()))
        as_they_are = {
            name for name, expr in self.how.columns if isinstance(expr, Column) and expr.name == name
        }
        schema = pa.schema([pa.field(name, type_) for name, type_ in self.how.types(up.schema)])
        return {OUT: keep_key(up, set(up.key) - as_they_are, schema), **self.errors_port(up)}


def named_columns(columns: NamedColumns) -> list[tuple[str, object]]:
    """Return columns given by name, or as pairs, as pairs."""
    if isinstance(columns, Mapping):
        return list(columns.items())
    if isinstance(columns, Expr | str) or callable(columns):
        raise FunctionError(
            f"{columns!s:.80} makes a column, and nothing says its name"
            if isinstance(columns, Expr)
            else f"{columns!r:.80} is not a mapping from names to expressions",
            hint='name the columns: {"total": col("a") * 2}; for a function use map',
        )
    return list(columns)
