"""An expression on its way to Spark: two Columns, what is known of them, and columns that share large parts.

A Column is a tree: using one twice doubles it, so each carries its weight. A rule that needs its input twice
doubles it, and four such rules inside each other would make a tree that Spark plans for minutes.
`SharedColumns` keeps what is large as a column of its own, which is computed once. Spark itself puts such a
column back in place where it is used only once.

Flags are never null, and where a flag is true the value is null: rules may rely on both and must keep to
them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.types as kind
from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.engines.spark.types import spark_type
from penstock.frozen import Frozen

PREFIX = "__penstock_part_"
VARIES = object()
"""Stands for the constant of what is not one."""


class SparkValue(Frozen):
    """The value's Column, and where it failed.

    value     null where the row failed
    failed    true where it failed, never null; None when no row can fail
    constant  the plain value, if it is a literal
    weight    how many nodes both trees have, about
    """

    value: Column
    failed: Column | None = None
    constant: Any = VARIES
    weight: int = 1

    @property
    def is_constant(self) -> bool:
        """Return whether it is a literal that is not null."""
        return self.constant is not VARIES and self.constant is not None


Inputs = Sequence[SparkValue]


class SharedColumns:
    """Rows with the shared parts beside their columns; select from `rows` what is wanted in the end."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self._count = 0

    def add(self, part: SparkValue) -> SparkValue:
        """Make the part a column of the rows, and its failure another; return the two."""
        name = f"{PREFIX}{self._count}"
        self._count += 1
        columns = {name: part.value}
        if part.failed is not None:
            columns[f"{name}_failed"] = part.failed
        self.rows = self.rows.withColumns(columns)
        failed = None if part.failed is None else column(f"{name}_failed")
        return SparkValue(column(name), failed, part.constant)


def column(name: str) -> Column:
    """Return the column of exactly that name, whatever dots and backticks it has."""
    return F.col("`" + name.replace("`", "``") + "`")


def literal(value: Any, type: pa.DataType) -> Column:
    """Return a plain value as a typed literal; Spark folds the conversions away before it runs."""
    if value is None:
        return F.lit(None) if kind.is_null(type) else F.lit(None).cast(spark_type(type))
    if kind.is_date32(type):
        return F.date_from_unix_date(F.lit(value))
    if kind.is_timestamp(type):
        return F.timestamp_micros(F.lit(value).cast("long"))
    return F.lit(value).cast(spark_type(type))


def any_failed(*flags: Column | None) -> Column | None:
    """Return where any of the flags is true; None when none can be."""
    possible = [flag for flag in flags if flag is not None]
    return reduce(operator.or_, possible) if possible else None


def all_present(*inputs: SparkValue) -> Column | None:
    """Return where all inputs have values; None when they always do, being literals."""
    present = [value.value.isNotNull() for value in inputs if not value.is_constant]
    return reduce(operator.and_, present) if present else None


def fail_where_null(value: Column, *inputs: SparkValue) -> SparkValue:
    """Return a value that failed where it is null although no input is."""
    there = all_present(*inputs)
    return SparkValue(value, value.isNull() if there is None else there & value.isNull())


def fail_where(bad: Column, value: Column, *inputs: SparkValue) -> SparkValue:
    """Return the value where `bad` is false; failed where it is true, null where an input is null.

    The value is not computed where `bad` is true or null.
    """
    there = all_present(*inputs)
    return SparkValue(F.when(~bad, value), bad if there is None else there & bad)


def null_where_failed(own: SparkValue) -> SparkValue:
    """Return the same with null in the failed rows, for values that do not follow from a null."""
    return own if own.failed is None else SparkValue(F.when(~own.failed, own.value), own.failed)
