"""Evaluate an expression by both lowerings at once and insist that they agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from penstock.errors import RowFailure
from penstock.expr import Expr, from_plain, lower_arrow, lower_python, to_plain, type_of
from tests.naive.interpret import interpret

FAILED = "<failed>"
ValueOf = Callable[[Mapping[str, object]], object]
Columns = Mapping[str, tuple[Sequence[object], pa.DataType]]


def batch_of(columns: Columns) -> pa.RecordBatch:
    arrays = [from_plain(values, type) for values, type in columns.values()]
    schema = pa.schema([(name, type) for name, (_, type) in columns.items()])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _insist_on_twin(one: ValueOf, other: ValueOf, rows: Sequence[Mapping[str, object]]) -> None:
    """What was written must give what following the program gives, failures with their reasons included."""
    for row in rows:
        result, twin = _outcome_of(one, row), _outcome_of(other, row)
        assert same(result, twin), f"{row}: {result!r} != {twin!r}"


def _outcome_of(value_of: ValueOf, row: Mapping[str, object]) -> object:
    try:
        return value_of(row)
    except RowFailure as failure:
        return f"{FAILED} {failure.reason}"


def both(expr: Expr, batch: pa.RecordBatch) -> list[object]:
    """The values by plain Python, with FAILED for failed rows, after checking that Arrow says the same."""
    columns = {field.name: to_plain(batch.column(field.name)) for field in batch.schema}
    value_of = lower_python(expr, batch.schema)
    rows = [{name: columns[name][i] for name in columns} for i in range(batch.num_rows)]
    slow = [_value(value_of, row) for row in rows]
    _insist_on_twin(value_of, interpret(expr, batch.schema), rows)
    fast = lower_arrow(expr, batch.schema)(batch)
    assert fast.values.type == type_of(expr, batch.schema), str(expr)
    fast.values.validate(full=True)
    failed = fast.failed.to_pylist() if fast.failed is not None else [False] * batch.num_rows
    values = to_plain(fast.values)
    for row, one, other, fell in zip(rows, slow, values, failed, strict=True):
        assert other is None or not fell
        assert same(one, FAILED if fell else other), (
            f"{expr}: {row}: {one!r} != {FAILED if fell else other!r}"
        )
    return slow


def run(
    expr: Expr, values: Sequence[object], type: pa.DataType, **more: tuple[Sequence[object], pa.DataType]
) -> list[object]:
    """Both lowerings over a batch whose first column is "a"."""
    return both(expr, batch_of({"a": (values, type), **more}))


def same(one: object, other: object) -> bool:
    """Equal, with NaN equal to NaN, 0.0 unlike -0.0, and True unlike 1."""
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


def _value(value_of: object, row: Mapping[str, object]) -> object:
    assert callable(value_of)
    try:
        return value_of(row)
    except RowFailure as failure:
        return FAILED if failure.reason else "failed without a reason"
