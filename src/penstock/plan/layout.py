"""The geometry of a picture: a layered graph layout from left to right (Sugiyama's method).

Nodes are put into layers by their longest path from a source; sweeps over the layers then place every node
as level with its neighbours as it can be, which also undoes crossings. Edges that skip layers or run
backwards go around, below everything. Knows no plan and no text.

Invariant: no two nodes overlap, and no line crosses a node: lines are between two layers, or below all nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field
from math import inf
from statistics import fmean

from penstock.frozen import dataclass

SPACE = 58.0  # least distance between layers
GAP = 28.0  # between nodes of a layer
DETOUR_GAP = 20.0  # between lines that go around
_TURN, _TURNS, _TURN_GAP = 19.0, 5, 3.0  # where lines that go around turn, so that few of them meet
_END_GAP, _END_SPREAD = 12.0, 24.0  # between lines that end at one node, and between the first and last
_SWEEPS = 4

Point = tuple[float, float]


@dataclass(slots=True, eq=False)
class Node:
    """A box to place: lines enter and leave at these distances from its top. `lay_out` finds the rest.

    x, y    its upper left corner; `width` becomes that of the widest node of its layer
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
    aside: bool = True
    before: list[Node] = field(default_factory=list, repr=False)
    after: list[Node] = field(default_factory=list, repr=False)


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
class Layout:
    """A whole picture from (0, 0): its size, and the points of each edge's line, in their order.

    A line has two points, or six if it goes around: to the right, down, left or right, up and to the right.
    """

    width: float
    height: float
    lines: tuple[tuple[Point, ...], ...]


def lay_out(nodes: Sequence[Node], edges: Sequence[Edge]) -> Layout:
    """Place nodes and lines. An edge to the same or an earlier node runs backwards."""
    layers = assign_layers(nodes, edges)
    _place_vertically(layers)
    ends = [(nodes[edge.tail], nodes[edge.head]) for edge in edges]
    space = [0.0] + [SPACE] * len(layers)
    for edge, (tail, head) in zip(edges, ends, strict=True):
        if head in tail.after:
            space[head.layer] = max(space[head.layer], edge.label_width)
    x = 0.0
    for layer, before in zip(layers, space, strict=False):
        x += before
        width = max(node.width for node in layer)
        for node in layer:
            node.x, node.width = x, width
        x += width
    height = max((node.y + node.height for node in nodes), default=0.0)
    leaves, enters, lines = [], [], list[tuple[Point, ...]]()
    for edge, (tail, head) in zip(edges, ends, strict=True):
        below = 0.0 if head in tail.after else inf  # lines that go around leave and enter below all others
        leaves.append((tail, tail.leave if edge.leave is None else edge.leave, below + head.y + head.enter))
        enters.append((head, head.enter, below + tail.y + tail.leave))
    for (tail, head), leave, enter in zip(ends, _spread_ends(leaves), _spread_ends(enters), strict=True):
        start, end = (tail.x + tail.width, leave), (head.x, enter)
        if head in tail.after:
            lines.append((start, end))
        else:
            height += DETOUR_GAP
            turn = _TURN + _TURN_GAP * (len(lines) % _TURNS)
            right, left = start[0] + turn, end[0] - turn
            lines.append((start, (right, leave), (right, height), (left, height), (left, enter), end))
    return Layout(x, height, tuple(lines))


def assign_layers(nodes: Sequence[Node], edges: Sequence[Edge]) -> list[list[Node]]:
    """Return the nodes of each layer, and set which of them are neighbours.

    A node stands one layer after its last feed, or further right, just before the first of its readers.
    """
    heads: dict[int, list[int]] = defaultdict(list)
    for edge in edges:
        if edge.tail < edge.head:
            heads[edge.tail].append(edge.head)
            nodes[edge.head].aside &= edge.aside
    for tail in sorted(heads):
        for head in heads[tail]:
            nodes[head].layer = max(nodes[head].layer, nodes[tail].layer + 1)
    for tail in sorted(heads, reverse=True):
        nodes[tail].layer = min(nodes[head].layer for head in heads[tail]) - 1
    for edge in edges:
        tail_node, head_node = nodes[edge.tail], nodes[edge.head]
        if head_node.layer == tail_node.layer + 1:
            tail_node.after.append(head_node)
            head_node.before.append(tail_node)
    layers: list[list[Node]] = [[] for _ in range(max((node.layer for node in nodes), default=-1) + 1)]
    for node in nodes:
        layers[node.layer].append(node)
    return layers


def _place_vertically(layers: list[list[Node]]) -> None:
    """Order and place each layer so that nodes are level with their neighbours; the highest is at 0.

    In each sweep nodes move to the mean height of their neighbours on one side, and at last of both.
    """
    for left, right in [(True, False), (False, True)] * _SWEEPS + [(True, True)]:
        for layer in layers if left else layers[::-1]:
            wanted = {}
            for v in layer:
                lefts = [u.y + u.leave - v.enter for u in v.before if left]
                rights = [u.y + u.enter - v.leave for u in v.after if right]
                wanted[v] = fmean([fmean(side) for side in (lefts, rights) if side] or [v.y])
            layer.sort(key=lambda v: (wanted[v], v.aside))
            above = -inf
            for v in layer:
                v.y = max(wanted[v], above)
                above = v.y + v.height + GAP
            too_low = fmean(v.y for v in layer) - fmean(wanted.values())
            for v in layer:
                v.y -= too_low
    highest = min((v.y for layer in layers for v in layer), default=0.0)
    for layer in layers:
        for v in layer:
            v.y -= highest


def _spread_ends(ends: Sequence[tuple[Node, float, float]]) -> list[float]:
    """Return the height of each end of a line; those at one place are spread so that they do not cross.

    ends  (node, distance from its top, the height that the line leads to)
    """
    siblings: dict[tuple[Node, float], list[tuple[float, int]]] = defaultdict(list)
    for index, (node, middle, other) in enumerate(ends):
        siblings[node, middle].append((other, index))
    heights = [0.0] * len(ends)
    for (node, middle), lines in siblings.items():
        gap = min(_END_GAP, _END_SPREAD / max(len(lines) - 1, 1))
        for rank, (_, index) in enumerate(sorted(lines)):
            heights[index] = node.y + middle + (rank - (len(lines) - 1) / 2) * gap
    return heights
