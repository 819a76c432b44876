"""Runs with worker processes: the same rows as with threads, in other processes, and nothing left behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock import col
from penstock.engines.local.build import needs_own_thread
from penstock.engines.local.options import Settings
from penstock.engines.local.processes.pool import ProcessPool, build_process_pool
from penstock.engines.local.processes.worker import MIN_NBYTES
from penstock.engines.local.run import build_runtime
from penstock.engines.protocol import RunOptions
from penstock.events import ignore_event
from tests.support.process_runs import (
    NUMBERS,
    PROCESS,
    SEEN,
    THREAD,
    held_resources,
    is_gone,
    numbers,
    run,
    seen,
)


def burn(row: Any) -> dict[str, int]:
    """Much plain Python for one row."""
    total = 0
    for i in range(20_000):
        total += i
    return {"v": row.v, "pid": os.getpid()}


def test_replicas_are_processes_whose_rows_come_back_in_order() -> None:
    before = held_resources()
    graph = ps.PipeGraph("order", chaining=False)
    rows = run(
        graph,
        numbers(graph, 60).map(seen, schema=SEEN, parallelism=3).with_columns(v=col("v"), parallelism=1),
    )
    pids = {row["pid"] for row in rows}
    assert [row["v"] for row in rows] == list(range(60))
    assert len(pids) == 3
    assert os.getpid() not in pids
    assert all(is_gone(pid) for pid in pids)
    assert held_resources() == before


def test_steps_that_are_fused_share_a_process_per_replica() -> None:
    graph = ps.PipeGraph("fused")
    first = numbers(graph, 30).map(seen, schema=SEEN, parallelism=2)
    both = first.map(
        lambda row: {"a": row.pid, "b": os.getpid()}, schema={"a": "int64", "b": "int64"}, parallelism=2
    )
    rows = run(graph, both)
    assert len({row["a"] for row in rows}) == 2
    assert all(row["a"] == row["b"] for row in rows)


def test_threads_run_in_this_process_if_asked() -> None:
    graph = ps.PipeGraph("threads")
    rows = run(graph, numbers(graph, 9).map(seen, schema=SEEN, parallelism=2), THREAD)
    assert {row["pid"] for row in rows} == {os.getpid()}


def test_by_itself_a_step_turns_into_processes_while_it_runs_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.engines.local.processes.stage.MIN_ROUND_TRIP_NS", 0)
    monkeypatch.setattr("penstock.engines.local.processes.stage.MIN_RATIO", 0)
    monkeypatch.setattr("penstock.engines.local.processes.pool.available_cores", lambda: 2)
    monkeypatch.setattr("penstock.engines.local.processes.pool.is_single_threaded", lambda: True)
    graph, memory, heard = ps.PipeGraph("auto", chaining=False), ps.write.memory(), list[ps.events.Event]()
    numbers(graph, 90).map(burn, schema=SEEN, parallelism=2, name="burning").sink(memory)
    graph.run("local", events=heard.append)
    rows = memory.rows()
    assert [row["v"] for row in rows] == list(range(90))
    assert rows[0]["pid"] == os.getpid() != rows[-1]["pid"]
    (decision,) = [event for event in heard if isinstance(event, ps.events.ScaleDecided)]
    assert (decision.step, decision.replicas_before, decision.replicas_after) == ("burning", 2, 2)
    assert decision.reason.startswith("processes: a batch takes ")


@pytest.mark.parametrize("alone", [True, False])
def test_by_itself_no_process_is_made_on_one_core_or_beside_other_threads(
    alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = ps.PipeGraph("few")
    numbers(graph, 3).map(seen, schema=SEEN, parallelism=2).sink(ps.write.memory())
    monkeypatch.setattr("penstock.engines.local.processes.pool.is_single_threaded", lambda: alone)
    n_cores = 1 if alone else 8
    monkeypatch.setattr("penstock.engines.local.processes.pool.available_cores", lambda: n_cores)
    assert build_process_pool(graph.plan(), Settings(workers="auto"), ps.ManualClock()) is None
    processes = build_process_pool(graph.plan(), Settings(workers="process"), ps.ManualClock())
    assert processes is not None
    assert len(processes.workers) == 2
    processes.close()


def test_elastic_steps_have_a_process_for_every_replica_that_the_machine_can_use() -> None:
    graph = ps.PipeGraph("elastic")
    numbers(graph, 3).map(seen, schema=SEEN, parallelism=(1, 8)).sink(ps.write.memory())
    processes = ProcessPool(graph.plan(), "process", ps.ManualClock(), max_replicas=4)
    pids = [worker.pid for worker in processes.workers]
    assert len(pids) == 4
    processes.close()
    assert all(is_gone(pid) for pid in pids)
    processes = ProcessPool(graph.plan(), "process", ps.ManualClock())
    assert len(processes.workers) == 1  # nothing is elastic unless elastic= is given
    processes.close()


def test_every_replica_of_an_elastic_step_that_waits_for_a_process_has_a_thread_to_wait_in() -> None:
    graph, settings = ps.PipeGraph("elastic"), Settings(cores=3, elastic=ps.Elastic(), workers="process")
    numbers(graph, 3).map(seen, schema=SEEN, parallelism=(1, 8), name="seen").sink(ps.write.memory())
    processes = build_process_pool(graph.plan(), settings, ps.ManualClock())
    assert processes is not None
    try:
        run_ = build_runtime(
            graph.plan(),
            settings,
            RunOptions(),
            clock=ps.ManualClock(),
            events=ignore_event,
            processes=processes,
        )
        waiting = [
            (task.steps[0].name, task.replica)
            for task in run_.graph.tasks
            if needs_own_thread(task, settings, run_.graph, processes)
        ]
        assert waiting == [("seen", 0), ("seen", 1), ("seen", 2)]
    finally:
        processes.close()


def test_batches_may_be_of_any_size_and_type() -> None:
    schema = pa.schema(
        [
            ("text", pa.string()),
            ("bits", pa.list_(pa.bool_())),
            ("pair", pa.struct([("a", pa.int8()), ("b", pa.float32())])),
            ("at", pa.timestamp("us")),
        ]
    )
    table = pa.table(
        {
            "text": ["x" * MIN_NBYTES, None, "é"] * 3,
            "bits": [[True, None], [], None] * 3,
            "pair": [{"a": 1, "b": 0.5}, None, {"a": None, "b": float("inf")}] * 3,
            "at": pa.array([0, -1, None] * 3, pa.timestamp("us")),
        },
        schema=schema,
    )
    graph = ps.PipeGraph("types")
    pipe = graph.source(ps.read.table(table, batch=4)).map(
        ps.batch(lambda b: b, schema=schema), parallelism=2
    )
    assert run(graph, pipe) == table.to_pylist()


class RowCounter:
    """Counts the rows that its copy has seen."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, row: Any) -> dict[str, int]:
        self.n += 1
        return {"v": self.n, "pid": os.getpid()}


def test_every_replica_has_its_own_copy_of_a_callable_object() -> None:
    counting = RowCounter()
    graph = ps.PipeGraph("copies")
    rows = run(graph, numbers(graph, 40, 1).map(counting, schema=SEEN, parallelism=2))
    by_pid: dict[int, list[int]] = {}
    for row in rows:
        by_pid.setdefault(row["pid"], []).append(row["v"])
    assert len(by_pid) == 2
    assert all(counts == list(range(1, len(counts) + 1)) for counts in by_pid.values())
    assert counting.n == 0


def bad(row: Any) -> dict[str, int]:
    """Fails on one row."""
    if row.v == 7:
        raise ValueError("seven")
    return {"v": row.v}


def test_an_error_is_raised_here_as_it_was_there() -> None:
    lines = []
    for options in (PROCESS, THREAD):
        before = held_resources()
        graph = ps.PipeGraph("fails")
        with pytest.raises(ps.FunctionError) as failure:
            run(graph, numbers(graph, 30).map(bad, schema=NUMBERS, parallelism=2, name="bad"), options)
        error = failure.value
        lines.append((error.fact, error.step, error.where, error.detail, error.hint, repr(error.__cause__)))
        assert held_resources() == before
    assert lines[0] == lines[1]
    assert "test_pool.py" in str(lines[0][2])


@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
def test_failed_rows_are_counted_or_come_back_as_dead_letters(on_error: Any) -> None:
    result = []
    for options in (PROCESS, THREAD):
        graph, memory, letters = ps.PipeGraph("lets by"), ps.write.memory(), ps.write.memory()
        pipe = numbers(graph, 30).map(bad, schema=NUMBERS, parallelism=2, name="bad", on_error=on_error)
        pipe.sink(memory)
        if on_error == "dead_letter":
            pipe.errors.sink(letters)
        account = graph.run("local", options=options).accounts["bad"]
        assert (account.rows_in, account.passed, account.errors, account.rows_out) == (30, 29, 1, 29)
        result.append((sorted(row["v"] for row in memory.rows()), letters.rows()))
    assert result[0] == result[1]
    assert [row["v"] for row in result[0][1]] == ([7] if on_error == "dead_letter" else [])


def test_a_batch_function_that_gives_the_wrong_columns_is_an_error_as_ever() -> None:
    graph = ps.PipeGraph("wrong")
    wrong = ps.batch(lambda batch: batch.rename_columns(["w"]), schema=NUMBERS)
    with pytest.raises(ps.FunctionError, match="gave other columns than it declared"):
        run(graph, numbers(graph, 3).map(wrong))


def test_what_is_no_exception_of_ours_is_told_with_its_step() -> None:
    graph = ps.PipeGraph("exits")
    with pytest.raises(ps.EngineError, match="a worker failed: SystemExit") as failure:
        run(graph, numbers(graph, 3).map(lambda row: sys.exit(3), schema=NUMBERS, name="exits"))
    assert failure.value.step == "exits"


def test_state_per_key_lives_in_the_processes() -> None:
    result = []
    for options in (PROCESS, THREAD):
        graph = ps.PipeGraph("state")
        keyed = numbers(graph, 50).with_columns(v=col("v"), k=col("v") % 5).key_by("k")
        sums = keyed.accumulate(lambda row, total: total + row.v, 0, schema={"v": "int64"}, parallelism=2)
        result.append(sorted(map(repr, run(graph, sums, options))))
    assert result[0] == result[1]
    assert len(result[0]) == 50


def test_state_in_processes_is_saved_and_taken_up_again(tmp_path: Path) -> None:
    outcomes = []
    for number in range(2):
        graph = ps.PipeGraph("saved")
        batches = [[{"v": v, "k": v % 3} for v in range(i, i + 4)] for i in range(0, 40, 4)]
        source = graph.source(ps.read.batches(batches, schema={"v": "int64", "k": "int64"}), name="numbers")
        sums = source.key_by("k").accumulate(
            lambda row, total: total + row.v, 0, schema={"v": "int64"}, parallelism=2 + number, name="sums"
        )
        sums.sink(ps.write.jsonl(tmp_path / "out"), name="out")
        result = graph.run(
            "local",
            checkpoint=str(tmp_path / "checkpoint"),
            until=None if number else 4,
            drain=True,
            options=ps.LocalOptions(workers="process", save_every="1 h"),
        )
        outcomes.append(result.outcome)
    assert outcomes == ["stopped", "drained"]
    written = ps.PipeGraph("read").source(ps.read.jsonl(tmp_path / "out")).collect("local")
    assert pc.max(written["v"]).as_py() == sum(v for v in range(40) if v % 3 == 0)


def test_what_a_function_prints_is_printed_once(capfd: pytest.CaptureFixture[str]) -> None:
    def speaks(row: Any) -> bool:
        print("row", row.v)  # the point
        return True

    sys.stdout.write("before ")
    graph = ps.PipeGraph("prints")
    run(graph, numbers(graph, 1).filter(speaks))
    assert capfd.readouterr().out == "before row 0\n"


def test_a_process_that_cannot_be_made_is_an_error_if_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_more() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", no_more)
    before = held_resources()
    graph = ps.PipeGraph("full")
    pipe = numbers(graph, 3).map(seen, schema=SEEN, parallelism=2)
    with pytest.raises(ps.EngineError, match="no worker process could be started") as failure:
        run(graph, pipe)
    assert 'workers="thread"' in str(failure.value.hint)
    assert held_resources() == before
    assert len(pipe.collect("local")) == 3


def test_only_three_words_are_taken_for_workers() -> None:
    graph = ps.PipeGraph("wrong")
    with pytest.raises(ps.EngineError, match="workers='processes' is unknown") as failure:
        run(graph, numbers(graph, 3), ps.LocalOptions(workers="processes"))  # type: ignore[arg-type]
    assert failure.value.hint == 'workers="process"'
