"""Charts of a result as static SVG, drawn by matplotlib: sweeps as lines, single cases as bars.

A drawing is text inside the page: no script, no font file, nothing remote. Series differ in colour, dashes
and marker, so that a print in grey can be read. An axis starts at zero, so that lengths may be compared,
unless the values span more than lengths can show; then it is logarithmic and its label says so.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from bench.result import Figures, Spread, Verdict, spread_of
from bench.text import format_amount, format_number, format_tick
from bench.workload import PERCENTILES, Cell, Chart

WIDE = 12
"""Values that differ by more than this factor are drawn on a logarithmic axis."""

# The first four are for our own lines, then reading, buckets, pandas, Polars.
STYLES = (
    ("#0b62b0", "-", "o"),
    ("#c2410c", "--", "s"),
    ("#0f7b5f", "-.", "D"),
    ("#8b3fa8", ":", "^"),
    ("#6b7480", (0, (1, 3)), "o"),
    ("#9a6b00", (0, (8, 2, 2, 2)), "v"),
    ("#c0397b", (0, (4, 4)), "s"),
    ("#1f8fa8", (0, (2, 2)), "D"),
)

# Inside a page an SVG needs neither, and they hold addresses.
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.S)
_CURVE = re.compile(r"at (\d+): (.*)")
_NAMESPACES = re.compile(r' xmlns(:\w+)?="[^"]*"')

_SETTINGS = {
    "svg.fonttype": "none",  # text stays text: selectable, and no outlines of glyphs in the page
    "svg.hashsalt": "penstock",  # the same result gives the same page, byte for byte
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dde2e9",
}


def draw_chart(chart: Chart, figures: Mapping[Cell, Figures]) -> str:
    """Return the chart as SVG; the empty string if none of its points was measured."""
    if chart.form == "boxes":
        return _draw_boxes(chart, figures)
    if chart.form == "curves":
        return _draw_curves(chart, figures)
    series = {
        line.name: [
            (point.label, spread)
            for point in line.points
            if point.cell in figures and (spread := figures[point.cell].of(chart.up)) is not None
        ]
        for line in chart.lines
    }
    if not any(series.values()):
        return ""
    if chart.form == "bars":
        bars = [pair for points in series.values() for pair in points]
        return _svg(chart.title, lambda figure: _bars(figure, bars, chart.up), 0.6 + 0.34 * len(bars))
    return _svg(chart.title, lambda figure: _lines(figure, chart, series), 3.8)


def draw_case(figures: Sequence[Figures]) -> str:
    """Return the times of the ways of one case, one bar each, as SVG."""
    bars = [(one.cell.way, one.seconds) for one in figures]
    title = f"median time per way on {figures[0].cell.case}"
    return _svg(title, lambda figure: _bars(figure, bars, "s"), 0.6 + 0.34 * len(bars))


def is_wide(values: Sequence[float]) -> bool:
    """Return whether the values need a logarithmic axis."""
    return min(values) > 0 and max(values) / min(values) > WIDE


def box_of(figures: Figures) -> list[float] | None:
    """Return the percentiles of a latency that a way noted, medians of the rounds; None if it noted none."""
    noted = [figures.of(f"p{share} (s)") for share in PERCENTILES]
    return [spread.median for spread in noted if spread is not None] if all(noted) else None


def _draw_boxes(chart: Chart, figures: Mapping[Cell, Figures]) -> str:
    boxes = [
        (f"{point.label}, {line.name}" if len(chart.lines) > 1 else point.label, marks, at)
        for label in chart.places
        for at, line in enumerate(chart.lines)
        for point in line.points
        if point.label == label and point.cell in figures and (marks := box_of(figures[point.cell]))
    ]
    if not boxes:
        return ""
    return _svg(chart.title, lambda figure: _boxes(figure, boxes, chart.up), 0.7 + 0.3 * len(boxes))


def _boxes(figure: Figure, boxes: Sequence[tuple[str, list[float], int]], measure: str) -> None:
    """Draw a box from p25 to p75 with the median, whiskers from p5 to p95, and a mark at p99."""
    axes = figure.add_subplot()
    for place, (_, (p5, p25, p50, p75, p95, p99), at) in enumerate(boxes):
        colour = STYLES[at % len(STYLES)][0]
        axes.plot([p5, p95], [place, place], color=colour, linewidth=1.2)
        axes.barh(place, p75 - p25, left=p25, height=0.55, color=colour, alpha=0.35)
        axes.plot([p50, p50], [place - 0.28, place + 0.28], color=colour, linewidth=2)
        axes.plot([p99], [place], color=colour, marker="d", markersize=5)
    axes.set_yticks(range(len(boxes)), labels=[name for name, _, _ in boxes])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    values = [mark for _, marks, _ in boxes for mark in marks]
    _measure_axis(axes, "x", measure, values)


def curve_of(figures: Figures, measure: str) -> list[tuple[float, float]]:
    """Return what a way noted at places of its own choice (`curve_note`), by place; medians of the rounds."""
    notes = ((_CURVE.fullmatch(name), samples) for name, samples in figures.notes.items())
    return sorted(
        (float(match[1]), spread_of(samples).median)
        for match, samples in notes
        if match and match[2] == measure
    )


def _draw_curves(chart: Chart, figures: Mapping[Cell, Figures]) -> str:
    curves = [
        (line.name, at, curve)
        for at, line in enumerate(chart.lines)
        for point in line.points
        if point.cell in figures and (curve := curve_of(figures[point.cell], chart.up))
    ]
    return _svg(chart.title, lambda figure: _curves(figure, chart, curves), 3.8) if curves else ""


def _curves(
    figure: Figure, chart: Chart, curves: Sequence[tuple[str, int, list[tuple[float, float]]]]
) -> None:
    axes = figure.add_subplot()
    for name, at, curve in curves:
        colour, dashes, marker = STYLES[at % len(STYLES)]
        places, values = zip(*curve, strict=True)
        axes.plot(places, values, label=name, color=colour, linestyle=dashes, marker=marker, markersize=5)
    if chart.spacing == "log":
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_tick(value, "")))
    axes.set_xlabel(chart.along + (", logarithmic" if chart.spacing == "log" else ""))
    _measure_axis(axes, "y", chart.up, [value for _, _, curve in curves for _, value in curve])
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def _svg(title: str, paint: Callable[[Figure], None], height: float) -> str:
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(8, max(height, 1.4)), layout="constrained")
        paint(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = _METADATA.sub("", svg[svg.index("<svg") :])
    return (
        _NAMESPACES.sub("", svg).replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1).rstrip()
    )


def _lines(figure: Figure, chart: Chart, series: Mapping[str, Sequence[tuple[str, Spread]]]) -> None:
    axes = figure.add_subplot()
    places = chart.places
    for at, line in enumerate(chart.lines):
        points = sorted((places[label], spread) for label, spread in series[line.name])
        if not points:
            continue
        colour, dashes, marker = STYLES[(at if line.style is None else line.style) % len(STYLES)]
        medians = [spread.median for _, spread in points]
        whiskers = [[s.median - s.low for _, s in points], [s.high - s.median for _, s in points]]
        axes.errorbar(
            [place for place, _ in points], medians, yerr=whiskers, label=line.name, color=colour,
            linestyle=dashes, marker=marker, markersize=5, capsize=2,
        )  # fmt: skip
    if chart.spacing == "log":
        axes.set_xscale("log")
    axes.set_xticks(list(places.values()), labels=list(places), minor=False)
    axes.set_xticks([], minor=True)
    axes.set_xlabel(chart.along + (", logarithmic" if chart.spacing == "log" else ""))
    spreads = [spread for points in series.values() for _, spread in points]
    _measure_axis(axes, "y", chart.up, [value for one in spreads for value in (one.low, one.high)])
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def _bars(figure: Figure, bars: Sequence[tuple[str, Spread]], measure: str) -> None:
    axes = figure.add_subplot()
    names = [name for name, _ in bars]
    spreads = [spread for _, spread in bars]
    medians = [spread.median for spread in spreads]
    whiskers = [[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]
    drawn = axes.barh(range(len(bars)), medians, xerr=whiskers, color="#b9d3ee", ecolor="#2f6fb0", capsize=3)
    axes.bar_label(drawn, labels=[format_amount(median, measure) for median in medians], padding=4)
    axes.set_yticks(range(len(bars)), labels=names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    _measure_axis(axes, "x", measure, [0.0, *(spread.greatest for spread in spreads)])


def _measure_axis(axes: Any, name: str, measure: str, values: Sequence[float]) -> None:
    """Scale and label the axis along which something was measured."""
    axis = axes.xaxis if name == "x" else axes.yaxis
    logarithmic = is_wide(values)
    if logarithmic:
        getattr(axes, f"set_{name}scale")("log")
    else:
        getattr(axes, f"set_{name}lim")(0, max(values) * 1.12 or 1.0)
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_tick(value, measure)))
    label = "time" if measure == "s" else measure
    axis.set_label_text(label + (", logarithmic" if logarithmic else ""))


def draw_speed_ups(title: str, verdicts: Sequence[Verdict]) -> str:
    """Return claims about a ratio of speeds as bars, with a mark where each was wanted."""
    return _svg(title, lambda figure: _speed_ups(figure, verdicts), 0.7 + 0.3 * len(verdicts))


def _speed_ups(figure: Figure, verdicts: Sequence[Verdict]) -> None:
    axes = figure.add_subplot()
    times = [1 / one.measured for one in verdicts]
    colours = ["#b9d3ee" if one.held else "#f0b4ae" for one in verdicts]
    drawn = axes.barh(range(len(verdicts)), times, color=colours)
    axes.bar_label(drawn, labels=[f"{format_number(one)}x" for one in times], padding=4)
    wanted = [1 / one.claim.at_most for one in verdicts]
    axes.plot(wanted, range(len(verdicts)), color="#2f6fb0", marker="|", markersize=14, linestyle="none")
    axes.set_yticks(range(len(verdicts)), labels=[one.claim.says for one in verdicts])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    _measure_axis(axes, "x", "times as fast", [*times, *wanted])
