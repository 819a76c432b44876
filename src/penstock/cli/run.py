"""`penstock run`: run the graph in a file, and say what became of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import penstock as ps
from penstock.cli import screen
from penstock.cli.exits import Code, ending_with, epilog
from penstock.cli.load import load_graph
from penstock.cli.screen import accounts_table

ABOUT = (
    "Run the graph in FILE to the end of its sources.\n\n"
    'The file is run, except for what stands below: if __name__ == "__main__". '
    "Afterwards every step's rows are accounted for.\n\n"
    "\b\nExamples:\n"
    "  penstock run views.py --engine reference\n"
    "  penstock run views.py --graph totals --checkpoint state/\n"
    "  penstock run views.py --json | jq .rows_out"
)


def add_to(parent: typer.Typer) -> None:
    """Add the command."""
    parent.command("run", help=ABOUT, epilog=epilog())(run)


def run(
    file: Annotated[Path, typer.Argument(help="A Python file that builds a graph.", metavar="FILE.py")],
    *,
    engine: Annotated[
        str | None,
        typer.Option(help="What runs it: spark, local or reference; else the graph's own.", metavar="NAME"),
    ] = None,
    graph: Annotated[
        str | None, typer.Option(help="Which graph, by variable or by name.", metavar="NAME")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="A Spark master, such as spark://host:7077.", metavar="URL")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="A folder that makes the run survive a crash.", metavar="DIR")
    ] = None,
    until: Annotated[
        int | None, typer.Option(help="Stop after this number of rounds of batches.", min=0, metavar="N")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the accounts as JSON for scripts.")] = False,
) -> None:
    """Run a graph."""
    with screen.programs_own_text(aside=json):
        with ending_with(Code.WRONG):
            chosen = load_graph(file, graph)
            sinks = [step.name for step in chosen.plan().sinks]
        on = engine or chosen.engine
        done = run_to_the_end(chosen, on, master=master, checkpoint=checkpoint, until=until)
    name = on if isinstance(on, str) else on.name
    if json:
        screen.say_json(_as_data(chosen, name, done, sinks))
    else:
        screen.say(f'graph "{chosen.name}" on engine {name}: {done.outcome} after {_batches(done.batches)}')
        screen.out().print(accounts_table(done.accounts))


def run_to_the_end(graph: ps.PipeGraph, engine: Any, **settings: Any) -> Any:
    """Run a graph with a bar on the terminal; what cannot start ends with code 2, what fails with code 1."""
    with screen.progress(total=None) as bar:

        def listen(event: Any) -> None:
            if isinstance(event, ps.events.BatchDone):
                bar.move(event.batch + 1, None, f"{graph.name}: batches")

        with ending_with(Code.WRONG):
            started = graph.start(engine, events=listen, **settings)
        with ending_with(Code.FAILED):
            try:
                return started.wait()
            except KeyboardInterrupt:
                started.stop()
                raise


def _batches(n: int) -> str:
    return f"{n:,} batch" if n == 1 else f"{n:,} batches"


def _as_data(graph: ps.PipeGraph, engine: str, done: Any, sinks: list[str]) -> dict[str, object]:
    return {
        "graph": graph.name,
        "engine": engine,
        "outcome": done.outcome,
        "batches": done.batches,
        "rows_out": {sink: done.accounts[sink].rows_in for sink in sinks},
        "accounts": {step: accounts.to_dict() for step, accounts in done.accounts.items()},
        **({} if done.measurements is None else done.measurements.to_dict()),
    }
