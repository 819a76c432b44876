"""Derive a graph's building blocks: check its edges, then place one operator after the other.

Operators are placed in the order in which they were written, except that merges wait until nothing else can
be done. So every branch that can end in a sink has ended by then, and a merge is refused only if an end that
is still to be read, and that would have to take part, does not. Beyond the paper, which merges only where no
branch is closed: a branch that ended in a Sink, or that nobody reads, may stay inside what is merged. It
sends nothing, so it is not given the distribution; the derivation names it.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Mapping, Sequence

from penstock.blocks import operations
from penstock.blocks.operations import Growth, Subterm, combine_with_last, create, out_card
from penstock.blocks.terms import (
    PBB,
    Composition,
    Distribution,
    Function,
    Kind,
    Operator,
    Seq,
    Splitting,
    contain,
)
from penstock.errors import GraphError, Where, nearest_first
from penstock.frozen import Frozen


class Input(Frozen):
    """An edge of the graph, seen from its reader: which output of which operator it reads.

    `branch` is "out", "late", "errors", or the name of a split's branch or of an output port. A feedback
    edge enters a control port; it is no part of the term.
    """

    producer: str
    branch: str = "out"
    feedback: bool = False


class Node(Frozen):
    """An operator in its place in the graph; `chain` asks for fusion with the operator before it."""

    op: Operator
    inputs: tuple[Input, ...] = ()
    chain: bool = False
    where: Where | None = None


class DerivationStep(Frozen):
    """One step of a derivation: the rule, the operator that it placed, and why or with what."""

    rule: str
    operator: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.rule:<12} {self.operator}" + (f"  ({self.detail})" if self.detail else "")


class Feedback(Frozen):
    """An edge that runs backwards, into a control port: a note beside the term."""

    producer: str
    branch: str
    consumer: str

    def __str__(self) -> str:
        return f"{self.producer}.{self.branch} feeds back into {self.consumer}"


class Derivation(Frozen):
    """The building blocks of a graph, one term per independent MultiPipe, and the rules applied."""

    terms: tuple[PBB, ...]
    steps: tuple[DerivationStep, ...]
    feedback: tuple[Feedback, ...] = ()

    @property
    def term(self) -> PBB:
        """Return the whole graph: its one MultiPipe, or a container of them."""
        return self.terms[0] if len(self.terms) == 1 else contain(*self.terms)

    def __str__(self) -> str:
        width = len(str(len(self.steps)))
        lines = [f"{place:>{width}}. {step}" for place, step in enumerate(self.steps, 1)]
        return "\n".join([*lines, *(f"note: {edge}" for edge in self.feedback)])


class Edge(Frozen):
    """One reader of an output: the node, by its place in the graph, and which of its inputs it is."""

    branch: str
    consumer: int
    port: int


def _check_edges(nodes: Sequence[Node]) -> tuple[dict[str, list[Edge]], list[tuple[Input, ...]]]:
    """Return who reads whom, in the order of readers, and the inputs of each node, leaving feedback aside."""
    if not nodes:
        raise GraphError(
            "a graph without operators has no building blocks", hint="start with graph.source(...)"
        )
    by_name: dict[str, Node] = {}
    for node in nodes:
        if node.op.name in by_name:
            raise _refuse(node, f'two steps are named "{node.op.name}"', "give one of them another name=")
        by_name[node.op.name] = node
    readers: dict[str, list[Edge]] = {name: [] for name in by_name}
    inputs: list[tuple[Input, ...]] = []
    for place, node in enumerate(nodes):
        for edge in node.inputs:
            producer = by_name.get(edge.producer)
            if producer is None:
                near = ", ".join(f'"{name}"' for name in nearest_first(edge.producer, by_name)[:5])
                fact = f'"{node.op.name}" reads "{edge.producer}", which is no step of this graph'
                raise _refuse(node, fact, f"steps are {near}")
            if producer.op.kind is Kind.SNK:
                hint = f'attach "{node.op.name}" to the step before "{edge.producer}"'
                raise _refuse(node, f'nothing can follow the sink "{edge.producer}"', hint)
        inputs.append(tuple(edge for edge in node.inputs if not edge.feedback))
        if inputs[-1] and node.op.kind is Kind.SRC:
            reads = f'reads "{inputs[-1][0].producer}", and a source reads nothing'
            hint = "use map, flat_map or process for a step in the middle"
            raise _refuse(node, f'the source "{node.op.name}" {reads}', hint)
        if inputs[-1] and node.op.distribution is Distribution.NONE:
            fact = f'"{node.op.name}" reads rows, and has no distribution'
            raise _refuse(node, fact, 'use routing="forward"')
        for port, edge in enumerate(inputs[-1]):
            readers[edge.producer].append(Edge(edge.branch, place, port))
    _check_no_ring(nodes, readers, inputs)
    return readers, inputs


def _refuse(node: Node, fact: str, hint: str, detail: str | None = None) -> GraphError:
    return GraphError(fact, step=node.op.name, where=node.where, detail=detail, hint=hint)


def _check_no_ring(
    nodes: Sequence[Node], readers: dict[str, list[Edge]], inputs: list[tuple[Input, ...]]
) -> None:
    """Take away, again and again, what waits for nothing; a ring is what stays."""
    waiting = [len(edges) for edges in inputs]
    ready = deque(place for place, n in enumerate(waiting) if n == 0)
    while ready:
        for edge in readers[nodes[ready.popleft()].op.name]:
            waiting[edge.consumer] -= 1
            if waiting[edge.consumer] == 0:
                ready.append(edge.consumer)
    stuck = [place for place, n in enumerate(waiting) if n]
    if stuck:
        first = nodes[stuck[0]]
        names = ", ".join(f'"{nodes[place].op.name}"' for place in stuck[:8])
        raise _refuse(
            first,
            f'"{first.op.name}" waits for its own rows',
            "only a control port may read what comes later: graph.operator(op, control=[pipe])",
            f"in the ring, or behind it: {names}",
        )


def derive(
    nodes: Sequence[Node],
    *,
    splits: Mapping[str, str] | None = None,
    composition: Composition = "combined",
) -> Derivation:
    """Return the term of a graph by WindFlow's rules, with every step taken.

    `splits` gives the name of a splitting function to the operators that have one; any other operator
    with several readers copies its rows to each, or sends them by tag where `.late`, `.errors` or a port
    is read. Time grows with the number of operators, however deep the term nests.
    """
    return _Builder(nodes, splits or {}, composition).run()


class _Builder:
    """One derivation under way.

    `_ready` holds operators to place and the subterm they grow on (None: a new one), `_arrived` the ends
    that wait at each merge, `_merges` the merges all of whose ends have arrived.
    """

    def __init__(self, nodes: Sequence[Node], splits: Mapping[str, str], composition: Composition) -> None:
        self._nodes, self._splits, self._composition = nodes, splits, composition
        self._readers, self._inputs = _check_edges(nodes)
        nothing = create(Operator("", Kind.ID))  # the root has no blocks, only branches
        self._root = Subterm(nothing, "")
        self._steps: list[DerivationStep] = []
        self._ready: list[tuple[int, Subterm | None]] = []
        self._arrived: dict[int, dict[int, Subterm]] = {}
        self._merges: deque[int] = deque()

    def run(self) -> Derivation:
        self._ready = [(place, None) for place, inputs in enumerate(self._inputs) if not inputs]
        while self._ready or self._merges:
            if self._ready:
                place, subterm = heapq.heappop(self._ready)
                self._grow(place, subterm)
            else:
                self._merge_first()
        terms = tuple(subterm.term() for _, subterm in sorted(self._root.branches.items()))
        feedback = (
            Feedback(edge.producer, edge.branch, node.op.name)
            for node in self._nodes
            for edge in node.inputs
            if edge.feedback
        )
        return Derivation(terms, tuple(self._steps), tuple(feedback))

    def _grow(self, place: int, subterm: Subterm | None) -> None:
        """create, add or chain; what a split put at the start of a branch is already there."""
        node = self._nodes[place]
        if subterm is None:
            subterm = self._root.put(Subterm(create(node.op), node.op.name), place)
            self._record("create", node.op, _degree(node.op.n))
        elif subterm.tip != node.op.name:
            m = subterm.m
            rule = operations.growth(m, node.op, chain=node.chain)
            # What decided the rule, and that fusion was asked for where it was not given.
            asked = "chain asked, " if node.chain and rule is not Growth.CHAIN else ""
            never = f", {node.op.kind} is never fused" if asked and rule is Growth.DIRECT else ""
            why = f"{asked}{node.op.distribution} from {out_card(m)} to {node.op.n}{never}"
            self._record(rule, node.op, why)
            extend = operations.chain if node.chain else operations.add
            subterm.m, subterm.tip = extend(m, node.op, composition=self._composition), node.op.name
        self._connect_readers(node, subterm)

    def _connect_readers(self, node: Node, subterm: Subterm) -> None:
        """Send an operator's rows on: to nobody, to one reader, or through a split to several."""
        readers = self._readers[node.op.name]
        if not readers:
            subterm.close()
        elif len(readers) > 1:
            self._split(node, subterm, readers)
        else:
            if node.op.name in self._splits or readers[0].branch != "out":
                function = self._splitting_function(node, readers)
                subterm.m = combine_with_last(subterm.m, Seq(function))
                self._record("split", node.op, f"one branch is read, so {function} filters")
            self._arrive(readers[0], subterm)

    def _arrive(self, edge: Edge, subterm: Subterm) -> None:
        """Connect an end to its reader, which is placed once all its inputs are there."""
        n_inputs = len(self._inputs[edge.consumer])
        if n_inputs == 1:
            heapq.heappush(self._ready, (edge.consumer, subterm))
            return
        ends = self._arrived.setdefault(edge.consumer, {})
        ends[edge.port] = subterm
        if len(ends) == n_inputs:
            self._merges.append(edge.consumer)

    def _split(self, node: Node, subterm: Subterm, readers: list[Edge]) -> None:
        """split: one branch per reader, with a relay where the reader merges several inputs."""
        function = self._splitting_function(node, readers)
        twins = Counter((edge.branch, edge.consumer) for edge in readers)
        relays = [len(self._inputs[edge.consumer]) > 1 for edge in readers]
        ops = []
        for edge, relayed in zip(readers, relays, strict=True):
            op = self._nodes[edge.consumer].op
            if relayed:
                name = f"{node.op.name}.{edge.branch}>{op.name}"
                numbered = f"{name}#{edge.port}" if twins[edge.branch, edge.consumer] > 1 else name
                op = Operator(numbered, Kind.ID, node.op.n)
            ops.append(op)
        branching = operations.split(subterm.m, function, ops, composition=self._composition)
        self._record("split", node.op, f"{function} to {_join_names([op.name for op in ops])}")
        subterm.m = branching.stem
        for slot, (edge, op, branch) in enumerate(zip(readers, ops, branching.branches, strict=True)):
            self._record("create", op, "a relay into a merge" if relays[slot] else _degree(op.n))
            self._arrive(edge, subterm.put(Subterm(branch, op.name), slot))

    def _splitting_function(self, node: Node, readers: list[Edge]) -> Function:
        """Return the paper's f_s: the user's function, or a copy to each reader, or by tag."""
        if node.op.name in self._splits:
            return Function(self._splits[node.op.name], Splitting.FUNCTION)
        if all(edge.branch == "out" for edge in readers):
            return Function("copy", Splitting.COPY)
        return Function("tag", Splitting.TAG)

    def _merge_first(self) -> None:
        """Apply the first merge that a rule covers; what does not fit yet goes to the end of the line."""
        for _ in range(len(self._merges)):
            place = self._merges.popleft()
            ends = [end for _, end in sorted(self._arrived[place].items())]
            siblings = operations.mergeable(ends)
            if siblings is not None:
                self._merge(place, *siblings)
                return
            self._merges.append(place)
        place = min(self._merges)
        node, ends = self._nodes[place], [end for _, end in sorted(self._arrived[place].items())]
        raise operations.refuse_merge(ends, node.op.name, node.where)

    def _merge(self, place: int, parent: Subterm, chosen: list[Subterm]) -> None:
        """merge-ind or merge, in the place of what it merges."""
        node = self._nodes[place]
        ends = [end for branch in chosen for end in branch.ends()]
        silent, reading = [end.tip for end in ends if not end.open], [end for end in ends if end.open]
        matryoshkas, merged = operations.merge(
            [end.m for end in reading], node.op, composition=self._composition
        )
        for end, matryoshka in zip(reading, matryoshkas, strict=True):
            end.m = matryoshka
        name = "merge-ind" if parent is self._root else "merge"
        tips = _join_names([end.tip for _, end in sorted(self._arrived[place].items())])
        if silent:
            name, tips = f"{name}, leaving closed branches", f"{tips}; left: {_join_names(silent)}"
        self._record(name, node.op, tips)
        subterm = Subterm(merged, node.op.name, tuple(branch.term() for branch in chosen))
        operations.replace_branches(parent, chosen, subterm)
        self._connect_readers(node, subterm)

    def _record(self, rule: str, op: Operator, detail: str) -> None:
        self._steps.append(DerivationStep(str(rule), op.name, detail))


def _degree(n: int) -> str:
    return f"{n} replicas" if n > 1 else ""


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
