"""The command as a whole: version, help, exit codes, doctor, colours."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from penstock.cli import doctor, screen
from penstock.cli.doctor import CheckResult
from penstock.cli.screen import MEANING, Code, code_of
from penstock.errors import (
    CheckpointError,
    ConnectorError,
    EngineError,
    FunctionError,
    GraphError,
    NotSupported,
    PenstockError,
    SchemaError,
    TimeError,
)
from penstock.events import BatchDone, RunStarted
from tests.support.command_line import penstock

DOCS = Path(__file__).parents[2] / "docs" / "command-line.md"


def test_the_version_is_that_of_the_package() -> None:
    assert penstock("--version").out == f"penstock {metadata.version('penstock')}\n"


def test_without_a_command_the_help_is_shown() -> None:
    assert "Commands:" in penstock().out + penstock().err


def test_an_unknown_command_is_wrong_usage() -> None:
    assert penstock("rum").code == 2


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (GraphError, 2),
        (SchemaError, 2),
        (TimeError, 2),
        (NotSupported, 2),
        (FunctionError, 1),
        (ConnectorError, 1),
        (CheckpointError, 1),
        (EngineError, 1),
    ],
)
def test_mistakes_found_before_a_run_end_with_2_and_failures_with_1(
    kind: type[PenstockError], code: int
) -> None:
    assert code_of(kind("it went wrong")) == code


def test_the_documented_exit_codes_are_the_real_ones() -> None:
    text = DOCS.read_text()
    assert [f"| {code.value} | {MEANING[code]} |" in text for code in Code] == [True] * len(Code)


def test_doctor_is_content_here() -> None:
    done = penstock("doctor")
    assert (done.code, "broken" in done.out) == (0, False)
    assert "engine reference" in done.out


def test_doctor_gives_json_to_scripts() -> None:
    results = {result["name"]: result for result in json.loads(penstock("doctor", "--json").out)}
    assert results["python"]["state"] == "ok"
    assert {"pyarrow", "extra spark", "java", "machine", "temp folder"} <= set(results)


def test_doctor_ends_with_code_1_when_something_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = CheckResult("numpy", "broken", "not installed", 'pip install "numpy>=2.0"')
    monkeypatch.setattr(doctor, "examine", lambda: [broken])
    done = penstock("doctor")
    assert (done.code, 'pip install "numpy>=2.0"' in done.out) == (1, True)


def test_nothing_is_coloured_and_no_bar_is_drawn_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen.show_error(GraphError("a [bold]fact[/bold]", hint="a hint"))
    with screen.progress() as move, screen.progress_line("views") as listen:
        move(1, 3, "working")
        listen(BatchDone(2_000_000, 0, {"a": 10}, {}, 5))
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "GraphError: a [bold]fact[/bold]\n  hint:   a hint\n")


def test_the_line_of_a_run_tells_batches_rows_their_rate_and_the_lag() -> None:
    lines: list[str] = []
    text = screen.ProgressText("views", lines.append)
    text.update(RunStarted(1_000_000, "views", "local", ()))
    text.update(BatchDone(3_000_000, 0, {"a": 3_000, "b": 1_000}, {}, 5, lag_us={"a": 2_500_000}))
    text.update(BatchDone(5_000_000, 1, {"a": 4_000}, {}, 5, lag_us={"a": 10**15}))  # not a live stream
    assert lines == [
        "views  1 batches  4,000 rows  2,000 rows/s  watermark 2.5 s behind",
        "views  2 batches  8,000 rows  2,000 rows/s",
    ]


def test_a_long_line_is_not_broken(capsys: pytest.CaptureFixture[str]) -> None:
    screen.say("x" * 500)
    assert capsys.readouterr().out == "x" * 500 + "\n"
