"""Follow the typed program from top to bottom for one row: the obvious twin of `expr/python/lower.py`.

Every instruction is computed, also the branches that are not taken; a failure travels as a value until a node
that may ignore it does, or until the end, where it is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import RowFailure
from penstock.expr.node import Expr, InputHandling
from penstock.expr.nodes.forms import Column, Literal
from penstock.expr.program import Function, Instruction, resolve
from penstock.expr.python.lower import RULES
from penstock.expr.python.rules import FailedValue
from penstock.expr.values import float32


def interpret(expr: Expr, schema: pa.Schema) -> Callable[[Mapping[str, object]], object]:
    """Returns a function from a row's plain values to the expression's plain value; it raises RowFailure."""
    steps = [(_compile(step), step.inputs) for step in resolve(expr, schema)]

    def value_of(row: Mapping[str, object]) -> object:
        results: list[object] = []
        for compute, inputs in steps:
            results.append(compute(row, [results[place] for place in inputs]))
        if isinstance(results[-1], FailedValue):
            raise RowFailure(results[-1].reason)
        return results[-1]

    return value_of


def _compile(instruction: Instruction) -> Callable[[Mapping[str, object], list[object]], object]:
    node, is_float32 = instruction.node, kind.is_float32(instruction.type)
    if isinstance(node, Column):
        name = node.name
        return lambda row, _: row[name]
    if isinstance(node, Literal):
        return lambda row, _: _round_value(node.value, is_float32)
    function, handling = RULES[type(node)](node, instruction), node.input_handling
    return lambda _, inputs: _round_value(_apply(function, handling, inputs), is_float32)


def _round_value(value: object, is_float32: bool) -> object:
    return float32(value) if is_float32 and isinstance(value, float) else value


def _apply(function: Function, handling: InputHandling, inputs: list[object]) -> object:
    """Hands on failures and nulls, unless the node handles them itself."""
    if handling is not InputHandling.FAILURES:
        for value in inputs:
            if isinstance(value, FailedValue):
                return value
    if handling is InputHandling.STRICT and None in inputs:
        return None
    try:
        return function(*inputs)
    except RowFailure as failure:
        return FailedValue(failure.reason)
