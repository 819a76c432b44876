"""The table beneath a chart: a row per place, a column per line, and how much work the first line had there.

A sweep is only honest when the reader sees what else changed: units of work that differ between the lines of
a place, as when a slow way gets fewer rows, stand in the line's own column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.bench.cell import Cell
from penstock.bench.chart import Chart, Line
from penstock.bench.result import Figures
from penstock.bench.words import amount

Table = tuple[list[str], list[list[str]]]


def chart_table(chart: Chart, figures: Mapping[Cell, Figures]) -> Table:
    """The heading and the rows."""
    units = _units(chart, figures)
    if chart.form == "bars":
        one = Line(chart.up, tuple(chart.points))
        chart = replace(chart, lines=(one,), spacing="even")
    head = [chart.along, *(line.name for line in chart.lines), *units]
    return head, [_row(chart, label, figures, units) for label in chart.places]


def _units(chart: Chart, figures: Mapping[Cell, Figures]) -> list[str]:
    """Units of work that the first line's cases have."""
    shown = chart.lines if chart.form == "bars" else chart.lines[:1]
    found = (figures[point.cell] for line in shown for point in line.points if point.cell in figures)
    return list(dict.fromkeys(unit for one in found for unit in one.units))


def _row(chart: Chart, label: str, figures: Mapping[Cell, Figures], units: list[str]) -> list[str]:
    of_lines = [_at(line, label, figures) for line in chart.lines]
    first = next((one for one in of_lines if one is not None), None)
    n_rows = first.units.get("rows") if first else None
    work = [f"{first.units[unit]:,}" if first and unit in first.units else "" for unit in units]
    return [label, *(_told(one, chart.up, n_rows) for one in of_lines), *work]


def _at(line: Line, label: str, figures: Mapping[Cell, Figures]) -> Figures | None:
    return next((figures.get(point.cell) for point in line.points if point.label == label), None)


def _told(one: Figures | None, measure: str, n_rows: int | None) -> str:
    spread = one.of(measure) if one is not None else None
    if one is None or spread is None:
        return "–"
    fewer = one.units.get("rows")
    low, median, high = (amount(value, measure) for value in (spread.low, spread.median, spread.high))
    told = f"{median}\n{low} to {high}"
    return told if fewer in (None, n_rows) else f"{told}\n{fewer:,} rows"
