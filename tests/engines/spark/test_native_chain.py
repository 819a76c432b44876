"""Which steps stay in the JVM, and the reasons told for those that do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import col
from penstock.engines.spark.fragments import split_into_fragments
from penstock.engines.spark.jvm.pipeline import SourcePipeline, source_pipelines
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


def chain_of(plan: Plan) -> SourcePipeline:
    (chain,) = source_pipelines(plan, split_into_fragments(plan))
    return chain


def counted(pipe: ps.MultiPipe) -> ps.MultiPipe:
    return pipe.window(ps.tumbling("1 s"), name="w").aggregate(n=ps.count())


def names(chain: SourcePipeline) -> list[str]:
    return [step.name for step in chain.steps]


def test_expressions_and_table_joins_stay_and_windows_take_parts(folder: Path) -> None:
    table = ps.read.rows([{"key": "a", "rank": 1}])

    def verbs(pipe: ps.MultiPipe) -> ps.MultiPipe:
        kept = (
            pipe.filter(col("x") > 0.0, name="f")
            .with_columns(y=col("x") * 2.0, name="m")
            .select("t", "key", "y")
        )
        return counted(kept.join_table(table, on="key", name="j"))

    chain = chain_of(plan_of(ps.read.parquet(folder), verbs))
    assert names(chain) == ["f", "m", "select", "j"]
    assert chain.window is not None
    assert chain.window.name == "w"
    assert chain.ends is None


def test_a_python_function_ends_the_chain(folder: Path) -> None:
    def verbs(pipe: ps.MultiPipe) -> ps.MultiPipe:
        return counted(pipe.filter(col("x") > 0.0, name="f").filter(lambda row: row.flag, name="g"))

    chain = chain_of(plan_of(ps.read.parquet(folder), verbs))
    assert (names(chain), chain.window) == (["f"], None)
    assert chain.ends == "g runs in Python: it is not an expression"


def test_in_rows_the_second_step_that_drops_some_runs_in_python(folder: Path) -> None:
    def verbs(pipe: ps.MultiPipe) -> ps.MultiPipe:
        return (
            pipe.filter(col("x") > 0.0, name="f")
            .with_columns(y=col("x"), name="m")
            .filter(col("flag"), name="g")
        )

    chain = chain_of(plan_of(ps.read.parquet(folder), verbs))
    assert names(chain) == ["f", "m"]
    assert chain.ends == "g runs in Python: the rows it drops are counted there"


def test_windows_that_keep_rows_are_given_rows_with_the_reason(folder: Path) -> None:
    def verbs(pipe: ps.MultiPipe) -> ps.MultiPipe:
        return pipe.window(ps.tumbling("1 s"), name="w").aggregate(last=ps.last("x"))

    chain = chain_of(plan_of(ps.read.parquet(folder), verbs))
    assert chain.window is None
    assert (chain.ends or "").startswith("w takes rows: last=")


def test_what_several_read_ends_the_chain(folder: Path) -> None:
    def verbs(pipe: ps.MultiPipe) -> ps.MultiPipe:
        pipe.with_columns(y=col("x")).sink(ps.write.memory())
        return pipe.filter(col("x") > 0.0)

    chain = chain_of(plan_of(ps.read.parquet(folder), verbs))
    assert (names(chain), chain.ends) == ([], "several read it")


def test_late_rows_that_are_worked_on_behind_windows_keep_the_windows_on_rows(folder: Path) -> None:
    def verbs(pipe: ps.MultiPipe) -> ps.MultiPipe:
        views = counted(pipe)
        views.late.with_columns(y=col("x")).sink(ps.write.memory())
        return views

    chain = chain_of(plan_of(ps.read.parquet(folder), verbs))
    assert chain.window is None
    assert (
        chain.ends
        == "w takes rows: its late or failed rows, or the parts of another chain, are with its windows"
    )
