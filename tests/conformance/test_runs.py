"""Runs seen from outside: their status, their log, their end in asyncio, on every engine."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import penstock as ps
from tests.conformance.case import Case

FEATURE = "Status, log, `await run.finished()`"


def start(case: Case, *pipes: ps.MultiPipe) -> ps.Run:
    """The run of a case, begun, with a memory sink behind each pipe."""
    for pipe in pipes:
        pipe.sink(ps.write.memory(), name="out")
    options = ps.LocalOptions(deterministic=True) if case.engine == "local" else None
    return case.graph.start(case.engine, clock=case.clock, master=case.master, options=options)


def test_the_status_of_a_run_that_is_over_has_its_outcome_and_its_rows(case: Case) -> None:
    source = case.timed_source("t v", [(1, 1), (2, 2)], [(3, 3)], delay="1 s", name="in")
    run = start(case, source.filter(ps.col("v") > 1))
    run.wait()
    status = run.status()
    assert (status.state, status.rows_in, status.rows_out) == ("drained", {"in": 3}, {"out": 2})
    assert (status.watermark, status.lag_us, status.error) == ({"in": None}, {}, None)


def test_a_run_that_keeps_its_windows_open_has_a_watermark_and_a_lag(case: Case) -> None:
    source = case.timed_source("t v", [(1, 1), (2, 2)], [(12, 3)], delay="2 s", name="in")
    source.window(ps.tumbling("10 s"), name="sums").aggregate(v=ps.sum("v")).sink(ps.write.memory())
    case.clock.advance(60_000_000)
    options = ps.LocalOptions(deterministic=True) if case.engine == "local" else None
    run = case.graph.start(case.engine, clock=case.clock, master=case.master, options=options, drain=False)
    run.wait()
    status = run.status()
    assert (status.state, status.watermark) == ("ended", {"in": 10_000_000})
    assert status.lag_us == {"in": 50_000_000}


def test_a_failed_run_has_its_error_in_its_status_and_in_the_log(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    source = case.untimed_source("v", [(1,), (0,)], name="in")
    run = start(case, source.with_columns(v=1 // ps.col("v"), name="divide"))
    with pytest.raises(ps.FunctionError) as caught:
        run.wait()
    assert (run.status().state, run.status().error) == ("failed", caught.value)
    (error,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert error == f'run of "case" failed: {caught.value}'


def test_the_log_has_the_life_of_a_run_and_the_rows_that_it_dropped(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="penstock")
    source = case.timed_source("t v", [(1, 1)], [(30, 2)], [(2, 3)], name="in")
    start(case, source.window(ps.tumbling("10 s"), name="sums").aggregate(v=ps.sum("v"))).wait()
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.run"]
    assert lines == [
        f'run of "case" started on engine {case.engine}: 3 steps',
        'run of "case": 1 rows of step "sums" came too late and were dropped; read .late to keep them',
        'run of "case" drained after 3 batches: 3 rows in, 2 rows out',
    ]


def test_asyncio_waits_for_a_run(case: Case) -> None:
    async def main() -> str:
        return (await start(case, case.untimed_source("v", [(1,)])).finished()).outcome

    assert asyncio.run(main()) == "drained"


def test_a_run_that_is_stopped_while_it_clears_its_output_writes_nothing(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> ps.PipeGraph:
        graph = ps.PipeGraph("clear")
        rows = graph.source(ps.read.rows([{"n": n} for n in range(4)], batch=1))
        rows.sink(ps.write.jsonl(tmp_path / "out", overwrite=True), name="out")
        return graph

    build().run(case.engine, master=case.master)
    n_files, remove, runs = len(list((tmp_path / "out").glob("part-*"))), Path.unlink, list[ps.Run]()

    def unlink(path: Path, missing_ok: bool = False) -> None:
        while path.name.startswith("part-") and not runs:  # until there is a handle by which to stop
            continue
        if path.name.startswith("part-"):
            runs[0].stop()
        remove(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    runs.append(build().start(case.engine, master=case.master))
    result = runs[0].wait(60)
    assert (result.outcome, result.batches) == ("stopped", 0)
    assert len(list((tmp_path / "out").glob("part-*"))) == n_files - 1
