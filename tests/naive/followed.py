"""Follow the typed program from top to bottom for one row: the obvious twin of `expr/python/write.py`.

Every line is computed, also the branches that are not taken; a failure travels as a value until a node
that may ignore it does, or until the end, where it is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.types as kind

from penstock.expr.failure import RowFailure
from penstock.expr.node import Sees
from penstock.expr.nodes.columns import Column
from penstock.expr.program import Line, resolve, rule_for
from penstock.expr.python.rule import Failed, Function, rule
from penstock.expr.surface import Expr
from penstock.expr.values import float32


def followed(expr: Expr, schema: pa.Schema) -> Callable[[Mapping[str, object]], object]:
    """A function from a row's plain values to the expression's plain value; it raises RowFailure."""
    steps = [(_reader(line), line.inputs) for line in resolve(expr, schema)]

    def value_of(row: Mapping[str, object]) -> object:
        results: list[object] = []
        for compute, inputs in steps:
            results.append(compute(row, [results[place] for place in inputs]))
        if isinstance(results[-1], Failed):
            raise RowFailure(results[-1].reason)
        return results[-1]

    return value_of


def _reader(line: Line) -> Callable[[Mapping[str, object], list[object]], object]:
    if isinstance(line.node, Column):
        name = line.node.name
        return lambda row, _: row[name]
    function, sees, short = rule_for(rule, line.node, line), line.node.sees, kind.is_float32(line.type)

    def compute(_: Mapping[str, object], inputs: list[object]) -> object:
        value = _guarded(function, sees, inputs)
        return float32(value) if short and isinstance(value, float) else value

    return compute


def _guarded(function: Function, sees: Sees, inputs: list[object]) -> object:
    """Hand on failures and nulls, unless the node judges them itself."""
    if sees is not Sees.FAILURES:
        for value in inputs:
            if isinstance(value, Failed):
                return value
    if sees is Sees.VALUES and None in inputs:
        return None
    try:
        return function(*inputs)
    except RowFailure as failure:
        return Failed(failure.reason)
