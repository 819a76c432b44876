"""Counts, sums, extremes, moments, and values in order of time."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import (
    NUMBERS,
    NUMBERS_AND_DECIMALS,
    ORDERED,
    Aggregate,
    as_value,
    types,
)
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Count(Aggregate):
    """The number of rows, or of values that are not null."""

    label: ClassVar[str] = "count"

    def type(self, up: Stream) -> pa.DataType:
        """Return int64."""
        if self.value is not None:
            self.value_type(up)
        return pa.int64()


def count(value: str | Expr | None = None) -> Count:
    """Count rows; with a column, count its values that are not null."""
    return Count(None if value is None else as_value(value))


@dataclass(frozen=True, slots=True)
class Sum(Aggregate):
    """The sum of the values; null when there are none.

    An integer sum is exact: the run fails only if the window's own sum leaves int64, never because a
    partial sum did.
    """

    label: ClassVar[str] = "sum"
    accepts: ClassVar[str] = NUMBERS_AND_DECIMALS

    def result_type(self, value_type: pa.DataType) -> pa.DataType:
        """Return int64 for integers, float64 for floats, the widest decimal of the same scale."""
        if types.is_decimal(value_type):
            return pa.decimal128(38, value_type.scale)
        return pa.int64() if types.is_integer(value_type) else pa.float64()


def sum(value: str | Expr) -> Sum:
    """Add up a column or an expression."""
    return Sum(as_value(value))


@dataclass(frozen=True, slots=True)
class Min(Aggregate):
    """The least value; null when there are none. NaN is greater than every number."""

    label: ClassVar[str] = "min"
    accepts: ClassVar[str] = ORDERED


def min(value: str | Expr) -> Min:
    """Take the smallest value of a column or an expression."""
    return Min(as_value(value))


@dataclass(frozen=True, slots=True)
class Max(Aggregate):
    """The greatest value; null when there are none. NaN is greater than every number."""

    label: ClassVar[str] = "max"
    accepts: ClassVar[str] = ORDERED


def max(value: str | Expr) -> Max:
    """Take the largest value of a column or an expression."""
    return Max(as_value(value))


@dataclass(frozen=True, slots=True)
class CountOfExtreme(Aggregate):
    """The base of `MinCount` and `MaxCount`: struct<value, count>; null when there are no values."""

    accepts: ClassVar[str] = ORDERED

    def result_type(self, value_type: pa.DataType) -> pa.DataType:
        """Return struct<value, count>."""
        return pa.struct([pa.field("value", value_type), pa.field("count", pa.int64())])


@dataclass(frozen=True, slots=True)
class MinCount(CountOfExtreme):
    """The least value and the number of rows that have it."""

    label: ClassVar[str] = "min_count"


def min_count(value: str | Expr) -> MinCount:
    """Take the smallest value of a column or an expression, and how many rows have it."""
    return MinCount(as_value(value))


@dataclass(frozen=True, slots=True)
class MaxCount(CountOfExtreme):
    """The greatest value and the number of rows that have it."""

    label: ClassVar[str] = "max_count"


def max_count(value: str | Expr) -> MaxCount:
    """Take the largest value of a column or an expression, and how many rows have it."""
    return MaxCount(as_value(value))


@dataclass(frozen=True, slots=True)
class Mean(Aggregate):
    """The arithmetic mean of the values; null when there are none."""

    label: ClassVar[str] = "mean"
    accepts: ClassVar[str] = NUMBERS_AND_DECIMALS

    def result_type(self, value_type: pa.DataType) -> pa.DataType:
        """Return float64."""
        return pa.float64()


def mean(value: str | Expr) -> Mean:
    """Take the mean of a column or an expression."""
    return Mean(as_value(value))


@dataclass(frozen=True, slots=True)
class Var(Aggregate):
    """The variance, of a sample unless `population`; null with no values, and with one of a sample."""

    population: bool = False

    label: ClassVar[str] = "var"
    accepts: ClassVar[str] = NUMBERS

    def result_type(self, value_type: pa.DataType) -> pa.DataType:
        """Return float64."""
        return pa.float64()


def var(value: str | Expr, *, population: bool = False) -> Var:
    """Take the variance of a column or an expression, of a sample unless `population=True`."""
    return Var(as_value(value), population)


@dataclass(frozen=True, slots=True)
class Std(Aggregate):
    """The standard deviation, of a sample unless `population`; null where the variance is."""

    population: bool = False

    label: ClassVar[str] = "std"
    accepts: ClassVar[str] = NUMBERS

    def result_type(self, value_type: pa.DataType) -> pa.DataType:
        """Return float64."""
        return pa.float64()


def std(value: str | Expr, *, population: bool = False) -> Std:
    """Take the standard deviation of a column or an expression, of a sample unless `population=True`."""
    return Std(as_value(value), population)


@dataclass(frozen=True, slots=True)
class First(Aggregate):
    """The first value that is not null, in the order (time, seq)."""

    label: ClassVar[str] = "first"
    ordered: ClassVar[bool] = True


def first(value: str | Expr) -> First:
    """Take the first value of a column or an expression, in order of time."""
    return First(as_value(value))


@dataclass(frozen=True, slots=True)
class Last(Aggregate):
    """The last value that is not null, in the order (time, seq)."""

    label: ClassVar[str] = "last"
    ordered: ClassVar[bool] = True


def last(value: str | Expr) -> Last:
    """Take the last value of a column or an expression, in order of time."""
    return Last(as_value(value))


@dataclass(frozen=True, slots=True)
class Collect(Aggregate):
    """All values that are not null, in the order (time, seq)."""

    label: ClassVar[str] = "collect"
    ordered: ClassVar[bool] = True

    def result_type(self, value_type: pa.DataType) -> pa.DataType:
        """Return a list of the value's type."""
        return pa.list_(value_type)


def collect(value: str | Expr) -> Collect:
    """List the values of a column or an expression, in order of time."""
    return Collect(as_value(value))


@dataclass(frozen=True, slots=True)
class EventTimeMax(Aggregate):
    """The greatest event time that contributed, in the input's type and unit."""

    label: ClassVar[str] = "event_time_max"

    def type(self, up: Stream) -> pa.DataType:
        """Return the type of the time column."""
        return up.require_time("event_time_max").type


def event_time_max() -> EventTimeMax:
    """Take the greatest event time among the window's rows: what latency is measured from."""
    return EventTimeMax(None)
