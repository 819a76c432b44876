"""An expression on its way to Spark: two Columns, what is known of them, and the rules that make them.

Columns are trees: using one twice doubles it, so each carries its weight. Flags are never null, and where a
flag is true the value is null: rules may rely on both and must keep to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.expr import Node
from penstock.expr.program import Instruction
from penstock.frozen import dataclass

VARIES = object()
"""Stands for the constant of what is not one."""


@dataclass(frozen=True, slots=True)
class SparkValue:
    """The value's Column, and where it failed.

    value        null where the row failed
    failed       true where it failed, never null; None when no row can fail
    constant     the plain value, if it is a literal
    weight       how many nodes the value's tree has, about
    flag_weight  and the flag's
    """

    value: Column
    failed: Column | None = None
    constant: Any = VARIES
    weight: int = 1
    flag_weight: int = 0

    @property
    def size(self) -> int:
        """About how many nodes both trees have."""
        return self.weight + self.flag_weight

    @property
    def is_constant(self) -> bool:
        """True if it is a literal that is not null."""
        return self.constant is not VARIES and self.constant is not None


def any_failed(*flags: Column | None) -> Column | None:
    """Returns where any of the flags is true; None when none can be."""
    failed: Column | None = None
    for flag in flags:
        if flag is not None:
            failed = flag if failed is None else failed | flag
    return failed


def all_present(*inputs: SparkValue) -> Column | None:
    """Returns where all inputs have values; None when they always do, being literals."""
    present: Column | None = None
    for value in inputs:
        if not value.is_constant:
            is_there = value.value.isNotNull()
            present = is_there if present is None else present & is_there
    return present


def fail_where_null(value: Column, *inputs: SparkValue) -> SparkValue:
    """Returns a value that failed where it is null although no input is."""
    there = all_present(*inputs)
    return SparkValue(value, value.isNull() if there is None else there & value.isNull())


def fail_where(bad: Column, value: Column, *inputs: SparkValue) -> SparkValue:
    """Returns the value where `bad` is false; failed where it is true, null where an input is null.

    The value is not computed where `bad` is true or null.
    """
    there = all_present(*inputs)
    return SparkValue(F.when(~bad, value), bad if there is None else there & bad)


def null_where_failed(own: SparkValue) -> SparkValue:
    """Returns the same with null in the failed rows, for values that do not follow from a null."""
    return own if own.failed is None else SparkValue(F.when(~own.failed, own.value), own.failed)


Inputs = Sequence[SparkValue]

Rules = dict[type[Node], Callable[[Any, Instruction, Inputs], SparkValue | Column]]
"""For each class of nodes, from a node, its instruction and its inputs to the Column that computes it.

A rule may return a SparkValue, with the failures that are its own. Unless the node handles failures itself,
its value must be null where an input is (if it handles nulls, anything); failures of inputs are added by
`lower_spark`. A rule must not return a Column that raises for any values, whatever `spark.sql.ansi.enabled`
says, and the `COPIES` of its family say how often an input stands in its value.
"""
