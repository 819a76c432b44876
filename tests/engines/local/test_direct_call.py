"""Rows go to the next task by a direct call where that takes no time, else through the channel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock as ps
from penstock.engines.local.channels import Channel
from penstock.engines.local.direct_call import SAMPLE_EVERY, SLOW_NS
from penstock.engines.local.dispatch import run_task
from penstock.engines.local.options import resolve_settings
from penstock.engines.local.run import Runtime, build_runtime
from penstock.engines.protocol import RunOptions
from penstock.events import ignore_event

NUMBERS = {"v": "int64"}


@pytest.fixture
def channel_rows(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The rows that went through a channel."""
    result: list[Any] = []
    push = Channel.push_row

    def note(channel: Channel, message: Any) -> bool:
        result.append(message[0])
        return push(channel, message)

    monkeypatch.setattr(Channel, "push_row", note)
    return result


def numbers(n: int) -> Any:
    return ps.read.iterable([{"v": v} for v in range(n)], schema=NUMBERS, batch=1)


def graph_of(n: int, second: Callable[[Any], dict[str, int]]) -> tuple[ps.PipeGraph, Any]:
    """Two maps, each in a node of its own."""
    graph, out = ps.PipeGraph("hops", chaining=False), ps.write.memory()
    pipe = graph.source(numbers(n), name="numbers").map(more, schema=NUMBERS, name="first")
    pipe.map(second, schema=NUMBERS, name="second").sink(out, name="out")
    return graph, out


def more(row: Any) -> dict[str, int]:
    return {"v": row.v + 1}


class LastFirst:
    """Whoever is nearest to the end, so that all wait for rows before the source begins."""

    def choose(self, ready: Any, worker: int, now: int) -> Any:
        return max(ready, key=lambda node: node.number)


def run_here(graph: ps.PipeGraph, clock: ps.ManualClock, options: Any = None) -> Runtime:
    """A run in this thread, by a clock that only the steps move."""
    plan = graph.plan()
    run = build_runtime(
        plan,
        resolve_settings(RunOptions(engine=options), plan),
        RunOptions(),
        clock=ps.ManualClock(),
        events=ignore_event,
    )
    run.dispatcher.now, run.dispatcher._scheduler = clock.now, LastFirst()
    for node in run.graph.tasks:
        node.now = clock.now
    for writer in run.graph.writers.values():
        writer.open(resume=False)
    run.dispatcher.begin(run.graph.tasks)
    while not run.dispatcher.is_over:
        with run.dispatcher.lock:
            task = run.dispatcher.next_task(0)
        assert task is not None, "somebody can go on"
        run_task(run.dispatcher, task)
    return run


def test_rows_go_by_hand_to_nodes_that_wait_and_take_no_time(channel_rows: list[Any]) -> None:
    graph, out = graph_of(1_000, more)
    run = run_here(graph, ps.ManualClock())
    assert [row["v"] for row in out.rows()] == list(range(2, 1_002))
    assert channel_rows == []
    for name in ("numbers", "first", "second", "out"):
        assert run.graph.accounts()[name].rows_in == 1_000
    for node in run.graph.tasks[1:]:
        assert node.statistics.rows_in == 1_000
    for node in run.graph.tasks[:-1]:
        assert node.statistics.rows_out == 1_000


@pytest.mark.slow
def test_a_node_that_takes_long_for_a_row_has_its_rows_from_the_channel(channel_rows: list[Any]) -> None:
    clock = ps.ManualClock()

    def slow(row: Any) -> dict[str, int]:
        clock.advance(SLOW_NS + 1)
        return {"v": row.v}

    graph, out = graph_of(1_000, slow)
    run_here(graph, clock)
    assert [row["v"] for row in out.rows()] == list(range(1, 1_001))
    assert len(channel_rows) > 900


def test_one_slow_row_in_many_changes_nothing(channel_rows: list[Any]) -> None:
    clock = ps.ManualClock()

    def once(row: Any) -> dict[str, int]:
        clock.advance(SLOW_NS + 1 if row.v % SAMPLE_EVERY == 0 else 0)
        return {"v": row.v}

    graph, out = graph_of(20 * SAMPLE_EVERY, once)
    run_here(graph, clock)
    assert len(out.rows()) == 20 * SAMPLE_EVERY
    assert channel_rows == []


def test_a_node_that_is_slow_at_first_is_soon_worked_for_again(channel_rows: list[Any]) -> None:
    clock = ps.ManualClock()

    def slow_at_first(row: Any) -> dict[str, int]:
        clock.advance(SLOW_NS + 1 if row.v < 100 else 0)  # as if it met a hundred new keys
        return {"v": row.v}

    graph, out = graph_of(10_000, slow_at_first)
    run_here(graph, clock)
    assert [row["v"] for row in out.rows()] == list(range(1, 10_001))
    assert 0 < len(channel_rows) < 2_000


def test_a_round_without_a_row_lets_windows_go_behind_nodes_that_are_worked_for() -> None:
    schema = {"at": "int64", "v": "int64"}
    rows = [{"at": at, "v": at % 5} for at in range(200)]
    graph, out = ps.PipeGraph("windows", chaining=False), ps.write.memory()
    timed = graph.source(
        ps.read.iterable(rows, schema=schema, batch=1), time="at", time_unit="s", delay="0 s", name="rows"
    )
    passed = timed.filter(lambda row: row.v == 3, name="fifths").filter(lambda row: True, name="all of them")
    passed.window(ps.tumbling("10 s"), name="tens").aggregate(n=ps.count()).sink(out, name="out")
    run_here(graph, ps.ManualClock())
    assert [row["n"] for row in out.rows()] == [2] * 20
    assert list(out._committed) == list(range(10, 201, 10))  # the rows of these rounds were filtered


def test_time_is_counted_for_the_node_that_is_worked_for() -> None:
    clock = ps.ManualClock()

    def some(row: Any) -> dict[str, int]:
        clock.advance(1_000)
        return {"v": row.v}

    graph, _ = graph_of(300, some)
    run = run_here(graph, clock)
    running = {node.statistics.step: node.statistics.running_ns for node in run.graph.tasks}
    assert running["second"] == 300_000
    assert running["numbers"] == running["first"] == running["out"] == 0


def test_with_elastic_threads_every_node_works_for_itself(channel_rows: list[Any]) -> None:
    graph, out = graph_of(100, more)
    graph.run(engine="local", options=ps.LocalOptions(threads=1, elastic=ps.Elastic()))
    assert len(out.rows()) == 100
    assert len(channel_rows) == 300


@pytest.mark.parametrize("threads", [1, 2, "per-task"])
def test_a_step_that_fails_while_it_is_worked_for_is_named(threads: Any) -> None:
    def fails(row: Any) -> dict[str, int]:
        return {"v": 1 // (150 - row.v)}

    graph, out = graph_of(300, fails)
    with pytest.raises(ps.FunctionError, match=r"failed on a row") as failure:
        graph.run(engine="local", options=ps.LocalOptions(threads=threads))
    assert failure.value.step == "second"
    assert "v=150" in str(failure.value)
    assert len(out.rows()) == 149  # everything before it has arrived


def test_rows_are_counted_while_the_source_waits_for_more() -> None:
    reached, free = threading.Event(), threading.Event()

    def rows() -> Iterator[dict[str, int]]:
        for v in range(5):
            yield {"v": v}
        reached.set()
        assert free.wait(60), "the test has forgotten it"
        yield {"v": 5}

    graph, out = ps.PipeGraph("waits"), ps.write.memory()
    pipe = graph.source(ps.read.generator(rows, schema=NUMBERS, batch=1, bounded=False), name="rows")
    passed = pipe.map(more, schema=NUMBERS, name="more").filter(lambda row: row.v != 2, name="some")
    passed.sink(out, name="out")
    run = graph.start(engine="local")
    try:
        assert reached.wait(60)
        metrics = run.metrics()
        assert [row["v"] for row in out.rows()] == [1, 3, 4, 5]
        rows_in = {name: item.rows_in for name, item in metrics.items()}
        assert rows_in == {"rows": 5, "more": 5, "some": 5, "out": 4}
        assert metrics["some"].filtered == 1
        run.stop()
    finally:
        free.set()
    assert run.wait().batches == 6  # the round that had begun is carried through
    assert [row["v"] for row in out.rows()] == [1, 3, 4, 5, 6]
