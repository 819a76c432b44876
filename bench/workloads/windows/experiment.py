"""How an experiment is put together: places along an axis, lines through them, cases that follow.

A sweep varies one thing. Ways that could not do all rows of a case in bearable time, and those that only
work on rows that begin and end, get a case of their own with fewer rows; its name says how many, and rates
are per row. No way gets another window, key or delay than its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.cell import Cell
from bench.chart import Chart, Line, Point
from bench.workloads.windows.shape import Shape
from bench.workloads.windows.ways import BUCKETS, OURS, PANDAS, POLARS, READING, STYLES

MOST_COPIES = {BUCKETS: 1 << 23, POLARS: 1 << 25}
"""Copies of rows that a way which makes one per window is given to make; at least one slice of rows."""
MOST_ROWS = {PANDAS: 1 << 21}


class Place(NamedTuple):
    """A place along the axis and the case that belongs there."""

    at: float
    shape: Shape


Places = Mapping[str, Place]


@dataclass(frozen=True, slots=True)
class Tried:
    """One way on some cases, and the line that they make."""

    way: str
    shapes: Mapping[str, Shape]
    line: Line


@dataclass(frozen=True, slots=True)
class Experiment:
    """Cases that are measured together, the ways tried on each, and the charts of them."""

    group: str
    tried: tuple[Tried, ...]
    charts: tuple[Chart, ...]


def tried(
    group: str, way: str, places: Places, *, name: str = "", variant: str = "", style: int | None = None
) -> Tried:
    """Return a way on all places; cases are named by group, variant and place."""
    shapes, points = {}, []
    for label, (at, shape) in places.items():
        fitting = fitted(way, shape)
        case = f"{group}: {f'{variant}, ' if variant else ''}{label}"
        if fitting != shape:
            case += f", {fitting.n_rows:,} rows drained"
        shapes[case] = fitting
        points.append(Point(at, label, Cell(case, way)))
    look = STYLES.get(way) if style is None else style
    return Tried(way, shapes, Line(name or way, tuple(points), look))


def fitted(way: str, shape: Shape) -> Shape:
    """Return the case as a way can have it."""
    if way not in MOST_COPIES and way not in MOST_ROWS:
        return shape
    least = min(shape.per_slice, shape.n_rows)
    if shape.counted:
        least = min(2 * shape.size, shape.n_rows)
    by_copies = MOST_COPIES.get(way, shape.n_rows * shape.per_window) // shape.per_window
    return shape.drained(max(min(by_copies, MOST_ROWS.get(way, shape.n_rows)), least))


def against_peers(group: str, places: Places, *, variant: str = "") -> tuple[Tried, ...]:
    """Ours, reading, a bucket per window, pandas and Polars on all places."""
    ways = (OURS, READING, BUCKETS, PANDAS, POLARS)
    return tuple(tried(group, way, places, variant=variant) for way in ways)


def lines_of(given: Sequence[Tried]) -> tuple[Line, ...]:
    """Return the lines of what was tried."""
    return tuple(one.line for one in given)
