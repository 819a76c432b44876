"""A result as one self-contained HTML page: claims, charts, ratios, figures, machine facts.

Everything is inline and nothing runs, so the page can be mailed, archived and opened anywhere. Every
word that comes from a workload or a machine is escaped. Sweeps come first, as their charts with a table
beneath; cases in no chart are drawn way by way; a table of all figures is at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape

from bench.draw import box_of, curve_of, draw_case, draw_chart
from bench.result import Figures, Result, spread_of
from bench.text import (
    format_amount,
    format_duration,
    format_rate,
    format_ratio,
    format_tally,
    format_verdict,
    list_facts,
)
from bench.workload import PERCENTILES, Cell, Chart, Line

Table = tuple[list[str], list[list[str]]]

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1d2733; background: #ffffff;
  max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .4rem; break-after: avoid; }
p.about, figcaption { color: #566270; margin: 0 0 .6rem; }
figcaption { font-size: .92rem; max-width: 50rem; }
figure { margin: 0; break-inside: avoid; max-width: 58rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto;
  font-size: .86rem; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #dde2e9;
  vertical-align: top; }
th { color: #566270; font-weight: 500; }
td small { color: #566270; white-space: nowrap; } td { min-width: 3.4rem; }
caption { text-align: left; color: #566270; padding-bottom: .2rem; }
li.held::marker { color: #1b7a43; content: "✓ "; }
li.broken::marker { color: #b3261e; content: "✗ "; }
li.broken { color: #b3261e; } p.tally { font-weight: 600; }
svg { width: 100%; height: auto; display: block; }
@media print {
  body { margin: 0; max-width: none; font-size: 11pt; } table { display: table; font-size: 8pt; }
  th, td { padding-right: .5rem; } tr { break-inside: avoid; }
}
"""


def build_page(result: Result) -> str:
    """Return the whole page as HTML text."""
    title = f"{result.workload} benchmark"
    sections = (_claims(result), _charts(result), _ratios(result), _plots(result))
    ends = (_figures(result), _remarks(result), _facts(result))
    body = "\n".join(part for part in (*sections, *ends) if part)
    return wrap_page(title, result.about, body)


def wrap_page(title: str, about: str, body: str) -> str:
    """Return a whole page around a body that is HTML already."""
    title = escape(title)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{title}</h1>\n<p class="about">{escape(about)}</p>\n{body}\n</body>\n</html>\n'
    )


def _claims(result: Result) -> str:
    if not result.verdicts:
        return ""
    items = "\n".join(
        f'<li class="{"held" if one.held else "broken"}">{escape(format_verdict(one))}</li>'
        for one in result.verdicts
    )
    return f'<h2>Claims</h2>\n<p class="tally">{escape(format_tally(result))}</p>\n<ul>\n{items}\n</ul>'


def _charts(result: Result) -> str:
    figures = {one.cell: one for one in result.figures}
    return "\n".join(f"{show_chart(chart, figures)}\n{show_table(chart, figures)}" for chart in result.charts)


def show_chart(chart: Chart, figures: Mapping[Cell, Figures]) -> str:
    """Return the HTML of a chart with its title and caption."""
    return (
        f"<figure>\n<h2>{escape(chart.title)}</h2>\n{draw_chart(chart, figures)}\n"
        f"<figcaption>{escape(chart.caption)}</figcaption>\n</figure>"
    )


def show_table(chart: Chart, figures: Mapping[Cell, Figures]) -> str:
    """Return the HTML of the table beneath a chart."""
    return _table(*chart_table(chart, figures), f"{chart.up}: medians, quartiles beneath")


def chart_table(chart: Chart, figures: Mapping[Cell, Figures]) -> Table:
    """Return the heading and the rows of the table beneath a chart: a row per place, a column per line.

    The reader of a sweep must see what else changed: if the work differs between the lines of a place, for
    example because a slow way gets fewer rows, the column of that line says so.
    """
    if chart.form == "boxes":
        return _boxes_table(chart, figures)
    if chart.form == "curves":
        return _curves_table(chart, figures)
    units = _units_of(chart, figures)
    if chart.form == "bars":
        one = Line(chart.up, tuple(chart.points))
        chart = replace(chart, lines=(one,), spacing="even")
    head = [chart.along, *(line.name for line in chart.lines), *units]
    return head, [_table_row(chart, label, figures, units) for label in chart.places]


def _boxes_table(chart: Chart, figures: Mapping[Cell, Figures]) -> Table:
    """Return a row per line and place, a column per percentile."""
    rows = []
    for line in chart.lines:
        for point in line.points:
            marks = box_of(figures[point.cell]) if point.cell in figures else None
            cells = ["–"] * len(PERCENTILES) if marks is None else [format_duration(mark) for mark in marks]
            rows.append([point.label, line.name, *cells])
    return [chart.along, chart.up, *(f"p{share}" for share in PERCENTILES)], rows


def _curves_table(chart: Chart, figures: Mapping[Cell, Figures]) -> Table:
    """Return a row per line and place."""
    rows = [
        [line.name, format_amount(at, ""), format_amount(value, chart.up)]
        for line in chart.lines
        for point in line.points
        if point.cell in figures
        for at, value in curve_of(figures[point.cell], chart.up)
    ]
    return ["", chart.along, chart.up], rows


def _units_of(chart: Chart, figures: Mapping[Cell, Figures]) -> list[str]:
    """Return the units of work that the cases of the first line have."""
    lines = chart.lines if chart.form == "bars" else chart.lines[:1]
    figures_shown = (figures[point.cell] for line in lines for point in line.points if point.cell in figures)
    return list(dict.fromkeys(unit for one in figures_shown for unit in one.units))


def _table_row(chart: Chart, label: str, figures: Mapping[Cell, Figures], units: list[str]) -> list[str]:
    of_lines = [_figures_at(line, label, figures) for line in chart.lines]
    first = next((one for one in of_lines if one is not None), None)
    n_rows = first.units.get("rows") if first else None
    work = [f"{first.units[unit]:,}" if first and unit in first.units else "" for unit in units]
    return [label, *(_median(one, chart.up, n_rows) for one in of_lines), *work]


def _figures_at(line: Line, label: str, figures: Mapping[Cell, Figures]) -> Figures | None:
    return next((figures.get(point.cell) for point in line.points if point.label == label), None)


def _median(one: Figures | None, measure: str, n_rows: int | None) -> str:
    spread = one.of(measure) if one is not None else None
    if one is None or spread is None:
        return "–"
    fewer = one.units.get("rows")
    low, median, high = (format_amount(value, measure) for value in (spread.low, spread.median, spread.high))
    text = f"{median}\n{low} to {high}"
    return text if fewer in (None, n_rows) else f"{text}\n{fewer:,} rows"


def _cases_without_chart(result: Result) -> list[str]:
    drawn = {point.cell.case for chart in result.charts for point in chart.points}
    return [case for case in result.cases if case not in drawn]


def _ratios(result: Result) -> str:
    rows = [
        [case, one.cell.way, format_ratio(result.ratio(one))]
        for case in _cases_without_chart(result)
        for one in result.of_case(case)[1:]
    ]
    if not rows:
        return ""
    first = result.figures[0].cell.way
    head = ["case", "way", f'time against "{first}" (quartiles of the rounds)']
    return f"<h2>Ratios</h2>\n{_table(head, rows)}"


def _plots(result: Result) -> str:
    drawn = [
        f"<h2>{escape(case)}</h2>\n{draw_case(result.of_case(case))}" for case in _cases_without_chart(result)
    ]
    legend = '<p class="about">Bar: median. Whiskers: quartiles.</p>'
    return "\n".join([*drawn, legend]) if drawn else ""


def _figures(result: Result) -> str:
    rows = []
    for one in result.figures:
        time = one.seconds
        remarks = [format_rate(value, unit) for unit, value in one.rates().items()]
        remarks += [
            f"{name} {format_amount(spread_of(noted).median, name)}" for name, noted in one.notes.items()
        ]
        spans = (time.median, time.low, time.high, time.least)
        rows.append([*one.cell, *(format_duration(span) for span in spans), ", ".join(remarks)])
    head = ["case", "way", "median", "lower quartile", "upper quartile", "least", "rates and notes"]
    return f"<h2>All figures</h2>\n{_table(head, rows)}"


def _remarks(result: Result) -> str:
    items = "\n".join(f"<li>{escape(remark)}</li>" for remark in result.remarks)
    return f"<h2>Not measured</h2>\n<ul>\n{items}\n</ul>" if items else ""


def _facts(result: Result) -> str:
    rows = [[name, value] for name, value in list_facts(result)]
    return f"<h2>Measured on</h2>\n{_table(['', ''], rows)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], about: str = "") -> str:
    caption = f"<caption>{escape(about)}</caption>\n" if about else ""
    heading = f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>\n" if any(head) else ""
    body = "\n".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>\n{caption}{heading}{body}\n</table>"


def _cell(text: str) -> str:
    """Return the HTML of a table cell; lines after the first are set smaller, below it."""
    first, *rest = (escape(line) for line in text.split("\n"))
    return first + "".join(f"<br><small>{line}</small>" for line in rest)
