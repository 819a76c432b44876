"""`penstock doctor`: is everything here that Penstock needs, and what could be added."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli import screen
from penstock.cli.exits import Code, epilog
from penstock.cli.findings import Finding, examine

ABOUT = (
    "Look whether all that Penstock needs is here.\n\n"
    "Looks at Python, packages, extras, Java, engines and the machine. What is absent is optional, and "
    "the line that installs it is shown. What is broken ends the command with code 1.\n\n"
    "\b\nExamples:\n"
    "  penstock doctor\n"
    "  penstock doctor --json"
)
COLOURS = {"ok": "green", "absent": "yellow", "broken": "bold red"}


def add_to(parent: typer.Typer) -> None:
    """Add the command."""
    parent.command("doctor", help=ABOUT, epilog=epilog())(doctor)


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Look at what Penstock needs."""
    findings = examine()
    if json:
        screen.say_json([asdict(finding) for finding in findings])
    else:
        screen.out().print(_table(findings))
    if any(finding.state == "broken" for finding in findings):
        raise typer.Exit(Code.FAILED)


def _table(findings: list[Finding]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        told = finding.detail + (f"\n{finding.hint}" if finding.hint else "")
        table.add_row(Text(finding.state, style=COLOURS[finding.state]), Text(finding.name), Text(told))
    return table
