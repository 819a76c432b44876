"""A result as one self-contained HTML page: claims, ratios, plots, figures, machine facts.

Everything is inline and nothing runs, so the page can be mailed, archived and opened anywhere. Every
word that comes from a workload or a machine is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from penstock.bench import words
from penstock.bench.plot import plot
from penstock.bench.result import Result

STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #5b6776; --line: #d8dee6; --back: #ffffff;
  --bar: #b9d3ee; --box: #2f6fb0; --good: #1b7a43; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ef; --soft: #9aa7b5; --line: #36414d;
  --back: #14191f; --bar: #2b4b6c; --box: #7fb4ea; --good: #6fd39b; --bad: #ff8f86; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
  max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p.about { color: var(--soft); margin-top: 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }
th, td { text-align: left; padding: .25rem 1rem .25rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; }
li.held { color: var(--good); } li.broken { color: var(--bad); font-weight: 600; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; }
.grid { stroke: var(--line); } .bar { fill: var(--bar); } .box { fill: var(--box); fill-opacity: .65; }
.range { stroke: var(--box); } .median { stroke: var(--ink); stroke-width: 2; }
.name { fill: var(--ink); text-anchor: end; } .value { fill: var(--ink); }
.tick { fill: var(--soft); text-anchor: middle; }
"""


def page(result: Result) -> str:
    """The whole page as text."""
    title = escape(f"{result.workload} benchmark")
    body = "\n".join(
        part
        for part in (_claims(result), _ratios(result), _plots(result), _figures(result), _facts(result))
        if part
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{title}</h1>\n<p class="about">{escape(result.about)}</p>\n{body}\n</body>\n</html>\n'
    )


def _claims(result: Result) -> str:
    if not result.verdicts:
        return ""
    lines = "\n".join(
        f'<li class="{"held" if one.held else "broken"}">{escape(words.verdict(one))}</li>'
        for one in result.verdicts
    )
    return f"<h2>Claims</h2>\n<ul>\n{lines}\n</ul>"


def _ratios(result: Result) -> str:
    rows = [
        [case, one.cell.way, words.ratio(result.ratio(one))]
        for case in result.cases
        for one in result.of_case(case)[1:]
    ]
    if not rows:
        return ""
    first = result.figures[0].cell.way
    head = ["case", "way", f'time against "{first}" (quartiles of the rounds)']
    return f"<h2>Ratios</h2>\n{_table(head, rows)}"


def _plots(result: Result) -> str:
    return (
        "\n".join(f"<h2>{escape(case)}</h2>\n{plot(result.of_case(case))}" for case in result.cases)
        + '\n<p class="about">Bar: median. Box: quartiles. Line: least to greatest.</p>'
    )


def _figures(result: Result) -> str:
    rows = []
    for one in result.figures:
        time = one.seconds
        rates = ", ".join(words.rate(value, unit) for unit, value in one.rates().items())
        spans = (time.median, time.low, time.high, time.least)
        rows.append([*one.cell, *(words.duration(span) for span in spans), rates])
    head = ["case", "way", "median", "lower quartile", "upper quartile", "least", "rate"]
    return f"<h2>Figures</h2>\n{_table(head, rows)}"


def _facts(result: Result) -> str:
    rows = [[name, value] for name, value in words.facts(result)]
    return f"<h2>Measured on</h2>\n{_table(['', ''], rows)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    heading = f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>\n" if any(head) else ""
    lines = "\n".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>\n{heading}{lines}\n</table>"
