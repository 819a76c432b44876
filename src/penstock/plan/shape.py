"""A plan's steps as the nodes that the building-block algebra composes.

Splits are not operators there: they fold into what feeds them, and each branch becomes an edge from the
operator before the split. Late and error rows are branches by tag; control edges from below are notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.blocks import Composition, Derivation, Distribution, Kind, Node, Operator, derive
from penstock.blocks import Input as Edge
from penstock.operators.op import OUT, Routing
from penstock.operators.split import Split
from penstock.plan.step import Ref, Step

_DISTRIBUTION = {
    None: Distribution.NONE,
    Routing.FORWARD: Distribution.FORWARD,
    Routing.KEY_BY: Distribution.KEY_BY,
    Routing.BROADCAST: Distribution.BROADCAST,
    Routing.REBALANCE: Distribution.REBALANCE,
    Routing.COMPLEX: Distribution.COMPLEX,
}


def derivation(steps: Sequence[Step], *, composition: Composition = "combined") -> Derivation:
    """The term of a graph, and which rule made which part of it."""
    splits = {step.name: step for step in steps if isinstance(step.op, Split)}
    rank = {step.name: index for index, step in enumerate(steps)}
    nodes = [_node(step, splits, rank) for step in steps if step.name not in splits]
    names = {split.feeds[0].step: split.name for split in splits.values()}
    return derive(nodes, splits=names, composition=composition)


def _node(step: Step, splits: dict[str, Step], rank: dict[str, int]) -> Node:
    operator = Operator(step.name, Kind(step.op.kind), step.degree.least, _DISTRIBUTION[step.routing])
    edges = tuple(_edges(step, splits, rank))
    return Node(operator, edges, chain=step.fuse, where=step.where)


def _edges(step: Step, splits: dict[str, Step], rank: dict[str, int]) -> Iterable[Edge]:
    for given in step.inputs:
        for ref in given.feeds:
            back = given.control and rank[ref.step] >= rank[step.name]
            yield _edge(ref, splits, feedback=back)


def _edge(ref: Ref, splits: dict[str, Step], *, feedback: bool) -> Edge:
    split = splits.get(ref.step)
    if split is None:
        return Edge(ref.step, ref.port, feedback)
    above = split.feeds[0]
    branch = f"{split.name}.{ref.port}" if above.port == OUT else f"{above.port}.{split.name}.{ref.port}"
    return Edge(above.step, branch, feedback)
