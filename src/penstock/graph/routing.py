"""Decide how rows reach a step, how many replicas it has, and whether it may be fused.

`key_by` takes effect at the first step that needs the key: maps and filters in between run where the
rows are. A step that follows keyed steps of the same key and degree needs no second shuffle.
"""

from __future__ import annotations

from penstock.errors import GraphError
from penstock.frozen import dataclass
from penstock.operators.op import JOIN, Degree, Op, Routing, degree
from penstock.operators.process import Process
from penstock.operators.source import Source
from penstock.operators.stream import Stream
from penstock.operators.windows import Windows


@dataclass(frozen=True, slots=True)
class Placement:
    """Where rows are as they arrive: how many replicas sent them, and the key they are grouped by."""

    degree: Degree
    partition: tuple[str, ...] | None = None
    merged: bool = False


def route(op: Op, up: Stream, at: Placement) -> tuple[Routing | None, Degree]:
    """The routing and the degree of a step."""
    if isinstance(op, Source):
        return None, degree(op.parallelism) or Degree(1, 1)
    replicas = degree(op.parallelism) or _default_degree(op, up, at)
    asked = op.own_routing
    if op.routing is not None and asked != op.routing:
        raise GraphError(
            f'routing="{op.routing}" cannot be had here: {op.verb} is routed by "{asked}"',
            hint="leave routing out",
        )
    if asked is Routing.BROADCAST and replicas.elastic:
        raise GraphError(
            "a broadcast step cannot be elastic",
            detail="every replica gives its own copy of each row",
            hint="use a fixed parallelism",
        )
    if asked is Routing.KEY_BY:
        if op.routing == Routing.KEY_BY and not up.key:
            raise GraphError(
                'routing="key_by" needs a key', hint='say .key_by("user") before it, or key="user"'
            )
        settled = bool(up.key) and at.partition == up.key and not at.merged and at.degree == replicas
        spared = settled and op.routing is None  # asked for by name, a shuffle is what one gets
        return (Routing.FORWARD if spared else Routing.KEY_BY), replicas
    return asked or Routing.FORWARD, replicas


def placement_after(
    up: Stream, out: Stream, at: Placement, routing: Routing | None, replicas: Degree
) -> Placement:
    """Where rows are when they leave a step."""
    if routing is Routing.KEY_BY:
        partition = up.key or None
    elif routing is Routing.FORWARD and not at.merged and at.degree == replicas:
        partition = at.partition
    else:
        partition = None
    return Placement(replicas, partition if partition == out.key else None)


def may_fuse(op: Op, routing: Routing | None, replicas: Degree, at: Placement) -> bool:
    """WindFlow's rule for chaining: forward, equal degrees, and one pipe before it."""
    return op.chainable and routing is Routing.FORWARD and replicas == at.degree and not at.merged


def _default_degree(op: Op, up: Stream, at: Placement) -> Degree:
    if op.kind == JOIN:
        from penstock.operators.stream_join import StreamJoin

        if isinstance(op, StreamJoin) and isinstance(op.layout, tuple):
            workers = op.layout[0] * op.layout[1]
            return Degree(workers, workers)
    if isinstance(op, Process) or (isinstance(op, Windows) and not up.key and op.pattern == "keyed"):
        return Degree(1, 1)  # one group has one owner; an own loop keeps its own state
    return at.degree
