"""The layers of a picture from left to right: which node stands in which, and in what order from the top.

Longest-path layering, points in between for edges that skip layers, and barycentre sweeps against
crossings. Pure graph work on numbers; knows no plan and no sizes. Time grows with nodes and edges times
a logarithm: the points in between are rationed, and edges that get none go around the picture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from penstock.frozen import dataclass

SWEEPS = 3
"""How often the order is swept there and back; crossings hardly fall after the second."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A line from node to node.

    aside  its head goes below other heads of the same tail
    room   the width that its label needs between two layers
    leave  where a line that runs backwards leaves its tail, from the top; None: where the others do
    """

    tail: int
    head: int
    aside: bool = False
    room: float = 0.0
    leave: float | None = None


@dataclass(slots=True)
class Layers:
    """The nodes, and the points in between numbered after them, layer by layer.

    order    the vertices of each layer, from the top
    layer    of each vertex
    paths    of each edge: its vertices from tail to head; None when it goes around
    before   of each vertex: its neighbours one layer to the left
    after    and to the right
    lowered  whether only aside edges lead to it
    """

    order: list[list[int]]
    layer: list[int]
    paths: list[list[int] | None]
    before: list[list[int]]
    after: list[list[int]]
    lowered: list[bool]


def arrange(n: int, edges: Sequence[Edge]) -> Layers:
    """Layers for nodes 0 to n-1. Edges that do not lead to a later node run backwards, and go around."""
    layers = _with_points(edges, _longest_paths(n, edges))
    there = range(1, len(layers.order))
    back = range(len(layers.order) - 2, -1, -1)
    for _ in range(SWEEPS):
        _sweep(layers, layers.before, there)
        _sweep(layers, layers.after, back)
    _sweep(layers, layers.before, there)
    return layers


def _longest_paths(n: int, edges: Sequence[Edge]) -> list[int]:
    """One layer after the last feed; a line of nodes that starts at a source moves up to its reader."""
    heads: list[list[int]] = [[] for _ in range(n)]
    tails: list[list[int]] = [[] for _ in range(n)]
    for edge in edges:
        if edge.tail < edge.head:
            heads[edge.tail].append(edge.head)
            tails[edge.head].append(edge.tail)
    layer = [0] * n
    free = [False] * n  # nothing but a line of nodes from a source leads to it
    for node in range(n):
        layer[node] = max((layer[tail] + 1 for tail in tails[node]), default=0)
        alone = len(tails[node]) < 2
        free[node] = alone and all(free[tail] and len(heads[tail]) == 1 for tail in tails[node])
    for node in reversed(range(n)):
        if free[node] and heads[node]:
            layer[node] = min(layer[head] for head in heads[node]) - 1
    return layer


def _with_points(edges: Sequence[Edge], layer: list[int]) -> Layers:
    """Put a point into every layer that an edge skips, shortest edges first, while the ration lasts."""
    n = len(layer)
    made = Layers(
        order=[[] for _ in range(max(layer, default=-1) + 1)],
        layer=layer,
        paths=[None] * len(edges),
        before=[[] for _ in range(n)],
        after=[[] for _ in range(n)],
        lowered=[True] * n,
    )
    for node in range(n):
        made.order[layer[node]].append(node)
    ration = 8 * n + 1_000
    skipped = [layer[edge.head] - layer[edge.tail] - 1 for edge in edges]
    for index in sorted(range(len(edges)), key=skipped.__getitem__):
        if edges[index].tail < edges[index].head and skipped[index] <= ration:
            ration -= skipped[index]
            made.paths[index] = _path(made, edges[index])
    return made


def _path(made: Layers, edge: Edge) -> list[int]:
    path = [edge.tail]
    for place in range(made.layer[edge.tail] + 1, made.layer[edge.head]):
        path.append(len(made.layer))
        made.order[place].append(path[-1])
        made.layer.append(place)
        made.lowered.append(edge.aside)
        made.before.append([])
        made.after.append([])
    path.append(edge.head)
    for left, right in pairwise(path):
        made.after[left].append(right)
        made.before[right].append(left)
    made.lowered[edge.head] &= edge.aside
    return path


def _sweep(layers: Layers, beside: list[list[int]], places: range) -> None:
    """Order each layer by the mean height of each vertex's neighbours; who has none keeps its height."""
    height = [0.0] * len(layers.layer)
    for vertices in layers.order:
        _number(vertices, height)
    for place in places:
        vertices = layers.order[place]
        wanted = {v: (_mean([height[u] for u in beside[v]], height[v]), layers.lowered[v]) for v in vertices}
        vertices.sort(key=wanted.__getitem__)
        _number(vertices, height)


def _number(vertices: list[int], height: list[float]) -> None:
    for rank, vertex in enumerate(vertices):
        height[vertex] = (rank + 0.5) / len(vertices)


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


# The heights in a picture: every node as level with its neighbours as it can be without touching others.
#
# In each sweep a node asks for the mean of what its neighbours would have it at. A layer is then freed of
# overlaps at the least squared distance from what was asked, which is isotonic regression: neighbours
# that would overlap are pooled and settle on their weighted mean, in linear time.

GAP = 28.0  # between nodes of a layer
POINT_GAP = 16.0  # beside a line that passes through
_SWEEPS = 4
_STRAIGHT = 6.0  # weight of a point: a long line should be straight before a node is level


@dataclass(frozen=True, slots=True)
class Node:
    """What is to be placed: lines come in at `enter` and leave at `leave`, measured from its top.

    Several lines spread over `reach` above and below.
    """

    width: float
    height: float
    enter: float
    leave: float
    reach: float = 12.0


POINT = Node(0.0, 0.0, 0.0, 0.0, 0.0)


def tops(nodes: Sequence[Node], layers: Layers) -> list[float]:
    """The top of every vertex; the highest is at 0."""
    shapes = [*nodes, *[POINT] * (len(layers.layer) - len(nodes))]
    top = [0.0] * len(shapes)
    for vertices in layers.order:
        _settle(vertices, shapes, top, [(0.0, 1.0)] * len(vertices))
    there, back = layers.order, layers.order[::-1]
    for _ in range(_SWEEPS):
        for vertices in there:
            _settle(vertices, shapes, top, [_asked(v, shapes, layers, top, left=True) for v in vertices])
        for vertices in back:
            _settle(vertices, shapes, top, [_asked(v, shapes, layers, top, left=False) for v in vertices])
    for vertices in there:
        _settle(vertices, shapes, top, [_asked_by_all(v, shapes, layers, top) for v in vertices])
    highest = min(top, default=0.0)
    return [y - highest for y in top]


def _asked(
    v: int, shapes: Sequence[Node], layers: Layers, top: list[float], *, left: bool
) -> tuple[float, float]:
    """The top a vertex asks for, to be level with one side, and how much it insists."""
    beside = layers.before[v] if left else layers.after[v]
    if not beside:
        return top[v], 0.1
    if left:
        wanted = [top[u] + shapes[u].leave - shapes[v].enter for u in beside]
    else:
        wanted = [top[u] + shapes[u].enter - shapes[v].leave for u in beside]
    return sum(wanted) / len(wanted), _STRAIGHT if shapes[v] is POINT else 1.0


def _asked_by_all(v: int, shapes: Sequence[Node], layers: Layers, top: list[float]) -> tuple[float, float]:
    """The same with both sides heard; a node with one neighbour on a side listens to that side more."""
    heard = [
        (_asked(v, shapes, layers, top, left=left)[0], 1.0 / len(beside))
        for left, beside in ((True, layers.before[v]), (False, layers.after[v]))
        if beside
    ]
    if not heard:
        return top[v], 0.1
    total = sum(weight for _, weight in heard)
    return sum(y * weight for y, weight in heard) / total, _STRAIGHT if shapes[v] is POINT else 1.0


def _settle(
    vertices: list[int], shapes: Sequence[Node], top: list[float], asked: list[tuple[float, float]]
) -> None:
    """Give each vertex the top it asked for, or the nearest that keeps the layer's order and gaps."""
    if not vertices:
        return
    offsets = [0.0]  # of each vertex when all stand as close as they may
    for above, below in pairwise(vertices):
        gap = POINT_GAP if shapes[above] is POINT or shapes[below] is POINT else GAP
        offsets.append(offsets[-1] + shapes[above].height + gap)
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many vertices
    for (wanted, weight), offset in zip(asked, offsets, strict=True):
        pool = (wanted - offset, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            pool = _pooled(pools.pop(), pool)
        pools.append(pool)
    settled = [mean for mean, _, count in pools for _ in range(count)]
    for vertex, offset, base in zip(vertices, offsets, settled, strict=True):
        top[vertex] = base + offset


def _pooled(a: tuple[float, float, int], b: tuple[float, float, int]) -> tuple[float, float, int]:
    weight = a[1] + b[1]
    return (a[0] * a[1] + b[0] * b[1]) / weight, weight, a[2] + b[2]


# Where everything stands in a picture: layers from left to right, and lines between and through them.
#
# Invariant: no two nodes overlap, and no line crosses a node: lines pass a layer only at points of their
# own, and those that run backwards go around, below everything. Pure geometry; knows no plan, no text.

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
