"""Tasks behind a source that waits: few rows are worked on in the source's own thread, slow tasks are not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random
from threading import get_ident
from typing import Any

import pytest

import penstock as ps
from penstock import col
from penstock.engines.local.direct_call import FIRST_PAUSE, INLINE_NS, InlineTasks
from penstock.engines.local.dispatch import Dispatcher, run_task
from penstock.engines.local.metrics.statistics import TaskStatistics
from penstock.engines.local.options import resolve_settings
from penstock.engines.local.run import build_runtime
from penstock.engines.local.schedulers import make_scheduler
from penstock.engines.local.tasks.source import SourceTask
from penstock.engines.protocol import RunOptions
from penstock.events import ignore_event


def read() -> Iterator[list[dict[str, Any]]]:
    """Lists of two rows."""
    for number in range(20):
        yield [{"k": number % 3, "t": 2 * number}, {"k": number % 2, "t": 2 * number + 1}]


def tally(row: Any, n: int) -> int:
    """Count the rows of a key."""
    return n + 1


def branch(count_row: Any = tally) -> tuple[ps.PipeGraph, Any]:
    """A source that may wait, two branches that count by key, and a sink behind both."""
    graph, memory = ps.PipeGraph("branches"), ps.write.memory()
    reader = ps.read.generator(read, schema={"k": int, "t": int}, bounded=False)
    source = graph.source(reader, time="t", time_unit="us", delay="0 us").key_by("k")
    branches = [
        source.accumulate(count_row, 0, schema={"n": int}, name=name).with_columns(name=ps.lit(name))
        for name in ("one", "other")
    ]
    branches[0].merge(branches[1]).filter(col("n") > 0).sink(memory)
    return graph, memory


def rows_of(memory: Any) -> list[Any]:
    return sorted((row["name"], row["k"], row["n"]) for row in memory.rows())


EXPECTED = [
    (name, k, n + 1)
    for name in ("one", "other")
    for k, n_rows in ((0, 17), (1, 17), (2, 6))
    for n in range(n_rows)
]


def test_few_rows_are_worked_on_before_the_source_reads_on() -> None:
    graph, memory = branch()
    plan = graph.plan()
    settings = resolve_settings(RunOptions(), plan)
    run = build_runtime(plan, settings, RunOptions(), clock=ps.ManualClock(), events=ignore_event)
    dispatcher, (source, *readers) = run.dispatcher, run.graph.tasks
    assert isinstance(source, SourceTask)
    source.inline = InlineTasks(dispatcher)
    dispatcher.now = ps.ManualClock().now  # no quantum ends
    for task in run.graph.tasks:
        task.now = dispatcher.now
    for writer in run.graph.writers.values():
        writer.open(resume=False)
    dispatcher.begin(run.graph.tasks)
    n_written, carry = list[int](), source.carry

    def note(batch: Any, *, is_last: bool) -> bool:
        n_written.append(len(memory.rows()))
        return carry(batch, is_last=is_last)

    source.carry = note  # type: ignore[method-assign]  # to look in between
    for task in (*readers, source):  # readers wait for rows when the source begins
        dispatcher._ready.remove(task)
        with dispatcher.lock:
            dispatcher.next_task(0, only=task)
        run_task(dispatcher, task)
    assert n_written == [0, *range(2, 80, 4)]  # of two rows, the later one waits for the watermark
    while not dispatcher.is_over:
        with dispatcher.lock:
            ready = dispatcher.next_task(0)
        assert ready is not None, "somebody can go on"
        run_task(dispatcher, ready)
    assert rows_of(memory) == EXPECTED


WAYS: list[dict[str, Any]] = [{}, {"threads": "per-task"}, {"pinning": True}, {"measure": True}]


@pytest.mark.parametrize("setting", WAYS, ids=str)
def test_the_rows_are_the_same_whichever_thread_works_on_them(setting: dict[str, Any]) -> None:
    graph, memory = branch()
    graph.run(engine="local", options=ps.LocalOptions(**setting))
    assert rows_of(memory) == EXPECTED


def test_a_failure_behind_the_source_names_its_step() -> None:
    def fail(row: Any, n: int) -> int:
        raise ValueError("no more")

    with pytest.raises(ps.FunctionError, match="no more"):
        branch(fail)[0].run(engine="local")


def test_after_two_slow_rounds_workers_get_the_tasks_for_a_while_and_longer_each_time() -> None:
    ticks = count(step=INLINE_NS + 1)
    scheduler = make_scheduler("random", Random(1))
    dispatcher = Dispatcher(scheduler, ticks.__next__, 1)
    inline, statistics, seen = InlineTasks(dispatcher), TaskStatistics("source"), list[bool]()

    def carry() -> bool:
        seen.append(bool(dispatcher.woken_inline))
        return True

    for _ in range(2 + FIRST_PAUSE + 2 + 2 * FIRST_PAUSE + 1):
        assert inline.carry(statistics, carry)
    slow = [True, True]
    assert seen == [*slow, *[False] * FIRST_PAUSE, *slow, *[False] * 2 * FIRST_PAUSE, True]
    assert not dispatcher.woken_inline


def test_tasks_that_are_ready_for_long_are_left_to_workers() -> None:
    """Another source may keep the tasks behind both busy, and this one is to read on."""
    ticks = count(step=INLINE_NS + 1)
    dispatcher = Dispatcher(make_scheduler("random", Random(1)), ticks.__next__, 1)
    task: Any = object()

    def carry() -> bool:
        dispatcher.woken_inline[get_ident()].append(task)
        return True

    assert InlineTasks(dispatcher).carry(TaskStatistics("source"), carry)
    assert dispatcher._ready == [task]
