"""`penstock demo`: a whole program on made-up events, its result, its accounts, its picture and its speed.

On Spark, the program is also timed beside Spark's own `window()`, and a page with plots is written. What only
the demo needs is loaded when it runs: the module itself is loaded by every command.
"""

from __future__ import annotations

import inspect
import tempfile
import textwrap
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

import penstock as ps
from penstock.cli import report, screen
from penstock.cli.programs import run_to_the_end
from penstock.cli.screen import Code, accounts_table, ending_with

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.cli.comparison import Comparison

ABOUT = (
    "Run a whole program on made-up events.\n\n"
    "The events come out of order, a few of them too late. Prints the campaign-views program, some of its "
    "result and what became of every row, and draws its picture. On Spark it then times the program beside "
    "Spark's own window() on more events. A page with all that and plots is written.\n\n"
    "\b\nExamples:\n"
    "  penstock demo\n"
    "  penstock demo --out demo/ --rows 20000 --seed 7\n"
    "  penstock demo --compare-rows 0"
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
    compare_rows: Annotated[
        int, typer.Option(help="Events for the comparison with Spark; 0 leaves it out.", min=0, metavar="N")
    ] = 1_000_000,
) -> None:
    """Run the campaign-views program."""
    import pyarrow.parquet as pq
    from rich.syntax import Syntax

    from penstock.apps.campaign_views import campaign_views, write_events

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
    views = pq.read_table(folder / "views")
    screen.out().print(results_table(views))
    screen.say("\nWhat became of the rows:\n")
    screen.out().print(accounts_table(done.accounts))
    measured = None
    if engine == "spark" and compare_rows:
        from penstock.cli.comparison import compare

        with ending_with(Code.FAILED):
            measured = compare(folder / "comparison", rows=compare_rows, seed=seed)
        screen.say(f"\n{describe(measured)}")
    page = folder / "report.html"
    page.write_text(build_report(graph, views, done.accounts, measured), encoding="utf-8")
    screen.say(f"\nresults    {folder / 'views'}\nlate rows  {folder / 'late'}")
    screen.say(f"picture    {folder / 'campaign-views.svg'}\nreport     {page}")


def describe(measured: Comparison) -> str:
    """Return the comparison in words."""
    ratio = measured.ours / measured.spark
    same = "all equal" if not measured.different else f"{measured.different:,} DIFFERENT"
    return (
        f"The same program on {measured.rows:,} events, files to files on Spark:\n\n"
        f"Penstock          {measured.ours:>12,.0f} rows/s\n"
        f"Spark's window()  {measured.spark:>12,.0f} rows/s\n"
        f"Penstock is {ratio:.1f} times as fast; {measured.windows:,} windows compared, {same}"
    )


def build_report(
    graph: ps.PipeGraph, views: pa.Table, accounts: Mapping[str, Any], measured: Comparison | None
) -> str:
    """Return the page: the program, its picture, its results, its accounts, and how fast it is."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in views.sort_by([("campaign_id", "ascending"), ("window_end", "ascending")]).to_pylist():
        series.setdefault(row["campaign_id"], []).append((row["window_end"].timestamp(), row["views"]))
    columns = ("rows_in", "rows_out", "filtered", "unmatched", "late")
    lines = [[step, *(getattr(counts, name) for name in columns)] for step, counts in accounts.items()]
    sections = {"The program": f"<pre>{escape(program())}</pre>", "Its graph": graph.explain(format="svg")}
    sections["Views per campaign"] = report.draw_lines(series, "time", "views in the ten seconds before")
    header = ["step", *(name.replace("_", " ") for name in columns)]
    sections["What became of the rows"] = report.build_table(header, lines)
    if measured is not None:
        bars = {"Penstock on Spark": measured.ours, "Spark's window()": measured.spark}
        text = escape(describe(measured))
        sections["How fast"] = report.draw_bars(bars, "rows/s") + f"<pre>{text}</pre>"
    return report.build_page("penstock demo", sections)


def program() -> str:
    """Return the main lines of the program, as they stand in its file."""
    from penstock.apps.campaign_views import campaign_views

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
