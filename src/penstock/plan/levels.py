"""The heights in a picture: every node as level with its neighbours as it can be without touching others.

In each sweep a node asks for the mean of what its neighbours would have it at. A layer is then freed of
overlaps at the least squared distance from what was asked, which is isotonic regression: neighbours
that would overlap are pooled and settle on their weighted mean, in linear time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from penstock.frozen import dataclass
from penstock.plan.layers import Layers

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
