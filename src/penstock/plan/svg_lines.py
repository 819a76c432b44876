"""The lines of the SVG picture: curves between layers, corners around it, and labels that keep apart."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import pairwise

from penstock.plan.fitting import width_of
from penstock.plan.layout import Layout, Point, Route
from penstock.plan.picture import Line
from penstock.plan.svg_style import LABEL_SIZE

ROW = 18.0  # the height of a label


def drawn_lines(lines: list[Line], layout: Layout) -> Iterator[str]:
    """Every line and its arrow."""
    for line, route in zip(lines, layout.routes, strict=True):
        x, y = route.points[-1]
        path = _corners(route.points) if route.around else _curves(route.points)
        yield f'<path class="line {line.manner}" d="{path}"/>'
        yield f'<path class="tip {line.manner}" d="M{x - 8:.1f} {y - 4:.1f}v8l7.5 -4z"/>'


def _curves(points: tuple[Point, ...]) -> str:
    """By turns a curve and a straight piece; the last stops at the arrow's tip."""
    (x, y), *_ = points
    path = [f"M{x:.1f} {y:.1f}"]
    last = len(points) - 2
    for place, ((x0, y0), (x1, y1)) in enumerate(pairwise(points)):
        if place % 2:
            path.append(f"H{x1:.1f}")
        else:
            end = x1 - (7.0 if place == last else 0.0)
            middle = (x0 + end) / 2
            path.append(f"C{middle:.1f} {y0:.1f} {middle:.1f} {y1:.1f} {end:.1f} {y1:.1f}")
    return "".join(path)


def _corners(points: tuple[Point, ...]) -> str:
    """Straight pieces with round corners."""
    path = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        (x0, y0), (x1, y1) = _towards(corner, before), _towards(corner, after)
        path.append(f"L{x0:.1f} {y0:.1f}Q{corner[0]:.1f} {corner[1]:.1f} {x1:.1f} {y1:.1f}")
    path.append(f"H{points[-1][0] - 7:.1f}")
    return "".join(path)


def _towards(start: Point, end: Point) -> Point:
    """A point a little way from one towards another, along an axis."""
    (x0, y0), (x1, y1) = start, end
    far = abs(x1 - x0) + abs(y1 - y0)
    part = min(8.0, far / 2) / far if far else 0.0
    return x0 + (x1 - x0) * part, y0 + (y1 - y0) * part


def drawn_labels(lines: list[Line], labels: list[str], layout: Layout) -> Iterator[str]:
    """The labels, with a halo of the ground's colour that parts the line behind them."""
    taken: dict[int, list[tuple[float, float, float]]] = {}
    for line, label, route in zip(lines, labels, layout.routes, strict=True):
        if not label:
            continue
        width = width_of(label, LABEL_SIZE) + 10.0
        x, y = _free(route, width, taken)
        yield f'<text class="label {line.manner}" x="{x:.1f}" y="{y + 4:.1f}">{escape(label)}</text>'


def _free(route: Route, width: float, taken: dict[int, list[tuple[float, float, float]]]) -> Point:
    """A place on the line, or just beside it, that no other label has; `taken` is by rows."""
    (x0, y0), (x1, y1) = route.points[route.label : route.label + 2]
    x, y = (x0 + x1 - (0.0 if route.around else 8.0)) / 2, (y0 + y1) / 2
    tries = (y + rows * ROW for rows in (0, 1, -1, 2, -2, 3, -3))
    found = next((at for at in tries if _is_free(x, at, width, taken)), y)
    taken.setdefault(round(found / ROW), []).append((x, found, width))
    return x, found


def _is_free(x: float, y: float, width: float, taken: dict[int, list[tuple[float, float, float]]]) -> bool:
    row = round(y / ROW)
    near = (other for r in (row - 1, row, row + 1) for other in taken.get(r, ()))
    return all(abs(y - v) >= ROW or abs(x - u) >= (width + w) / 2 for u, v, w in near)
