"""What the rows of a window become: aggregates, folds, or the result of the user's function.

`lift` takes from each row, as it comes in, what the aggregates need; a row for which that fails is a row
error and is in no window. Failures after that cannot be charged to a row, so they stop the run. An aggregate
is computed from the list of its values in order, with nulls left out, and is exact where numbers allow: sums,
means and variances are computed with fractions and rounded once. The sketches of other engines
(`approx_distinct`, `quantile`) are exact here. Imports no stage and no kernel.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.caller import find_definition, name_of
from penstock.engines.reference.node import ErrorContext, Values
from penstock.engines.reference.steps import is_one_row, plain_rows
from penstock.engines.rows import canonical_value, equality_key, sort_key
from penstock.errors import EngineError, FunctionError, RowFailure, describe_cause
from penstock.expr import lower_python
from penstock.expr.values import from_python
from penstock.operators import aggregates as spec
from penstock.operators.aggregates import Aggregate, EventTimeMax, Fold
from penstock.operators.function import Row, RowFunction, own_copy, plain_row
from penstock.operators.op import Stream
from penstock.operators.windows import WindowContext, takes_window

if TYPE_CHECKING:
    from penstock.engines.reference.windows import Member, WindowRows

Column = Sequence[Any]
Rule = Callable[[spec.Aggregate, Column], object]
_WIDE = Context(prec=200)  # exact for any number of rows that fits in memory
_DIGITS = 38


class OutOfRange(Exception):
    """A window's exact sum does not fit the type of the result."""


def _sum(_: spec.Aggregate, values: Column) -> object:
    """Return the sum, null for no values; integers and decimals exactly or not at all."""
    if not values:
        return None
    if isinstance(values[0], float):
        return special if (special := _not_finite(values)) is not None else _round_to_float(_total(values))
    if isinstance(values[0], Decimal):
        exact = Decimal(0)
        for value in values:
            exact = _WIDE.add(exact, value)
        if len(exact.as_tuple().digits) > _DIGITS:
            raise OutOfRange(f"the exact sum is {exact}, which has more than {_DIGITS} digits")
        return exact
    total = sum(values)
    if not -(2**63) <= total < 2**63:
        raise OutOfRange(f"the exact sum is {total}, outside int64")
    return total


def _not_finite(values: Column) -> float | None:
    """Return what NaN and infinities make of a sum: NaN spreads, infinities of both signs cancel to NaN."""
    infinities = {value for value in values if isinstance(value, float) and math.isinf(value)}
    if len(infinities) == 2 or any(isinstance(value, float) and math.isnan(value) for value in values):
        return math.nan
    return infinities.pop() if infinities else None


def _total(values: Column) -> Fraction:
    """Return the exact sum of finite values."""
    return sum((Fraction(value) for value in values), Fraction(0))


def _round_to_float(exact: Fraction) -> float:
    """Return the nearest float; beyond the range, infinity."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _mean(_: spec.Aggregate, values: Column) -> object:
    """Return the exact sum divided by the count, rounded once; null for no values."""
    if not values:
        return None
    if (special := _not_finite(values)) is not None:
        return special
    return _round_to_float(_total(values) / len(values))


def _variance(aggregate: spec.Aggregate, values: Column) -> float | None:
    """Return the mean square distance from the mean; NaN as soon as one value is not finite."""
    assert isinstance(aggregate, spec.Var | spec.Std), "only these two are of distances"
    n = len(values) if aggregate.population else len(values) - 1
    if n < 1:
        return None
    if _not_finite(values) is not None:
        return math.nan
    exact = [Fraction(value) for value in values]
    mean = _total(exact) / len(exact)
    return _round_to_float(_total([(value - mean) ** 2 for value in exact]) / n)


def _deviation(aggregate: spec.Aggregate, values: Column) -> float | None:
    """Return the root of the variance."""
    variance = _variance(aggregate, values)
    return None if variance is None else math.sqrt(variance)


def _extreme(pick: Callable[..., object]) -> Rule:
    """Return the rule of the least or greatest value; NaN is greatest, and -0.0 is returned as 0.0."""
    return lambda _, values: canonical_value(pick(values, key=sort_key)) if values else None


def _with_count(extreme: Rule) -> Rule:
    """Return an extreme and how many values equal it, as a struct; null of nothing."""

    def rule(aggregate: spec.Aggregate, values: Column) -> object:
        value = extreme(aggregate, values)
        n_equal = sum(equality_key(canonical_value(other)) == equality_key(value) for other in values)
        return {"value": value, "count": n_equal} if values else None

    return rule


def _quantile(aggregate: spec.Aggregate, values: Column) -> object:
    """Return the nearest rank: the least value that at least the share q of the values do not exceed."""
    assert isinstance(aggregate, spec.Quantile), "asked for quantiles only"
    if not values:
        return None
    # Why the text of q: Fraction(0.1) itself is a little more than a tenth.
    rank = max(1, math.ceil(Fraction(repr(float(aggregate.q))) * len(values)))
    return float(sorted(values, key=sort_key)[rank - 1])


_RULES: dict[type[spec.Aggregate], Rule] = {
    spec.Count: lambda _, values: len(values),
    spec.Sum: _sum,
    spec.Mean: _mean,
    spec.Var: _variance,
    spec.Std: _deviation,
    spec.Min: _extreme(min),
    spec.Max: _extreme(max),
    spec.MinCount: _with_count(_extreme(min)),
    spec.MaxCount: _with_count(_extreme(max)),
    spec.First: lambda _, values: values[0] if values else None,
    spec.Last: lambda _, values: values[-1] if values else None,
    spec.Collect: lambda _, values: list(values),
    spec.ApproxDistinct: lambda _, values: len({equality_key(canonical_value(value)) for value in values}),
    spec.Quantile: _quantile,
}

Lift = Callable[[Values], object]
Results = list[Mapping[str, object]]


class Aggregates:
    """Several aggregates side by side: one row per window."""

    def __init__(self, aggregates: Mapping[str, Aggregate], up: Stream) -> None:
        self._up = up
        self._lifts = {name: _compile_lift(aggregate, up.schema) for name, aggregate in aggregates.items()}
        self._rules = {name: _result_rule(aggregate, up) for name, aggregate in aggregates.items()}

    def lift(self, values: Values) -> tuple[dict[str, object], tuple[ErrorContext, Exception] | None]:
        """Return what each aggregate takes from a row, or what failed and why."""
        parts = {}
        for name, (lift, error_context) in self._lifts.items():
            try:
                parts[name] = lift(values)
            except error_context.catches as cause:
                return {}, (error_context, cause)
        return parts, None

    def results(self, content: WindowRows, window: WindowContext, place: str) -> Results:
        """Return the results of a window; `place` names it in errors."""
        return [{name: rule(name, content.members, place) for name, rule in self._rules.items()}]


class WindowFunction:
    """The user's function of a window's rows: it gives one row, an iterable of rows, or None for no row."""

    def __init__(self, function: RowFunction, up: Stream) -> None:
        assert function.schema is not None, "the plan refuses apply without a schema"
        self._function, self._schema, self._up = function, function.schema, up.schema
        self._call = own_copy(function.call)
        self._takes_window = takes_window(function.call)

    def lift(self, values: Values) -> tuple[dict[str, object], None]:
        """Return nothing: the function sees whole rows."""
        return {}, None

    def results(self, content: WindowRows, window: WindowContext, place: str) -> Results:
        """Return the rows it gives for a window."""
        rows = [Row(member.row.values, self._up) for member in content.members]
        try:
            result = self._call(rows, window) if self._takes_window else self._call(rows)
            if result is None:
                return []
            if is_one_row(result):
                return [plain_row(result, self._schema)]
            return list(plain_rows(result, self._schema))
        except Exception as cause:
            raise _function_error(self._function.name, self._function.where, cause, place) from cause


ResultsRule = Callable[[str, "list[Member]", str], object]


def _compile_lift(aggregate: Aggregate, schema: pa.Schema) -> tuple[Lift, ErrorContext]:
    """Return what takes a part from a row, and whom to name when that fails.

    A row with a null in a column that a fold reads is skipped, as null is.
    """
    if not isinstance(aggregate, Fold):
        context = ErrorContext(f"expression {aggregate.value}", catches=RowFailure)
        if aggregate.value is None:
            return (lambda values: True), context  # counts and times are of rows: no value can be null
        return lower_python(aggregate.value, schema), context
    fold, call = aggregate, own_copy(aggregate.lift)

    def lift(values: Values) -> object:
        if any(values[name] is None for name in fold.columns or ()):
            return _SKIPPED
        return fold.check_partial(call(Row(values, schema)))

    return lift, ErrorContext(f"function {name_of(fold.lift)}", find_definition(fold.lift))


def _result_rule(aggregate: Aggregate, up: Stream) -> ResultsRule:
    if isinstance(aggregate, Fold):
        return _compile_fold(aggregate, up)
    if isinstance(aggregate, EventTimeMax):
        time = up.require_time("event_time_max")
        return lambda name, members, place: time.value(max(member.row.at() for member in members))

    def rule(name: str, members: list[Member], place: str) -> object:
        values = [member.parts[name] for member in members if member.parts[name] is not None]
        try:
            return _RULES[type(aggregate)](aggregate, values)
        except OutOfRange as cause:
            raise EngineError(
                f"{aggregate} of {place} does not fit its type",
                detail=str(cause),
                hint='cast the value first, e.g. .cast("float64"), or use a shorter window',
            ) from cause

    return rule


def _compile_fold(fold: Fold, up: Stream) -> ResultsRule:
    combine = own_copy(fold.combine)
    lower = None if fold.lower is None else own_copy(fold.lower)
    result_type = fold.type(up)

    def rule(name: str, members: list[Member], place: str) -> object:
        function: Callable[..., Any] = combine
        try:
            part = copy.deepcopy(fold.zero)
            for member in members:
                if member.parts[name] is not _SKIPPED:
                    part = fold.check_partial(combine(part, copy.deepcopy(member.parts[name])))
            function = lower or combine
            return from_python(part if lower is None else lower(part), result_type)
        except Exception as cause:
            raise _function_error(name_of(function), find_definition(function), cause, place) from cause

    return rule


def _function_error(name: str, where: Any, cause: Exception, place: str) -> FunctionError:
    return FunctionError(f"function {name} failed on {place}", where=where, detail=describe_cause(cause))


_SKIPPED = object()
"""The part of a row that a fold leaves out."""
