"""Calls of users' functions of rows, of batches and of windows, and what they may return.

Every stage works on its own copies of callable objects. Rows go in and come out quickly: the answers are
those of `operators/function.py`, whose `plain_row` checks whatever is not plainly of its type, and only that
is left out which need not be asked again for every row.

A function of one row is called once per row, by a loop of its step (`loops.py`): a row on which it fails is
remembered with its reason, because a second call might not fail again. What it returns is checked against its
schema at once, because it may hand out one object again and again.

A function of a batch that raises stops the run or, if the step lets errors pass, is called again row by row,
so that only the rows that fail by themselves are lost. It must return the declared columns and, where the
operator says so, as many rows as it got; anything else stops the run, because no single row is at fault.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.caller import find_definition, name_of
from penstock.errors import FunctionError, RowFailure, describe_cause
from penstock.expr.python.lower import compile_row_check, has_exact_check
from penstock.expr.values import from_python, to_plain
from penstock.operators.aggregates import Fold
from penstock.operators.function import BatchFunction, Row, RowFunction, own_copy, plain_row
from penstock.operators.op import ERRORS, Op, Stream
from penstock.operators.windows import WindowContext, takes_window
from penstock.stages import policy, stage
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import Outputs, PlainRow, StageContext

new_object = object.__new__


def plain_rows_of(rows: pa.RecordBatch) -> list[dict[str, object]]:
    """Return a batch, row by row, as plain values."""
    columns = [to_plain(column) for column in rows.columns]
    names = rows.schema.names
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


class RowType(NamedTuple):
    """Rows of one schema, as users see them: `row = new_object(type)`, then `fill(row, values)`."""

    type: type[Row]
    fill: Callable[[Row, PlainRow], None]

    def constructor(self) -> Callable[[PlainRow], Row]:
        """Return a function that returns a row of values, which must be in a dict."""
        row_class, fill = self

        def new_row(values: PlainRow) -> Row:
            row: Row = new_object(row_class)
            fill(row, values)
            return row

        return new_row


def row_type(schema: pa.Schema) -> RowType:
    """Return the rows of a schema: columns whose values users see as they are stored are found at once.

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
    # A column that is not stored as users see it is converted by `__getitem__`.
    space |= {name: property(itemgetter(name)) for name in schema.names if name not in plain}
    # Why no weak references: one would not keep a row from being filled anew (`loops.py`).
    row_class = type("Row", (Row,), {"__slots__": ("__dict__",), "_values": property(vars), **space})
    return RowType(row_class, vars(row_class)["__dict__"].__set__)


def compile_map_step(
    call: Callable[[Row], object], rows: RowType, validator: RowValidator
) -> Callable[[PlainRow], PlainRow]:
    """Return a function of rows as one of plain values, with as few calls in it as possible."""
    space = {"call": call, "new": new_object, "kind": rows.type, "put": rows.fill}
    body = "user_row = new(kind); put(user_row, row); row = call(user_row)"
    return compile_row_check(validator.schema, validator.check_any, body, space)


class RowValidator:
    """Checks what a function of rows returns: plain rows of one schema.

    plain  returns what a function returned as plain values; raises RowFailure when it does not fit
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._names = frozenset(schema.names)
        self._has_all_fields: dict[type, bool] = {}  # dataclasses: whether they have just these fields
        self._check_dict = compile_row_check(schema, lambda returned: plain_row(returned, schema))
        self.plain: Callable[[object], PlainRow] = compile_row_check(schema, self.check_any)

    def check_any(self, returned: object) -> PlainRow:
        """Do what `plain` does, for what is not plainly a dict of the right types."""
        kind = type(returned)
        if kind not in self._has_all_fields:
            names = frozenset(field.name for field in fields(kind)) if is_dataclass(kind) else None
            self._has_all_fields[kind] = names == self._names
        if self._has_all_fields[kind]:
            row: PlainRow = self._check_dict({name: getattr(returned, name) for name in self.schema.names})
            return row
        return plain_row(returned, self.schema)


ONE = np.ones(1, np.bool_)


class RowLoop(NamedTuple):
    """A loop that calls a function with every row.

    run      takes the values of rows, the states by slot if there are any, and the lists to append to
    n_lists  how many lists these are: one per column, or one alone
    columns  the columns whose values it takes
    """

    run: Callable[..., None]
    n_lists: int
    columns: tuple[str, ...]


class RowResults(NamedTuple):
    """What a function returned for the rows on which it did not fail.

    rows          those rows
    lists         what the loop appended: one element of each list for each of them
    dead_letters  the failed rows as they go to `.errors`; None if there are none, or if they do not go there
    """

    rows: Batch
    lists: list[list[Any]]
    dead_letters: Batch | None = None


def call_rows(
    batch: Batch,
    loop: RowLoop,
    function: RowFunction,
    errors: stage.RowErrors,
    *,
    states: Mapping[int, Any] | None = None,
    slots: Iterable[int] | None = None,
) -> RowResults:
    """Call a function with every row in order; with on_error="fail" the first failure ends it.

    states, slots  for a function that keeps state: the states, and which of them is that of each row
    """
    lists: list[list[Any]] = [[] for _ in range(loop.n_lists)]
    columns: list[Iterable[Any]] = [batch.values(name) for name in loop.columns]
    columns = columns if slots is None else [slots, *columns]
    rest = zip(*columns, strict=True) if columns else repeat((), batch.num_rows)
    results, contexts, failed_at = lists[0], list[stage.ErrorContext](), list[int]()
    while len(results) + len(failed_at) < batch.num_rows:
        try:
            loop.run(rest, states, *lists)
        except Exception as cause:
            failed_at.append(len(results) + len(failed_at))
            contexts.append(function_error(function, cause))
            if errors.stops:
                break
    if not contexts:
        return RowResults(batch, lists)
    failed = np.zeros(batch.num_rows, np.bool_)
    failed[failed_at] = True
    dead_letters = errors.handle(batch, failed, contexts)
    return RowResults(batch.where(~failed), lists, dead_letters)


def keeps_plain_rows(batch: Batch) -> bool:
    """Return whether rows are plain and so few that Python is done before columns could be made."""
    return batch.plain is not None and batch.num_rows <= policy.SIZES.compiled_calls


def function_error(function: RowFunction | BatchFunction, cause: Exception) -> stage.ErrorContext:
    """Return the context of a user's function that raised."""
    return stage.ErrorContext(f"function {function.name}", function.where, cause, describe_cause(cause))


def function_step(
    process: Callable[[PlainRow], PlainRow | None], function: RowFunction, errors: stage.RowErrors
) -> stage.RowStep:
    """Return the row step of a stage that calls a user's function."""
    return stage.RowStep(
        process, lambda row, cause: errors.handle(row, ONE, [function_error(function, cause)])
    )


class RowFunctionStage(stage.StatelessStage):
    """A step that calls a function with every row; `on_error` decides about the rows on which it fails."""

    def __init__(self, op: Op, up: Stream, site: StageContext, function: RowFunction) -> None:
        super().__init__(up, site)
        self._function, self._errors = function, stage.RowErrors(site, op.on_error, up.schema)
        self._loop: RowLoop

    def process(self, batch: Batch) -> Outputs:
        """Call the function; emits what it makes of the rows, and the failed rows."""
        results = call_rows(batch, self._loop, self._function, self._errors)
        yield from self.emit(results.rows, results.lists)
        if results.dead_letters is not None:
            yield ERRORS, results.dead_letters

    @abstractmethod
    def emit(self, batch: Batch, results: list[list[Any]]) -> Outputs:
        """Emit what rows become, from the lists that the loop made of them; counts them."""

    def explain(self) -> list[str]:
        """Implement `StatelessStage.explain`."""
        return [f"{self._function} runs in Python, row by row"]


def check_truth(returned: object) -> bool:
    """Return a predicate's answer as a bool; None is not true, and anything else fails the row."""
    if returned is True or returned is False:
        return returned
    try:
        return from_python(returned, pa.bool_()) is True
    except RowFailure:
        raise RowFailure(f"gave {returned!r:.80}, not True or False") from None


def check_rows(returned: object, validator: RowValidator) -> list[PlainRow]:
    """Return an iterable of rows as plain values; raise RowFailure where it is none, or a row is wrong."""
    if is_one_row(returned) or isinstance(returned, str | bytes) or not isinstance(returned, Iterable):
        raise RowFailure(f"gave {type(returned).__name__} {returned!r:.80}, not an iterable of rows")
    return [validator.plain(row) for row in returned]


def is_one_row(returned: object) -> bool:
    """Return whether a function returned one row rather than an iterable of rows."""
    return (
        isinstance(returned, Row | Mapping)
        or hasattr(returned, "_asdict")
        or hasattr(returned, "__dataclass_fields__")
    )


SKIPPED = object()
"""Stands for the lifted value of a row that a fold leaves out."""


class WindowFunctionFailure(Exception):
    """A function failed on one of several windows, by the window's place in the call."""

    def __init__(self, place: int, function: Callable[..., Any], cause: Exception) -> None:
        super().__init__(describe_cause(cause))
        self.place, self._function, self._cause = place, function, cause

    def error(self, window: str) -> FunctionError:
        """Return the user's error, once the window is known."""
        return window_function_error(
            name_of(self._function), find_definition(self._function), self._cause, window
        )


class FoldCaller:
    """A fold in plain Python: rows to lifted values, and these to one result."""

    def __init__(self, fold: Fold, up: Stream) -> None:
        self._fold, self._schema, self._type = fold, up.schema, fold.type(up)
        self._lift, self._combine = own_copy(fold.lift), own_copy(fold.combine)
        self._lower = None if fold.lower is None else own_copy(fold.lower)

    def lift(self, values: PlainRow) -> object:
        """Return the lifted value of one row; may raise anything."""
        if any(values[name] is None for name in self._fold.columns or ()):
            return SKIPPED
        return self._fold.check_partial(self._lift(Row(values, self._schema)))

    def result(self, lifted: Iterable[object], window: Callable[[], str]) -> object:
        """Return the plain result of a window's lifted values, in order.

        window  names the window if a function fails
        """
        function: Callable[..., Any] = self._combine
        try:
            whole = copy.deepcopy(self._fold.zero)
            for value in lifted:
                if value is not SKIPPED:
                    whole = self._fold.check_partial(self._combine(whole, copy.deepcopy(value)))
            function = self._lower or self._combine
            return self.lower(whole)
        except Exception as cause:
            raise window_function_error(
                name_of(function), find_definition(function), cause, window()
            ) from cause

    def lower(self, whole: object) -> object:
        """Return the plain result of a window's combined value; may raise anything."""
        return from_python(whole if self._lower is None else self._lower(whole), self._type)


class ApplyCaller:
    """The user's function of a window's rows: it returns one row, an iterable of rows, or None for no row."""

    def __init__(self, function: RowFunction, up: Stream) -> None:
        assert function.schema is not None, "the plan refuses apply without a schema"
        self._function, self.schema, self._up = function, function.schema, up.schema
        self._validator = RowValidator(function.schema)
        self._call = own_copy(function.call)
        self._takes_window = takes_window(function.call)

    def rows(
        self, members: list[dict[str, object]], this_window: WindowContext, window: Callable[[], str]
    ) -> list[PlainRow]:
        """Return the plain rows that the function returns for a window."""
        rows = [Row(values, self._up) for values in members]
        try:
            returned = self._call(rows, this_window) if self._takes_window else self._call(rows)
            if returned is None:
                return []
            return check_rows([returned] if is_one_row(returned) else returned, self._validator)
        except Exception as cause:
            raise window_function_error(self._function.name, self._function.where, cause, window()) from cause


def window_function_error(name: str, where: Any, cause: Exception, window: str) -> FunctionError:
    """Return the error of a function that failed on a window, which `window` names."""
    return FunctionError(f"function {name} failed on {window}", where=where, detail=describe_cause(cause))
