"""Workers that die, hang, or are told to go: who waits is told, and nobody is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock import col
from penstock.accounts import Accounts
from penstock.engines.local.processes.pool import ProcessPool
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import StageContext, StatelessStage
from tests.support.process_runs import NUMBERS, PROCESS, SEEN, held_resources, is_gone, numbers, run, seen


def dies(row: Any) -> dict[str, int]:
    """Ends its process on one row, by the number of what it does."""
    if row.v == 10:
        os._exit(3)
    if row.v == 11:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"v": row.v}


@pytest.mark.parametrize(
    ("at", "how"),
    [
        (10, "ended with exit code 3"),
        (11, r"was killed by signal 9 \(SIGKILL\)"),
    ],
)
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_worker_that_dies_is_an_error_with_its_step_and_how(at: int, how: str, deterministic: bool) -> None:
    before = held_resources()
    graph = ps.PipeGraph("dies", chaining=False)
    rows = numbers(graph, 90).filter(col("v").is_in([*range(10), at, *range(20, 90)]))
    pipe = rows.map(dies, schema=NUMBERS, parallelism=2, name="deadly")
    options = ps.LocalOptions(workers="process", deterministic=deterministic, queue_size=1)
    with pytest.raises(ps.EngineError, match=f"a worker process {how}") as failure:
        run(graph, pipe, options)
    assert failure.value.step == "deadly"
    assert "test_worker.py" in str(failure.value.where)
    assert 'workers="thread"' in str(failure.value.hint)
    assert held_resources() == before


def pool_of(function: Callable[[Any], dict[str, int]]) -> tuple[ProcessPool, StatelessStage]:
    """One worker for one step, and the stage that asks it."""
    graph = ps.PipeGraph("alone")
    numbers(graph, 3).map(function, schema=NUMBERS, name="alone").sink(ps.write.memory())
    plan = graph.plan()
    processes = ProcessPool(plan, "process", ps.ManualClock())
    stage = processes.stage_of(plan["alone"], 0, StageContext("alone", None, Accounts(), ps.ManualClock()))
    assert isinstance(stage, StatelessStage), "a map has no state"
    return processes, stage


def some_rows() -> Batch:
    return Batch(pa.record_batch({"v": [1, 2]}), np.zeros(2, np.int64))


def test_a_worker_killed_while_it_has_nothing_to_do_is_noticed_with_the_next_batch() -> None:
    processes, stage = pool_of(dies)
    assert [rows.rows.to_pydict() for _, rows in stage.process(some_rows())] == [{"v": [1, 2]}]
    (pid,) = (worker.pid for worker in processes.workers)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ps.EngineError, match=r"was killed by signal 9 \(SIGKILL\)"):
        list(stage.process(some_rows()))
    assert is_gone(pid)
    processes.close()


def test_a_worker_that_somebody_else_has_waited_for_is_an_error_all_the_same() -> None:
    processes, stage = pool_of(dies)
    (pid,) = (worker.pid for worker in processes.workers)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with pytest.raises(ps.EngineError) as failure:
        list(stage.process(some_rows()))
    processes.close()
    assert failure.value.fact == "a worker process ended"


def hangs(row: Any) -> dict[str, int]:
    """Never returns."""
    threading.Event().wait()
    return {"v": 0}


def test_a_function_that_never_returns_can_be_looked_at_and_is_ended_with_the_processes() -> None:
    before = held_resources()
    processes, stage = pool_of(hangs)
    (pid,), failures = (worker.pid for worker in processes.workers), list[BaseException]()

    def ask() -> None:
        try:
            list(stage.process(some_rows()))
        except ps.EngineError as failure:
            failures.append(failure)

    asking = threading.Thread(target=ask)
    asking.start()
    worker = processes.workers[0]
    while not any("in hangs: threading.Event().wait()" in line for line in worker.stack()):
        assert asking.is_alive()
    processes.kill()
    asking.join(30)
    assert "was killed by signal 9" in str(failures)
    processes.close()
    assert is_gone(pid)
    assert worker.stack() == []
    assert held_resources() == before


def test_when_another_step_fails_the_workers_end_with_the_run() -> None:
    def fails(row: Any) -> dict[str, int]:
        raise ValueError("no")

    before = held_resources()
    graph, memory = ps.PipeGraph("fails", chaining=False), ps.write.memory()
    rows = numbers(graph, 600)
    rows.map(seen, schema=SEEN, parallelism=2).sink(memory)
    rows.map(fails, schema=NUMBERS, name="other").sink(ps.write.memory())
    with pytest.raises(ps.FunctionError) as failure:
        graph.run("local", options=PROCESS)
    assert failure.value.step == "other"
    assert all(is_gone(row["pid"]) for row in memory.rows())
    assert held_resources() == before


@pytest.mark.slow
def test_a_run_that_is_stopped_ends_its_workers() -> None:
    before = held_resources()
    graph, memory, some_read = ps.PipeGraph("stopped"), ps.write.memory(), threading.Event()
    numbers(graph, 30_000, 1).map(seen, schema=SEEN, parallelism=2).sink(memory)
    started = graph.start(
        "local",
        options=PROCESS,
        events=lambda e: some_read.set() if isinstance(e, ps.events.BatchDone) else None,
    )
    assert some_read.wait(30)
    started.stop()
    result = started.wait(30)
    assert result.outcome == "stopped"
    assert memory.rows()
    assert all(is_gone(pid) for pid in {row["pid"] for row in memory.rows()})
    assert held_resources() == before


PROGRAM = """
import os, signal, sys, threading
import penstock as ps

def hangs(row):
    sys.stdout.write(f"{os.getpid()}\\n")
    sys.stdout.flush()
    threading.Event().wait()

graph = ps.PipeGraph("hangs")
rows = graph.source(ps.read.rows([{"v": 1}, {"v": 2}], batch=1))
rows.map(hangs, schema={"v": "int64"}, parallelism=2).sink(ps.write.memory())
from penstock.engines.background_run import BackgroundRun
BackgroundRun.grace_seconds = 0.1
graph.run("local", options=ps.LocalOptions(workers="process"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_when_the_program_is_interrupted_or_killed_workers_that_hang_end_too(how: signal.Signals) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert program.stdout is not None
    pids = [int(program.stdout.readline()) for _ in range(2)]
    program.send_signal(how)
    program.communicate(timeout=60)  # ends when all who could write to it, workers too, have ended
    assert program.returncode == -how
    assert len(set(pids)) == 2
