"""What a chart shows: lines of points, each point the name of a figure. No drawing here, and no figures.

A workload says which of its cells make a sweep; the result carries that along, so that the page can be drawn
again from the JSON alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from bench.cell import Cell

Spacing = Literal["log", "linear", "even"]
Form = Literal["lines", "bars"]


@dataclass(frozen=True, slots=True)
class Point:
    """A figure and its place: `at` on the axis, `label` as the reader should see that place."""

    at: float
    label: str
    cell: Cell


@dataclass(frozen=True, slots=True)
class Line:
    """One series. Lines of equal `style` look alike in all charts; without one it follows from the place."""

    name: str
    points: tuple[Point, ...]
    style: int | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """A sweep to be drawn: `along` names what is varied, `up` what is measured.

    up       `rows/s` is a rate of that unit, `s` the time, anything else a note that the ways took
    spacing  of the places along: a geometric sweep is `log`; `even` where a place has no number
    form     `bars` has a bar per point, for things that have no order
    """

    title: str
    caption: str
    along: str
    lines: tuple[Line, ...]
    up: str = "rows/s"
    spacing: Spacing = "log"
    form: Form = "lines"

    @property
    def points(self) -> Iterator[Point]:
        """Return the points of all lines."""
        return (point for line in self.lines for point in line.points)

    @property
    def places(self) -> dict[str, float]:
        """The labels along, from left to right, and where they are; of even spacing, in order of mention."""
        found = {point.label: point.at for point in self.points}
        if self.spacing == "even":
            return {label: float(place) for place, label in enumerate(found)}
        return dict(sorted(found.items(), key=lambda one: one[1]))
