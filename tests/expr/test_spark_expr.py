"""`spark_expr` is typed like any expression, and refused before a run by engines that are not Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as ps
from penstock import col
from penstock.errors import NotSupported, SchemaError
from penstock.expr import type_of

SCHEMA = pa.schema([("name", pa.string())])


def test_it_has_the_type_that_was_declared() -> None:
    assert type_of(ps.spark_expr("soundex(name)", "string") == "A500", SCHEMA) == pa.bool_()


def test_it_prints_as_typed() -> None:
    assert (
        str(ps.spark_expr('concat(name, "x")', "string")) == 'spark_expr("concat(name, \\"x\\")", "string")'
    )


@pytest.mark.parametrize("sql", ["", "  ", 5])
def test_empty_sql_is_refused(sql: object) -> None:
    with pytest.raises(SchemaError, match="is no SQL"):
        ps.spark_expr(sql, "string")  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize(
    "use",
    [
        lambda pipe: pipe.with_columns(code=ps.spark_expr("soundex(name)", "string")),
        lambda pipe: pipe.select(code=ps.spark_expr("soundex(name)", "string")),
        lambda pipe: pipe.filter((col("name") == "a") & ps.spark_expr("rlike(name, 'a')", "bool")),
        lambda pipe: pipe.flat_map(part=ps.spark_expr("sentences(name)[0]", "list<string>")),
        lambda pipe: pipe.split(a=ps.spark_expr("name > 'a'", "bool"), b=col("name") == "b")["a"],
    ],
)
def test_another_engine_refuses_it_before_the_run(use: object) -> None:
    assert callable(use)
    graph = ps.PipeGraph("g")
    pipe = use(graph.source(ps.read.rows([], schema=SCHEMA)))
    with pytest.raises(NotSupported, match="runs on Spark only") as caught:
        pipe.collect(engine="reference")
    assert caught.value.step
    assert caught.value.hint
