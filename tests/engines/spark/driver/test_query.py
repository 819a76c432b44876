"""Queries that serve one run after the other, and when a run has one of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import EngineError, col
from penstock.engines.spark.driver import run as ticking
from penstock.engines.spark.driver.run import DriverQuery
from penstock.engines.spark.session.session import RunSession
from tests.support import crashing_graph as dying

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[4]


def double_value(v: int) -> list[int]:
    rows = ps.PipeGraph("doubled").source(ps.read.rows([{"v": v}]))
    output: list[int] = rows.with_columns(v=col("v") * 2).collect("spark")["v"].to_pylist()
    return output


def test_runs_one_after_the_other_share_a_query(spark_session: RunSession) -> None:
    assert double_value(1) == [2]
    waiting = list(ticking._WAITING)
    assert (double_value(2), ticking._WAITING) == ([4], waiting)


def test_a_run_that_fails_leaves_the_query_to_the_next(spark_session: RunSession) -> None:
    double_value(1)
    waiting = list(ticking._WAITING)
    graph = ps.PipeGraph("fails")
    with pytest.raises(ps.FunctionError):
        graph.source(ps.read.rows([{"v": 0}])).with_columns(v=ps.lit(1) % col("v")).collect("spark")
    assert (double_value(3), ticking._WAITING) == ([6], waiting)


def test_runs_at_the_same_time_have_a_query_each(spark_session: RunSession) -> None:
    meet = threading.Barrier(2, timeout=60)

    def graph(name: str) -> ps.PipeGraph:
        graph = ps.PipeGraph(name)
        met = ps.write.callback(lambda batch: meet.wait() and None)
        graph.source(ps.read.rows([{"v": 1}])).with_columns(v=col("v") + 1).sink(met)
        return graph

    runs = [graph(name).start("spark") for name in "ab"]
    assert [run.wait(60).outcome for run in runs] == ["drained", "drained"]


def test_a_run_with_a_trigger_ticks_by_itself(spark_session: RunSession) -> None:
    before = list(ticking._WAITING)
    rows = ps.PipeGraph("slow").source(ps.read.rows([{"v": 1}]))
    pipe = rows.with_columns(v=col("v") + 1)
    pipe.sink(memory := ps.write.memory())
    rows.graph.run("spark", options=ps.SparkOptions(trigger="10 milliseconds"))
    assert (memory.table()["v"].to_pylist(), ticking._WAITING) == ([2], before)


def test_a_query_that_spark_stops_ends_the_run_with_an_error(
    spark_session: RunSession, tmp_path: Path
) -> None:
    query = DriverQuery(spark_session.spark, "stopped", folder=str(tmp_path))

    def turn() -> bool:
        threading.Thread(target=query._query.stop, daemon=True).start()
        return True

    with pytest.raises(EngineError, match="Spark stopped the query"):
        query.serve(turn)


STOPPED = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import penstock as ps
from tests.support import crashing_graph as dying

def run() -> int:
    rows = ps.PipeGraph("g").source(ps.read.rows([{"v": 1}]))
    return rows.with_columns(v=ps.col("v") + 1).collect("spark").num_rows

dying.run(Path(sys.argv[1]), "spark")
print(run())
SparkSession.active().stop()
print(run())
"""


def test_runs_print_nothing_and_a_waiting_query_keeps_neither_spark_nor_the_process_alive(
    tmp_path: Path,
) -> None:
    done: Any = subprocess.run(
        [sys.executable, "-c", STOPPED, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n1\n", "")
    assert dying.read_sinks(tmp_path) == dying.expected_sinks(tmp_path / "whole")
