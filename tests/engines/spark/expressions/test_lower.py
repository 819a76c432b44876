"""Spark gives the same value, the same type and the same failures as plain Python and Arrow."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import penstock as ps
import penstock.expr
from penstock.engines.spark.expressions import RULES, SharedColumns, lower_spark
from penstock.engines.spark.session.session import RunSession, open_session
from penstock.engines.spark.types import from_spark, spark_schema
from penstock.expr import Expr, Node, SparkSql, col, concat, lit, spark_expr, to_plain, when
from penstock.expr.node import post_order
from penstock.expr.nodes.logic import Comparison
from tests.expr.test_agreement import FAMILIES
from tests.support.evaluation import FAILED, batch_of, both, same
from tests.support.expression_samples import nested, rows
from tests.support.spark_expressions import assert_agree, frame, on_spark

STRIDE = {"arithmetic": 5, "comparison": 5}  # these cross all types with all types and many literals
SCHEMA = pa.schema(
    {
        "kind": pa.string(),
        "price": pa.float64(),
        "name": pa.string(),
        "n": pa.int64(),
        "time": pa.timestamp("us"),
    }
)


def sample_expressions(family: str) -> list[Expr]:
    return list(FAMILIES[family]())[:: STRIDE.get(family, 1)]


def test_every_node_has_a_rule_and_all_but_sql_are_tried() -> None:
    every = {
        node for node in vars(penstock.expr).values() if isinstance(node, type) and issubclass(node, Node)
    }
    every -= {Node, Expr, Comparison}  # a node is one of its subclasses
    assert all(node in RULES for node in every)
    seen = {
        type(node) for family in FAMILIES for expr in sample_expressions(family) for node in post_order(expr)
    }
    assert every - seen == {SparkSql}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_spark_agrees_on_every_node_and_type(family: str, spark: Any) -> None:
    assert_agree(spark, sample_expressions(family), rows())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bool", "i64", "f64", "text", "time", "day"])
def test_spark_agrees_on_nested_expressions(name: str, spark: Any) -> None:
    assert_agree(spark, nested(name, 25), rows())


@pytest.mark.slow
def test_the_answers_do_not_depend_on_ansi_rules(spark_session: RunSession) -> None:
    lenient = open_session(ps.SparkOptions(conf={"spark.sql.ansi.enabled": "false"})).spark
    every = [expr for family in FAMILIES.values() for expr in family()]
    assert_agree(lenient, every[::47], rows())


@pytest.mark.slow
def test_a_failure_is_told_from_a_null_even_beside_one(spark: Any) -> None:
    batch = batch_of({"a": ([0, 0, 2, None], pa.int64()), "b": ([None, 1, None, 1], pa.int64())})
    assert on_spark(spark, [(1 // col("a")) + col("b")], batch) == [[FAILED, FAILED, None, None]]


@pytest.mark.slow
def test_sql_of_the_programs_own_is_computed_as_it_stands(spark: Any) -> None:
    batch = batch_of({"name": (["Robert", None], pa.string())})
    assert on_spark(spark, [spark_expr("soundex(name)", "string")], batch) == [["R163", None]]


@pytest.mark.slow
def test_names_and_patterns_are_never_read_as_sql(spark: Any) -> None:
    odd = "a.b` + 1 -- '"
    batch = batch_of({odd: (["x') OR 1=1 --", "[a-z]", None], pa.string()), "A": ([1, 2, 3], pa.int64())})
    batch = batch.append_column("a", pa.array([7, 8, 9], pa.int64()))
    expressions = [
        col(odd).str.replace("') OR 1=1 --", "'; DROP"),
        col(odd).str.split("[a-z]").list.length(),
        col("A") + col("a"),
    ]
    assert on_spark(spark, expressions, batch) == [
        ["x'; DROP", "[a-z]", None],
        [1, 2, None],
        [8, 10, 12],
    ]


@pytest.mark.slow
def test_what_cannot_fail_has_the_physical_plan_that_a_person_would_write(spark: Any) -> None:
    rows = spark.createDataFrame([], spark_schema(SCHEMA))
    wanted = (col("kind") == "view") & (col("price") > 10) & col("n").is_in([1, 2, 3])
    output = {
        "gross": col("price") * 1.2 + 1,
        "half": col("price") / 2,
        "week": col("n") % 7,
        "label": concat(col("name"), "-", col("kind").str.slice(0, 3)),
        "hour": col("time").dt.hour(),
        "size": when(col("price") > 100).then("big").otherwise("small"),
    }
    by_hand = rows.filter(
        (F.col("kind") == "view") & (F.col("price") > 10) & F.col("n").isin([1, 2, 3])
    ).select(
        (F.col("price") * 1.2 + 1).alias("gross"),
        (F.col("price") / 2).alias("half"),
        F.pmod("n", F.lit(7)).alias("week"),
        F.concat("name", F.lit("-"), F.substring("kind", 1, 3)).alias("label"),
        F.hour("time").cast("long").alias("hour"),
        F.when(F.col("price") > 100, "big").otherwise("small").alias("size"),
    )
    columns = [lower_unfailing(expr).alias(name) for name, expr in output.items()]
    ours = rows.filter(lower_unfailing(wanted)).select(*columns)
    assert plan(ours) == plan(by_hand)


@pytest.mark.slow
def test_every_type_goes_into_spark_and_comes_back(spark: Any) -> None:
    batch = rows()
    back = frame(spark, batch).toArrow().sort_by("n").drop_columns(["n"])
    for name, column in zip(batch.schema.names, from_spark(back, batch.schema).columns, strict=True):
        assert column.type == batch.schema.field(name).type
        assert same(to_plain(column.combine_chunks()), to_plain(batch.column(name))), name


@pytest.mark.slow
def test_a_deep_expression_is_computed_in_parts(spark: Any) -> None:
    deep: Expr = col("a")
    for _ in range(12):
        deep = (deep // lit(0.5)) % 1000.0 - col("b")
    batch = batch_of(
        {"a": ([7.25, None, -1e9, 3.0], pa.float64()), "b": ([0.5, 1.0, None, -2.0], pa.float64())}
    )
    parts = SharedColumns(frame(spark, batch))
    lowered = lower_spark(deep, batch.schema, shared=parts)
    rows = parts.rows.select("n", lowered.value.alias("v")).toArrow().sort_by("n")
    assert rows["v"].to_pylist() == both(deep, batch)
    assert parts.rows.columns[:3] == ["a", "b", "n"]


@pytest.mark.slow
def test_a_failure_inside_a_part_is_still_a_failure(spark: Any) -> None:
    long = col("a")
    for _ in range(30):
        long = long + col("a")
    batch = batch_of({"a": ([1 << 60, 2, None], pa.int64())})
    parts = SharedColumns(frame(spark, batch))
    lowered = lower_spark(long, batch.schema, shared=parts)
    assert lowered.failed is not None
    rows = parts.rows.select("n", lowered.value.alias("v"), lowered.failed.alias("f")).toArrow().sort_by("n")
    assert (rows["v"].to_pylist(), rows["f"].to_pylist()) == ([None, 62, None], [True, False, False])
    assert len(parts.rows.columns) > 2


def lower_unfailing(expr: Expr) -> Any:
    lowered = lower_spark(expr, SCHEMA, shared=SharedColumns(None))  # it is too small to have parts
    assert lowered.failed is None, str(expr)
    return lowered.value


def plan(frame: Any) -> str:
    """The physical plan without the numbers that Spark gives to columns."""
    return re.sub(r"#\d+L?", "", frame._jdf.queryExecution().executedPlan().toString())


@pytest.mark.slow
def test_spark_agrees_on_expressions_over_the_columns_of_a_pair(spark: Any) -> None:
    batch = batch_of(
        {
            "left.a": ([1, 2, None, 4], pa.int64()),
            "left.x.y": (["b", "ab", "b", None], pa.string()),
            "right.a": ([1, 3, 1, 0], pa.int32()),
            "right.left.a": ([1.0, float("nan"), None, 0.0], pa.float64()),
        }
    )
    left, right = ps.left("a"), ps.right("a")
    pairs = [
        left > right,
        left == right,
        (left // right >= 1) & (ps.right("left.a") > left),
        ps.left("x.y").str.contains("a") | (left.is_null() & (right == 1)),
    ]
    assert_agree(spark, pairs, batch)
