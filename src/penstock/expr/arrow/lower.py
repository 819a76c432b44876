"""Follow the typed program from top to bottom for one batch.

All branches are computed for all rows; what is not needed is left out by the nodes that choose.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.expr.arrow import arithmetic, cast, choice, comparison, hashing, string, time
from penstock.expr.arrow.evaluated import Evaluated, either, without_failed
from penstock.expr.arrow.rule import Function, rule
from penstock.expr.columns import Column, Literal
from penstock.expr.node import Sees
from penstock.expr.program import Line, resolve
from penstock.expr.surface import Expr
from penstock.expr.values import from_plain

# Importing a family files its rules.
FAMILIES = (arithmetic, cast, choice, comparison, hashing, string, time)


def lower_arrow(expr: Expr, schema: pa.Schema) -> Callable[[pa.RecordBatch], Evaluated]:
    """A function from a batch of that schema to the expression's values and failed rows.

    >>> from penstock.expr import col
    >>> double = lower_arrow(col("a") * 2, pa.schema({"a": pa.int64()}))
    >>> double(pa.RecordBatch.from_pydict({"a": [1, None]})).values.to_pylist()
    [2, None]
    """
    steps = [(_reader(line), line.inputs) for line in resolve(expr, schema)]

    def values_of(batch: pa.RecordBatch) -> Evaluated:
        results: list[Evaluated] = []
        for compute, inputs in steps:
            results.append(compute(batch, [results[place] for place in inputs]))
        return results[-1]

    return values_of


def _reader(line: Line) -> Callable[[pa.RecordBatch, list[Evaluated]], Evaluated]:
    node = line.node
    if isinstance(node, Column):
        name = node.name
        return lambda batch, _: Evaluated(batch.column(name))
    if isinstance(node, Literal):
        value = from_plain([node.value], line.type)[0]
        return lambda batch, _: Evaluated(pa.repeat(value, batch.num_rows))
    function, sees = rule(node, line), node.sees
    return lambda _, inputs: _guarded(function, sees, inputs)


def _guarded(function: Function, sees: Sees, inputs: list[Evaluated]) -> Evaluated:
    """Hand on failures, unless the node judges them itself; nulls are handed on by the kernels."""
    if sees is Sees.FAILURES:
        return without_failed(function(*inputs))
    own = function(*(each.values for each in inputs))
    if not isinstance(own, Evaluated):
        own = Evaluated(own)
    failed = either(own.failed, *(each.failed for each in inputs))
    return own if failed is None else without_failed(Evaluated(own.values, failed))
