"""Failures cross from a worker to the driver as what they were, and Spark's own are told in a line."""

from __future__ import annotations

import json

import pytest

import penstock as ps
from penstock import errors
from penstock.engines.spark.failures import as_data, as_error, from_spark
from penstock.errors import EngineError, FunctionError, PenstockError, Where
from penstock.plan.plan import Plan


def crossed(failure: Exception) -> PenstockError:
    return as_error(json.loads(json.dumps(as_data(failure, 3))))


@pytest.mark.parametrize(
    "kind",
    [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, PenstockError)],
)
def test_an_error_of_ours_arrives_as_it_was(kind: type[PenstockError]) -> None:
    failure = kind("a fact", step="sums", where=Where("a.py", 7), detail="so and so", hint="do this")
    told = crossed(failure)
    assert type(told) is kind
    assert str(told) == str(failure)
    assert (told.step, told.where, told.hint) == ("sums", Where("a.py", 7), "do this")


@pytest.mark.parametrize(
    "cause", [ZeroDivisionError("division by zero"), KeyError("k"), ValueError(), OSError(2, "no such file")]
)
def test_what_a_users_function_raised_is_still_the_cause(cause: Exception) -> None:
    failure = FunctionError("function f failed on a row")
    failure.__cause__ = cause
    told = crossed(failure).__cause__
    assert type(told) is type(cause)
    assert str(told) == str(cause)


class Own(Exception):
    """An exception that the driver need not know."""


class Mute(Exception):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (Own("text"), "Own: text"),
        (Mute(1, 2), "Mute: (its text cannot be shown: RuntimeError)"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), "UnicodeDecodeError: 'utf-8' codec can't decode"),
    ],
)
def test_another_cause_is_told_by_its_name(cause: Exception, text: str) -> None:
    failure = FunctionError("function f failed on a row")
    failure.__cause__ = cause
    assert str(crossed(failure).__cause__).startswith(text)


def test_what_is_no_error_of_ours_is_told_with_its_trace() -> None:
    try:
        raise MemoryError("too much")
    except MemoryError as failure:
        told = crossed(failure)
    assert isinstance(told, EngineError)
    assert told.fact == "a worker failed: MemoryError"
    assert "test_failures.py" in str(told.detail)


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
    pipe.map(v=ps.col("v") + 1, name="expression").sink(ps.write.memory())
    return graph.plan()


def test_a_worker_that_died_is_told_with_the_step_if_only_one_can_have_done_it() -> None:
    lost = Py4JJavaError(LOST.format("Python worker exited unexpectedly (crashed)"))
    told = from_spark(lost, plan_of("deadly"))
    assert isinstance(told, EngineError)
    assert told.fact.startswith("a Python worker of Spark died")
    assert told.step == "deadly"
    assert told.where is not None
    assert told.__cause__ is lost


@pytest.mark.parametrize(
    ("functions", "detail"),
    [(("a", "b"), 'steps with Python functions: "a", "b"'), ((), "no step has a Python function")],
)
def test_a_worker_that_died_is_told_with_all_steps_that_can_have_done_it(
    functions: tuple[str, ...], detail: str
) -> None:
    told = from_spark(Py4JJavaError(LOST.format("Python worker exited unexpectedly")), plan_of(*functions))
    assert isinstance(told, EngineError)
    assert (told.step, told.detail) == (None, detail)


def test_a_module_that_workers_lack_is_named() -> None:
    told = from_spark(Py4JJavaError(LOST.format("ModuleNotFoundError: No module named 'mine.x'")), plan_of())
    assert isinstance(told, EngineError)
    assert told.fact == 'a Python worker of Spark cannot import "mine.x"'
    assert "mine.zip" in str(told.hint)


def test_other_failures_of_spark_are_told_by_their_last_reason() -> None:
    told = from_spark(Py4JJavaError(LOST.format("no room")), plan_of())
    assert isinstance(told, EngineError)
    assert told.fact == "Spark failed to run a batch"
    assert told.detail == "org.apache.spark.SparkException: Job aborted due to stage failure: no room"


def test_what_spark_did_not_raise_stays_as_it_is() -> None:
    failure = KeyboardInterrupt()
    assert from_spark(failure, plan_of()) is failure
