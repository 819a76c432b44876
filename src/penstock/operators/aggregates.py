"""Aggregates: specifications that every engine computes to the same answer.

An aggregate says which values it takes, the type of its result, and whether row order matters. Most are
exact; two are estimates by mergeable sketches; a fold is any associative function of the user's own, in the
words of Tangwongsan et al. (lift, combine, lower), which FiBA and Scotty use too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar

import pyarrow as pa

from penstock.caller import find_call_site, find_definition, name_of
from penstock.errors import FunctionError, SchemaError
from penstock.expr import Expr, col, type_of
from penstock.expr.types import parse_type
from penstock.frozen import Frozen
from penstock.operators.function import require_call, return_annotation
from penstock.operators.op import Stream

types = pa.types


_IS_NUMBER = (types.is_integer, types.is_floating)
_HAS_ORDER = (types.is_boolean, types.is_string, types.is_binary, types.is_date, types.is_timestamp)
ANYTHING = "values of any type"
NUMBERS = "integers and floats"
NUMBERS_AND_DECIMALS = "integers, floats and decimals"
ORDERED = "numbers, booleans, strings, binaries, dates, timestamps and decimals"
_ACCEPTS = {
    NUMBERS: _IS_NUMBER,
    NUMBERS_AND_DECIMALS: (*_IS_NUMBER, types.is_decimal),
    ORDERED: (*_IS_NUMBER, types.is_decimal, *_HAS_ORDER),
}


class Aggregate(Frozen):
    """A function of the rows of a window that can be computed from partial results.

    `value` is the expression that is aggregated; rows where it is null are skipped. It is None where
    the aggregate is of rows and not of values (`count()`, a fold over rows).
    """

    value: Expr | None

    label: ClassVar[str] = "aggregate"
    accepts: ClassVar[str] = ANYTHING
    """The types of `value` that can be aggregated so."""
    gives: ClassVar[pa.DataType | None] = None
    """The type of every result; None where it depends on the type of `value`."""
    ordered: ClassVar[bool] = False
    """Whether the answer depends on the order of rows (then they are seen in order (time, seq))."""
    exact: ClassVar[bool] = True
    """Whether engines must agree to the last digit (sketches need not)."""

    def type(self, up: Stream) -> pa.DataType:
        """Return the type of the result; raise a SchemaError when the value's type is not accepted."""
        value_type = None if self.value is None else self.value_type(up)
        if self.accepts in _ACCEPTS and not any(accepts(value_type) for accepts in _ACCEPTS[self.accepts]):
            raise SchemaError(
                f"{self.label} cannot take {self.value} of type {value_type}",
                detail=f"{self.label} takes {self.accepts}",
                hint=f"give it something of such a type, or cast it: ({self.value}).cast(...)",
            )
        return self.result_type(value_type) if self.gives is None else self.gives

    def result_type(self, value_type: pa.DataType) -> pa.DataType:
        """Return the type of the result for values of an accepted type: theirs, unless overridden."""
        return value_type

    def value_type(self, up: Stream) -> pa.DataType:
        """Return the type of what is aggregated."""
        assert self.value is not None, "only row aggregates have no value, and they do not ask"
        return type_of(self.value, up.schema)

    def __str__(self) -> str:
        return f"{self.label}({self.value})" if self.value is not None else f"{self.label}()"


def as_value(value: str | Expr) -> Expr:
    """Return a column name or an expression as an expression."""
    return value if isinstance(value, Expr) else col(value)


class Count(Aggregate, label="count", gives=pa.int64()):
    """The number of rows, or of values that are not null."""


def count(value: str | Expr | None = None) -> Count:
    """Count rows; with a column, count its values that are not null."""
    return Count(None if value is None else as_value(value))


class Sum(Aggregate, label="sum", accepts=NUMBERS_AND_DECIMALS):
    """The sum of the values; null when there are none.

    An integer sum is exact: the run fails only if the window's own sum leaves int64, never because a
    partial sum did.
    """

    def result_type(self, value_type: pa.DataType) -> pa.DataType:
        """Return int64 for integers, float64 for floats, the widest decimal of the same scale."""
        if types.is_decimal(value_type):
            return pa.decimal128(38, value_type.scale)
        return pa.int64() if types.is_integer(value_type) else pa.float64()


def sum(value: str | Expr) -> Sum:
    """Add up a column or an expression."""
    return Sum(as_value(value))


class Min(Aggregate, label="min", accepts=ORDERED):
    """The least value; null when there are none. NaN is greater than every number."""


def min(value: str | Expr) -> Min:
    """Take the smallest value of a column or an expression."""
    return Min(as_value(value))


class Max(Aggregate, label="max", accepts=ORDERED):
    """The greatest value; null when there are none. NaN is greater than every number."""


def max(value: str | Expr) -> Max:
    """Take the largest value of a column or an expression."""
    return Max(as_value(value))


class CountOfExtreme(Aggregate, accepts=ORDERED):
    """The base of `MinCount` and `MaxCount`: struct<value, count>; null when there are no values."""

    def result_type(self, value_type: pa.DataType) -> pa.DataType:
        """Return struct<value, count>."""
        return pa.struct([pa.field("value", value_type), pa.field("count", pa.int64())])


class MinCount(CountOfExtreme, label="min_count"):
    """The least value and the number of rows that have it."""


def min_count(value: str | Expr) -> MinCount:
    """Take the smallest value of a column or an expression, and how many rows have it."""
    return MinCount(as_value(value))


class MaxCount(CountOfExtreme, label="max_count"):
    """The greatest value and the number of rows that have it."""


def max_count(value: str | Expr) -> MaxCount:
    """Take the largest value of a column or an expression, and how many rows have it."""
    return MaxCount(as_value(value))


class Mean(Aggregate, label="mean", accepts=NUMBERS_AND_DECIMALS, gives=pa.float64()):
    """The arithmetic mean of the values; null when there are none."""


def mean(value: str | Expr) -> Mean:
    """Take the mean of a column or an expression."""
    return Mean(as_value(value))


class Var(Aggregate, label="var", accepts=NUMBERS, gives=pa.float64()):
    """The variance, of a sample unless `population`; null with no values, and with one of a sample."""

    population: bool = False


def var(value: str | Expr, *, population: bool = False) -> Var:
    """Take the variance of a column or an expression, of a sample unless `population=True`."""
    return Var(as_value(value), population)


class Std(Var, label="std"):
    """The standard deviation, of a sample unless `population`; null where the variance is."""


def std(value: str | Expr, *, population: bool = False) -> Std:
    """Take the standard deviation of a column or an expression, of a sample unless `population=True`."""
    return Std(as_value(value), population)


class First(Aggregate, label="first", ordered=True):
    """The first value that is not null, in the order (time, seq)."""


def first(value: str | Expr) -> First:
    """Take the first value of a column or an expression, in order of time."""
    return First(as_value(value))


class Last(Aggregate, label="last", ordered=True):
    """The last value that is not null, in the order (time, seq)."""


def last(value: str | Expr) -> Last:
    """Take the last value of a column or an expression, in order of time."""
    return Last(as_value(value))


class Collect(Aggregate, label="collect", ordered=True):
    """All values that are not null, in the order (time, seq)."""

    def result_type(self, value_type: pa.DataType) -> pa.DataType:
        """Return a list of the value's type."""
        return pa.list_(value_type)


def collect(value: str | Expr) -> Collect:
    """List the values of a column or an expression, in order of time."""
    return Collect(as_value(value))


class EventTimeMax(Aggregate, label="event_time_max"):
    """The greatest event time that contributed, in the input's type and unit."""

    def type(self, up: Stream) -> pa.DataType:
        """Return the type of the time column."""
        return up.require_time("event_time_max").type


def event_time_max() -> EventTimeMax:
    """Take the greatest event time among the window's rows: what latency is measured from."""
    return EventTimeMax(None)


class ApproxDistinct(Aggregate, label="approx_distinct", accepts=ORDERED, exact=False, gives=pa.int64()):
    """An estimate of the number of different values, by a mergeable sketch (HLL, lg_k 12)."""


def approx_distinct(value: str | Expr) -> ApproxDistinct:
    """Estimate how many different values a column or an expression has."""
    return ApproxDistinct(as_value(value))


class Quantile(Aggregate, label="quantile", accepts=NUMBERS, exact=False, gives=pa.float64()):
    """An estimate of a quantile, by a mergeable sketch (KLL, k 200), judged by its rank error."""

    q: float = 0.5


def quantile(value: str | Expr, q: float) -> Quantile:
    """Estimate the value below which the share `q` of a column or an expression lies; 0.5 is the median."""
    if isinstance(q, bool) or not isinstance(q, (int, float)) or not 0 <= q <= 1:
        raise SchemaError(
            f"quantile {q!r} is not a share",
            where=find_call_site(),
            hint="use a number from 0 to 1: 0.5 is the median",
        )
    return Quantile(as_value(value), q)


class Fold(Aggregate, label="fold"):
    """`lower(combine(... combine(zero, lift(row 1)) ..., lift(row n)))`.

    `combine` must be associative and `zero` neutral: partial results are combined in any grouping, and in
    any order too unless `commutative=False`.
    """

    lift: Callable[[Any], Any]
    combine: Callable[[Any, Any], Any]
    zero: Any
    lower: Callable[[Any], Any] | None
    columns: tuple[str, ...] | None
    result: pa.DataType | None
    commutative: bool

    def type(self, up: Stream) -> pa.DataType:
        """Return the declared type; raise a SchemaError when there is none."""
        up.require(*(self.columns or ()))
        if self.result is None:
            raise SchemaError(
                f"fold {name_of(self.combine)} has no result type",
                where=find_definition(self.lower or self.combine),
                hint='say type="float64", or annotate what lower (or combine) returns',
            )
        return self.result

    def check_partial(self, partial: Any) -> Any:
        """Return what lift or combine gave; raise a TypeError where zero is of floats and this is not.

        Engines keep such partial results as numbers. Of other kinds nothing is known.
        """
        zero = self.zero
        if isinstance(zero, float):
            if not isinstance(partial, Real):
                raise TypeError(f"gave {partial!r:.80}, and zero is a number")
        elif isinstance(zero, tuple) and zero and all(isinstance(part, float) for part in zero):
            if not isinstance(partial, tuple | list) or len(partial) != len(zero):
                raise TypeError(
                    f"gave {partial!r:.80}, and zero has {len(zero)} number{'s' * (len(zero) > 1)}"
                )
            if not all(isinstance(part, Real) for part in partial):
                raise TypeError(f"gave {partial!r:.80}, which are not all numbers")
        return partial

    def __str__(self) -> str:
        return f"fold({name_of(self.combine)})"


def fold(
    lift: Callable[[Any], Any],
    combine: Callable[[Any, Any], Any],
    zero: Any,
    lower: Callable[[Any], Any] | None = None,
    *,
    columns: str | Sequence[str] | None = None,
    type: object = None,
    commutative: bool = True,
) -> Fold:
    """Aggregate with functions of your own.

    lift(row)      one row as a partial result: a number or a tuple of numbers
    combine(a, b)  two partial results as one; must be associative
    zero           the partial result of no rows
    lower(part)    the final result; the partial one itself if left out
    columns        the columns that lift reads: rows with a null in one of them are skipped
    type           the result's type, unless `lower` (or `combine`) is annotated with it
    commutative    False when the order of rows matters: they are folded in order (time, seq)
    """
    for role, fn in (("lift", lift), ("combine", combine), ("lower", lower)):
        if not callable(fn) and (fn is not None or role != "lower"):
            raise FunctionError(
                f"fold's {role} is {fn!r}, not a function",
                where=find_call_site(),
                hint="write ps.fold(lift, combine, zero, lower)",
            )
    require_call(lift, "row")
    require_call(combine, "a", "b")
    if lower is not None:
        require_call(lower, "part")
    declared = type if type is not None else return_annotation(lower or combine)
    result = None if declared is None else parse_type(declared)
    read = None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    return Fold(None, lift, combine, zero, lower, read, result, commutative)
