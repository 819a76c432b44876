"""What a window's rows become: aggregates, folds, or what the user's function makes of them.

`lift` takes from each row, as it comes in, what the aggregates need; a row for which that fails is a row
error and is in no window. Failures after that cannot be charged to a row, so they stop the run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from penstock.caller import defined_at, name_of
from penstock.engines.reference.aggregates import OutOfRange, aggregated
from penstock.engines.reference.faults import Blame
from penstock.engines.reference.functions import Values, is_one_row, plain_rows
from penstock.engines.reference.members import Member, WindowRows
from penstock.errors import EngineError, FunctionError
from penstock.expr import lower_python
from penstock.expr.failure import RowFailure, reason_of
from penstock.expr.types import from_python
from penstock.operators.aggregates import Aggregate, EventTimeMax, Fold
from penstock.operators.calling import own_copy
from penstock.operators.function import RowFunction
from penstock.operators.row import Row, plain_row
from penstock.operators.stream import Stream
from penstock.operators.this_window import ThisWindow, asks_for_window

Lift = Callable[[Values], object]
Results = list[Mapping[str, object]]


class Aggregates:
    """Several aggregates side by side: one row per window."""

    def __init__(self, aggregates: Mapping[str, Aggregate], up: Stream) -> None:
        self._up = up
        self._lifts = {name: (_lift(each, up.schema), _blame(each)) for name, each in aggregates.items()}
        self._rules = {name: _rule(each, up) for name, each in aggregates.items()}

    def lift(self, values: Values) -> tuple[dict[str, object], tuple[Blame, Exception] | None]:
        """What each aggregate takes from a row, or whom to blame and why."""
        parts = {}
        for name, (lift, blame) in self._lifts.items():
            try:
                parts[name] = lift(values)
            except blame.catches as cause:
                return {}, (blame, cause)
        return parts, None

    def results(self, content: WindowRows, window: ThisWindow, place: str) -> Results:
        """The results of a window; `place` names it in errors."""
        return [{name: rule(name, content.members, place) for name, rule in self._rules.items()}]


class Applied:
    """The user's function of a window's rows: it gives one row, an iterable of rows, or None for no row."""

    def __init__(self, function: RowFunction, up: Stream) -> None:
        assert function.schema is not None, "the plan refuses apply without a schema"
        self._function, self._schema, self._up = function, function.schema, up.schema
        self._call = own_copy(function.call)
        self._asks = asks_for_window(function.call)

    def lift(self, values: Values) -> tuple[dict[str, object], None]:
        """Nothing: the function sees whole rows."""
        return {}, None

    def results(self, content: WindowRows, window: ThisWindow, place: str) -> Results:
        """The rows it gives for a window."""
        rows = [Row(member.row.values, self._up) for member in content.members]
        try:
            given = self._call(rows, window) if self._asks else self._call(rows)
            if given is None:
                return []
            if is_one_row(given):
                return [plain_row(given, self._schema)]
            return list(plain_rows(given, self._schema))
        except Exception as cause:
            raise _failed(self._function.name, self._function.where, cause, place) from cause


Rule = Callable[[str, tuple[Member, ...], str], object]


def _lift(aggregate: Aggregate, schema: pa.Schema) -> Lift:
    if isinstance(aggregate, Fold):
        return _fold_lift(aggregate, schema)
    if aggregate.value is None:
        return lambda values: True  # counts and times are of rows: there is no value to be null
    return lower_python(aggregate.value, schema)


def _fold_lift(fold: Fold, schema: pa.Schema) -> Lift:
    """A row as a part; a row with a null in a column that the fold reads is skipped, as null is."""
    call = own_copy(fold.lift)

    def lift(values: Values) -> object:
        if any(values[name] is None for name in fold.columns or ()):
            return _SKIPPED
        return fold.part(call(Row(values, schema)))

    return lift


def _rule(aggregate: Aggregate, up: Stream) -> Rule:
    if isinstance(aggregate, Fold):
        return _fold_rule(aggregate, up)
    if isinstance(aggregate, EventTimeMax):
        time = up.require_time("event_time_max")
        return lambda name, members, place: time.value(max(member.row.at() for member in members))
    return lambda name, members, place: _value_rule(aggregate, name, members, place)


def _value_rule(aggregate: Aggregate, name: str, members: tuple[Member, ...], place: str) -> object:
    values = [member.parts[name] for member in members if member.parts[name] is not None]
    try:
        return aggregated(aggregate, values)
    except OutOfRange as cause:
        raise EngineError(
            f"{aggregate} of {place} does not fit its type",
            detail=str(cause),
            hint='cast the value first, e.g. .cast("float64"), or use a shorter window',
        ) from cause


def _fold_rule(fold: Fold, up: Stream) -> Rule:
    combine = own_copy(fold.combine)
    lower = None if fold.lower is None else own_copy(fold.lower)
    result_type = fold.type(up)

    def rule(name: str, members: tuple[Member, ...], place: str) -> object:
        function: Callable[..., Any] = combine
        try:
            part = copy.deepcopy(fold.zero)
            for member in members:
                if member.parts[name] is not _SKIPPED:
                    part = fold.part(combine(part, copy.deepcopy(member.parts[name])))
            function = lower or combine
            return from_python(part if lower is None else lower(part), result_type)
        except Exception as cause:
            raise _failed(name_of(function), defined_at(function), cause, place) from cause

    return rule


def _blame(aggregate: Aggregate) -> Blame:
    if isinstance(aggregate, Fold):
        return Blame(f"function {name_of(aggregate.lift)}", defined_at(aggregate.lift))
    return Blame(f"expression {aggregate.value}", catches=RowFailure)


def _failed(name: str, where: Any, cause: Exception, place: str) -> FunctionError:
    return FunctionError(f"function {name} failed on {place}", where=where, detail=reason_of(cause))


_SKIPPED = object()
"""The part of a row that a fold leaves out."""
