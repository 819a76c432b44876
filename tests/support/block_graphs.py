"""Random graphs of operators, producers first: sources, steps, splits by re-use, merges and sinks."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.blocks import Distribution, Input, Kind, Node, Operator

ROUTINGS = [
    Distribution.FORWARD,
    Distribution.FORWARD,
    Distribution.KEY_BY,
    Distribution.BROADCAST,
    Distribution.REBALANCE,
]
STEPS = [Kind.M, Kind.F, Kind.FM, Kind.A, Kind.KW, Kind.P]


@st.composite
def graphs(draw: st.DrawFn, max_degree: int = 3) -> list[Node]:
    """Some of these have merges that no rule covers; most do not."""
    degrees = st.integers(1, max_degree)
    nodes = [
        Node(Operator(f"source{i}", Kind.SRC, draw(degrees), Distribution.NONE))
        for i in range(draw(st.integers(1, 3)))
    ]
    unread = [node.op.name for node in nodes]
    for i in range(draw(st.integers(0, 12))):
        inputs = draw(_inputs([node for node in nodes if node.op.kind is not Kind.SNK], unread))
        kind = draw(st.sampled_from([*STEPS, Kind.SNK] if len(unread) > 1 else STEPS))
        kind = Kind.WJ if len(inputs) > 1 and draw(st.booleans()) else kind
        routing = Distribution.COMPLEX if kind is Kind.WJ else draw(st.sampled_from(ROUTINGS))
        op = Operator(f"{kind}{i}", kind, draw(degrees), routing)
        nodes.append(Node(op, inputs, draw(st.booleans())))
        read = {edge.producer for edge in inputs}
        unread = [name for name in unread if name not in read] + ([op.name] if kind is not Kind.SNK else [])
        if not unread:
            break
    return nodes


@st.composite
def _inputs(draw: st.DrawFn, producers: list[Node], unread: list[str]) -> tuple[Input, ...]:
    """Mostly what nobody reads yet; now and then what somebody does, which makes a split."""
    names = [node.op.name for node in producers]
    one = st.one_of(st.sampled_from(unread), st.sampled_from(unread), st.sampled_from(names))
    chosen = draw(st.lists(one, min_size=1, max_size=draw(st.sampled_from([1, 1, 1, 2, 3]))))
    branches = st.sampled_from(["out", "out", "out", "late"])
    return tuple(Input(name, draw(branches)) for name in chosen)


def split_functions(nodes: list[Node]) -> st.SearchStrategy[dict[str, str]]:
    """A splitting function for some of the operators."""
    names = [node.op.name for node in nodes if node.op.kind is not Kind.SNK]
    return st.dictionaries(st.sampled_from(names), st.just("by"), max_size=2)


@st.composite
def nested_splits(draw: st.DrawFn) -> list[Node]:
    """Splits in splits, where each branch ends in a sink or merges with all that go on beside it."""
    nodes = [Node(Operator("source", Kind.SRC, 1, Distribution.NONE))]
    last = _grow_nested(draw, nodes, "source", depth=3)
    if last is not None:
        nodes.append(Node(Operator("end", Kind.SNK), (Input(last),)))
    return nodes


def _grow_nested(draw: st.DrawFn, nodes: list[Node], last: str, depth: int) -> str | None:
    """Add a split and what follows; the name of what goes on, or None if every branch has ended."""
    if not depth or not draw(st.integers(0, 3)):
        return last
    going_on: list[str] = []
    for _ in range(draw(st.integers(2, 3))):
        name = f"step{len(nodes)}"
        kind = draw(st.sampled_from([Kind.M, Kind.M, Kind.SNK]))
        nodes.append(Node(Operator(name, kind), (Input(last),)))
        end = _grow_nested(draw, nodes, name, depth - 1) if kind is Kind.M else None
        going_on += [end] if end is not None else []
    if not going_on:
        return None
    nodes.append(Node(Operator(f"step{len(nodes)}", Kind.M), tuple(Input(name) for name in going_on)))
    return nodes[-1].op.name
