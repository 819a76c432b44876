"""The geometry of a picture: a layered graph layout from left to right (Sugiyama's method).

Nodes are put into layers by their longest path from a source; edges that skip layers get a point in each of
them; barycentre sweeps undo crossings; then every vertex is placed as level with its neighbours as it can be.
Edges that run backwards go around, below everything. Knows no plan and no text.

Invariant: no two nodes overlap, and no line crosses a node: lines pass a layer only at points of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import pairwise
from statistics import fmean

from penstock.frozen import dataclass

SPACE = 58.0  # least distance between layers
GAP = 28.0  # between nodes of a layer
POINT_GAP = 16.0  # beside a line that passes through a layer
DETOUR_GAP = 20.0  # between lines that go around
_END_GAP, _END_SPREAD = 12.0, 24.0  # between lines that end at one node, and between the first and last
_SWEEPS = 4
_STRAIGHTNESS = 6.0  # weight of a point: a long line should be straight before a node is level

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Node:
    """A box to place; lines enter and leave at these distances from its top."""

    width: float
    height: float
    enter: float
    leave: float


@dataclass(frozen=True, slots=True)
class Edge:
    """A line to draw from node to node.

    aside        its head is placed below the other heads of its tail
    label_width  the width that its label needs between two layers
    leave        where it leaves its tail, from the top; None for the tail's own place
    """

    tail: int
    head: int
    aside: bool = False
    label_width: float = 0.0
    leave: float | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """The upper left corner and the size of a node; all nodes of a layer have the width of the widest."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Route:
    """A line through its points: alternately a curve and a straight piece, or, `around`, all straight.

    The label belongs between the points `label` and `label + 1`.
    """

    points: tuple[Point, ...]
    around: bool
    label: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole picture from (0, 0): a place for each node and a route for each edge, in their order."""

    width: float
    height: float
    places: tuple[Place, ...]
    routes: tuple[Route, ...]


@dataclass(slots=True)
class Layers:
    """Which vertices are in which layer. Vertices are the nodes, then the points of edges that skip layers.

    layer   of each vertex
    order   of each layer: its vertices from the top
    paths   of each edge: its vertices from tail to head; None if it runs backwards
    before  of each vertex: its neighbours one layer to the left
    after   of each vertex: its neighbours one layer to the right
    aside   of each vertex: whether only aside edges lead to it
    """

    layer: list[int]
    order: list[list[int]] = field(default_factory=list)
    paths: list[list[int] | None] = field(default_factory=list)
    before: list[list[int]] = field(default_factory=list)
    after: list[list[int]] = field(default_factory=list)
    aside: list[bool] = field(default_factory=list)


def lay_out(nodes: Sequence[Node], edges: Sequence[Edge]) -> Layout:
    """Place nodes and lines. An edge to the same or an earlier node runs backwards."""
    layers = assign_layers(len(nodes), edges)
    tops = _place_vertically(nodes, layers)
    xs, widths = _place_horizontally(nodes, edges, layers)
    places = tuple(
        Place(xs[layer], top, widths[layer], node.height)
        for node, layer, top in zip(nodes, layers.layer, tops, strict=False)
    )
    width = max((place.x + place.width for place in places), default=0.0)
    height = max((place.y + place.height for place in places), default=0.0)
    n_heads = Counter(edge.tail for edge in edges)
    routes = []
    for edge, path, (leave, enter) in zip(
        edges, layers.paths, _line_ends(nodes, edges, layers, tops), strict=True
    ):
        if path is None:
            height += DETOUR_GAP
            routes.append(_route_around(places[edge.tail], places[edge.head], leave, enter, height))
            continue
        points: list[Point] = [(places[edge.tail].x + places[edge.tail].width, leave)]
        for vertex in path[1:-1]:
            left = xs[layers.layer[vertex]]
            points += [(left, tops[vertex]), (left + widths[layers.layer[vertex]], tops[vertex])]
        points.append((places[edge.head].x, enter))
        label = len(points) - 2 if n_heads[edge.tail] == 1 else 0
        routes.append(Route(tuple(points), around=False, label=label))
    return Layout(width, height, places, tuple(routes))


def assign_layers(n: int, edges: Sequence[Edge]) -> Layers:
    """Assign nodes 0 to n-1 to layers and order each layer so that few lines cross."""
    layers = Layers(_longest_paths(n, edges))
    layers.order = [[] for _ in range(max(layers.layer, default=-1) + 1)]
    layers.before, layers.after = [[] for _ in range(n)], [[] for _ in range(n)]
    layers.aside = [True] * n
    for node, layer in enumerate(layers.layer):
        layers.order[layer].append(node)
    for edge in edges:
        layers.paths.append(_add_path(layers, edge) if edge.tail < edge.head else None)
    forward, backward = range(1, len(layers.order)), range(len(layers.order) - 2, -1, -1)
    for _ in range(_SWEEPS):
        _sort_by_neighbours(layers, layers.before, forward)
        _sort_by_neighbours(layers, layers.after, backward)
    _sort_by_neighbours(layers, layers.before, forward)
    return layers


def _longest_paths(n: int, edges: Sequence[Edge]) -> list[int]:
    """Return the layer of each node: one after its last feed.

    A chain that starts at a source and has one reader stands right before that reader.
    """
    heads: list[list[int]] = [[] for _ in range(n)]
    tails: list[list[int]] = [[] for _ in range(n)]
    for edge in edges:
        if edge.tail < edge.head:
            heads[edge.tail].append(edge.head)
            tails[edge.head].append(edge.tail)
    layer = [0] * n
    movable = [False] * n
    for node in range(n):
        layer[node] = max((layer[tail] + 1 for tail in tails[node]), default=0)
        movable[node] = len(tails[node]) < 2 and all(
            movable[tail] and len(heads[tail]) == 1 for tail in tails[node]
        )
    for node in reversed(range(n)):
        if movable[node] and heads[node]:
            layer[node] = min(layer[head] for head in heads[node]) - 1
    return layer


def _add_path(layers: Layers, edge: Edge) -> list[int]:
    """Add a point in every layer that an edge skips; return its vertices."""
    path = [edge.tail]
    for layer in range(layers.layer[edge.tail] + 1, layers.layer[edge.head]):
        path.append(len(layers.layer))
        layers.order[layer].append(path[-1])
        layers.layer.append(layer)
        layers.aside.append(edge.aside)
        layers.before.append([])
        layers.after.append([])
    path.append(edge.head)
    for left, right in pairwise(path):
        layers.after[left].append(right)
        layers.before[right].append(left)
    layers.aside[edge.head] &= edge.aside
    return path


def _sort_by_neighbours(layers: Layers, neighbours: list[list[int]], sweep: Iterable[int]) -> None:
    """Sort each layer by the mean height of the neighbours; a vertex without any keeps its height."""
    height = {v: (rank + 0.5) / len(order) for order in layers.order for rank, v in enumerate(order)}
    for number in sweep:
        order = layers.order[number]
        order.sort(key=lambda v: (fmean([height[u] for u in neighbours[v]] or [height[v]]), layers.aside[v]))
        height |= {v: (rank + 0.5) / len(order) for rank, v in enumerate(order)}


def _place_vertically(nodes: Sequence[Node], layers: Layers) -> list[float]:
    """Return the top of every vertex; the highest is at 0."""
    point = Node(0.0, 0.0, 0.0, 0.0)
    boxes = [*nodes, *[point] * (len(layers.layer) - len(nodes))]
    tops = [0.0] * len(boxes)

    def level_top(v: int, *, left: bool, right: bool) -> float:
        """Return the top at which a vertex is level with its neighbours on these sides."""
        lefts = [tops[u] + boxes[u].leave - boxes[v].enter for u in layers.before[v] if left]
        rights = [tops[u] + boxes[u].enter - boxes[v].leave for u in layers.after[v] if right]
        return fmean([fmean(side) for side in (lefts, rights) if side] or [tops[v]])

    sweeps = [(layers.order, True, False), (layers.order[::-1], False, True)] * _SWEEPS
    for order, left, right in [(layers.order, False, False), *sweeps, (layers.order, True, True)]:
        for vertices in order:
            wanted = [level_top(v, left=left, right=right) for v in vertices]
            _separate(vertices, boxes, wanted, tops)
    highest = min(tops, default=0.0)
    return [top - highest for top in tops]


def _separate(vertices: list[int], boxes: Sequence[Node], wanted: list[float], tops: list[float]) -> None:
    """Give each vertex of a layer its wanted top, or the nearest that keeps order and gaps.

    Nearest by squared distance, which is isotonic regression: vertices that would overlap are pooled and
    share their weighted mean, in linear time.
    """
    offset, previous = 0.0, None  # offset: where the vertex is when all stand as close as they may
    offsets: list[float] = []
    pools: list[tuple[float, float, int]] = []  # mean, weight, number of vertices
    for v, top in zip(vertices, wanted, strict=True):
        if previous is not None:
            heights = boxes[previous].height, boxes[v].height
            offset += heights[0] + (GAP if all(heights) else POINT_GAP)
        previous = v
        offsets.append(offset)
        mean, weight, count = top - offset, 1.0 if boxes[v].height else _STRAIGHTNESS, 1
        while pools and pools[-1][0] > mean:
            other, other_weight, n = pools.pop()
            mean = (other * other_weight + mean * weight) / (other_weight + weight)
            weight, count = other_weight + weight, n + count
        pools.append((mean, weight, count))
    bases = [mean for mean, _, count in pools for _ in range(count)]
    for v, offset, base in zip(vertices, offsets, bases, strict=True):
        tops[v] = base + offset


def _place_horizontally(
    nodes: Sequence[Node], edges: Sequence[Edge], layers: Layers
) -> tuple[list[float], list[float]]:
    """Return the left side and the width of every layer; labels widen the space before it."""
    widths = [max((nodes[v].width for v in order if v < len(nodes)), default=0.0) for order in layers.order]
    space = [SPACE] * len(widths)
    n_heads = Counter(edge.tail for edge in edges)
    for edge, path in zip(edges, layers.paths, strict=True):
        if path is not None:
            layer = layers.layer[edge.head] if n_heads[edge.tail] == 1 else layers.layer[edge.tail] + 1
            space[layer] = max(space[layer], edge.label_width)
    xs = [0.0] * len(widths)
    for layer in range(1, len(widths)):
        xs[layer] = xs[layer - 1] + widths[layer - 1] + space[layer]
    return xs, widths


def _line_ends(
    nodes: Sequence[Node], edges: Sequence[Edge], layers: Layers, tops: list[float]
) -> list[tuple[float, float]]:
    """Return where each line leaves and enters; lines at one node are spread so that they do not cross."""
    ends: list[list[float]] = [[0.0, 0.0] for _ in edges]
    by_node: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for index, (edge, path) in enumerate(zip(edges, layers.paths, strict=True)):
        after, before = (edge.head, edge.tail) if path is None else (path[1], path[-2])
        below = 1e12 if path is None else 0.0  # lines that go around leave and enter below all others
        if edge.leave is None:
            by_node.setdefault((edge.tail, 0), []).append(
                (below + _meeting_height(nodes, after, tops, 1), index)
            )
        else:
            ends[index][0] = tops[edge.tail] + edge.leave
        by_node.setdefault((edge.head, 1), []).append(
            (below + _meeting_height(nodes, before, tops, 0), index)
        )
    for (node, end), lines in by_node.items():
        gap = min(_END_GAP, _END_SPREAD / max(len(lines) - 1, 1))
        middle = _meeting_height(nodes, node, tops, end)
        for rank, (_, index) in enumerate(sorted(lines)):
            ends[index][end] = middle + (rank - (len(lines) - 1) / 2) * gap
    return [(leave, enter) for leave, enter in ends]


def _meeting_height(nodes: Sequence[Node], vertex: int, tops: list[float], end: int) -> float:
    """Return where lines leave (end 0) or enter (end 1) a vertex."""
    if vertex >= len(nodes):
        return tops[vertex]
    return tops[vertex] + (nodes[vertex].enter if end else nodes[vertex].leave)


def _route_around(tail: Place, head: Place, leave: float, enter: float, below: float) -> Route:
    right, left = tail.x + tail.width + SPACE / 3, head.x - SPACE / 3
    points = (
        (tail.x + tail.width, leave),
        (right, leave),
        (right, below),
        (left, below),
        (left, enter),
        (head.x, enter),
    )
    return Route(points, around=True, label=2)
