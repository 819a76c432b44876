"""A stop that drains ends a log that is followed where it is: a last line without its end is taken too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.connect.readers import files as file_readers
from penstock.crash_points import COMMITTED, JOURNALED, PUBLISHED, STAGED, WRITTEN
from penstock.errors import CheckpointError, PenstockError
from tests.support.file_runs import Died, dying_at
from tests.support.input_runs import rows_in
from tests.support.log_runs import PATIENCE_S, TEXT, WholeLines, build, copies, counts, drain
from tests.support.spark_in_process import InProcessSparkEngine


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(file_readers, "POLL_S", 0.02)
    log = tmp_path / "app.log"
    log.write_text(TEXT)
    return log


@pytest.mark.parametrize("read", [ps.read.text, ps.read.csv])
def test_the_last_line_of_a_log_needs_no_end_when_a_stop_drains(log: Path, read: Any) -> None:
    result = drain(build(log, read), log, "local")
    expected = ["half", "one", "two"] if read is ps.read.csv else ["half", "one", "two", "v"]
    assert (result.outcome, copies(log), counts(log)) == ("drained", expected, [len(expected)])
    assert result.accounts["rows"].rows_in == len(expected)


def test_half_an_object_is_a_bad_row_when_a_stop_drains(log: Path) -> None:
    log.write_text('{"v": "one"}\n{"v": "two"}\n{"v": "ha')

    def read(path: Path, **options: Any) -> Any:
        return ps.read.jsonl(path, schema={"v": str}, **options)

    result = drain(build(log, read, on_error="dead_letter"), log, "local")
    assert (result.outcome, copies(log), counts(log)) == ("drained", ["one", "two"], [2])
    assert result.accounts["rows"].errors == len(rows_in(log.parent / "errors")) == 1


def test_a_stop_that_does_not_drain_leaves_the_line_to_the_next_run(log: Path) -> None:
    lines = WholeLines(log.parent / "out")
    run = build(log).start("local", checkpoint=log.parent / "checkpoint", events=lines)
    assert lines.written.wait(PATIENCE_S)
    run.stop()
    assert run.wait(PATIENCE_S).outcome == "stopped"
    assert copies(log) == ["one", "two"]
    with log.open("a") as file:
        file.write(" whole\nlast")
    assert drain(build(log), log, "local").outcome == "drained"
    assert (copies(log), counts(log)) == (["half whole", "last", "one", "two"], [4])


def test_the_reference_engine_takes_the_last_line_too(log: Path) -> None:
    lines = WholeLines(log.parent / "out")
    run = build(log).start("reference", events=lines)
    assert lines.written.wait(PATIENCE_S)
    run.stop(drain=True)
    assert run.wait(PATIENCE_S).outcome == "drained"
    assert (copies(log), counts(log)) == (["half", "one", "two"], [3])


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("point", [JOURNALED, WRITTEN, STAGED, COMMITTED, PUBLISHED])
def test_a_crash_while_the_last_line_is_taken_loses_and_doubles_nothing(
    log: Path, point: str, times: int
) -> None:
    with suppress(Died, PenstockError):
        drain(build(log), log, "local", point, times)
    with suppress(CheckpointError):  # the end was saved
        assert drain(build(log), log, "local").outcome == "drained"
    assert (copies(log), counts(log)) == (["half", "one", "two"], [3])


@pytest.mark.parametrize("point", [JOURNALED, COMMITTED, PUBLISHED])
def test_the_same_holds_for_the_loop_of_the_spark_driver(log: Path, point: str) -> None:
    def run(*, drains: bool) -> str:
        here = InProcessSparkEngine(drains=drains)
        return build(log).run(here, checkpoint=log.parent / "checkpoint", until=0 if drains else 1).outcome

    assert run(drains=False) == "stopped"
    with dying_at(point), suppress(Died, PenstockError):
        run(drains=True)
    with suppress(CheckpointError):
        assert run(drains=True) == "drained"
    assert (copies(log), counts(log)) == (["half", "one", "two"], [3])


def test_other_sources_end_where_they_are_and_the_log_with_its_last_line(log: Path) -> None:
    going = threading.Event()

    def others() -> Iterator[dict[str, str]]:
        yield {"v": "other"}
        going.wait(PATIENCE_S)

    graph = ps.PipeGraph("two")
    rows = graph.source(ps.read.csv(log, follow=True, wait="5 ms"), time=ps.ingest_time(), name="rows")
    reader = ps.read.generator(others, schema={"v": str})
    both = rows.merge(graph.source(reader, time=ps.ingest_time(), name="others"))
    both.sink(ps.write.jsonl(log.parent / "out"), name="copies")
    result = drain(graph, log, "local")
    going.set()
    assert (result.outcome, copies(log)) == ("drained", ["half", "one", "other", "two"])
