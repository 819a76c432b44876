"""Calls of users' functions on rows and on windows: lift, combine and lower of a fold, and apply.

Every stage works on its own copies of callable objects. What a function gives is checked against its schema
and brought to plain values (`expr/values.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.caller import find_definition, name_of
from penstock.errors import FunctionError, RowFailure, describe_cause
from penstock.expr.python.row_check import compile_row_check, has_exact_check
from penstock.expr.types import from_python, to_plain
from penstock.operators.aggregates import Fold
from penstock.operators.function import RowFunction, own_copy
from penstock.operators.row import Row, plain_row
from penstock.operators.stream import Stream
from penstock.operators.windows import WindowContext, takes_window
from penstock.stages.rows.batch import rows_to_columns

PlainRow = Mapping[str, object]

SKIPPED = object()
"""The part of a row that a fold leaves out."""


def plain_rows_of(rows: pa.RecordBatch) -> list[dict[str, object]]:
    """A batch, row by row, as plain values."""
    columns = [to_plain(column) for column in rows.columns]
    names = rows.schema.names
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


class WindowFunctionFailure(Exception):
    """A function failed on the part of one window, by its place in the call."""

    def __init__(self, place: int, function: Callable[..., Any], cause: Exception) -> None:
        super().__init__(describe_cause(cause))
        self.place, self._function, self._cause = place, function, cause

    def error(self, place: str) -> FunctionError:
        """The error, once the window is known."""
        return window_function_error(
            name_of(self._function), find_definition(self._function), self._cause, place
        )


class FoldCaller:
    """A fold in Python: parts of rows, and parts into one result."""

    def __init__(self, fold: Fold, up: Stream) -> None:
        self._fold, self._schema, self._type = fold, up.schema, fold.type(up)
        self._lift, self._combine = own_copy(fold.lift), own_copy(fold.combine)
        self._lower = None if fold.lower is None else own_copy(fold.lower)

    def lift(self, values: PlainRow) -> object:
        """The part of one row; it may raise anything."""
        if any(values[name] is None for name in self._fold.columns or ()):
            return SKIPPED
        return self._fold.check_partial(self._lift(Row(values, self._schema)))

    def result(self, parts: Iterable[object], place: Callable[[], str]) -> object:
        """The plain result of a window's parts, in order; `place` names the window if a function fails."""
        function: Callable[..., Any] = self._combine
        try:
            whole = copy.deepcopy(self._fold.zero)
            for part in parts:
                if part is not SKIPPED:
                    whole = self._fold.check_partial(self._combine(whole, copy.deepcopy(part)))
            function = self._lower or self._combine
            return self.lowered(whole)
        except Exception as cause:
            raise window_function_error(
                name_of(function), find_definition(function), cause, place()
            ) from cause

    def lowered(self, whole: object) -> object:
        """The plain result of a window's part; it may raise anything."""
        return from_python(whole if self._lower is None else self._lower(whole), self._type)


class ApplyCaller:
    """The user's function of a window's rows: it gives one row, an iterable of rows, or None for no row."""

    def __init__(self, function: RowFunction, up: Stream) -> None:
        assert function.schema is not None, "the plan refuses apply without a schema"
        self._function, self.schema, self._up = function, function.schema, up.schema
        self._call = own_copy(function.call)
        self._asks = takes_window(function.call)

    def rows(
        self, members: list[dict[str, object]], window: WindowContext, place: Callable[[], str]
    ) -> list[PlainRow]:
        """The plain rows that it gives for a window."""
        rows = [Row(values, self._up) for values in members]
        try:
            given = self._call(rows, window) if self._asks else self._call(rows)
            return self._checked(given)
        except Exception as cause:
            raise window_function_error(self._function.name, self._function.where, cause, place()) from cause

    def _checked(self, given: Any) -> list[PlainRow]:
        if given is None:
            return []
        if (
            isinstance(given, Row | Mapping)
            or hasattr(given, "_asdict")
            or hasattr(given, "__dataclass_fields__")
        ):
            return [plain_row(given, self.schema)]
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise RowFailure(f"gave {type(given).__name__} {given!r:.80}, not an iterable of rows")
        return [plain_row(each, self.schema) for each in given]


def window_function_error(name: str, where: Any, cause: Exception, place: str) -> FunctionError:
    """The error of a function that failed on a window, which `place` names."""
    return FunctionError(f"function {name} failed on {place}", where=where, detail=describe_cause(cause))


# Rows of one schema on their way into and out of a user's function, quickly.
#
# The answers are those of `operators/row.py`, whose `plain_row` looks at whatever is not plainly of its type:
# here is only left out what need not be asked again for every row.

new_object = object.__new__


class RowType(NamedTuple):
    """Rows of one schema, as users see them: `row = new(kind)`, then `put(row, values)` with a dict."""

    kind: type[Row]
    put: Callable[[Row, PlainRow], None]

    def row(self, values: PlainRow) -> Row:
        """A row of these values."""
        row: Row = new_object(self.kind)
        self.put(row, values)
        return row


def row_type(schema: pa.Schema) -> RowType:
    """Rows of a schema: columns whose values users see as they are stored are found at once.

    The values become the row's own attributes, so that reading one is no call. Not so where a column has the
    name of something that a row has itself.
    """
    plain = frozenset(field.name for field in schema if has_exact_check(field.type))
    look_up = Row.__getitem__

    def item(row: Row, name: str) -> object:
        return row._values[name] if name in plain else look_up(row, name)

    space: dict[str, object] = {"_schema": schema, "__getitem__": item}
    if any(hasattr(Row, name) for name in schema.names):
        return RowType(type("Row", (Row,), {"__slots__": (), **space}), vars(Row)["_values"].__set__)
    space |= {name: _converted_column(name) for name in schema.names if name not in plain}
    kind = type("Row", (Row,), {"_values": property(vars), **space})
    return RowType(kind, vars(kind)["__dict__"].__set__)


def row_factory(schema: pa.Schema) -> Callable[[PlainRow], Row]:
    """What makes rows of a schema."""
    return row_type(schema).row


def _converted_column(name: str) -> property:
    """A column that is not stored as users see it."""
    return property(lambda row: row[name])


def compile_map_step(
    call: Callable[[Row], object], kind: RowType, shape: RowValidator
) -> Callable[[PlainRow], PlainRow]:
    """A function of rows as one of plain values, with as few calls in it as can be."""
    space = {"call": call, "new": new_object, "kind": kind.kind, "put": kind.put}
    return compile_row_check(
        shape.schema, shape.of_any, "user_row = new(kind); put(user_row, row); row = call(user_row)", space
    )


class RowValidator:
    """What a function of rows gives: plain rows of one schema, and batches of them.

    plain  what a function gave, as plain values; RowFailure when it does not fit
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._names = frozenset(schema.names)
        self._whole: dict[type, bool] = {}  # dataclasses: whether they have these fields and no others
        self._of_dict = compile_row_check(schema, lambda given: plain_row(given, schema))
        self.plain: Callable[[object], PlainRow] = compile_row_check(schema, self.of_any)

    def columns(self, rows: Sequence[PlainRow]) -> pa.RecordBatch:
        """Rows of plain values as a batch."""
        return rows_to_columns(rows, self.schema)

    def of_any(self, given: object) -> PlainRow:
        """The same, after a glance that was not enough."""
        if self._is_whole(type(given)):
            found: PlainRow = self._of_dict({name: getattr(given, name) for name in self.schema.names})
            return found
        return plain_row(given, self.schema)

    def _is_whole(self, given: type) -> bool:
        if given not in self._whole:
            named = frozenset(field.name for field in fields(given)) if is_dataclass(given) else None
            self._whole[given] = named == self._names
        return self._whole[given]


def is_exact_type(type_: pa.DataType) -> bool:
    """Whether values that are equal always look the same: not so with zeros, NaN and decimals."""
    return has_exact_check(type_) and not pa.types.is_floating(type_)
