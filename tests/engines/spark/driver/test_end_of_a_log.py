"""On Spark, a stop that drains ends a log where it is: a last line without its end is taken too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.connect.readers import files as file_readers
from tests.support.input_runs import rows_in
from tests.support.log_runs import PATIENCE_S, TEXT, WholeLines, build, copies, counts, drain

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(file_readers, "POLL_S", 0.02)
    log = tmp_path / "app.log"
    log.write_text(TEXT)
    return log


@pytest.mark.parametrize("read", [ps.read.text, ps.read.csv])
def test_the_last_line_of_a_log_needs_no_end_when_a_stop_drains(log: Path, read: Any) -> None:
    result = drain(build(log, read), log, "spark")
    expected = ["half", "one", "two"] if read is ps.read.csv else ["half", "one", "two", "v"]
    assert (result.outcome, copies(log), counts(log)) == ("drained", expected, [len(expected)])
    assert result.accounts["rows"].rows_in == len(expected)


def test_half_an_object_is_a_bad_row_when_a_stop_drains(log: Path) -> None:
    log.write_text('{"v": "one"}\n{"v": "two"}\n{"v": "ha')

    def read(path: Path, **options: Any) -> Any:
        return ps.read.jsonl(path, schema={"v": str}, **options)

    result = drain(build(log, read, on_error="dead_letter"), log, "spark")
    assert (result.outcome, copies(log), counts(log)) == ("drained", ["one", "two"], [2])
    assert result.accounts["rows"].errors == len(rows_in(log.parent / "errors")) == 1


def test_a_stop_that_does_not_drain_leaves_the_line_to_the_next_run(log: Path) -> None:
    lines = WholeLines(log.parent / "out")
    run = build(log).start("spark", checkpoint=log.parent / "checkpoint", events=lines)
    assert lines.written.wait(PATIENCE_S)
    run.stop()
    assert run.wait(PATIENCE_S).outcome == "stopped"
    assert copies(log) == ["one", "two"]
    with log.open("a") as file:
        file.write(" whole\nlast")
    assert drain(build(log), log, "spark").outcome == "drained"
    assert (copies(log), counts(log)) == (["half whole", "last", "one", "two"], [4])
