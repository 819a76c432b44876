"""`docs/results.md`: every claim with what was measured, and the tables of every chart, from kept results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bench.page import chart_table
from bench.result import Figures, Result, Verdict, spread_of
from bench.text import format_amount, format_bounds, format_duration, format_rate
from bench.workload import Cell

HEAD = """# Results

Written by `python -m bench results` from the files of `bench/results`; do not edit. `make results` measures
everything again and writes this page, README's table and a page with plots. How it is measured:
[benchmarks.md](benchmarks.md). Figures are medians; ratios carry over to other machines better than rates.
"""


def build_markdown(summaries: Mapping[str, Result]) -> str:
    """Return the page."""
    parts = [HEAD, _tally(summaries), _not_held(summaries)]
    parts += [_section(name, result) for name, result in summaries.items()]
    return "\n".join(part for part in parts if part)


def _tally(summaries: Mapping[str, Result]) -> str:
    rows = [
        [f"[{name}](#{name})", f"`{one.command}`", f"{one.n_held} of {len(one.verdicts)}", _origin(one)]
        for name, one in summaries.items()
    ]
    return format_table(["measured", "command", "claims held", "when, where"], rows)


def _origin(result: Result) -> str:
    commit = "" if result.commit is None else f", commit {result.commit.id[:10]}"
    changes = " with changes" if result.commit and result.commit.dirty else ""
    machine = result.machine
    load = "" if machine.load is None else f", load {machine.load:.1f} before"
    load += f", {machine.stolen:.0%} of the time stolen by the host" if machine.is_disturbed else ""
    load += "" if machine.step_ns is None else f", {machine.step_ns:.0f} ns a step of plain Python"
    return f"{result.started_at[:10]}, {machine.cores} cores of {machine.cpu}{load}{commit}{changes}"


def _not_held(summaries: Mapping[str, Result]) -> str:
    rows = [
        [name, *_verdict_row(verdict)[1:]]
        for name, result in summaries.items()
        for verdict in result.verdicts
        if not verdict.held
    ]
    if not rows:
        return ""
    head = ["measured", "claim", "figure", "quartiles", "wanted"]
    return f"## Claims that did not hold\n\n{format_table(head, rows)}"


def _verdict_row(verdict: Verdict) -> list[str]:
    figure, quartiles, wanted = format_bounds(verdict)
    return ["yes" if verdict.held else "**no**", verdict.claim.says, figure, quartiles, wanted]


def _section(name: str, result: Result) -> str:
    parts = [f"## {name}\n\n{_sentence(result.about)}\n\n    {result.command}\n"]
    if result.verdicts:
        head = ["held", "claim", "figure", "quartiles", "wanted"]
        parts.append(format_table(head, [_verdict_row(verdict) for verdict in result.verdicts]))
    figures = {one.cell: one for one in result.figures}
    parts += [_charts(result, figures), _others(result), _remarks(result)]
    return "\n".join(part for part in parts if part)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _charts(result: Result, figures: Mapping[Cell, Figures]) -> str:
    parts = []
    for chart in result.charts:
        head, rows = chart_table(chart, figures)
        unit = "" if chart.form == "bars" else f" ({chart.up})"
        table = format_table(head, [[cell.split("\n")[0] for cell in row] for row in rows])
        parts.append(f"**{chart.title}**{unit}. {chart.caption}\n\n{table}")
    return "\n".join(parts)


def _others(result: Result) -> str:
    """Return the figures of cells that no chart shows."""
    drawn = {point.cell for chart in result.charts for point in chart.points}
    rows = [_figure_row(one) for one in result.figures if one.cell not in drawn]
    return format_table(["case", "way", "median time", "rates and notes"], rows) if rows else ""


def _remarks(result: Result) -> str:
    lines = "".join(f"- {remark}\n" for remark in result.remarks)
    return f"Not measured:\n\n{lines}" if lines else ""


def _figure_row(one: Figures) -> list[str]:
    remarks = [format_rate(value, unit) for unit, value in one.rates().items()]
    remarks += [
        f"{name} {format_amount(spread_of(noted).median, name)}"
        for name, noted in one.notes.items()
        if not name.startswith("at ")
    ]
    return [*one.cell, format_duration(one.seconds.median), ", ".join(remarks)]


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown.

    >>> print(format_table(["a", "b"], [["1", "2"]]), end="")
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [head, *rows]
    text = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines]
    return "\n".join([text[0], f"|{'---|' * len(head)}", *text[1:]]) + "\n"
