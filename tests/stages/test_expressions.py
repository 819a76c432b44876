"""Few rows are computed one by one, many by Arrow: nobody can tell which it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.expr import Expr, col, lit, to_plain
from penstock.stages import policy
from penstock.stages.expressions import ExpressionEvaluator
from penstock.stages.rows.batch import Batch, RowBatch
from tests.support.evaluation import batch_of, same
from tests.support.expressions import columns, of_type

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.int64()})


def values_of(few: int, expressions: list[Expr], schema: pa.Schema, rows: Any) -> tuple[list[pa.Array], Any]:
    """Evaluates with so many nodes times rows in plain Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "SIZES", replace(policy.SIZES, row_expressions=few))
        return ExpressionEvaluator(expressions, schema).values(rows)


def plain_batch(rows: pa.RecordBatch) -> Batch:
    lists = {name: to_plain(rows.column(name)) for name in rows.schema.names}
    plain = [{name: lists[name][place] for name in lists} for place in range(rows.num_rows)]
    return RowBatch(plain, rows.schema, np.zeros(rows.num_rows, np.int64))


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_values_and_failures_are_the_same_for_few_rows_and_for_many(data: st.DataObject) -> None:
    names = data.draw(
        st.lists(st.sampled_from(["bool", "i64", "f64", "text", "time"]), min_size=1, max_size=2)
    )
    expressions = [data.draw(of_type(name, 1)) for name in names]
    read = sorted({name for expr in expressions for name in expr.columns()}) or ["i64"]
    rows = batch_of(data.draw(columns(tuple(read), max_rows=8)))
    by_arrow, arrow_failed = values_of(0, expressions, rows.schema, rows)
    for given_rows in (rows, plain_batch(rows)):
        result, failed = values_of(10**6, expressions, rows.schema, given_rows)
        assert [column.type for column in result] == [column.type for column in by_arrow]
        assert (failed is None or not failed.any()) == (arrow_failed is None)
        bad = np.zeros(rows.num_rows, np.bool_) if arrow_failed is None else arrow_failed
        if failed is not None:
            assert failed.tolist() == bad.tolist()
        for one, other in zip(result, by_arrow, strict=True):
            pairs = zip(to_plain(one), to_plain(other), bad, strict=True)
            assert all(same(ours, theirs) for ours, theirs, is_bad in pairs if not is_bad)


@pytest.mark.parametrize("n_rows", [1, 42, 43, 5_000])
def test_conditions_hold_where_they_are_true_whatever_the_number_of_rows(n_rows: int) -> None:
    values = [None if n % 7 == 3 else n for n in range(n_rows)]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(values, pa.int64()), pa.array(values, pa.int64())], schema=SCHEMA
    )
    batch = Batch(rows, np.arange(n_rows))
    (holds,), _ = ExpressionEvaluator([col("a") > 10], SCHEMA, as_masks=True).values(batch)
    assert holds.tolist() == [value is not None and value > 10 for value in values]


@pytest.mark.parametrize("n_rows", [1, 20, 1_000, 1_025, 5_000])
@pytest.mark.parametrize("type_", [pa.int8(), pa.int64()])
def test_integers_compare_alike_in_small_arrays_and_in_large(n_rows: int, type_: pa.DataType) -> None:
    numbers = [n % 100 for n in range(n_rows)]
    rows = pa.RecordBatch.from_arrays([pa.array(numbers, type_)], schema=pa.schema({"a": type_}))
    conditions = [col("a") == 5, lit(5) < col("a"), col("a") >= 99, col("a") != col("a"), col("a") <= lit(7)]
    result, _ = values_of(0, conditions, rows.schema, rows)
    expected = [[n == 5 for n in numbers], [n > 5 for n in numbers], [n >= 99 for n in numbers]]
    expected += [[False] * n_rows, [n <= 7 for n in numbers]]
    assert [item.to_pylist() for item in result] == expected


def test_expressions_that_read_no_column_have_a_value_for_every_row() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), pa.array([1, 2, 3])], schema=SCHEMA)
    (result,), _ = values_of(100, [lit(7)], SCHEMA, rows)
    assert result.to_pylist() == [7, 7, 7]
