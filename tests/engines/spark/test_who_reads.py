"""Who reads a source, which columns of it, and what explain says of that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import col
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.fragments import split_into_fragments
from penstock.engines.spark.jvm.pipeline import source_pipelines
from penstock.engines.spark.read_placement import needed_columns, why_jvm_reads
from penstock.plan.plan import Plan
from tests.engines.spark.feeds import columns, write_files

Verbs = Callable[[ps.MultiPipe], ps.MultiPipe]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("files"), [columns(10, 1)])


def plan_of(reader: Any, verbs: Verbs, **options: Any) -> Plan:
    graph = ps.PipeGraph("chains")
    source = graph.source(reader, **{"time": "t", "delay": "1 s", "name": "s", **options})
    verbs(source).sink(ps.write.memory(), name="out")
    return Plan("chains", tuple(graph.steps))


def counted(pipe: ps.MultiPipe) -> ps.MultiPipe:
    return pipe.window(ps.tumbling("1 s"), name="w").aggregate(n=ps.count())


def why(folder: Path, verbs: Verbs) -> str | None:
    plan = plan_of(ps.read.parquet(folder), verbs)
    (chain,) = source_pipelines(plan, split_into_fragments(plan))
    return why_jvm_reads(plan, chain)


def read_of(folder: Path, verbs: Verbs) -> tuple[str, ...]:
    plan = plan_of(ps.read.parquet(folder), verbs)
    (chain,) = source_pipelines(plan, split_into_fragments(plan))
    return needed_columns(plan, chain)


def test_workers_read_what_goes_to_windows_or_to_functions(folder: Path) -> None:
    assert why(folder, counted) is None
    assert (
        why(folder, lambda pipe: counted(pipe.filter(col("x") > 0.0).with_columns(y=col("x") * 2.0))) is None
    )
    assert why(folder, lambda pipe: pipe.filter(col("x") > 0.0).filter(lambda row: row.flag)) is None


def test_the_jvm_reads_for_expressions_alone_for_table_joins_and_for_its_own_sql(folder: Path) -> None:
    table = ps.read.rows([{"key": "a", "rank": 1}])
    assert why(folder, lambda pipe: pipe.filter(col("x") > 0.0)) == "all that is done is expressions"
    assert why(folder, lambda pipe: counted(pipe.join_table(table, on="key", name="j"))) == "j joins a table"
    sql = ps.spark_expr("abs(x)", "float64")
    found = why(folder, lambda pipe: counted(pipe.with_columns(y=sql)))
    assert found is not None
    assert found.endswith("is Spark's own")


def test_only_columns_that_are_looked_at_are_read(folder: Path) -> None:
    assert read_of(folder, counted) == ("t",)
    sums = {"a": ps.sum(col("x") + col("f")), "b": ps.count("big")}

    def keyed(pipe: ps.MultiPipe) -> ps.MultiPipe:
        return pipe.key_by("key").window(ps.tumbling("1 s")).aggregate(**sums)

    assert read_of(folder, keyed) == ("t", "key", "f", "x", "big")
    assert read_of(folder, lambda pipe: counted(pipe.filter(col("flag")))) == ("t", "flag")
    assert read_of(folder, lambda pipe: keyed(pipe.with_columns(x=col("small") * 1.0))) == (
        "t",
        "key",
        "f",
        "big",
        "small",
    )
    assert read_of(folder, lambda pipe: counted(pipe.select("x", y=col("day")))) == ("t", "x", "day")


def test_a_fold_reads_the_columns_that_it_names(folder: Path) -> None:
    def least(columns: Any) -> Verbs:
        fold = ps.fold(lambda row: row.x, min, 1e300, columns=columns, type="float64")
        return lambda pipe: pipe.window(ps.tumbling("1 s")).aggregate(least=fold)

    assert read_of(folder, least("x")) == ("t", "x")
    assert len(read_of(folder, least(None))) == 8


def test_all_columns_are_read_where_rows_are_seen_as_they_are(folder: Path) -> None:
    def with_late(pipe: ps.MultiPipe) -> ps.MultiPipe:
        views = counted(pipe)
        views.late.sink(ps.write.memory())
        return views

    assert len(read_of(folder, with_late)) == 8
    assert len(read_of(folder, lambda pipe: pipe.filter(lambda row: row.flag))) == 8
    assert len(read_of(folder, lambda pipe: pipe)) == 8


@pytest.mark.parametrize(
    ("reader", "options", "reason"),
    [
        (lambda folder: ps.read.parquet(folder, batch=10), {}, "batch= cuts inside of files"),
        (
            lambda folder: ps.read.rows([{"t": 1}]),
            {"time_unit": "s"},
            "only parquet files and DataFrames are read in the JVM",
        ),
        (ps.read.parquet, {"idle": "1 s"}, "its watermark follows the clock or a rule of its own"),
        (ps.read.parquet, {"watermark": "t"}, "its watermark follows the clock or a rule of its own"),
    ],
)
def test_the_plan_says_why_the_driver_reads_a_source(
    folder: Path, reader: Any, options: dict[str, Any], reason: str
) -> None:
    lines = SparkEngine().explain(plan_of(reader(folder), counted, **options))
    assert lines[0] == f"s is read on the driver: {reason}"


def test_the_plan_says_that_workers_read_and_with_what(folder: Path) -> None:
    def verbs(pipe: ps.MultiPipe) -> ps.MultiPipe:
        return counted(pipe.filter(col("x") > 0.0, name="f"))

    lines = SparkEngine().explain(plan_of(ps.read.parquet(folder), verbs))
    assert lines == [
        "s is read by Python workers, into columns, with f, late rows and the parts of w",
        "batches of less than 50,000 rows are read on the driver: that is faster",
        "fragment 0, where rows are read: f",
        "fragment 1, after an exchange by key: w",
    ]


def test_the_plan_says_what_stays_in_the_jvm_and_why(folder: Path) -> None:
    lines = SparkEngine().explain(
        plan_of(ps.read.parquet(folder), lambda pipe: pipe.filter(col("x") > 0.0, name="f"))
    )
    assert lines == [
        "s is read by Spark, in the JVM with f: all that is done is expressions",
        "rows leave the JVM behind f: out writes rows",
        "batches of less than 50,000 rows are read on the driver: that is faster",
        "fragment 0, where rows are read: f",
    ]
