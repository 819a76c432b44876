"""Expressions as functions of a batch of columns: kernels of Arrow and NumPy, no Python per row.

`lower_arrow` follows the typed program from top to bottom. All branches are computed for all rows; what is
not needed is left out by the nodes that choose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from penstock import expr as nodes
from penstock.expr.arrow import conversion, rules
from penstock.expr.arrow.columnar_value import ColumnarValue, any_failed, null_where_failed
from penstock.expr.node import Expr, InputHandling
from penstock.expr.program import Function, Instruction, Lowering, resolve
from penstock.expr.values import from_plain

RULES = Lowering("Arrow", "expr/arrow/", rules.RULES | conversion.RULES)
"""From a node and its instruction to the function that computes it.

Unless the node handles failures itself, the function takes arrays and returns an array, or a ColumnarValue
with the failures that are its own; it must return null for null, and must not raise for any values. Nodes
that handle failures take and return ColumnarValues.
"""


class Columns(Protocol):
    """What expressions are computed on: a RecordBatch, or anything else that has columns by name."""

    @property
    def num_rows(self) -> int:
        """Return the number of rows."""

    def column(self, name: str) -> pa.Array:
        """Return one column."""


def lower_arrow(expr: Expr, schema: pa.Schema) -> Callable[[Columns], ColumnarValue]:
    """Return a function from a batch of that schema to the expression's values and failed rows.

    >>> from penstock.expr import col
    >>> double = lower_arrow(col("a") * 2, pa.schema({"a": pa.int64()}))
    >>> double(pa.RecordBatch.from_pydict({"a": [1, None]})).values.to_pylist()
    [2, None]
    """
    program = resolve(expr, schema)
    # Every value is needed once per row, but for literals that are compared with columns.
    per_row = {len(program) - 1}
    for step in program:
        literal = [isinstance(program[place].node, nodes.Literal) for place in step.inputs]
        if not isinstance(step.node, nodes.Comparison) or all(literal):
            per_row.update(step.inputs)
    steps = [(_compile(step, place in per_row), step.inputs) for place, step in enumerate(program)]

    def evaluate(batch: Columns) -> ColumnarValue:
        results: list[ColumnarValue] = []
        for compute, inputs in steps:
            results.append(compute(batch, [results[place] for place in inputs]))
        return results[-1]

    return evaluate


def _compile(
    instruction: Instruction, per_row: bool
) -> Callable[[Columns, list[ColumnarValue]], ColumnarValue]:
    node = instruction.node
    if isinstance(node, nodes.Column):
        name = node.name
        return lambda batch, _: ColumnarValue(batch.column(name))
    if isinstance(node, nodes.Literal):
        value = from_plain([node.value], instruction.type)[0]
        if per_row:
            return lambda batch, _: ColumnarValue(pa.repeat(value, batch.num_rows))
        scalar = ColumnarValue(value)
        return lambda batch, _: scalar
    function, handling = RULES[type(node)](node, instruction), node.input_handling
    return lambda _, inputs: _apply(function, handling, inputs)


def _apply(function: Function, handling: InputHandling, inputs: list[ColumnarValue]) -> ColumnarValue:
    """Hand on failures, unless the node handles them itself; nulls are handed on by the kernels."""
    if handling is InputHandling.FAILURES:
        return null_where_failed(function(*inputs))
    own = function(*(value.values for value in inputs))
    if not isinstance(own, ColumnarValue):
        own = ColumnarValue(own)
    failed = any_failed(own.failed, *(value.failed for value in inputs))
    return own if failed is None else null_where_failed(ColumnarValue(own.values, failed))
