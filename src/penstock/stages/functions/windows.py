"""Calls of users' functions on windows: lift, combine and lower of a fold, and apply.

Every stage works on its own copies of callable objects. What a function returns is checked against its schema
and converted to plain values (`expr/values.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from penstock.caller import find_definition, name_of
from penstock.errors import FunctionError, RowFailure, describe_cause
from penstock.expr.values import from_python
from penstock.operators.aggregates import Fold
from penstock.operators.function import RowFunction, own_copy
from penstock.operators.row import Row, plain_row
from penstock.operators.stream import Stream
from penstock.operators.windows import WindowContext, takes_window
from penstock.stages.functions.calls import is_one_row
from penstock.stages.stage import PlainRow

SKIPPED = object()
"""Stands for the lifted value of a row that a fold leaves out."""


class WindowFunctionFailure(Exception):
    """A function failed on one of several windows, by the window's place in the call."""

    def __init__(self, place: int, function: Callable[..., Any], cause: Exception) -> None:
        super().__init__(describe_cause(cause))
        self.place, self._function, self._cause = place, function, cause

    def error(self, window: str) -> FunctionError:
        """Returns the user's error, once the window is known."""
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
        """Returns the lifted value of one row; may raise anything."""
        if any(values[name] is None for name in self._fold.columns or ()):
            return SKIPPED
        return self._fold.check_partial(self._lift(Row(values, self._schema)))

    def result(self, lifted: Iterable[object], window: Callable[[], str]) -> object:
        """Returns the plain result of a window's lifted values, in order.

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
        """Returns the plain result of a window's combined value; may raise anything."""
        return from_python(whole if self._lower is None else self._lower(whole), self._type)


class ApplyCaller:
    """The user's function of a window's rows: it returns one row, an iterable of rows, or None for no row."""

    def __init__(self, function: RowFunction, up: Stream) -> None:
        assert function.schema is not None, "the plan refuses apply without a schema"
        self._function, self.schema, self._up = function, function.schema, up.schema
        self._call = own_copy(function.call)
        self._takes_window = takes_window(function.call)

    def rows(
        self, members: list[dict[str, object]], this_window: WindowContext, window: Callable[[], str]
    ) -> list[PlainRow]:
        """Returns the plain rows that the function returns for a window."""
        rows = [Row(values, self._up) for values in members]
        try:
            returned = self._call(rows, this_window) if self._takes_window else self._call(rows)
            return self._check(returned)
        except Exception as cause:
            raise window_function_error(self._function.name, self._function.where, cause, window()) from cause

    def _check(self, returned: Any) -> list[PlainRow]:
        if returned is None:
            return []
        if is_one_row(returned):
            return [plain_row(returned, self.schema)]
        if isinstance(returned, str | bytes) or not isinstance(returned, Iterable):
            raise RowFailure(f"gave {type(returned).__name__} {returned!r:.80}, not an iterable of rows")
        return [plain_row(row, self.schema) for row in returned]


def window_function_error(name: str, where: Any, cause: Exception, window: str) -> FunctionError:
    """Returns the error of a function that failed on a window, which `window` names."""
    return FunctionError(f"function {name} failed on {window}", where=where, detail=describe_cause(cause))
