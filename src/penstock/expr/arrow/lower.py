"""Follow the typed program from top to bottom for one batch.

All branches are computed for all rows; what is not needed is left out by the nodes that choose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa
import pyarrow.types as kind

from penstock.expr.arrow.evaluated import Evaluated, either, without_failed
from penstock.expr.arrow.rule import Function, rule
from penstock.expr.node import Sees
from penstock.expr.nodes.columns import Column, Literal
from penstock.expr.nodes.comparison import Comparison
from penstock.expr.program import Line, resolve, rule_for
from penstock.expr.surface import Expr
from penstock.expr.values import from_plain

FEW = 1024
"""So many rows make a small batch."""


class Columns(Protocol):
    """What expressions are computed on: a RecordBatch, or whatever has columns by name as it does."""

    @property
    def num_rows(self) -> int:
        """How many rows."""

    def column(self, name: str) -> pa.Array:
        """One column."""


def lower_arrow(expr: Expr, schema: pa.Schema) -> Callable[[Columns], Evaluated]:
    """A function from a batch of that schema to the expression's values and failed rows.

    >>> from penstock.expr import col
    >>> double = lower_arrow(col("a") * 2, pa.schema({"a": pa.int64()}))
    >>> double(pa.RecordBatch.from_pydict({"a": [1, None]})).values.to_pylist()
    [2, None]
    """
    lines = resolve(expr, schema)
    needed = _needed_per_row(lines)
    steps = [(_reader(line, place in needed), line.inputs) for place, line in enumerate(lines)]

    def values_of(batch: Columns) -> Evaluated:
        results: list[Evaluated] = []
        for compute, inputs in steps:
            results.append(compute(batch, [results[place] for place in inputs]))
        return results[-1]

    return values_of


def _needed_per_row(lines: list[Line]) -> set[int]:
    """The lines whose value is wanted once per row: all but literals that are only compared with columns."""
    needed = {len(lines) - 1}
    for line in lines:
        literal = [isinstance(lines[place].node, Literal) for place in line.inputs]
        if not isinstance(line.node, Comparison) or all(literal):
            needed.update(line.inputs)
    return needed


def _reader(line: Line, per_row: bool) -> Callable[[Columns, list[Evaluated]], Evaluated]:
    node = line.node
    if isinstance(node, Column):
        name = node.name
        return lambda batch, _: Evaluated(batch.column(name))
    if isinstance(node, Literal):
        value = from_plain([node.value], line.type)[0]
        if per_row:
            return _Repeated(value)
        alone = Evaluated(value)
        return lambda batch, _: alone
    function, sees = rule_for(rule, node, line), node.sees
    return lambda _, inputs: _guarded(function, sees, inputs)


class _Repeated:
    """One value for each row. Small batches share one array of it, because making one takes longer; not so of
    values that may be long.
    """

    def __init__(self, value: pa.Scalar) -> None:
        self._value = value
        self._few = pa.repeat(value, FEW if kind.is_primitive(value.type) else 0)

    def __call__(self, batch: Columns, _: list[Evaluated]) -> Evaluated:
        """As many as there are rows."""
        n_rows = batch.num_rows
        few = self._few
        return Evaluated(few.slice(0, n_rows) if n_rows <= len(few) else pa.repeat(self._value, n_rows))


def _guarded(function: Function, sees: Sees, inputs: list[Evaluated]) -> Evaluated:
    """Hand on failures, unless the node judges them itself; nulls are handed on by the kernels."""
    if sees is Sees.FAILURES:
        return without_failed(function(*inputs))
    own = function(*(each.values for each in inputs))
    if not isinstance(own, Evaluated):
        own = Evaluated(own)
    failed = either(own.failed, *(each.failed for each in inputs))
    return own if failed is None else without_failed(Evaluated(own.values, failed))
