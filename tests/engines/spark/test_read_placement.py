"""Who reads a source, which columns of it, and what explain says of that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import col
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.read_placement import SourcePipeline, source_columns, source_pipelines
from penstock.plan.plan import Plan
from tests.support.parquet_feeds import columns, write_files

Verbs = Callable[[ps.MultiPipe], ps.MultiPipe]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("files"), [columns(10, 1)])


def plan_of(reader: Any, verbs: Verbs, **options: Any) -> Plan:
    graph = ps.PipeGraph("chains")
    source = graph.source(reader, **{"time": "t", "delay": "1 s", "name": "s", **options})
    verbs(source).sink(ps.write.memory(), name="out")
    return Plan("chains", tuple(graph.steps.values()))


def count_windows(pipe: ps.MultiPipe) -> ps.MultiPipe:
    return pipe.window(ps.tumbling("1 s"), name="w").aggregate(n=ps.count())


def pipeline_of(folder: Path, verbs: Verbs) -> SourcePipeline:
    (pipeline,) = source_pipelines(plan_of(ps.read.parquet(folder), verbs))
    return pipeline


def names(pipeline: SourcePipeline) -> list[str]:
    return [step.name for step in pipeline.steps]


def columns_read(folder: Path, verbs: Verbs) -> tuple[str, ...]:
    plan = plan_of(ps.read.parquet(folder), verbs)
    return source_columns(plan, plan.sources[0])


@pytest.mark.parametrize(
    "verbs",
    [
        count_windows,
        lambda pipe: count_windows(pipe.filter(col("x") > 0.0).with_columns(y=col("x") * 2.0)),
        lambda pipe: pipe.filter(col("x") > 0.0).filter(lambda row: row.flag),
        lambda pipe: pipe.filter(col("x") > 0.0),
        lambda pipe: count_windows(pipe.join_table(ps.read.rows([{"key": "a", "rank": 1}]), on="key")),
    ],
    ids=["windows", "expressions", "functions", "only expressions", "table joins"],
)
def test_workers_read_files(folder: Path, verbs: Verbs) -> None:
    assert pipeline_of(folder, verbs).jvm_reason is None


def test_the_jvm_reads_where_its_own_sql_follows(folder: Path) -> None:
    sql = ps.spark_expr("abs(x)", "float64")
    reason = pipeline_of(folder, lambda pipe: count_windows(pipe.with_columns(y=sql))).jvm_reason
    assert reason is not None
    assert reason.endswith("is Spark's own")


def in_the_jvm(pipe: ps.MultiPipe) -> ps.MultiPipe:
    return pipe.with_columns(z=ps.spark_expr("abs(x)", "float64"), name="sql")


@pytest.mark.parametrize(
    ("verbs", "steps", "stop"),
    [
        (
            lambda pipe: count_windows(pipe.filter(col("x") > 0.0, name="f").filter(col("flag"), name="g")),
            ["f", "g"],
            "w runs in Python: it keeps state",
        ),
        (
            lambda pipe: count_windows(pipe.filter(lambda row: row.flag, name="g")),
            [],
            "g runs in Python: it is not an expression",
        ),
        (
            lambda pipe: pipe.join_table(ps.read.rows([{"key": "a", "rank": 1}]), on="key", name="j"),
            [],
            "j runs in Python: it joins a table",
        ),
        (lambda pipe: pipe.select("key", name="k"), ["k"], "out writes rows"),
    ],
    ids=["expressions", "function", "table join", "sink"],
)
def test_expressions_stay_in_the_jvm_until_a_step_that_cannot(
    folder: Path, verbs: Verbs, steps: list[str], stop: str
) -> None:
    pipeline = pipeline_of(folder, lambda pipe: verbs(in_the_jvm(pipe)))
    assert (names(pipeline), pipeline.stop) == (["sql", *steps], stop)


def test_what_several_read_ends_the_pipeline(folder: Path) -> None:
    def verbs(pipe: ps.MultiPipe) -> ps.MultiPipe:
        pipe.with_columns(y=col("x")).sink(ps.write.memory())
        return pipe.filter(col("x") > 0.0)

    pipeline = pipeline_of(folder, verbs)
    assert (names(pipeline), pipeline.stop) == ([], "several read it")


def test_only_columns_that_are_used_are_read(folder: Path) -> None:
    assert columns_read(folder, count_windows) == ("t",)
    sums = {"a": ps.sum(col("x") + col("f")), "b": ps.count("big")}

    def keyed(pipe: ps.MultiPipe) -> ps.MultiPipe:
        return pipe.key_by("key").window(ps.tumbling("1 s")).aggregate(**sums)

    assert columns_read(folder, keyed) == ("t", "key", "f", "x", "big")
    assert columns_read(folder, lambda pipe: count_windows(pipe.filter(col("flag")))) == ("t", "flag")
    assert columns_read(folder, lambda pipe: keyed(pipe.with_columns(x=col("small") * 1.0))) == (
        "t",
        "key",
        "f",
        "big",
        "small",
    )
    assert columns_read(folder, lambda pipe: count_windows(pipe.select("x", y=col("day")))) == (
        "t",
        "x",
        "day",
    )


def test_a_table_join_reads_the_columns_that_it_looks_up_by(folder: Path) -> None:
    def sum_ranks(pipe: ps.MultiPipe) -> ps.MultiPipe:
        joined = pipe.join_table(ps.read.rows([{"key": "a", "rank": 1}]), on="key")
        return joined.window(ps.tumbling("1 s")).aggregate(rank=ps.sum("rank"), x=ps.sum("x"))

    assert columns_read(folder, sum_ranks) == ("t", "key", "x")


def test_a_fold_reads_the_columns_that_it_names(folder: Path) -> None:
    def least(columns: Any) -> Verbs:
        fold = ps.fold(lambda row: row.x, min, 1e300, columns=columns, type="float64")
        return lambda pipe: pipe.window(ps.tumbling("1 s")).aggregate(least=fold)

    assert columns_read(folder, least("x")) == ("t", "x")
    assert len(columns_read(folder, least(None))) == 8


def test_all_columns_are_read_where_rows_are_seen_as_they_are(folder: Path) -> None:
    def with_late(pipe: ps.MultiPipe) -> ps.MultiPipe:
        views = count_windows(pipe)
        views.late.sink(ps.write.memory())
        return views

    assert len(columns_read(folder, with_late)) == 8
    assert len(columns_read(folder, lambda pipe: pipe.filter(lambda row: row.flag))) == 8
    assert len(columns_read(folder, lambda pipe: pipe)) == 8


@pytest.mark.parametrize(
    ("reader", "options", "reason"),
    [
        (lambda folder: ps.read.parquet(folder, batch=10), {}, "batch= cuts inside of files"),
        (ps.read.parquet, {"watermark": "t"}, "its watermark follows the clock or a rule of its own"),
    ],
)
def test_the_plan_says_why_rows_are_looked_at_before_their_round(
    folder: Path, reader: Any, options: dict[str, Any], reason: str
) -> None:
    lines = SparkEngine().explain(plan_of(reader(folder), count_windows, **options))
    assert lines[0] == f"s is read by Python workers, by a job of its own: {reason}"


def test_the_plan_says_that_text_without_a_time_is_read_by_the_job_of_its_steps(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\nb\n")
    graph = ps.PipeGraph("text")
    graph.source(ps.read.text(tmp_path), name="s").filter(col("line") != "a").sink(ps.write.memory())
    lines = SparkEngine().explain(graph.plan())
    assert lines[0] == "s is read by Python workers, in the job of its steps: only parquet files have footers"


def test_the_plan_says_what_lives_on_the_driver(tmp_path: Path) -> None:
    graph = ps.PipeGraph("rows")
    rows = graph.source(ps.read.rows([{"v": 1}]), name="s").filter(col("v") > 0, name="f")
    rows.sink(ps.write.memory(), name="seen")
    rows.sink(ps.write.jsonl(tmp_path / "out"), name="out")
    assert SparkEngine().explain(graph.plan()) == [
        "s is read on the driver, piece by piece: rows (1 rows) lives in its process",
        "fragment 0, where rows are read: f",
        "written by the tasks that have the rows: out",
        "sent to the driver, where they live: seen",
    ]


def test_the_plan_says_that_workers_read_and_which_columns(folder: Path) -> None:
    def verbs(pipe: ps.MultiPipe) -> ps.MultiPipe:
        return count_windows(pipe.filter(col("x") > 0.0, name="f"))

    lines = SparkEngine().explain(plan_of(ps.read.parquet(folder), verbs))
    assert lines == [
        "s is read by Python workers, only columns t, x",
        "fragment 0, where rows are read: f",
        "fragment 1, after an exchange by key: w",
        "sent to the driver, where they live: out",
    ]


def test_the_plan_says_what_stays_in_the_jvm_and_why(folder: Path) -> None:
    lines = SparkEngine().explain(plan_of(ps.read.parquet(folder), in_the_jvm))
    assert lines[:2] == [
        's is read by Spark, in the JVM with sql: spark_expr("abs(x)", "float64") is Spark\'s own',
        "rows leave the JVM behind sql: out writes rows",
    ]
