"""Evaluate many expressions in one Spark job and insist that each agrees with the other two lowerings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.engines.spark.expressions import SharedColumns, lower_spark
from penstock.engines.spark.expressions.columns import SparkValue
from penstock.engines.spark.types import from_spark, spark_schema, to_spark
from penstock.expr import Expr, Power, to_plain, type_of
from penstock.expr.node import post_order
from tests.support.evaluation import FAILED, both, same

AT_ONCE = 60  # expressions per job: more make Spark's generated code too large to be compiled


def frame(spark: Any, batch: pa.RecordBatch) -> Any:
    """A DataFrame of the rows, numbered in the column "n"."""
    table = pa.Table.from_batches([batch]).append_column("n", pa.array(range(batch.num_rows), pa.int64()))
    return spark.createDataFrame(to_spark(table), schema=spark_schema(table.schema)).repartition(2)


def on_spark(spark: Any, expressions: Sequence[Expr], batch: pa.RecordBatch) -> list[list[object]]:
    """The plain values of each expression, with FAILED for failed rows."""
    rows = frame(spark, batch).cache()
    result: list[list[object]] = []
    for first in range(0, len(expressions), AT_ONCE):
        result += _one_job(rows, expressions[first : first + AT_ONCE], batch.schema)
    rows.unpersist()
    return result


def _one_job(rows: Any, expressions: Sequence[Expr], schema: pa.Schema) -> list[list[object]]:
    shared = SharedColumns(rows)
    lowered = [lower_spark(expr, schema, shared=shared) for expr in expressions]
    columns = [column.value.alias(f"v{i}") for i, column in enumerate(lowered)]
    columns += [column.failed.alias(f"f{i}") for i, column in enumerate(lowered) if column.failed is not None]
    table = shared.rows.select("n", *columns).toArrow().sort_by("n")
    return [
        _values(expr, column, table, i, schema)
        for i, (expr, column) in enumerate(zip(expressions, lowered, strict=True))
    ]


def _values(expr: Expr, lowered: SparkValue, table: pa.Table, i: int, schema: pa.Schema) -> list[object]:
    type = type_of(expr, schema)
    one = from_spark(table.select([f"v{i}"]), pa.schema([(f"v{i}", type)]))
    values = to_plain(one.column(0).combine_chunks())
    if lowered.failed is None:
        return values
    failed = table.column(f"f{i}").to_pylist()
    assert None not in failed, f"{expr}: a flag is null"
    assert all(value is None for value, fell in zip(values, failed, strict=True) if fell), (
        f"{expr}: a failed row has a value"
    )
    return [FAILED if fell else value for value, fell in zip(values, failed, strict=True)]


def assert_agree(spark: Any, expressions: Sequence[Expr], batch: pa.RecordBatch) -> None:
    """Spark, plain Python and Arrow give the same values and failures for every expression and row."""
    faults = []
    for expr, got in zip(expressions, on_spark(spark, expressions, batch), strict=True):
        expected = both(expr, batch)
        near = any(isinstance(node, Power) for node in post_order(expr))
        for row, (one, other) in enumerate(zip(expected, got, strict=True)):
            if not (same(one, other) or (near and _close(one, other))):
                values = {name: batch.column(name)[row] for name in expr.columns()}
                faults.append(f"{expr}: {values}: expected {one!r}, Spark has {other!r}")
                break
    assert not faults, f"{len(faults)} of {len(expressions)} expressions differ:\n" + "\n".join(faults[:40])


def _close(one: object, other: object) -> bool:
    """C's pow and Java's may differ in the last bit."""
    return isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=1e-14)
