"""A run on Spark that is fed by hand: what it gives, and what cannot be asked of it."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock import EngineError, FunctionError, GraphError, col
from penstock.engines.protocol import RunOptions, find_engine
from penstock.engines.spark.session.session import RunSession
from penstock.events import Event, RunEnded, StepFailed
from penstock.plan.plan import Ref
from penstock.testing import Harness

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark_session")]


def rows() -> ps.MultiPipe:
    empty = ps.read.rows([], schema={"t": int, "v": int})
    return ps.PipeGraph("by hand").source(empty, time="t", time_unit="s", delay="0 s", name="rows")


def test_every_push_is_a_round_that_is_done_when_the_call_returns() -> None:
    sums = rows().window(ps.tumbling("10 s"), name="w").aggregate(s=ps.sum("v"))
    harness = Harness(sums, engine="spark")
    harness.push([{"t": 1, "v": 2}, {"t": 12, "v": 3}])
    assert harness.take() == [{"window_start": 0, "window_end": 10, "s": 2}]
    harness.push([{"t": 3, "v": 9}])
    assert (harness.late(), harness.take()) == ([{"t": 3, "v": 9}], [])
    harness.watermark(20)
    assert harness.take() == [{"window_start": 10, "window_end": 20, "s": 3}]
    assert harness.accounts["rows"].rows_in == 3
    assert harness.end().outcome == "drained"


def test_a_run_that_is_over_takes_nothing_more() -> None:
    harness = Harness(rows().with_columns(v=col("v") + 1), engine="spark")
    harness.end()
    with pytest.raises(EngineError, match='the run of "by hand" is over') as failure:
        harness.push([{"t": 1, "v": 2}])
    assert failure.value.hint == "begin another session"


def test_a_step_that_fails_ends_the_run() -> None:
    heard: list[Event] = []
    harness = Harness(
        rows().with_columns(v=ps.lit(1) % col("v"), name="rest"), engine="spark", events=heard.append
    )
    with pytest.raises(FunctionError, match="failed on a row"):
        harness.push([{"t": 1, "v": 0}])
    assert [type(event) for event in heard[-2:]] == [StepFailed, RunEnded]
    with pytest.raises(EngineError, match="is over"):
        harness.push([{"t": 1, "v": 1}])


def test_what_is_not_there_is_named_with_what_is(spark_session: RunSession) -> None:
    pipe = rows().with_columns(v=col("v") + 1, name="more")
    plan = pipe.graph.plan(pipe)
    harness = find_engine("spark").open_harness(
        plan, clock=ps.ManualClock(), events=lambda event: None, options=RunOptions()
    )
    with pytest.raises(GraphError, match='there is no source "row" in this run') as failure:
        harness.push({"row": next(iter(ps.read.rows([{"t": 1, "v": 1}]).batches()))})
    assert failure.value.detail == "the sources are rows"
    with pytest.raises(GraphError, match="are not collected in this run"):
        harness.take(Ref("rows", "out"))
    harness.end()
