"""The watchdog: what it tells of a step that does not come back, by a clock that the test moves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import penstock as ps
from penstock.engines.local.dispatch import ThreadPool
from penstock.engines.local.metrics.watchdog import Watchdog
from penstock.engines.local.options import resolve_settings
from penstock.engines.local.processes.pool import ProcessPool
from penstock.engines.local.run import Runtime, build_runtime
from penstock.engines.local.tasks.task import InputTask
from penstock.engines.protocol import RunOptions
from penstock.events import Event, StepStalled, ignore_event

NUMBERS = {"v": "int64"}
LIMIT_NS = 30_000_000_000


@dataclass
class Gate:
    """A place where a function waits, once it has come, until it is let go."""

    reached: threading.Event = field(default_factory=threading.Event)
    free: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        self.reached.set()
        assert self.free.wait(60), "the test has forgotten it"


@dataclass
class WatchdogRun:
    """A run whose time stands still until it is moved, and its watchdog, which looks when it is told to."""

    run: Runtime
    dog: Watchdog
    now: ps.ManualClock
    heard: list[Event]
    processes: ProcessPool

    def stalls(self) -> list[StepStalled]:
        """What is told of when the time is up."""
        self.heard.clear()
        self.now.advance(LIMIT_NS)
        self.dog.look()
        self.dog.look()
        return [event for event in self.heard if isinstance(event, StepStalled)]


@contextmanager
def start_run(graph: ps.PipeGraph, workers: str = "thread") -> Iterator[WatchdogRun]:
    """A graph on two threads; it must have ended when the block has."""
    plan = graph.plan()
    asked = resolve_settings(RunOptions(engine=ps.LocalOptions(threads=2, queue_size=2)), plan)
    processes = ProcessPool(plan, workers, ps.ManualClock())
    run = build_runtime(
        plan, asked, RunOptions(), clock=ps.ManualClock(), events=ignore_event, processes=processes
    )
    now, heard, pool = ps.ManualClock(), list[Event](), ThreadPool(run.dispatcher)
    run.dispatcher.now = now.now
    dog = Watchdog(run.dispatcher, LIMIT_NS, clock=ps.ManualClock(5), emit=heard.append)
    for writer in run.graph.writers.values():
        writer.open(resume=False)
    run.dispatcher.begin(run.graph.tasks)
    pool.set_threads(2)
    yield WatchdogRun(run, dog, now, heard, processes)
    pool.join(60)
    assert run.dispatcher.is_over
    processes.close()


def numbers(graph: ps.PipeGraph, n: int = 20) -> ps.MultiPipe:
    """0 to n - 1, in batches of one row."""
    return graph.source(ps.read.batches([[{"v": v}] for v in range(n)], schema=NUMBERS), name="numbers")


def waiting_at(barriers: Mapping[int, Gate]) -> Callable[[Any], dict[str, int]]:
    def wait_here(row: Any) -> dict[str, int]:
        if row.v in barriers:
            barriers[row.v].wait()
        return {"v": row.v}

    return wait_here


def names(stall: StepStalled) -> list[str]:
    """The code that a stack shows, without places."""
    return [line.partition(", in ")[2] for line in stall.stack]


def test_a_function_that_blocks_is_told_of_once_per_stall_with_its_stack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    graph, barriers = ps.PipeGraph("stalls", chaining=False), {3: Gate(), 7: Gate()}
    numbers(graph).map(waiting_at(barriers), schema=NUMBERS, name="slow").sink(ps.write.memory())
    with caplog.at_level(logging.WARNING, "penstock"), start_run(graph) as watched:
        for barrier in barriers.values():
            assert barrier.reached.wait(60)
            watched.dog.look()
            (stall,) = watched.stalls()
            assert (stall.at, stall.step, stall.replica, stall.busy_us) == (5, "slow", 0, LIMIT_NS // 1_000)
            assert names(stall)[:2] == [
                "waiting_at.<locals>.wait_here: barriers[row.v].wait()",
                'Gate.wait: assert self.free.wait(60), "the test has forgotten it"',
            ]
            assert "test_watchdog.py:" in stall.stack[0]
            assert watched.stalls() == []
            barrier.free.set()
    assert 'step "slow" (replica 0) is busy for 30.0 s:\n  ' in caplog.text
    assert len(caplog.records) == 2


def test_a_step_that_works_for_less_than_the_limit_is_not_told_of() -> None:
    graph, barrier = ps.PipeGraph("quick"), Gate()
    numbers(graph).map(waiting_at({3: barrier}), schema=NUMBERS).sink(ps.write.memory())
    with start_run(graph) as watched:
        assert barrier.reached.wait(60)
        watched.now.advance(LIMIT_NS - 1)
        watched.dog.look()
        assert watched.heard == []
        barrier.free.set()


def test_of_steps_that_are_fused_the_one_at_work_is_told_of() -> None:
    graph, barrier = ps.PipeGraph("fused"), Gate()
    quick = numbers(graph).map(waiting_at({}), schema=NUMBERS, name="quick")
    slow = quick.map(waiting_at({3: barrier}), schema=NUMBERS, name="slow")
    slow.filter(ps.col("v") > 1, name="behind").sink(ps.write.memory())
    with start_run(graph) as watched:
        assert barrier.reached.wait(60)
        (stall,) = watched.stalls()
        assert stall.step == "slow"
        barrier.free.set()


@pytest.mark.parametrize("chaining", [True, False])
def test_of_steps_that_take_rows_by_themselves_the_one_at_work_is_told_of(chaining: bool) -> None:
    graph, barrier = ps.PipeGraph("rows", chaining=chaining), Gate()
    rows = ps.read.iterable([{"v": v} for v in range(200)], schema=NUMBERS, batch=1)
    quick = graph.source(rows, name="numbers").map(waiting_at({}), schema=NUMBERS, name="quick")
    slow = quick.map(waiting_at({150: barrier}), schema=NUMBERS, name="slow")
    slow.filter(lambda row: row.v > 1, name="behind").sink(ps.write.memory())
    with start_run(graph) as watched:
        assert barrier.reached.wait(60)
        (stall,) = watched.stalls()
        assert stall.step == "slow"
        assert names(stall)[0] == "waiting_at.<locals>.wait_here: barriers[row.v].wait()"
        barrier.free.set()


def test_of_steps_that_hand_batches_on_the_one_at_work_is_told_of() -> None:
    graph, barrier = ps.PipeGraph("batches"), Gate()

    def waits(rows: pa.RecordBatch) -> pa.RecordBatch:
        if rows.column("v")[0].as_py() == 3:
            barrier.wait()
        return rows

    same = ps.batch(lambda rows: rows, schema=NUMBERS)
    quick = numbers(graph).map(same, name="quick")
    slow = quick.map(ps.batch(waits, schema=NUMBERS), name="slow")
    slow.map(same, name="behind").sink(ps.write.memory())
    with start_run(graph) as watched:
        assert barrier.reached.wait(60)
        (stall,) = watched.stalls()
        assert stall.step == "slow"
        barrier.free.set()


@pytest.mark.parametrize("batch", [1, 1_000])
def test_a_reader_may_wait_as_long_as_it_likes(batch: int) -> None:
    barrier = Gate()

    def rows() -> Iterator[dict[str, int]]:
        barrier.wait()
        yield {"v": 1}

    graph = ps.PipeGraph("waits")
    graph.source(ps.read.generator(rows, schema=NUMBERS, batch=batch)).sink(ps.write.memory())
    with start_run(graph) as watched:
        assert barrier.reached.wait(60)
        assert watched.stalls() == []
        barrier.free.set()


class NeverPops(ps.ProcessOperator):
    """Looks at its rows for ever, and takes none."""

    outputs: ClassVar[Mapping[str, Any]] = {"out": NUMBERS}
    barrier: ClassVar[Gate] = Gate()

    async def process(self, ctx: ps.Context) -> None:
        while not self.barrier.free.is_set():
            await ctx.wait_for_all({"in": 1})
            self.barrier.reached.set()


def test_an_operator_that_never_pops_is_told_of_and_who_writes_to_it_waits() -> None:
    graph = ps.PipeGraph("never pops", chaining=False)
    numbers(graph, 500).process(NeverPops(), name="stubborn").sink(ps.write.memory())
    with start_run(graph) as watched:
        assert NeverPops.barrier.reached.wait(60)
        (stall,) = watched.stalls()
        assert stall.step == "stubborn"
        assert names(stall)[0].startswith("NeverPops.process: ")
        tasks = [node for node in watched.run.graph.tasks if isinstance(node, InputTask)]
        assert max(len(channel.items) for node in tasks for channel in node.channels) < 10
        NeverPops.barrier.free.set()


def hangs_until(row: Any) -> dict[str, int]:
    """Waits in another process until that is ended."""
    threading.Event().wait()
    return {"v": row.v}


def test_the_stack_of_a_worker_process_comes_from_there() -> None:
    graph = ps.PipeGraph("there", chaining=False)
    numbers(graph, 1).map(hangs_until, schema=NUMBERS, name="remote").sink(ps.write.memory())
    with start_run(graph, workers="process") as watched:
        (worker,) = watched.processes.workers
        while not any("in hangs_until" in line for line in worker.stack()):
            assert not watched.run.dispatcher.is_over
        (stall,) = watched.stalls()
        worker.kill()
    assert stall.stack[0] == f"in worker process {worker.pid}"
    assert "hangs_until: threading.Event().wait()" in names(stall)
    assert "was killed by signal 9" in str(watched.run.dispatcher.failure)


def test_a_run_has_a_watchdog_and_goes_on_after_it_has_told() -> None:
    graph, memory, barrier = ps.PipeGraph("told", chaining=False), ps.write.memory(), Gate()
    numbers(graph).map(waiting_at({3: barrier}), schema=NUMBERS, name="slow").sink(memory)
    heard: list[StepStalled] = []

    def listen(event: Event) -> None:
        if isinstance(event, StepStalled) and event.step == "slow":
            heard.append(event)
            barrier.free.set()

    result = graph.run("local", options=ps.LocalOptions(watchdog="1 ms", workers="thread"), events=listen)
    assert result.outcome == "drained"
    assert len(heard) >= 1
    assert [row["v"] for row in memory.rows()] == list(range(20))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("penstock")]


def test_a_listener_that_fails_on_what_the_watchdog_tells_fails_the_run() -> None:
    graph, barrier = ps.PipeGraph("fails", chaining=False), Gate()
    numbers(graph).map(waiting_at({3: barrier}), schema=NUMBERS, name="slow").sink(ps.write.memory())

    def listen(event: Event) -> None:
        if isinstance(event, StepStalled) and event.step == "slow":
            barrier.free.set()
            raise ValueError("not now")

    with pytest.raises(ps.FunctionError, match="which listens to the run, failed on StepStalled"):
        graph.run("local", options=ps.LocalOptions(watchdog="1 ms", workers="thread"), events=listen)


def test_without_a_watchdog_nobody_watches() -> None:
    graph, seen = ps.PipeGraph("unwatched"), set[str]()

    def look(row: Any) -> bool:
        seen.update(thread.name for thread in threading.enumerate())
        return True

    numbers(graph).filter(look).sink(ps.write.memory())
    graph.run("local", options=ps.LocalOptions(watchdog=None))
    assert "penstock-watchdog" not in seen


@pytest.mark.parametrize(
    ("watchdog", "fact"),
    [("soon", "watchdog='soon' is not a length of time"), ("0 s", "watchdog='0 s' leaves no time to run")],
)
def test_a_watchdog_wants_a_length_of_time(watchdog: str, fact: str) -> None:
    graph = ps.PipeGraph("wrong")
    numbers(graph).sink(ps.write.memory())
    with pytest.raises(ps.EngineError) as failure:
        graph.run("local", options=ps.LocalOptions(watchdog=watchdog))
    assert failure.value.fact == fact
    assert failure.value.hint == 'watchdog="50 ms"'
