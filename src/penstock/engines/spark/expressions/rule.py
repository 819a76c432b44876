"""How a node's Column follows from its inputs' Columns: one rule per node class, filed by family.

A rule gets its line of the program and its inputs, and gives a Column, or a Lowered with the failures that
are its own. Unless the node sees failures itself, its value must be null where an input is (or, if it sees
nulls, anything); failures of inputs are added by `lower`. A rule must not give a Column that raises for any
values, whatever `spark.sql.ansi.enabled` says, and `copies` tells how often an input stands in its value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from pyspark.sql import Column

from penstock.engines.spark.expressions.lowered import Lowered
from penstock.errors import NotSupported
from penstock.expr import Node
from penstock.expr.program import Line

Inputs = Sequence[Lowered]


@singledispatch
def rule(node: Node, line: Line, inputs: Inputs) -> Lowered | Column:
    """The Column that computes the node; registered per class by the families."""
    raise NotSupported(
        f"Spark has no rule for {type(node).__name__}", hint="add it in engines/spark/expressions/"
    )
