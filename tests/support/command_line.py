"""Type a command at the real app and see what came out."""

from __future__ import annotations

from dataclasses import dataclass

import typer
from typer.testing import CliRunner

from bench.cli import app as bench_app
from penstock.cli.main import app


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str


def penstock(*words: str) -> Outcome:
    """Run a `penstock` command in this process. Raises anything that the command should have caught."""
    return _run(app, words, "penstock")


def bench(*words: str) -> Outcome:
    """Run `python -m bench` in this process."""
    return _run(bench_app, words, "python -m bench")


def _run(application: typer.Typer, words: tuple[str, ...], name: str) -> Outcome:
    done = CliRunner(env={"NO_COLOR": "1", "COLUMNS": "100"}).invoke(
        application, [str(word) for word in words], prog_name=name
    )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Outcome(done.exit_code, done.stdout, done.stderr)
