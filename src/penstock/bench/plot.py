"""Medians with their spread as an SVG drawing, one row per way; no scripts, no fonts, nothing remote.

The axis begins at zero, so that lengths may be compared; colours come from the page's own CSS classes
and so follow its light or dark scheme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from penstock.bench.result import Figures
from penstock.bench.words import duration

WIDTH, ROW, TOP, BOTTOM, LEFT, RIGHT = 760, 34, 12, 34, 190, 110


def plot(figures: Sequence[Figures]) -> str:
    """Draw the ways of one case: a bar to the median, a box over the quartiles, a tick at the least."""
    height = TOP + ROW * len(figures) + BOTTOM
    end = max(one.seconds.greatest for one in figures) or 1e-9
    rows = "".join(_row(one, TOP + at * ROW, end) for at, one in enumerate(figures))
    label = escape(f"median time per way on {figures[0].cell.case}")
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">'
        f"{_axis(end, height)}{rows}</svg>"
    )


def ticks(end: float) -> list[float]:
    """Round places on an axis from 0 to `end`: three to six of them, in steps of 1, 2 or 5.

    >>> ticks(0.9)
    [0.0, 0.2, 0.4, 0.6, 0.8]
    """
    rough = end / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough * 0.999)
    return [round(step * at, 12) for at in range(int(end / step + 1e-9) + 1)]


def _x(seconds: float, end: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * seconds / end, 1)


def _row(one: Figures, y: float, end: float) -> str:
    time = one.seconds
    middle = y + ROW / 2
    low, median, high = (_x(value, end) for value in (time.low, time.median, time.high))
    least, greatest = _x(time.least, end), _x(time.greatest, end)
    told = escape(
        f"{one.cell.way}: median {duration(time.median)}, quartiles {duration(time.low)} to "
        f"{duration(time.high)}, least {duration(time.least)}"
    )
    return (
        f"<g><title>{told}</title>"
        f'<text x="{LEFT - 10}" y="{middle + 4}" class="name">{escape(_clip(one.cell.way))}</text>'
        f'<rect x="{LEFT}" y="{middle - 8}" width="{max(median - LEFT, 1):.1f}" height="16" class="bar"/>'
        f'<line x1="{least}" y1="{middle}" x2="{greatest}" y2="{middle}" class="range"/>'
        f'<rect x="{low}" y="{middle - 5}" width="{max(high - low, 1):.1f}" height="10" class="box"/>'
        f'<line x1="{median}" y1="{middle - 10}" x2="{median}" y2="{middle + 10}" class="median"/>'
        f'<line x1="{least}" y1="{middle - 4}" x2="{least}" y2="{middle + 4}" class="range"/>'
        f'<text x="{greatest + 8}" y="{middle + 4}" class="value">{duration(time.median)}</text></g>'
    )


def _axis(end: float, height: float) -> str:
    bottom = height - BOTTOM + 4
    return "".join(
        f'<line x1="{_x(at, end)}" y1="{TOP}" x2="{_x(at, end)}" y2="{bottom}" class="grid"/>'
        f'<text x="{_x(at, end)}" y="{bottom + 16}" class="tick">{duration(at) if at else "0"}</text>'
        for at in ticks(end)
    )


def _clip(name: str, limit: int = 26) -> str:
    return name if len(name) <= limit else name[: limit - 1] + "…"
