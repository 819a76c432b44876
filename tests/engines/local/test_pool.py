"""Threads of a run: how many, for whom, on which cores, and that none stays behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

import penstock as ps
from penstock.accounts import Accounts
from penstock.clock import WallClock
from penstock.engines.local.dispatch import Dispatcher, ThreadPool, assign_preferred_workers
from penstock.engines.local.metrics.statistics import READY
from penstock.engines.local.progress import Progress
from penstock.engines.local.schedulers import make_scheduler, register
from penstock.engines.local.tasks.chain import ChainedStep
from penstock.engines.local.tasks.task import Task, TaskRoutine
from penstock.events import ignore_event
from penstock.plan.plan import Step


def a_step() -> Step:
    """Some step: these tasks do nothing with it."""
    graph = ps.PipeGraph("one")
    graph.source(ps.read.rows([], schema={"v": "int64"}), name="s").sink(ps.write.memory())
    return graph.plan()["s"]


class CountingNode(Task):
    """A node that takes a number of turns, each of them when it is told to."""

    def __init__(self, number: int, quanta: int, action: Callable[[], None]) -> None:
        self._n_turns, self._each = quanta, action
        chain = [ChainedStep(a_step(), Accounts())]
        super().__init__(number, 0, chain, Progress(WallClock(), ignore_event, until=None))

    def routine(self) -> TaskRoutine:
        for _ in range(self._n_turns):
            self._each()
            yield READY

    def can_run(self) -> bool:
        return True

    def complete(self, *, failed: bool) -> None:
        return


def dispatcher() -> Dispatcher:
    """A dispatcher by the clock."""
    ticks = iter(range(10**9))
    return Dispatcher(make_scheduler("least-recently-run", Random(1)), lambda: next(ticks), 10)


def test_the_number_of_workers_can_change_while_they_run() -> None:
    before: set[str] = set()
    met: set[str] = set()
    all_there = threading.Barrier(3, action=lambda: pool.set_threads(1), timeout=10)

    def each() -> None:
        name = threading.current_thread().name
        if len(before) < 20 and not met:
            before.add(f"{name} {len(before)}")
            if len(before) == 20:
                pool.set_threads(3)
        elif name not in met:
            met.add(name)
            all_there.wait()  # three workers are in a turn at once, or this breaks

    dispatch = dispatcher()
    pool = ThreadPool(dispatch)
    dispatch.begin([CountingNode(number, 100, each) for number in range(3)])
    pool.set_threads(1)
    pool.join(10)
    assert dispatch.is_over
    assert len({name.split()[0] for name in before}) == 1
    assert (len(met), pool.n_threads) == (3, 1)


def test_threads_can_be_joined_while_another_is_being_started(monkeypatch: pytest.MonkeyPatch) -> None:
    class JoinedMeanwhile(threading.Thread):
        def start(self) -> None:
            pool.join(0)
            super().start()

    dispatch = dispatcher()
    pool = ThreadPool(dispatch)
    dispatch.begin([CountingNode(number, 3, lambda: None) for number in range(3)])
    monkeypatch.setattr(threading, "Thread", JoinedMeanwhile)
    pool.set_threads(2)
    assert pool.join(60)
    assert dispatch.is_over


def test_workers_too_many_leave_though_there_is_always_something_to_do() -> None:
    after: list[str] = []
    all_there = threading.Barrier(3, action=lambda: pool.set_threads(1), timeout=10)
    met: set[str] = set()

    def each() -> None:
        name = threading.current_thread().name
        if name not in met:
            met.add(name)
            all_there.wait()
        else:
            after.append(name)

    running = dispatcher()
    pool = ThreadPool(running, wait_mode="blocking")
    running.begin([CountingNode(number, 50, each) for number in range(6)])
    pool.set_threads(3)
    assert pool.join(10)
    assert set(after) == {"penstock-0"}


def test_a_dedicated_task_is_run_by_its_own_thread_only() -> None:
    names: set[str] = set()
    dispatch = dispatcher()
    own = CountingNode(0, 10, lambda: names.add(threading.current_thread().name))
    own.dedicated = True
    dispatch.begin([own, CountingNode(1, 10, lambda: None)])
    pool = ThreadPool(dispatch)
    pool.dedicate([own])
    pool.set_threads(2)
    pool.join(10)
    assert dispatch.is_over
    assert names == {"penstock-s-0"}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system does not pin threads")
def test_pinned_workers_stay_on_one_core_each() -> None:
    cores: set[frozenset[int]] = set()
    dispatch = dispatcher()
    pool = ThreadPool(dispatch, pinning=True)
    dispatch.begin([CountingNode(0, 5, lambda: cores.add(frozenset(os.sched_getaffinity(0))))])
    pool.set_threads(1)
    pool.join(10)
    assert [len(item) for item in cores] == [1]


def test_pinned_workers_take_the_tasks_that_prefer_them_first() -> None:
    picks: dict[int, list[int]] = {0: [], 1: []}
    dispatch = dispatcher()
    tasks: list[Task] = [CountingNode(number, 3, lambda: None) for number in range(4)]
    assign_preferred_workers(tasks, 2)
    dispatch.pinned = True
    dispatch.begin(tasks)
    for worker in (1, 0, 1, 0):
        node = dispatch.next_task(worker)
        assert node is not None
        picks[worker].append(node.number)
    assert {worker: sorted(numbers) for worker, numbers in picks.items()} == {0: [0, 1], 1: [2, 3]}


def slow_rows(n: int, released: threading.Event) -> Iterator[dict[str, int]]:
    """Rows that come only when something else has happened."""
    yield {"v": 0}
    assert released.wait(10)
    for i in range(1, n):
        yield {"v": i}


def test_a_reader_that_waits_holds_nobody_else_up() -> None:
    released, memory = threading.Event(), ps.write.memory()
    graph = ps.PipeGraph("two")

    def quick() -> Iterator[dict[str, int]]:
        yield from ({"v": 100 + i} for i in range(10))

    schema = {"v": "int64"}
    slow = ps.read.generator(lambda: slow_rows(3, released), schema=schema, batch=1, bounded=False)
    waits = graph.source(slow, name="waits")
    flows = graph.source(ps.read.generator(quick, schema=schema), name="flows")
    flows.filter(_release(released), name="f").sink(memory)
    waits.sink(ps.write.memory())
    graph.run("local", options=ps.LocalOptions(threads=1))
    assert sorted(row["v"] for row in memory.rows()) == list(range(100, 110))


def _release(released: threading.Event) -> Callable[[Any], bool]:
    def seen(row: Any) -> bool:
        released.set()
        return True

    return seen


class Raises:
    """A scheduler that fails at its third choice."""

    def __init__(self) -> None:
        self.n = 0

    def choose(self, ready: Any, worker: int, now: int) -> Any:
        self.n += 1
        return ready[0] if self.n < 3 else 1 // 0


class Invents:
    """A scheduler that gives what it was not asked about."""

    def choose(self, ready: Any, worker: int, now: int) -> Any:
        return "somebody"


@pytest.mark.parametrize(
    ("scheduler", "detail"), [(Raises, "ZeroDivisionError"), (Invents, "gave 'somebody', which is none")]
)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_scheduler_that_fails_ends_the_run_and_is_named(scheduler: Any, detail: str, threads: int) -> None:
    register("failing", lambda random: scheduler())
    graph = ps.PipeGraph("one", chaining=False)
    rows = graph.source(ps.read.rows([{"v": i} for i in range(50)], schema={"v": "int64"}, batch=1))
    rows.filter(ps.col("v") > 0).sink(ps.write.memory())
    with pytest.raises(ps.EngineError, match=f"the scheduler {scheduler.__name__} failed") as failure:
        graph.run("local", options=ps.LocalOptions(scheduler="failing", threads=threads))
    assert detail in str(failure.value.detail)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("number", range(1, 13))
def test_a_listener_that_fails_at_any_event_fails_the_run_and_nothing_hangs(
    number: int, deterministic: bool
) -> None:
    n_heard = 0

    def listen(event: ps.events.Event) -> None:
        nonlocal n_heard
        n_heard += 1
        if n_heard == number:
            raise ValueError("not now")

    graph = ps.PipeGraph("one", chaining=False)
    rows = graph.source(
        ps.read.batches([[{"t": i}] for i in (1, 30, 2, 50)], schema={"t": "int64"}),
        time="t",
        time_unit="s",
        delay="0 s",
    )
    rows.window(ps.tumbling("10 s"), name="w").aggregate(n=ps.count()).sink(ps.write.memory())
    with pytest.raises(ps.FunctionError, match="which listens to the run, failed"):
        graph.run("local", events=listen, options=ps.LocalOptions(deterministic=deterministic, threads=2))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("penstock")]
