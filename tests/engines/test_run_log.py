"""What a run tells from outside: the log, its status, and an end that asyncio can wait for."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engines import background_run
from penstock.engines.background_run import BackgroundRun
from penstock.engines.run_log import LOGGER
from penstock.errors import ConnectorError, FunctionError

ENGINES = ["reference", "local"]
ROWS = [{"at": at, "n": at % 3} for at in (10, 20, 3, 30, 4)]


@pytest.fixture(params=ENGINES)
def runs_on(request: pytest.FixtureRequest) -> str:
    """An engine in this process."""
    return str(request.param)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="penstock")
    return caplog


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What was logged: levels and messages."""
    assert all(record.name.startswith("penstock.") for record in caplog.records)
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def windows(**options: Any) -> tuple[ps.PipeGraph, ps.MultiPipe]:
    """Windows of ten seconds; two of five rows are late."""
    graph = ps.PipeGraph("windows")
    rows = graph.source(ps.read.rows(ROWS, batch=1), time="at", time_unit="s", delay=0, name="in")
    counts = rows.window(ps.tumbling("10 s"), name="counts").aggregate(n=ps.count())
    counts.sink(ps.write.memory(), name="out")
    return graph, counts


def test_the_life_of_a_run_is_logged_with_counts(runs_on: str, log: pytest.LogCaptureFixture) -> None:
    graph = ps.PipeGraph("small")
    graph.source(ps.read.rows([{"n": 1}, {"n": 2}], batch=1)).sink(ps.write.memory())
    graph.run(runs_on)
    assert lines(log) == [
        ("INFO", f'run of "small" started on engine {runs_on}: 2 steps'),
        ("INFO", 'run of "small" drained after 2 batches: 2 rows in, 2 rows out'),
    ]


def test_late_rows_that_are_dropped_are_a_warning(runs_on: str, log: pytest.LogCaptureFixture) -> None:
    graph, _ = windows()
    graph.run(runs_on)
    warnings = [line for line in lines(log) if line[0] != "INFO"]
    assert warnings == [
        (
            "WARNING",
            'run of "windows": 2 rows of step "counts" came too late and were dropped; '
            "read .late to keep them",
        )
    ]


def test_late_rows_that_somebody_reads_are_none(runs_on: str, log: pytest.LogCaptureFixture) -> None:
    graph, counts = windows()
    counts.late.sink(ps.write.memory())
    graph.run(runs_on)
    assert [line for line in lines(log) if line[0] != "INFO"] == []


def test_failed_rows_that_are_skipped_are_a_warning(runs_on: str, log: pytest.LogCaptureFixture) -> None:
    graph = ps.PipeGraph("divide")
    rows = graph.source(ps.read.rows([{"n": n} for n in (1, 0, 2, 0)]))
    rows.with_columns(half=1 // ps.col("n"), on_error="skip", name="halve").sink(ps.write.memory())
    graph.run(runs_on)
    assert [line for line in lines(log) if line[0] != "INFO"] == [
        ("WARNING", 'run of "divide": 2 rows of step "halve" failed and were skipped (on_error="skip")')
    ]


def test_a_run_that_nobody_waits_for_logs_its_failure(runs_on: str, log: pytest.LogCaptureFixture) -> None:
    run: Any = broken().start(runs_on)
    assert run._over.wait(30)
    (error,) = [line for line in lines(log) if line[0] == "ERROR"]
    assert error[1].startswith('run of "broken" failed: function broken.<locals>.fail failed on a row')
    assert 'step "break"' in error[1]
    assert run.status().state == "failed"
    with pytest.raises(FunctionError):
        run.wait()


def test_a_run_that_fails_after_a_wait_was_given_up_logs_its_failure(
    runs_on: str, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOGGER, "hasHandlers", lambda: False)

    def give_up(run: Any) -> None:
        with pytest.raises(TimeoutError):
            run.wait(0)

    async def give_up_later(run: Any) -> None:
        end = asyncio.ensure_future(run.finished())
        await asyncio.sleep(0)
        end.cancel()
        with pytest.raises(asyncio.CancelledError):
            await end

    def give_up_in_asyncio(run: Any) -> None:
        asyncio.run(give_up_later(run))

    for wait in (give_up, give_up_in_asyncio):
        log.clear()
        may_fail = threading.Event()
        run: Any = broken_source(may_fail.wait).start(runs_on)
        wait(run)
        may_fail.set()
        run._thread.join(30)
        (error,) = [line for line in lines(log) if line[0] == "ERROR"]
        assert error[1].startswith('run of "broken" failed')


def test_a_failure_that_is_raised_to_who_waits_is_not_logged_as_well(
    runs_on: str, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOGGER, "hasHandlers", lambda: False)
    monkeypatch.setattr(background_run, "CLAIM_SECONDS", 0)  # less than it takes to wake who waits
    waits: list[Callable[[Any], object]] = [
        lambda run: run.wait(),
        lambda run: asyncio.run(run.finished()),
    ]
    for wait in waits:
        runs = list[Any]()

        def until_waited_for(runs: list[Any] = runs) -> None:
            while not (runs and runs[0]._n_waiting):
                pass

        runs.append(broken_source(until_waited_for).start(runs_on))
        with pytest.raises(ConnectorError, match="no such luck"):
            wait(runs[0])
    assert [line for line in lines(log) if line[0] == "ERROR"] == []


def broken_source(wait: Callable[[], object]) -> ps.PipeGraph:
    """A graph whose source fails when a wait is over."""

    def rows() -> Iterator[dict[str, int]]:
        yield {"n": 1}
        wait()
        raise ValueError("no such luck")

    graph = ps.PipeGraph("broken")
    graph.source(ps.read.generator(rows, schema={"n": int}, batch=1)).sink(ps.write.memory())
    return graph


def broken() -> ps.PipeGraph:
    def fail(row: ps.Row) -> dict[str, int]:
        raise ValueError("no such luck")

    graph = ps.PipeGraph("broken")
    rows = graph.source(ps.read.rows([{"n": 1}]), name="in")
    rows.map(fail, schema={"n": int}, name="break").sink(ps.write.memory(), name="out")
    return graph


UNHEARD = """
import sys
import time
import penstock as ps

def fail(row):
    raise ValueError("no such luck")

graph = ps.PipeGraph("broken")
graph.source(ps.read.rows([{"n": 1}])).map(fail, schema={"n": int}).sink(ps.write.memory())
WAY
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("run = graph.start('local'); time.sleep(1.5)", 1),
        ("run = graph.start('local')\nwhile run.status().state != 'failed': pass", 1),
        ("graph.run('local')", 0),
        ("run = graph.start('local'); run.wait()", 0),
    ],
)
def test_where_no_log_is_set_up_a_failure_is_printed_once(way: str, said: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNHEARD.replace("WAY", way)], capture_output=True, text=True, check=False
    )
    assert done.stderr.count('run of "broken" failed') == said
    assert done.stderr.count("no such luck") >= 1
    assert (done.returncode == 0) == bool(said)


def test_warnings_are_said_once_and_then_only_what_is_new(log: pytest.LogCaptureFixture) -> None:
    graph, _ = windows()
    run: Any = graph.start("reference")
    run.wait()
    log.clear()
    accounts = run.metrics()
    run._log.report(accounts)
    assert lines(log) == []
    accounts["counts"].late += 3
    run._log.report(accounts)
    (warning,) = lines(log)
    assert 'run of "windows": 3 rows of step "counts" came too late' in warning[1]
    assert warning[1].endswith("(5 in all)")


def test_a_source_that_falls_idle_is_a_warning_once(log: pytest.LogCaptureFixture) -> None:
    graph, _ = windows()
    run: Any = graph.start("reference")
    run.wait()
    log.clear()
    for idle in ({"in"}, {"in"}, set(), {"in"}):
        run._log.report({step: ps.Accounts() for step in ("in", "counts", "out")}, frozenset(idle))
    assert [line[1] for line in lines(log)] == [
        'run of "windows": source "in" is silent and now idle: the watermark no longer waits for it'
    ] * 2


def test_a_run_that_goes_on_from_a_checkpoint_says_so(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    def build() -> ps.PipeGraph:
        graph = ps.PipeGraph("resume")
        graph.source(ps.read.rows([{"n": n} for n in range(4)], batch=1), name="in").sink(
            ps.write.jsonl(tmp_path / "out"), name="out"
        )
        return graph

    build().run("local", checkpoint=str(tmp_path / "state"), until=2, drain=True)
    assert not any("restored" in line for _, line in lines(log))
    build().run("local", checkpoint=str(tmp_path / "state"), drain=True)
    assert ("INFO", 'run of "resume" restored from its checkpoint: goes on after 2 rounds') in lines(log)


class Gate:
    """A source that waits until it is let through."""

    def __init__(self) -> None:
        self.waiting, self.open = threading.Event(), threading.Event()

    def rows(self) -> Iterator[dict[str, int]]:
        yield {"at": 10}
        yield {"at": 25}
        self.waiting.set()
        self.open.wait(60)
        yield {"at": 30}


def test_the_status_has_state_rows_watermark_and_lag(runs_on: str) -> None:
    gate = Gate()
    graph = ps.PipeGraph("gate")
    reader = ps.read.generator(gate.rows, schema={"at": "int64"}, batch=1)
    rows = graph.source(reader, time="at", time_unit="s", delay="5 s", name="in")
    rows.sink(ps.write.memory(), name="out")
    clock = ps.ManualClock(60_000_000)
    run = graph.start(runs_on, clock=clock)
    assert gate.waiting.wait(30)
    while run.status().rows_out["out"] < 2:
        pass
    status = run.status()
    assert (status.state, status.rows_in, status.rows_out) == ("running", {"in": 2}, {"out": 2})
    assert (status.watermark, status.lag_us) == ({"in": 20_000_000}, {"in": 40_000_000})
    assert status.error is None
    run.stop()
    assert run.status().state in ("stopping", "stopped", "drained")
    gate.open.set()
    assert run.status().state in ("stopping", run.wait().outcome)
    assert run.status().state == run.wait().outcome


def test_the_status_of_a_failed_run_has_its_error(runs_on: str) -> None:
    run = broken().start(runs_on)
    with pytest.raises(FunctionError) as caught:
        run.wait()
    status = run.status()
    assert (status.state, status.error) == ("failed", caught.value)
    assert json.loads(json.dumps(status.to_dict()))["error"] == str(caught.value)


def test_asyncio_waits_for_the_end_and_does_other_things_meanwhile(runs_on: str) -> None:
    gate = Gate()
    graph = ps.PipeGraph("gate")
    graph.source(ps.read.generator(gate.rows, schema={"at": "int64"}, batch=1)).sink(ps.write.memory())

    async def main() -> tuple[str, int]:
        run = graph.start(runs_on)
        end = asyncio.ensure_future(run.finished())
        turns = 0
        while not end.done():
            turns += 1
            await asyncio.sleep(0)
            if turns == 100:
                gate.open.set()
        return (await end).outcome, turns

    outcome, turns = asyncio.run(main())
    assert outcome == "drained"
    assert turns >= 100


def test_asyncio_gets_the_error_of_a_failed_run_also_later(runs_on: str) -> None:
    async def main() -> None:
        run = broken().start(runs_on)
        for _ in range(2):
            with pytest.raises(FunctionError):
                await run.finished()

    asyncio.run(main())


def test_who_gives_up_waiting_does_not_stop_the_run(runs_on: str) -> None:
    gate = Gate()
    graph = ps.PipeGraph("gate")
    graph.source(ps.read.generator(gate.rows, schema={"at": "int64"}, batch=1)).sink(ps.write.memory())

    async def main() -> str:
        run = graph.start(runs_on)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run.finished(), 0.01)
        assert run.status().state == "running"
        gate.open.set()
        return (await run.finished()).outcome

    assert asyncio.run(main()) == "drained"


def test_every_run_of_ours_has_all_that_a_handle_promises() -> None:
    for name in ("wait", "stop", "metrics", "status", "finished"):
        assert callable(getattr(BackgroundRun, name))
        assert callable(getattr(ps.Run, name))


def test_what_is_dropped_is_said_while_the_run_goes_on(
    runs_on: str, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_run, "FIRST_LOOK_S", 0.01)
    monkeypatch.setattr(background_run, "LOOK_S", 0.01)
    waiting, go_on = threading.Event(), threading.Event()

    def numbers() -> Iterator[dict[str, int]]:
        yield from ({"n": n} for n in (1, 0, 2))
        waiting.set()
        go_on.wait(60)

    graph = ps.PipeGraph("divide")
    rows = graph.source(ps.read.generator(numbers, schema={"n": "int64"}, batch=1))
    rows.with_columns(half=1 // ps.col("n"), on_error="skip", name="halve").sink(ps.write.memory())
    run = graph.start(runs_on)
    try:
        assert waiting.wait(30)
        while not any(level == "WARNING" for level, _ in lines(log)):
            assert run.status().state == "running"
    finally:
        go_on.set()
        run.wait()
    assert [line for line in lines(log) if line[0] == "WARNING"] == [
        ("WARNING", 'run of "divide": 1 rows of step "halve" failed and were skipped (on_error="skip")')
    ]
