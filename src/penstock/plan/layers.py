"""The layers of a picture from left to right: which node stands in which, and in what order from the top.

Longest-path layering, points in between for edges that skip layers, and barycentre sweeps against
crossings. Pure graph work on numbers; knows no plan and no sizes. Time grows with nodes and edges times
a logarithm: the points in between are rationed, and edges that get none go around the picture.
"""

from __future__ import annotations

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
