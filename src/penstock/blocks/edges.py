"""The edges of a graph from the producer's side, checked: names exist once, and nothing runs in a ring."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.blocks.derivation import Feedback, Input, Node
from penstock.blocks.functions import Distribution, Kind
from penstock.errors import GraphError, nearest_first
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Edge:
    """One reader of an output: the node, by its place in the graph, and which of its inputs it is."""

    branch: str
    consumer: int
    port: int


@dataclass(frozen=True, slots=True)
class Edges:
    """Who reads whom, leaving feedback aside."""

    readers: dict[str, list[Edge]]
    inputs: list[tuple[Input, ...]]  # of each node
    feedback: tuple[Feedback, ...]


def edges_of(nodes: Sequence[Node]) -> Edges:
    """The checked edges of a graph, each producer's in the order of their readers."""
    by_name = _by_name(nodes)
    readers: dict[str, list[Edge]] = {name: [] for name in by_name}
    inputs: list[tuple[Input, ...]] = []
    feedback: list[Feedback] = []
    for place, node in enumerate(nodes):
        for edge in node.inputs:
            _check_producer(edge, node, by_name)
            if edge.feedback:
                feedback.append(Feedback(edge.producer, edge.branch, node.op.name))
        inputs.append(tuple(edge for edge in node.inputs if not edge.feedback))
        _check_kind(node, inputs[-1])
        for port, edge in enumerate(inputs[-1]):
            readers[edge.producer].append(Edge(edge.branch, place, port))
    edges = Edges(readers, inputs, tuple(feedback))
    _check_no_ring(nodes, edges)
    return edges


def _by_name(nodes: Sequence[Node]) -> dict[str, Node]:
    if not nodes:
        raise GraphError(
            "a graph without operators has no building blocks", hint="start with graph.source(...)"
        )
    by_name: dict[str, Node] = {}
    for node in nodes:
        if node.op.name in by_name:
            raise GraphError(
                f'two steps are named "{node.op.name}"',
                step=node.op.name,
                where=node.where,
                hint="give one of them another name=",
            )
        by_name[node.op.name] = node
    return by_name


def _check_producer(edge: Input, node: Node, by_name: dict[str, Node]) -> None:
    producer = by_name.get(edge.producer)
    if producer is None:
        near = ", ".join(f'"{name}"' for name in nearest_first(edge.producer, by_name)[:5])
        raise GraphError(
            f'"{node.op.name}" reads "{edge.producer}", which is no step of this graph',
            step=node.op.name,
            where=node.where,
            hint=f"steps are {near}",
        )
    if producer.op.kind is Kind.SNK:
        raise GraphError(
            f'nothing can follow the sink "{edge.producer}"',
            step=node.op.name,
            where=node.where,
            hint=f'attach "{node.op.name}" to the step before "{edge.producer}"',
        )


def _check_kind(node: Node, inputs: tuple[Input, ...]) -> None:
    if inputs and node.op.kind is Kind.SRC:
        raise GraphError(
            f'the source "{node.op.name}" reads "{inputs[0].producer}", and a source reads nothing',
            step=node.op.name,
            where=node.where,
            hint="use map, flat_map or process for a step in the middle",
        )
    if inputs and node.op.distribution is Distribution.NONE:
        raise GraphError(
            f'"{node.op.name}" reads rows, and has no distribution',
            step=node.op.name,
            where=node.where,
            hint='use routing="forward"',
        )


def _check_no_ring(nodes: Sequence[Node], edges: Edges) -> None:
    """Take away, again and again, what waits for nothing; a ring is what stays."""
    waiting = [len(inputs) for inputs in edges.inputs]
    ready = deque(place for place, n in enumerate(waiting) if n == 0)
    while ready:
        for edge in edges.readers[nodes[ready.popleft()].op.name]:
            waiting[edge.consumer] -= 1
            if waiting[edge.consumer] == 0:
                ready.append(edge.consumer)
    stuck = [place for place, n in enumerate(waiting) if n]
    if stuck:
        first = nodes[stuck[0]]
        names = ", ".join(f'"{nodes[place].op.name}"' for place in stuck[:8])
        raise GraphError(
            f'"{first.op.name}" waits for its own rows',
            step=first.op.name,
            where=first.where,
            detail=f"in the ring, or behind it: {names}",
            hint="only a control port may read what comes later: graph.operator(op, control=[pipe])",
        )
