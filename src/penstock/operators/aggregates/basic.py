"""How many rows, or how many values that are not null."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import ORDERED, Aggregate, aggregated, is_number, is_ordered, types
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Count(Aggregate):
    """Rows, or values that are not null."""

    label: ClassVar[str] = "count"

    def type(self, up: Stream) -> pa.DataType:
        """Always int64."""
        if self.value is not None:
            self.value_type(up)
        return pa.int64()


def count(value: str | Expr | None = None) -> Count:
    """Count rows; with a column, count its values that are not null."""
    return Count(None if value is None else aggregated(value))


# The sum: exact for integers, in 64-bit floats otherwise.


@dataclass(frozen=True, slots=True)
class Sum(Aggregate):
    """The sum of the values; null when there are none.

    An integer sum is exact: the run fails only if the window's own sum leaves int64, never because a
    part of it did.
    """

    label: ClassVar[str] = "sum"

    def type(self, up: Stream) -> pa.DataType:
        """int64 for integers, float64 for floats, the widest decimal of the same scale."""
        found = self.value_type(up)
        if types.is_integer(found):
            return pa.int64()
        if types.is_floating(found):
            return pa.float64()
        if types.is_decimal(found):
            return pa.decimal128(38, found.scale)
        raise self.refuse(found, "integers, floats and decimals")


def sum(value: str | Expr) -> Sum:
    """Add up a column or an expression."""
    return Sum(aggregated(value))


# The least value.


@dataclass(frozen=True, slots=True)
class Min(Aggregate):
    """The least value; null when there are none. NaN is greater than every number."""

    label: ClassVar[str] = "min"

    def type(self, up: Stream) -> pa.DataType:
        """The type of the value."""
        found = self.value_type(up)
        if not is_ordered(found):
            raise self.refuse(found, ORDERED)
        return found


def min(value: str | Expr) -> Min:
    """The smallest value of a column or an expression."""
    return Min(aggregated(value))


# The greatest value.


@dataclass(frozen=True, slots=True)
class Max(Aggregate):
    """The greatest value; null when there are none. NaN is greater than every number."""

    label: ClassVar[str] = "max"

    def type(self, up: Stream) -> pa.DataType:
        """The type of the value."""
        found = self.value_type(up)
        if not is_ordered(found):
            raise self.refuse(found, ORDERED)
        return found


def max(value: str | Expr) -> Max:
    """The largest value of a column or an expression."""
    return Max(aggregated(value))


# The arithmetic mean.


@dataclass(frozen=True, slots=True)
class Mean(Aggregate):
    """The mean of the values; null when there are none."""

    label: ClassVar[str] = "mean"

    def type(self, up: Stream) -> pa.DataType:
        """Always float64."""
        found = self.value_type(up)
        if not (is_number(found) or types.is_decimal(found)):
            raise self.refuse(found, "integers, floats and decimals")
        return pa.float64()


def mean(value: str | Expr) -> Mean:
    """The mean of a column or an expression."""
    return Mean(aggregated(value))


# The variance, of a sample or of the whole population.


@dataclass(frozen=True, slots=True)
class Var(Aggregate):
    """The variance; null with no values, and with one value of a sample."""

    population: bool = False

    label: ClassVar[str] = "var"

    def type(self, up: Stream) -> pa.DataType:
        """Always float64."""
        found = self.value_type(up)
        if not is_number(found):
            raise self.refuse(found, "integers and floats")
        return pa.float64()


def var(value: str | Expr, *, population: bool = False) -> Var:
    """The variance of a column or an expression, of a sample unless `population=True`."""
    return Var(aggregated(value), population)


# The standard deviation, of a sample or of the whole population.


@dataclass(frozen=True, slots=True)
class Std(Aggregate):
    """The standard deviation; null with no values, and with one value of a sample."""

    population: bool = False

    label: ClassVar[str] = "std"

    def type(self, up: Stream) -> pa.DataType:
        """Always float64."""
        found = self.value_type(up)
        if not is_number(found):
            raise self.refuse(found, "integers and floats")
        return pa.float64()


def std(value: str | Expr, *, population: bool = False) -> Std:
    """The standard deviation of a column or an expression, of a sample unless `population=True`."""
    return Std(aggregated(value), population)


# The least value and how many rows have it.


@dataclass(frozen=True, slots=True)
class MinCount(Aggregate):
    """The least value and the number of rows that have it, as a struct; null when there are none."""

    label: ClassVar[str] = "min_count"

    def type(self, up: Stream) -> pa.DataType:
        """struct<value, count>."""
        found = self.value_type(up)
        if not is_ordered(found):
            raise self.refuse(found, ORDERED)
        return pa.struct([pa.field("value", found), pa.field("count", pa.int64())])


def min_count(value: str | Expr) -> MinCount:
    """The smallest value of a column or an expression, and how many rows have it."""
    return MinCount(aggregated(value))


# The greatest value and how many rows have it.


@dataclass(frozen=True, slots=True)
class MaxCount(Aggregate):
    """The greatest value and the number of rows that have it, as a struct; null when there are none."""

    label: ClassVar[str] = "max_count"

    def type(self, up: Stream) -> pa.DataType:
        """struct<value, count>."""
        found = self.value_type(up)
        if not is_ordered(found):
            raise self.refuse(found, ORDERED)
        return pa.struct([pa.field("value", found), pa.field("count", pa.int64())])


def max_count(value: str | Expr) -> MaxCount:
    """The largest value of a column or an expression, and how many rows have it."""
    return MaxCount(aggregated(value))
