"""A plan's steps as building blocks: the nodes that the algebra composes, and relays where it needs them.

Splits are not operators in the algebra: they fold into the step that feeds them, and each branch becomes an
edge from that step. Late and error rows are branches by tag; control edges from below are notes.

The algebra merges pipes at the step that reads them. Where several steps read the same merged pipe there is
no such step, and no rule covers it; a relay, which passes rows on unchanged, gives the pipes one place to
meet. Joins that share pipes get one in the term. Loaded only where streams merge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from penstock.blocks import Composition, Derivation, Distribution, Kind, Node, Operator, derive
from penstock.blocks import Input as Edge
from penstock.operators.op import IN, OUT, Routing
from penstock.operators.rows import Relay, Split
from penstock.plan.plan import Input, Ref, Step


def derive_blocks(steps: Sequence[Step], *, composition: Composition = "combined") -> Derivation:
    """Derive the term of a graph; the derivation says which rule made which part of it."""
    splits = {step.name: step for step in steps if isinstance(step.op, Split)}
    rank = {step.name: index for index, step in enumerate(steps)}
    only_port = {step.name: next(iter(step.outputs)) for step in steps if len(step.outputs) == 1}

    def edge(ref: Ref, *, feedback: bool) -> Edge:
        if ref.step not in splits:
            # Why: an operator with one output needs no filter by tag, whatever the port is called.
            return Edge(ref.step, OUT if only_port.get(ref.step) == ref.port else ref.port, feedback)
        above, branch = splits[ref.step].feeds[0], f"{ref.step}.{ref.port}"
        return Edge(above.step, branch if above.port == OUT else f"{above.port}.{branch}", feedback)

    nodes = []
    for step in steps:
        if step.name not in splits:
            distribution = Distribution[step.routing.name] if step.routing else Distribution.NONE
            edges = tuple(
                edge(ref, feedback=port.control and rank[ref.step] >= rank[step.name])
                for port in step.inputs
                for ref in port.feeds
            )
            operator = Operator(step.name, Kind(step.op.kind), step.degree.least, distribution)
            nodes.append(Node(operator, edges, chain=step.fuse, where=step.where))
    nodes = _relay_joins(nodes)
    names: dict[str, str] = {}
    for split in splits.values():  # several on one pipe part it together
        above = split.feeds[0].step
        names[above] = f"{names[above]}+{split.name}" if above in names else split.name
    return derive(nodes, splits=names, composition=composition)


def _relay_joins(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes of a term, with a relay where several joins read some of the same pipes.

    Each of them would merge a branch of one pipe with a branch of another, which no rule covers: a whole pipe
    merges with another. So the pipes merge once, in a relay, and part again. It is in the term alone: rows go
    to their readers at once, each to the port that it is read by.
    """
    ends = {
        node.op.name: frozenset((edge.producer, edge.branch) for edge in node.inputs if not edge.feedback)
        for node in nodes
    }
    groups: list[tuple[set[str], set[tuple[str, str]]]] = []  # joins, and what they read
    for name in (node.op.name for node in nodes if node.op.kind is Kind.WJ):
        read = ends[name]
        if len({producer for producer, _ in read}) > 1:
            near = [group for group in groups if group[1] & read]
            groups = [group for group in groups if group not in near]
            joined = {name}.union(*(members for members, _ in near))
            groups.append((joined, set(read).union(*(pipes for _, pipes in near))))
    names = {node.op.name: node.op.n for node in nodes}
    relay_of: dict[str, Node] = {}
    for members, pipes in groups:
        if len(members) > 1 and not _reads_itself(members, pipes, ends):
            edges = tuple(
                sorted((Edge(*pipe) for pipe in pipes), key=lambda edge: list(names).index(edge.producer))
            )
            operator = Operator(_free_name(names), Kind.ID, names[edges[0].producer], Distribution.FORWARD)
            names[operator.name] = operator.n
            relay_of |= dict.fromkeys(members, Node(operator, edges))
    relayed: dict[str, Node] = {}
    for node in nodes:
        feedback = tuple(edge for edge in node.inputs if edge.feedback)
        if (relay := relay_of.get(node.op.name)) is not None:
            relayed.setdefault(relay.op.name, replace(relay, where=node.where))
            relayed[node.op.name] = replace(node, inputs=(Edge(relay.op.name), *feedback))
        else:
            relayed[node.op.name] = node
    return list(relayed.values())


def _reads_itself(
    members: set[str], pipes: set[tuple[str, str]], ends: dict[str, frozenset[tuple[str, str]]]
) -> bool:
    """Return whether something that operators read comes from one of them."""
    todo, visited = [producer for producer, _ in pipes], set[str]()
    while todo:
        name = todo.pop()
        if name in members:
            return True
        if name not in visited:
            visited.add(name)
            todo += [producer for producer, _ in ends.get(name, ())]
    return False


def insert_relays(steps: Sequence[Step]) -> tuple[Step, ...] | None:
    """Return the steps with a relay before those that read the same merged pipe; None if no two do."""
    merged = [port.feeds for step in steps for port in step.inputs if _is_merged(port)]
    shared = {feeds for feeds, n in Counter(merged).items() if n > 1}
    if not shared:
        return None
    by_name = {step.name: step for step in steps}
    relays: dict[tuple[Ref, ...], Step] = {}
    relayed: list[Step] = []
    for step in steps:
        inputs = []
        for port in step.inputs:
            if _is_merged(port) and port.feeds in shared:
                if port.feeds not in relays:
                    relay = relays[port.feeds] = _build_relay(step, port, by_name)
                    by_name[relay.name] = relay
                    relayed.append(relay)
                inputs.append(replace(port, feeds=(Ref(relays[port.feeds].name),)))
            else:
                inputs.append(port)
        relayed.append(replace(step, inputs=tuple(inputs)))
    return tuple(relayed)


def _is_merged(port: Input) -> bool:
    return len(port.feeds) > 1 and not port.control


def _free_name(names: Collection[str]) -> str:
    """Return a name for a relay that no step has."""
    name, number = Relay.verb, 1
    while name in names:
        number += 1
        name = f"{Relay.verb}-{number}"
    return name


def _build_relay(step: Step, port: Input, by_name: dict[str, Step]) -> Step:
    """Return a relay with the degree of the first pipe; keys are the readers' own."""
    name = _free_name(by_name)
    stream = replace(port.stream, key=())
    degree = by_name[port.feeds[0].step].degree
    return Step(
        name,
        Relay(),
        (Input(IN, port.feeds, stream),),
        {OUT: stream},
        degree,
        Routing.FORWARD,
        fuse=False,
        where=step.where,
    )
