"""`penstock demo`: a whole program on made-up events, its result, its accounts and its picture."""

from __future__ import annotations

import inspect
import tempfile
import textwrap
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.syntax import Syntax
from rich.table import Table

from penstock.apps.campaign_views import campaign_views, write_events
from penstock.cli import screen
from penstock.cli.programs import run_to_the_end
from penstock.cli.screen import Code, accounts_table, ending_with

ABOUT = (
    "Run a whole program on made-up events.\n\n"
    "The events come out of order, a few of them too late. Prints the campaign-views program, some of its "
    "result and what became of every row, and draws its picture.\n\n"
    "\b\nExamples:\n"
    "  penstock demo\n"
    "  penstock demo --out demo/ --rows 20000 --seed 7"
)
SHOWN = 5  # windows in the table of results


def demo(
    *,
    out: Annotated[
        Path | None, typer.Option(help="Where events, results and picture go [a new folder].", metavar="DIR")
    ] = None,
    rows: Annotated[int, typer.Option(help="How many events.", min=1, metavar="N")] = 5_000,
    seed: Annotated[int, typer.Option(help="The seed of the events.", metavar="N")] = 1,
    engine: Annotated[str, typer.Option(help="What runs the program.", metavar="NAME")] = "spark",
) -> None:
    """Run the campaign-views program."""
    folder = out or Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f'"{folder}" is a file; name a folder')
    with ending_with(Code.WRONG):
        try:
            write_events(folder, rows=rows, seed=seed)
            graph = campaign_views(folder)
            (folder / "campaign-views.svg").write_text(graph.explain(format="svg"), encoding="utf-8")
        except OSError as problem:
            raise typer.BadParameter(f'"{folder}" cannot be written: {problem.strerror}') from problem
    screen.out().print(Syntax(program(), "python", background_color="default"))
    done = run_to_the_end(graph, engine, [])
    screen.say(f"\nViews per campaign in the 10 seconds before, of {rows:,} events:\n")
    screen.out().print(results_table(pq.read_table(folder / "views")))
    screen.say("\nWhat became of the rows:\n")
    screen.out().print(accounts_table(done.accounts))
    screen.say(f"\nresults    {folder / 'views'}\nlate rows  {folder / 'late'}")
    screen.say(f"picture    {folder / 'campaign-views.svg'}")


def program() -> str:
    """Return the main lines of the program, as they stand in its file."""
    lines = textwrap.dedent("".join(inspect.getsourcelines(campaign_views)[0][2:]))
    return lines[: lines.index("return graph")].rstrip()


def results_table(views: pa.Table) -> Table:
    """Return the last windows that end on a whole ten seconds, one line each, one column per campaign."""
    by_end: dict[object, dict[str, int]] = {}
    earned: dict[object, float] = {}
    for row in views.sort_by("window_end").to_pylist():
        if row["window_end"].second % 10 == 0:
            by_end.setdefault(row["window_end"], {})[row["campaign_id"]] = row["views"]
            earned[row["window_end"]] = earned.get(row["window_end"], 0.0) + row["revenue"]
    campaigns = sorted(set(views["campaign_id"].to_pylist()))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("until")
    for name in (*campaigns, "revenue"):
        table.add_column(name, justify="right")
    for end, counts in list(by_end.items())[-SHOWN:]:
        cells = [f"{counts.get(name, 0):,}" for name in campaigns]
        table.add_row(f"{end:%H:%M:%S}", *cells, f"{earned[end]:,.2f}")
    return table
