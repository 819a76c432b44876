"""Medians with their spread as an SVG drawing, one bar each; no scripts, no fonts, nothing remote.

The axis begins at zero, so that lengths may be compared; colours come from the page's own CSS classes
and so follow its light or dark scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from penstock.bench.axis import ticks
from penstock.bench.result import Figures
from penstock.bench.spread import Spread
from penstock.bench.words import amount, mark

WIDTH, ROW, TOP, BOTTOM, LEFT, RIGHT = 760, 34, 12, 50, 190, 110


class Bar(NamedTuple):
    """A name and what was measured of it."""

    name: str
    spread: Spread


def plot(figures: Sequence[Figures]) -> str:
    """Draw the ways of one case by their times."""
    label = f"median time per way on {figures[0].cell.case}"
    return bars([Bar(one.cell.way, one.seconds) for one in figures], label, "s")


def bars(given: Sequence[Bar], label: str, measure: str) -> str:
    """Draw bars to the medians, boxes over the quartiles, ticks at the least."""
    height = TOP + ROW * len(given) + BOTTOM
    end = max(one.spread.greatest for one in given) or 1e-9
    rows = "".join(_row(one, TOP + at * ROW, end, measure) for at, one in enumerate(given))
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">'
        f"{_axis(end, height, measure)}{rows}</svg>"
    )


def _x(value: float, end: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * value / end, 1)


def _row(one: Bar, y: float, end: float, measure: str) -> str:
    spread = one.spread
    middle = y + ROW / 2
    low, median, high = (_x(value, end) for value in (spread.low, spread.median, spread.high))
    least, greatest = _x(spread.least, end), _x(spread.greatest, end)
    told = escape(
        f"{one.name}: median {amount(spread.median, measure)}, quartiles {amount(spread.low, measure)} to "
        f"{amount(spread.high, measure)}, least {amount(spread.least, measure)}"
    )
    return (
        f"<g><title>{told}</title>"
        f'<text x="{LEFT - 10}" y="{middle + 4}" class="name">{escape(_clip(one.name))}</text>'
        f'<rect x="{LEFT}" y="{middle - 8}" width="{max(median - LEFT, 1):.1f}" height="16" class="bar"/>'
        f'<line x1="{least}" y1="{middle}" x2="{greatest}" y2="{middle}" class="range"/>'
        f'<rect x="{low}" y="{middle - 5}" width="{max(high - low, 1):.1f}" height="10" class="box"/>'
        f'<line x1="{median}" y1="{middle - 10}" x2="{median}" y2="{middle + 10}" class="median"/>'
        f'<line x1="{least}" y1="{middle - 4}" x2="{least}" y2="{middle + 4}" class="range"/>'
        f'<text x="{greatest + 8}" y="{middle + 4}" class="value">{amount(spread.median, measure)}</text></g>'
    )


def _axis(end: float, height: float, measure: str) -> str:
    bottom = height - BOTTOM + 4
    marks = "".join(
        f'<line x1="{_x(at, end)}" y1="{TOP}" x2="{_x(at, end)}" y2="{bottom}" class="grid"/>'
        f'<text x="{_x(at, end)}" y="{bottom + 16}" class="tick">{mark(at, measure)}</text>'
        for at in ticks(end)
    )
    middle = (LEFT + WIDTH - RIGHT) / 2
    told = "time" if measure == "s" else measure
    return f'{marks}<text x="{middle}" y="{bottom + 36}" class="tick">{escape(told)}</text>'


def _clip(name: str, limit: int = 26) -> str:
    return name if len(name) <= limit else name[: limit - 1] + "…"
