"""A sweep as an SVG drawing: a line per series, a point per median, whiskers over the quartiles.

No scripts, no fonts, nothing remote. Series differ in colour, in dashes and in the shape of their points, so
that a print in grey can be read. Colours come from the page's CSS and follow its light or dark scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from penstock.bench.axis import Scale, scale_of
from penstock.bench.cell import Cell
from penstock.bench.chart import Chart, Line, Point
from penstock.bench.result import Figures
from penstock.bench.spread import Spread
from penstock.bench.words import amount, mark

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 360, 78, 178, 30, 56
N_STYLES = 8
INSET = 22
"""Room between the axis and the first point, so that neither hides the other."""


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A line with what was measured; points without a figure are left out."""

    line: Line
    style: int
    points: tuple[tuple[Point, Spread], ...]


def lines(chart: Chart, figures: Mapping[Cell, Figures]) -> str:
    """Draw a chart; the empty text when none of its points was measured."""
    drawn = [one for one in (_drawn(chart, at, figures) for at in range(len(chart.lines))) if one.points]
    if not drawn:
        return ""
    values = [value for one in drawn for _, spread in one.points for value in (spread.low, spread.high)]
    up = scale_of(values, HEIGHT - BOTTOM, TOP)
    along = _along(chart)
    body = "".join(_line(one, chart, along, up) for one in drawn)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}">'
        f"{_up_axis(chart, up)}{_along_axis(chart, along)}{body}{_legend(drawn, chart, up)}</svg>"
    )


def _drawn(chart: Chart, at: int, figures: Mapping[Cell, Figures]) -> _Drawn:
    line = chart.lines[at]
    found = [(point, figures[point.cell].of(chart.up)) for point in line.points if point.cell in figures]
    points = tuple((point, spread) for point, spread in found if spread is not None)
    return _Drawn(line, (at if line.style is None else line.style) % N_STYLES, points)


def _along(chart: Chart) -> Callable[[str], float]:
    places = chart.places
    ends = (min(places.values()), max(places.values()))
    scale = Scale(*ends, LEFT + INSET, WIDTH - RIGHT - INSET, log=chart.spacing == "log")
    return lambda label: scale.place(places[label])


def _up_axis(chart: Chart, up: Scale) -> str:
    marks = "".join(
        f'<line x1="{LEFT}" y1="{up.place(at)}" x2="{WIDTH - RIGHT}" y2="{up.place(at)}" class="grid"/>'
        f'<text x="{LEFT - 8}" y="{up.place(at) + 4}" class="name">{mark(at, chart.up)}</text>'
        for at in up.ticks
    )
    told = chart.up + (", logarithmic" if up.log else "")
    return f'{marks}<text x="4" y="{TOP - 14}" class="axis">{escape(told)}</text>'


def _along_axis(chart: Chart, along: Callable[[str], float]) -> str:
    bottom = HEIGHT - BOTTOM
    marks = "".join(
        f'<line x1="{along(label)}" y1="{bottom}" x2="{along(label)}" y2="{bottom + 5}" class="rule"/>'
        f'<text x="{along(label)}" y="{bottom + 19}" class="tick">{escape(label)}</text>'
        for label in chart.places
    )
    middle = (LEFT + WIDTH - RIGHT) / 2
    told = chart.along + (", logarithmic" if chart.spacing == "log" else "")
    rule = f'<line x1="{LEFT}" y1="{bottom}" x2="{WIDTH - RIGHT}" y2="{bottom}" class="rule"/>'
    return f'{rule}{marks}<text x="{middle}" y="{HEIGHT - 12}" class="tick">{escape(told)}</text>'


def _line(one: _Drawn, chart: Chart, along: Callable[[str], float], up: Scale) -> str:
    places = [(along(point.label), up.place(spread.median)) for point, spread in one.points]
    path = " ".join(f"{x},{y}" for x, y in sorted(places))
    points = "".join(
        _point(one, point, spread, place, up, chart.up)
        for (point, spread), place in zip(one.points, places, strict=True)
    )
    return f'<g class="s{one.style}"><polyline points="{path}" class="series"/>{points}</g>'


def _point(
    one: _Drawn, point: Point, spread: Spread, place: tuple[float, float], up: Scale, measure: str
) -> str:
    x, y = place
    median, low, high = (amount(value, measure) for value in (spread.median, spread.low, spread.high))
    told = escape(f"{one.line.name}, {point.label}: median {median}, quartiles {low} to {high} {measure}")
    whisker = (
        f'<line x1="{x}" y1="{up.place(spread.low)}" x2="{x}" y2="{up.place(spread.high)}" class="whisker"/>'
    )
    return f"<g><title>{told}</title>{whisker}{_marker(one.style, x, y)}</g>"


def _marker(style: int, x: float, y: float) -> str:
    shapes: Sequence[tuple[tuple[float, float], ...]] = (
        (),
        ((-4, -4), (4, -4), (4, 4), (-4, 4)),
        ((0, -5.5), (5.5, 0), (0, 5.5), (-5.5, 0)),
        ((0, -5.5), (5.2, 4), (-5.2, 4)),
        (),
        ((0, 5.5), (5.2, -4), (-5.2, -4)),
        ((-4, -4), (4, -4), (4, 4), (-4, 4)),
        ((0, -5.5), (5.5, 0), (0, 5.5), (-5.5, 0)),
    )
    if not shapes[style]:
        return f'<circle cx="{x}" cy="{y}" r="4.5" class="marker"/>'
    corners = " ".join(f"{round(x + dx, 1)},{round(y + dy, 1)}" for dx, dy in shapes[style])
    return f'<polygon points="{corners}" class="marker"/>'


def _rightmost(one: _Drawn, chart: Chart) -> Spread:
    places = chart.places
    return max(one.points, key=lambda pair: places[pair[0].label])[1]


def _legend(drawn: Sequence[_Drawn], chart: Chart, up: Scale) -> str:
    """The names in the order of the lines' right ends, each beside its own end where there is room."""
    ends = {one.line.name: up.place(_rightmost(one, chart).median) for one in drawn}
    ranked = sorted(drawn, key=lambda one: ends[one.line.name])
    places: list[float] = []
    for one in ranked:
        places.append(max(ends[one.line.name], places[-1] + 18 if places else TOP))
    # What was pushed below the axis is pushed back up, last first.
    floor = HEIGHT - BOTTOM + 4.0
    for at in reversed(range(len(places))):
        places[at] = min(places[at], floor)
        floor = places[at] - 18
    x = WIDTH - RIGHT + 14
    return "".join(
        f'<g class="s{one.style}"><line x1="{x}" y1="{y:.1f}" x2="{x + 24}" y2="{y:.1f}" class="series"/>'
        f'{_marker(one.style, x + 12, round(y, 1))}<text x="{x + 30}" y="{y + 4:.1f}" class="value">'
        f"{escape(one.line.name)}</text></g>"
        for one, y in zip(ranked, places, strict=True)
    )
