"""The geometry of a picture: a layered graph layout from left to right (Sugiyama's method).

Nodes are put into layers by their longest path from a source; edges that skip layers get a point in each of
them; barycentre sweeps undo crossings; then every node is placed as level with its neighbours as it can be.
Edges that run backwards go around, below everything. Knows no plan and no text.

Invariant: no two nodes overlap, and no line crosses a node: lines pass a layer only at points of their own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from math import inf
from statistics import fmean

from penstock.frozen import Frozen, dataclass

SPACE = 58.0  # least distance between layers
GAP = 28.0  # between nodes of a layer
DETOUR_GAP = 20.0  # between lines that go around
_END_GAP, _END_SPREAD = 12.0, 24.0  # between lines that end at one node, and between the first and last
_SWEEPS = 4

Point = tuple[float, float]


@dataclass(slots=True, eq=False)
class Node:
    """A box to place: lines enter and leave at these distances from its top. `lay_out` finds the rest.

    Without a size it is a point, at which an edge passes through a layer that it skips.

    x, y    its upper left corner; `width` becomes that of the widest node of its layer
    rank    how far down it is in the order of its layer, from 0 to 1
    aside   whether only aside edges lead to it
    before  its neighbours one layer to the left
    after   its neighbours one layer to the right
    """

    width: float = 0.0
    height: float = 0.0
    enter: float = 0.0
    leave: float = 0.0
    x: float = 0.0
    y: float = 0.0
    layer: int = 0
    rank: float = 0.0
    aside: bool = True
    before: list[Node] = field(default_factory=list, repr=False)
    after: list[Node] = field(default_factory=list, repr=False)


class Edge(Frozen):
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


class Route(Frozen):
    """A line through its points: alternately a curve and a straight piece, or, `around`, all straight.

    The label belongs around the point `label`.
    """

    points: tuple[Point, ...]
    around: bool
    label: Point


class Layout(Frozen):
    """A whole picture from (0, 0): its size, and a route for each edge, in their order."""

    width: float
    height: float
    routes: tuple[Route, ...]


def lay_out(nodes: Sequence[Node], edges: Sequence[Edge]) -> Layout:
    """Place nodes and lines. An edge to the same or an earlier node runs backwards."""
    layers, paths = assign_layers(nodes, edges)
    n_heads = Counter(edge.tail for edge in edges)
    _place_vertically(layers)
    _place_horizontally(layers, edges, paths, n_heads)
    width = max((node.x + node.width for node in nodes), default=0.0)
    height = max((node.y + node.height for node in nodes), default=0.0)
    ends = _line_ends(nodes, edges, paths)
    routes = []
    for index, (edge, path) in enumerate(zip(edges, paths, strict=True)):
        tail, head = nodes[edge.tail], nodes[edge.head]
        start, end = (tail.x + tail.width, ends["leave", index]), (head.x, ends["enter", index])
        if path:
            points = [start, *((x, v.y) for v in path[1:-1] for x in (v.x, v.x + v.width)), end]
            at = len(points) - 2 if n_heads[edge.tail] == 1 else 0
        else:
            height += DETOUR_GAP
            right, left = start[0] + SPACE / 3, end[0] - SPACE / 3
            points = [start, (right, start[1]), (right, height), (left, height), (left, end[1]), end]
            at = 2
        (x0, y0), (x1, y1) = points[at : at + 2]
        routes.append(Route(tuple(points), not path, ((x0 + x1) / 2, (y0 + y1) / 2)))
    return Layout(width, height, tuple(routes))


def assign_layers(nodes: Sequence[Node], edges: Sequence[Edge]) -> tuple[list[list[Node]], list[list[Node]]]:
    """Assign nodes to layers and order each layer so that few lines cross.

    A node stands one layer after its last feed, or further right, just before the first of its readers.
    Return the nodes and points of each layer from the top, and those of each edge from tail to head; an edge
    that runs backwards has none. In each sweep a layer is sorted by the mean rank of the neighbours; a node
    without any keeps its own.
    """
    heads: dict[int, list[int]] = defaultdict(list)
    for edge in edges:
        if edge.tail < edge.head:
            heads[edge.tail].append(edge.head)
    for tail in sorted(heads):
        for head in heads[tail]:
            nodes[head].layer = max(nodes[head].layer, nodes[tail].layer + 1)
    for tail in sorted(heads, reverse=True):
        nodes[tail].layer = min(nodes[head].layer for head in heads[tail]) - 1
    layers: list[list[Node]] = [[] for _ in range(max((node.layer for node in nodes), default=-1) + 1)]
    for node in nodes:
        layers[node.layer].append(node)
    paths = [
        _add_path(nodes[edge.tail], nodes[edge.head], edge.aside, layers) if edge.tail < edge.head else []
        for edge in edges
    ]
    for layer in layers:
        _rank(layer)
    for sweep in range(2 * _SWEEPS + 1):
        side = "before" if sweep % 2 == 0 else "after"
        for layer in layers if side == "before" else reversed(layers):
            keys = {v: (fmean([u.rank for u in getattr(v, side)] or [v.rank]), v.aside) for v in layer}
            layer.sort(key=keys.__getitem__)
            _rank(layer)
    return layers, paths


def _rank(layer: list[Node]) -> None:
    for place, node in enumerate(layer):
        node.rank = (place + 0.5) / len(layer)


def _add_path(tail: Node, head: Node, aside: bool, layers: list[list[Node]]) -> list[Node]:
    """Add a point in every layer that an edge skips; return its nodes."""
    path = [tail]
    for layer in range(tail.layer + 1, head.layer):
        path.append(Node(layer=layer, aside=aside))
        layers[layer].append(path[-1])
    path.append(head)
    for left, right in pairwise(path):
        left.after.append(right)
        right.before.append(left)
    head.aside &= aside
    return path


def _place_vertically(layers: list[list[Node]]) -> None:
    """Place every node as level with its neighbours as the order of its layer allows; the highest is at 0."""
    sweeps = [(layers, True, False), (layers[::-1], False, True)] * _SWEEPS
    for order, left, right in [(layers, False, False), *sweeps, (layers, True, True)]:
        for layer in order:
            wanted = []
            for v in layer:
                lefts = [u.y + u.leave - v.enter for u in v.before if left]
                rights = [u.y + u.enter - v.leave for u in v.after if right]
                wanted.append(fmean([fmean(side) for side in (lefts, rights) if side] or [v.y]))
            above = -inf
            for v, y in zip(layer, wanted, strict=True):
                v.y = max(y, above)
                above = v.y + v.height + GAP
            too_low = fmean(v.y for v in layer) - fmean(wanted)
            for v in layer:
                v.y -= too_low
    highest = min((v.y for layer in layers for v in layer), default=0.0)
    for layer in layers:
        for node in layer:
            node.y -= highest


def _place_horizontally(
    layers: list[list[Node]], edges: Sequence[Edge], paths: list[list[Node]], n_heads: Counter[int]
) -> None:
    """Place the layers from left to right; labels widen the space before one."""
    space = [SPACE] * len(layers)
    for edge, path in zip(edges, paths, strict=True):
        if path:
            number = path[-1].layer if n_heads[edge.tail] == 1 else path[1].layer
            space[number] = max(space[number], edge.label_width)
    x = -SPACE
    for layer, before in zip(layers, space, strict=True):
        x += before
        width = max(node.width for node in layer)
        for node in layer:
            node.x, node.width = x, width
        x += width


def _line_ends(
    nodes: Sequence[Node], edges: Sequence[Edge], paths: list[list[Node]]
) -> dict[tuple[str, int], float]:
    """Return where each edge leaves and enters; lines at one place are spread so that they do not cross."""
    lines: dict[tuple[str, Node, float], list[tuple[float, int]]] = defaultdict(list)
    for index, (edge, path) in enumerate(zip(edges, paths, strict=True)):
        tail, head = nodes[edge.tail], nodes[edge.head]
        after, before = (path[1], path[-2]) if path else (head, tail)
        below = 0.0 if path else inf  # lines that go around leave and enter below all others
        leave = tail.leave if edge.leave is None else edge.leave
        lines["leave", tail, leave].append((below + after.y + after.enter, index))
        lines["enter", head, head.enter].append((below + before.y + before.leave, index))
    ends = {}
    for (side, node, middle), siblings in lines.items():
        gap = min(_END_GAP, _END_SPREAD / max(len(siblings) - 1, 1))
        for rank, (_, index) in enumerate(sorted(siblings)):
            ends[side, index] = node.y + middle + (rank - (len(siblings) - 1) / 2) * gap
    return ends
