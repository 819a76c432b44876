"""`penstock explain`: what a program's graph is, before it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import screen
from penstock.cli.exits import Code, ending_with, epilog
from penstock.cli.load import load_graph

ABOUT = (
    "Say what the graph in FILE is and does.\n\n"
    "Prints its steps with their schemas, its building blocks, and an engine's choices. "
    'The file is run, except for what stands below: if __name__ == "__main__".\n\n'
    "\b\nExamples:\n"
    "  penstock explain views.py\n"
    "  penstock explain views.py --graph totals --engine reference\n"
    "  penstock explain views.py --json"
)


def add_to(parent: typer.Typer) -> None:
    """Add the command."""
    parent.command("explain", help=ABOUT, epilog=epilog())(explain)


def explain(
    file: Annotated[Path, typer.Argument(help="A Python file that builds a graph.", metavar="FILE.py")],
    *,
    graph: Annotated[
        str | None, typer.Option(help="Which graph, by variable or by name.", metavar="NAME")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="Show this engine's choices as well.", metavar="NAME")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Print what a graph is."""
    with ending_with(Code.WRONG):
        with screen.programs_own_text(aside=json):
            chosen = load_graph(file, graph)
        if json:
            sys.stdout.write(chosen.explain(engine, format="json"))
        else:
            screen.say(chosen.explain(engine))
