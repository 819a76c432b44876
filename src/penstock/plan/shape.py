"""A plan's steps as the nodes that the building-block algebra composes.

Splits are not operators there: they fold into what feeds them, and each branch becomes an edge from the
operator before the split. Late and error rows are branches by tag; control edges from below are notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.blocks import Composition, Derivation, Distribution, Kind, Node, Operator, derive
from penstock.blocks import Input as Edge
from penstock.frozen import dataclass
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
    wires = _Wires.of(steps)
    nodes = [wires.node(step) for step in steps if step.name not in wires.splits]
    names: dict[str, str] = {}
    for split in wires.splits.values():  # several on one pipe part it together
        above = split.feeds[0].step
        names[above] = f"{names[above]}+{split.name}" if above in names else split.name
    return derive(nodes, splits=names, composition=composition)


@dataclass(frozen=True, slots=True)
class _Wires:
    """Splits by name, each step's place in the order, and the only output port of steps that have one."""

    splits: Mapping[str, Step]
    rank: Mapping[str, int]
    lone: Mapping[str, str]

    @classmethod
    def of(cls, steps: Sequence[Step]) -> _Wires:
        splits = {step.name: step for step in steps if isinstance(step.op, Split)}
        rank = {step.name: index for index, step in enumerate(steps)}
        lone = {step.name: next(iter(step.outputs)) for step in steps if len(step.outputs) == 1}
        return cls(splits, rank, lone)

    def node(self, step: Step) -> Node:
        operator = Operator(step.name, Kind(step.op.kind), step.degree.least, _DISTRIBUTION[step.routing])
        edges = tuple(
            self._edge(ref, feedback=given.control and self.rank[ref.step] >= self.rank[step.name])
            for given in step.inputs
            for ref in given.feeds
        )
        return Node(operator, edges, chain=step.fuse, where=step.where)

    def _edge(self, ref: Ref, *, feedback: bool) -> Edge:
        split = self.splits.get(ref.step)
        if split is None:
            # An operator with one way out needs no filter by tag, whatever the port is called.
            return Edge(ref.step, OUT if self.lone.get(ref.step) == ref.port else ref.port, feedback)
        above = split.feeds[0]
        branch = f"{split.name}.{ref.port}" if above.port == OUT else f"{above.port}.{split.name}.{ref.port}"
        return Edge(above.step, branch, feedback)
