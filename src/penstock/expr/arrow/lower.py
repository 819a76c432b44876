"""Expressions as functions of a batch of columns: kernels of Arrow and NumPy, no Python per row.

`lower_arrow` follows the typed program from top to bottom. All branches are computed for all rows; what is
not needed is left out by the nodes that choose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import NotSupported
from penstock.expr.arrow import arithmetic, cast, comparison, conditional, functions, nested, string, time
from penstock.expr.arrow.columnar_value import ColumnarValue, any_failed, null_where_failed
from penstock.expr.node import InputHandling, Node
from penstock.expr.nodes.columns import Column, Literal
from penstock.expr.nodes.comparison import Comparison
from penstock.expr.program import Function, Instruction, Rules, resolve
from penstock.expr.surface import Expr
from penstock.expr.values import from_plain

_FAMILIES = (arithmetic, cast, comparison, conditional, functions, nested, string, time)
RULES: Rules = {node: rule for family in _FAMILIES for node, rule in family.RULES.items()}
SHARED_ROWS = 1024
"""The length of the array that a literal shares among small batches: making one per batch takes longer."""


class Columns(Protocol):
    """What expressions are computed on: a RecordBatch, or anything else that has columns by name."""

    @property
    def num_rows(self) -> int:
        """Return the number of rows."""

    def column(self, name: str) -> pa.Array:
        """Returns one column."""


def lower_arrow(expr: Expr, schema: pa.Schema) -> Callable[[Columns], ColumnarValue]:
    """Returns a function from a batch of that schema to the expression's values and failed rows.

    >>> from penstock.expr import col
    >>> double = lower_arrow(col("a") * 2, pa.schema({"a": pa.int64()}))
    >>> double(pa.RecordBatch.from_pydict({"a": [1, None]})).values.to_pylist()
    [2, None]
    """
    program = resolve(expr, schema)
    per_row = _needed_per_row(program)
    steps = [(_compile(step, place in per_row), step.inputs) for place, step in enumerate(program)]

    def evaluate(batch: Columns) -> ColumnarValue:
        results: list[ColumnarValue] = []
        for compute, inputs in steps:
            results.append(compute(batch, [results[place] for place in inputs]))
        return results[-1]

    return evaluate


def lower_node(node: Node, instruction: Instruction) -> Function:
    """Returns the function that computes a node; raises NotSupported for one without a rule.

    Unless the node handles failures itself, the function takes arrays and returns an array, or a
    ColumnarValue with the failures that are its own; it must return null for null, and must not raise for any
    values. Nodes that handle failures take and return ColumnarValues.
    """
    rule = RULES.get(type(node))
    if rule is None:
        raise NotSupported(f"Arrow has no rule for {type(node).__name__}", hint="add it in expr/arrow/")
    return rule(node, instruction)


def _needed_per_row(program: list[Instruction]) -> set[int]:
    """Returns the instructions whose value is needed once per row: all but literals compared with columns."""
    needed = {len(program) - 1}
    for instruction in program:
        literal = [isinstance(program[place].node, Literal) for place in instruction.inputs]
        if not isinstance(instruction.node, Comparison) or all(literal):
            needed.update(instruction.inputs)
    return needed


def _compile(
    instruction: Instruction, per_row: bool
) -> Callable[[Columns, list[ColumnarValue]], ColumnarValue]:
    node = instruction.node
    if isinstance(node, Column):
        name = node.name
        return lambda batch, _: ColumnarValue(batch.column(name))
    if isinstance(node, Literal):
        value = from_plain([node.value], instruction.type)[0]
        if per_row:
            return _RepeatedLiteral(value)
        scalar = ColumnarValue(value)
        return lambda batch, _: scalar
    function, handling = lower_node(node, instruction), node.input_handling
    return lambda _, inputs: _apply(function, handling, inputs)


class _RepeatedLiteral:
    """One value for each row. Small batches share an array of it, unless its values may be long."""

    def __init__(self, value: pa.Scalar) -> None:
        self._value = value
        self._shared = pa.repeat(value, SHARED_ROWS if kind.is_primitive(value.type) else 0)

    def __call__(self, batch: Columns, _: list[ColumnarValue]) -> ColumnarValue:
        n_rows, shared = batch.num_rows, self._shared
        if n_rows <= len(shared):
            return ColumnarValue(shared.slice(0, n_rows))
        return ColumnarValue(pa.repeat(self._value, n_rows))


def _apply(function: Function, handling: InputHandling, inputs: list[ColumnarValue]) -> ColumnarValue:
    """Hands on failures, unless the node handles them itself; nulls are handed on by the kernels."""
    if handling is InputHandling.FAILURES:
        return null_where_failed(function(*inputs))
    own = function(*(value.values for value in inputs))
    if not isinstance(own, ColumnarValue):
        own = ColumnarValue(own)
    failed = any_failed(own.failed, *(value.failed for value in inputs))
    return own if failed is None else null_where_failed(ColumnarValue(own.values, failed))
