"""C-Stream's graphs of busy operators (5.1): chain, data parallel, tree and reverse tree.

A busy operator spends `cost_ns` on a row and emits `selectivity` rows for it. The data-parallel graph has a
sequential merge, which limits it in the paper; in the tree every row goes to one child, in the reverse tree
every operator reads two others. Sources and sinks cost little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

US = 1_000


@dataclass(frozen=True, slots=True)
class Busy:
    """A busy operator.

    targets  names of the operators that it writes to; every row goes to one of them
    most     the maximal number of replicas
    """

    name: str
    cost_ns: int
    targets: tuple[str, ...] = ()
    selectivity: float = 1.0
    most: int = 1


@dataclass(frozen=True, slots=True)
class Topology:
    """A graph of busy operators; those without an input are the sources."""

    name: str
    operators: tuple[Busy, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the names of the operators without an input."""
        written = {target for operator in self.operators for target in operator.targets}
        return tuple(operator.name for operator in self.operators if operator.name not in written)


def build_chain(n: int = 12, cost_us: float = 100, selectivity: float = 1.0, most: int = 64) -> Topology:
    """Build a source, n busy operators one after the other, and a sink."""
    cost = round(cost_us * US)
    names = [f"busy-{i}" for i in range(n)]
    busy = [
        Busy(name, cost, (after,), selectivity, most)
        for name, after in zip(names, [*names[1:], "sink"], strict=True)
    ]
    return Topology("chain", (Busy("source", US, (names[0],)), *busy, Busy("sink", US)))


def build_data_parallel(n: int = 12, cost_us: float = 100, merge_us: float = 10, most: int = 64) -> Topology:
    """Build a split, n busy operators side by side, and a merge that cannot be replicated."""
    names = tuple(f"busy-{i}" for i in range(n))
    busy = [Busy(name, round(cost_us * US), ("merge",), most=most) for name in names]
    merge = Busy("merge", round(merge_us * US), ("sink",))
    return Topology("data parallel", (Busy("split", US, names), *busy, merge, Busy("sink", US)))


def build_tree(depth: int = 6, branching: int = 2, cost_us: float = 100, most: int = 64) -> Topology:
    """Build a source and a tree of busy operators, each of which sends a row to one of its children."""
    cost = round(cost_us * US)
    busy = []
    for level in range(depth):
        for i in range(branching**level):
            children = tuple(f"busy-{level + 1}-{i * branching + j}" for j in range(branching))
            busy.append(
                Busy(f"busy-{level}-{i}", cost, children if level + 1 < depth else ("sink",), most=most)
            )
    return Topology("tree", (Busy("source", US, ("busy-0-0",)), *busy, Busy("sink", US)))


def build_reverse_tree(depth: int = 6, branching: int = 2, cost_us: float = 100, most: int = 64) -> Topology:
    """Build a source that feeds the leaves of a tree of busy operators, which write to their parents."""
    cost = round(cost_us * US)
    busy = []
    for level in reversed(range(depth)):
        for i in range(branching**level):
            parent = f"busy-{level - 1}-{i // branching}" if level else "sink"
            busy.append(Busy(f"busy-{level}-{i}", cost, (parent,), most=most))
    leaves = tuple(f"busy-{depth - 1}-{i}" for i in range(branching ** (depth - 1)))
    return Topology("reverse tree", (Busy("source", US, leaves), *busy, Busy("sink", US)))


TOPOLOGIES: dict[str, Callable[[], Topology]] = {
    "chain": build_chain,
    "data parallel": build_data_parallel,
    "tree": build_tree,
    "reverse tree": build_reverse_tree,
}
