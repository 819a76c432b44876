"""What Spark raises is told in a line."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import penstock as ps
from penstock.engines.spark.driver.job_results import translate_failure
from penstock.engines.spark.driver.jobs import SparkJobs
from penstock.errors import EngineError, FunctionError
from penstock.plan.plan import Plan


class Py4JJavaError(Exception):
    """As py4j raises it, by name."""

    __module__ = "py4j.protocol"


LOST = """An error occurred while calling o91.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
	at org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: {}
	at org.apache.spark.executor.Executor$TaskRunner.run(Executor.scala:906)
"""


def plan_of(*functions: str) -> Plan:
    graph = ps.PipeGraph("dead")
    pipe = graph.source(ps.read.batches([[{"v": 1}]], schema={"v": int}))
    for name in functions:
        pipe = pipe.map(lambda row: {"v": row.v}, schema={"v": int}, name=name)
    pipe.with_columns(v=ps.col("v") + 1, name="expression").sink(ps.write.memory())
    return graph.plan()


def test_a_worker_that_died_is_told_with_the_step_if_only_one_can_have_done_it() -> None:
    lost = Py4JJavaError(LOST.format("Python worker exited unexpectedly (crashed)"))
    error = translate_failure(lost, plan_of("deadly"))
    assert isinstance(error, EngineError)
    assert error.fact.startswith("a Python worker of Spark died")
    assert error.step == "deadly"
    assert error.where is not None
    assert error.__cause__ is lost


@pytest.mark.parametrize(
    ("functions", "detail"),
    [(("a", "b"), 'steps with Python functions: "a", "b"'), ((), "no step has a Python function")],
)
def test_a_worker_that_died_is_told_with_all_steps_that_can_have_done_it(
    functions: tuple[str, ...], detail: str
) -> None:
    error = translate_failure(
        Py4JJavaError(LOST.format("Python worker exited unexpectedly")), plan_of(*functions)
    )
    assert isinstance(error, EngineError)
    assert (error.step, error.detail) == (None, detail)


def test_a_module_that_workers_lack_is_named() -> None:
    error = translate_failure(
        Py4JJavaError(LOST.format("ModuleNotFoundError: No module named 'mine.x'")), plan_of()
    )
    assert isinstance(error, EngineError)
    assert error.fact == 'a Python worker of Spark cannot import "mine.x"'
    assert "py_files=" in str(error.hint)


def test_other_failures_of_spark_are_told_by_their_last_reason() -> None:
    error = translate_failure(Py4JJavaError(LOST.format("no room")), plan_of())
    assert isinstance(error, EngineError)
    assert error.fact == "Spark failed to run a batch"
    assert error.detail == "org.apache.spark.SparkException: Job aborted due to stage failure: no room"


def test_what_spark_did_not_raise_stays_as_it_is() -> None:
    failure = KeyboardInterrupt()
    assert translate_failure(failure, plan_of()) is failure


def test_a_step_that_cannot_be_sent_to_workers_is_named_with_its_function() -> None:
    lock = threading.Lock()

    def keep(row: Any) -> bool:
        with lock:
            return True

    graph = ps.PipeGraph("locked")
    rows = graph.source(ps.read.batches([[{"v": 1}]], schema={"v": int}))
    rows.filter(keep, name="guarded").sink(ps.write.memory())
    jobs = SparkJobs(None, graph.plan(), 1)  # it fails before it needs a session
    with pytest.raises(FunctionError, match='step "guarded" cannot be sent to the workers') as raised:
        jobs._broadcast_plans()
    assert raised.value.step == "guarded"
    assert raised.value.where is not None
    assert raised.value.where.line == keep.__code__.co_firstlineno
    assert 'holds "lock", a _thread.lock' in str(raised.value.detail)
