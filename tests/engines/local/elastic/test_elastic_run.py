"""Replicas that come and go while rows flow: the order behind them stays, and nothing is lost or doubled."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.clock import WallClock
from penstock.engines.local.dispatch import ThreadPool, run_task
from penstock.engines.local.elastic.controller import ReplicaScaling
from penstock.engines.local.options import Settings
from penstock.engines.local.run import build_runtime
from penstock.engines.protocol import RunOptions
from penstock.events import ScaleDecided, ignore_event
from penstock.plan.plan import Ref
from tests.support.examples import examples


def plan_of(n: int, seen: Any) -> tuple[Any, Ref]:
    """Rows through an elastic step that also filters and doubles, then through a step alone."""
    graph = ps.PipeGraph("elastic", chaining=False)
    rows = graph.source(ps.read.batches([[{"v": i}] for i in range(n)], schema={"v": "int64"}), name="rows")
    passed = rows.filter(seen, name="seen")
    thirds = passed.filter(col("v") % 3 != 0, parallelism=(1, 8), name="thirds")
    twice = thirds.flat_map(
        lambda row: [{"v": row.v}] * (row.v % 2 + 1), schema={"v": "int64"}, parallelism=(1, 8), name="twice"
    )
    last = twice.with_columns(v=col("v") + 0, parallelism=1, name="last")
    ref = last.feeds[0]
    return graph.plan(last), ref


def expected_values(n: int) -> list[int]:
    """What must come out, in order."""
    return [v for v in range(n) if v % 3 for _ in range(v % 2 + 1)]


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(20, nightly=60))
@given(
    changes=st.dictionaries(st.integers(0, 59), st.integers(1, 4)),
    seed=st.integers(0, 2**32),
    queue_size=st.sampled_from([1, 3, 64]),
)
def test_whenever_replicas_come_and_go_the_order_behind_them_stays(
    changes: dict[int, int], seed: int, queue_size: int
) -> None:
    def seen(row: Any) -> bool:
        if row.v in changes:
            assert scaling.set_replicas("thirds", changes[row.v])
        return True

    plan, ref = plan_of(60, seen)
    asked = Settings(cores=4, elastic=ps.Elastic(), seed=seed, queue_size=queue_size)
    run = build_runtime(plan, asked, RunOptions(), clock=WallClock(), events=ignore_event)
    scaling = ReplicaScaling(run.graph)
    run.dispatcher.begin(run.graph.tasks)
    while (task := run.dispatcher.next_task(0)) is not None:
        run_task(run.dispatcher, task)
    assert run.dispatcher.failure is None
    assert run.dispatcher.is_over
    assert run.graph.collections[ref].table().column("v").to_pylist() == expected_values(60)
    assert all(account.is_balanced for account in run.graph.accounts().values())


@pytest.mark.slow
def test_replicas_change_under_threads_too() -> None:
    def seen(row: Any) -> bool:
        scaling.set_replicas("thirds", 1 + row.v % 4)
        return True

    plan, ref = plan_of(400, seen)
    asked = Settings(cores=4, elastic=ps.Elastic(), queue_size=4)
    run = build_runtime(plan, asked, RunOptions(), clock=WallClock(), events=ignore_event)
    scaling = ReplicaScaling(run.graph)
    run.dispatcher.begin(run.graph.tasks)
    pool = ThreadPool(run.dispatcher)
    pool.set_threads(4)
    assert pool.join(60)
    assert run.graph.collections[ref].table().column("v").to_pylist() == expected_values(400)


@pytest.mark.parametrize(("before", "behind"), [((2, 8), (1, 8)), ((1, 8), (2, 8)), ((1, 8), 4)])
def test_order_stays_where_replicas_are_fed_by_those_of_a_step_with_other_limits(
    before: Any, behind: Any
) -> None:
    graph = ps.PipeGraph("limits", chaining=False)
    rows = graph.source(ps.read.batches([[{"v": i}] for i in range(60)], schema={"v": "int64"}), name="rows")
    odd = rows.filter(col("v") % 2 == 1, parallelism=before, name="odd")
    more = odd.with_columns(v=col("v") + 1, parallelism=behind, name="more")
    last = more.with_columns(v=col("v") - 1, parallelism=1, name="last")
    asked = Settings(cores=4, elastic=ps.Elastic())
    run = build_runtime(graph.plan(last), asked, RunOptions(), clock=WallClock(), events=ignore_event)
    run.dispatcher.begin(run.graph.tasks)
    while (task := run.dispatcher.next_task(0)) is not None:
        run_task(run.dispatcher, task)
    assert run.dispatcher.failure is None
    assert run.graph.collections[last.feeds[0]].table().column("v").to_pylist() == list(range(1, 60, 2))


def test_what_cannot_be_rescaled_says_so() -> None:
    plan, _ = plan_of(1, lambda row: True)
    run = build_runtime(
        plan, Settings(cores=4, elastic=ps.Elastic()), RunOptions(), clock=WallClock(), events=ignore_event
    )
    scaling = ReplicaScaling(run.graph)
    assert scaling.most == {"thirds": 4}
    assert [scaling.set_replicas(step, n) for step, n in (("thirds", 5), ("thirds", 0), ("last", 2))] == [
        False
    ] * 3
    assert len([task for task in scaling.active_tasks() if task.step == "thirds"]) == 1


def test_an_elastic_run_tells_its_decisions_and_gives_the_same_rows() -> None:
    decided, heard = threading.Event(), []

    def listen(event: ps.events.Event) -> None:
        if isinstance(event, ScaleDecided):
            heard.append(event)
            decided.set()

    def slow(row: Any) -> bool:
        if row.v > 50:
            decided.wait(0.05)
        return True

    graph, memory = ps.PipeGraph("elastic"), ps.write.memory()
    rows = graph.source(ps.read.batches([[{"v": i}] for i in range(100)], schema={"v": "int64"}))
    rows.filter(slow, parallelism=(1, 4)).sink(memory)
    options = ps.LocalOptions(elastic=ps.Elastic(period="20 ms"), threads=2, workers="thread")
    graph.run("local", options=options, events=listen)
    assert [row["v"] for row in memory.rows()] == list(range(100))
    assert all(event.reason for event in heard)


@pytest.mark.parametrize(
    ("asked", "fact"),
    [
        (ps.Elastic(low=0.9, high=0.5), "leave no utilisation to aim for"),
        (ps.Elastic(period="soon"), "is not a length of time"),
    ],
)
def test_limits_that_make_no_sense_are_refused_before_anything_runs(asked: ps.Elastic, fact: str) -> None:
    graph = ps.PipeGraph("one")
    graph.source(ps.read.rows([{"v": 1}], schema={"v": "int64"})).sink(ps.write.memory())
    with pytest.raises(ps.EngineError, match=fact):
        graph.run("local", options=ps.LocalOptions(elastic=asked))
