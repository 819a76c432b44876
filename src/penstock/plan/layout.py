"""Where everything stands in a picture: layers from left to right, and lines between and through them.

Invariant: no two nodes overlap, and no line crosses a node: lines pass a layer only at points of their
own, and those that run backwards go around, below everything. Pure geometry; knows no plan, no text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.frozen import dataclass
from penstock.plan.layers import Edge, Layers, arrange
from penstock.plan.levels import Node, tops

SPACE = 58.0  # least distance between layers
LANE = 20.0  # between lines that go around
_STEP = 12.0  # between lines that end at one node


@dataclass(frozen=True, slots=True)
class Place:
    """A node's upper left corner and its size; the nodes of a layer are all as wide as the widest."""

    x: float
    y: float
    width: float
    height: float


Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Route:
    """A line through its points: by turns a curve and a straight piece, or, `around`, all straight.

    A label belongs between the points `label` and `label + 1`.
    """

    points: tuple[Point, ...]
    around: bool
    label: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole picture from (0, 0); `places` as the nodes came, `routes` as the edges came."""

    width: float
    height: float
    places: tuple[Place, ...]
    routes: tuple[Route, ...]


def lay_out(nodes: Sequence[Node], edges: Sequence[Edge]) -> Layout:
    """Place nodes and lines. An edge to the same or an earlier node runs backwards."""
    layers = arrange(len(nodes), edges)
    top = tops(nodes, layers)
    xs, widths = _across(nodes, edges, layers)
    places = tuple(
        Place(xs[layers.layer[v]], top[v], widths[layers.layer[v]], node.height)
        for v, node in enumerate(nodes)
    )
    ends = _ends(nodes, edges, layers, top)
    bottom = max((place.y + place.height for place in places), default=0.0)
    right = max((place.x + place.width for place in places), default=0.0)
    n_around = 0
    routes: list[Route] = []
    out = Counter(edge.tail for edge in edges)
    for edge, path, (leave, enter) in zip(edges, layers.paths, ends, strict=True):
        if path is None:
            n_around += 1
            lane = bottom + n_around * LANE
            routes.append(_around(places[edge.tail], places[edge.head], leave, enter, lane))
        else:
            spans = [
                (xs[layers.layer[v]], xs[layers.layer[v]] + widths[layers.layer[v]], top[v]) for v in path
            ]
            routes.append(_through(spans, leave, enter, near_head=out[edge.tail] == 1))
    return Layout(right, bottom + n_around * LANE, places, tuple(routes))


def _across(nodes: Sequence[Node], edges: Sequence[Edge], layers: Layers) -> tuple[list[float], list[float]]:
    """Left side and width of every layer; labels widen the space before or after it."""
    widths = [max((nodes[v].width for v in order if v < len(nodes)), default=0.0) for order in layers.order]
    space = [SPACE] * len(widths)  # before each layer
    out = Counter(edge.tail for edge in edges)
    for edge, path in zip(edges, layers.paths, strict=True):
        if path is not None:
            place = layers.layer[edge.head] if out[edge.tail] == 1 else layers.layer[edge.tail] + 1
            space[place] = max(space[place], edge.room)
    xs: list[float] = []
    x = 0.0
    for place, width in enumerate(widths):
        x += space[place] if place else 0.0
        xs.append(x)
        x += width
    return xs, widths


def _ends(
    nodes: Sequence[Node], edges: Sequence[Edge], layers: Layers, top: list[float]
) -> list[tuple[float, float]]:
    """The heights at which each line leaves and enters: spread so that lines at one node do not cross."""
    leave, enter = [0.0] * len(edges), [0.0] * len(edges)
    leaving: dict[int, list[tuple[float, int]]] = {}
    entering: dict[int, list[tuple[float, int]]] = {}
    for index, (edge, path) in enumerate(zip(edges, layers.paths, strict=True)):
        first, last = (edge.head, edge.tail) if path is None else (path[1], path[-2])
        # Lines that go around leave and enter below all others.
        low = 1e12 if path is None else 0.0
        if edge.leave is None:
            height = top[first] + _middle(nodes, first, enters=True)
            leaving.setdefault(edge.tail, []).append((low + height, index))
        else:
            leave[index] = top[edge.tail] + edge.leave
        entering.setdefault(edge.head, []).append(
            (low + top[last] + _middle(nodes, last, enters=False), index)
        )
    for node, lines in leaving.items():
        _spread(lines, top[node] + nodes[node].leave, nodes[node].reach, leave)
    for node, lines in entering.items():
        _spread(lines, top[node] + nodes[node].enter, nodes[node].reach, enter)
    return list(zip(leave, enter, strict=True))


def _middle(nodes: Sequence[Node], vertex: int, *, enters: bool) -> float:
    if vertex >= len(nodes):
        return 0.0
    return nodes[vertex].enter if enters else nodes[vertex].leave


def _spread(lines: list[tuple[float, int]], middle: float, reach: float, into: list[float]) -> None:
    step = min(_STEP, 2 * reach / max(len(lines) - 1, 1))
    for rank, (_, index) in enumerate(sorted(lines)):
        into[index] = middle + (rank - (len(lines) - 1) / 2) * step


def _through(
    spans: list[tuple[float, float, float]], leave: float, enter: float, *, near_head: bool
) -> Route:
    """A line from layer to layer: curves between them, straight across those it skips."""
    points: list[Point] = [(spans[0][1], leave)]
    for left, right, y in spans[1:-1]:
        points += [(left, y), (right, y)]
    points.append((spans[-1][0], enter))
    return Route(tuple(points), around=False, label=len(points) - 2 if near_head else 0)


def _around(tail: Place, head: Place, leave: float, enter: float, lane: float) -> Route:
    out, back = tail.x + tail.width + SPACE / 3, head.x - SPACE / 3
    points = (
        (tail.x + tail.width, leave),
        (out, leave),
        (out, lane),
        (back, lane),
        (back, enter),
        (head.x, enter),
    )
    return Route(points, around=True, label=2)
