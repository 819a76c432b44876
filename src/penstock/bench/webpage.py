"""A result as one self-contained HTML page: claims, charts, ratios, figures, machine facts.

Everything is inline and nothing runs, so the page can be mailed, archived and opened anywhere. Every
word that comes from a workload or a machine is escaped. Sweeps come first, as their charts with a table
beneath; cases in no chart are drawn way by way; all figures stand once more at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from penstock.bench import words
from penstock.bench.chart_table import chart_table
from penstock.bench.lines import lines
from penstock.bench.page_style import STYLE
from penstock.bench.plot import Bar, bars, plot
from penstock.bench.result import Result
from penstock.bench.spread import spread

Sections = tuple[str, ...]


def page(result: Result) -> str:
    """The whole page as text."""
    title = escape(f"{result.workload} benchmark")
    sections: Sections = (_claims(result), _charts(result), _ratios(result), _plots(result))
    body = "\n".join(part for part in (*sections, _figures(result), _facts(result)) if part)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{title}</h1>\n<p class="about">{escape(result.about)}</p>\n{body}\n</body>\n</html>\n'
    )


def _claims(result: Result) -> str:
    if not result.verdicts:
        return ""
    told = "\n".join(
        f'<li class="{"held" if one.held else "broken"}">{escape(words.verdict(one))}</li>'
        for one in result.verdicts
    )
    return f'<h2>Claims</h2>\n<p class="tally">{escape(words.tally(result))}</p>\n<ul>\n{told}\n</ul>'


def _charts(result: Result) -> str:
    figures = {one.cell: one for one in result.figures}
    parts = []
    for chart in result.charts:
        if chart.form == "lines":
            drawing = lines(chart, figures)
        else:
            given = [(point.label, figures[point.cell].of(chart.up)) for point in chart.points]
            drawing = bars([Bar(name, of) for name, of in given if of is not None], chart.title, chart.up)
        parts.append(
            f"<figure>\n<h2>{escape(chart.title)}</h2>\n{drawing}\n"
            f"<figcaption>{escape(chart.caption)}</figcaption>\n</figure>\n"
            f"{_table(*chart_table(chart, figures), f'{chart.up}: medians, quartiles beneath')}"
        )
    return "\n".join(parts)


def _uncharted(result: Result) -> list[str]:
    drawn = {point.cell.case for chart in result.charts for point in chart.points}
    return [case for case in result.cases if case not in drawn]


def _ratios(result: Result) -> str:
    rows = [
        [case, one.cell.way, words.ratio(result.ratio(one))]
        for case in _uncharted(result)
        for one in result.of_case(case)[1:]
    ]
    if not rows:
        return ""
    first = result.figures[0].cell.way
    head = ["case", "way", f'time against "{first}" (quartiles of the rounds)']
    return f"<h2>Ratios</h2>\n{_table(head, rows)}"


def _plots(result: Result) -> str:
    drawn = [f"<h2>{escape(case)}</h2>\n{plot(result.of_case(case))}" for case in _uncharted(result)]
    told = '<p class="about">Bar: median. Box: quartiles. Line: least to greatest.</p>'
    return "\n".join([*drawn, told]) if drawn else ""


def _figures(result: Result) -> str:
    rows = []
    for one in result.figures:
        time = one.seconds
        told = [words.rate(value, unit) for unit, value in one.rates().items()]
        told += [f"{name} {words.amount(spread(noted).median, name)}" for name, noted in one.notes.items()]
        spans = (time.median, time.low, time.high, time.least)
        rows.append([*one.cell, *(words.duration(span) for span in spans), ", ".join(told)])
    head = ["case", "way", "median", "lower quartile", "upper quartile", "least", "rates and notes"]
    return f"<h2>All figures</h2>\n{_table(head, rows)}"


def _facts(result: Result) -> str:
    rows = [[name, value] for name, value in words.facts(result)]
    return f"<h2>Measured on</h2>\n{_table(['', ''], rows)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], about: str = "") -> str:
    caption = f"<caption>{escape(about)}</caption>\n" if about else ""
    heading = f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>\n" if any(head) else ""
    told = "\n".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>\n{caption}{heading}{told}\n</table>"


def _cell(text: str) -> str:
    """A cell's text; what stands after a line break is smaller and below."""
    first, *rest = (escape(line) for line in text.split("\n"))
    return first + "".join(f"<br><small>{line}</small>" for line in rest)
