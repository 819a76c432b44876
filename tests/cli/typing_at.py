"""Type a command at the real app and see what came out."""

from __future__ import annotations

from dataclasses import dataclass

from typer.testing import CliRunner

from penstock.cli.main import app


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str


def penstock(*words: str) -> Outcome:
    """Run a command in this process. Anything it should have caught and did not is raised here."""
    done = CliRunner(env={"NO_COLOR": "1", "COLUMNS": "100"}).invoke(
        app, [str(word) for word in words], prog_name="penstock"
    )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Outcome(done.exit_code, done.stdout, done.stderr)
