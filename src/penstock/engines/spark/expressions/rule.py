"""What an expression is on its way to Spark: two Columns, and what is known of them beforehand.

Columns are trees: using one twice doubles it, so each carries its weight. Flags are never null, and where a
flag is true the value is null: rules may rely on both and must keep to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.errors import NotSupported
from penstock.expr import Node
from penstock.expr.program import Line
from penstock.frozen import dataclass

VARIES = object()
"""Stands for the constant of what is not one."""


@dataclass(frozen=True, slots=True)
class Lowered:
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
        """Whether it is a literal that is not null."""
        return self.constant is not VARIES and self.constant is not None


def any_failed(*flags: Column | None) -> Column | None:
    """Where any of the flags is true; None when none can be."""
    found: Column | None = None
    for flag in flags:
        if flag is not None:
            found = flag if found is None else found | flag
    return found


def all_present(*inputs: Lowered) -> Column | None:
    """Where all inputs have values; None when they always do, being literals."""
    found: Column | None = None
    for each in inputs:
        if not each.is_constant:
            there = each.value.isNotNull()
            found = there if found is None else found & there
    return found


def fail_where_null(value: Column, *inputs: Lowered) -> Lowered:
    """A value that is null where it failed or an input is: failed is null from inputs that are not."""
    there = all_present(*inputs)
    return Lowered(value, value.isNull() if there is None else there & value.isNull())


def fail_where(bad: Column, value: Column, *inputs: Lowered) -> Lowered:
    """The value where `bad` is false; failed where it is true, null where an input is null.

    The value is not computed where `bad` is true or null.
    """
    there = all_present(*inputs)
    return Lowered(F.when(~bad, value), bad if there is None else there & bad)


def null_where_failed(own: Lowered) -> Lowered:
    """The same with null in the failed rows, for values that do not follow from a null."""
    return own if own.failed is None else Lowered(F.when(~own.failed, own.value), own.failed)


# How a node's Column follows from its inputs' Columns: one rule per node class, filed by family.
#
# A rule gets its line of the program and its inputs, and gives a Column, or a Lowered with the failures that
# are its own. Unless the node sees failures itself, its value must be null where an input is (or, if it sees
# nulls, anything); failures of inputs are added by `lower`. A rule must not give a Column that raises for any
# values, whatever `spark.sql.ansi.enabled` says, and `copies` tells how often an input stands in its value.

Inputs = Sequence[Lowered]


@singledispatch
def rule(node: Node, line: Line, inputs: Inputs) -> Lowered | Column:
    """The Column that computes the node; registered per class by the families."""
    raise NotSupported(
        f"Spark has no rule for {type(node).__name__}", hint="add it in engines/spark/expressions/"
    )
