"""Two other ways to count, and one to find the edges: from the operators alone, and from the text.

Neither builds a term. The first walks the operators in the order given (producers first) and adds up
what each rule brings; the second reads the notation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.blocks import Counts, Distribution, Kind, Node


@dataclass
class Doll:
    """What the twin must know of a Matryoshka to say how many containers it is."""

    n: int
    after_merge: bool = False
    shuffles: int = 0
    split: bool = False

    def containers(self) -> int:
        if self.shuffles:
            own = self.shuffles + 1 + self.split
        else:
            own = int(self.split or self.after_merge or self.n > 1)
        return own + (self.after_merge and (self.split or self.shuffles > 0))


def counts_by_formula(nodes: Sequence[Node], splits: Mapping[str, str] | None = None) -> Counts:
    readers = {
        node.op.name: [edge for other in nodes for edge in other.inputs if edge.producer == node.op.name]
        for node in nodes
    }
    dolls: list[Doll] = []
    of: dict[str, Doll] = {}
    seqs = combiners = pipes = sides = all_to_alls = 0
    for node in nodes:
        op, n = node.op, node.op.n
        producers = [edge.producer for edge in node.inputs]
        starts = len(producers) != 1 or len(readers[producers[0]]) > 1
        seqs += n
        if starts:
            pipes += n
            of[op.name] = Doll(n, after_merge=len(producers) > 1)
            dolls.append(of[op.name])
        else:
            doll = of[op.name] = of[producers[0]]
            if op.distribution is Distribution.FORWARD and n == doll.n:
                combiners += n if node.chain and op.kind not in (Kind.A, Kind.WJ, Kind.P) else 0
            else:
                seqs, combiners, pipes = seqs + doll.n, combiners + doll.n, pipes + n
                all_to_alls += 1
                doll.shuffles, doll.n = doll.shuffles + 1, n
        if len(producers) > 1:
            all_to_alls, sides = all_to_alls + 1, sides + 1
            for producer in producers:
                degree = of[producer].n
                seqs, combiners = seqs + degree, combiners + degree
                if len(readers[producer]) > 1:  # a relay
                    seqs, pipes = seqs + degree, pipes + degree
                    dolls.append(Doll(degree))
        n_readers = len(readers[op.name])
        if n_readers > 1:
            seqs, combiners = seqs + n * (1 + n_readers), combiners + 2 * n
            all_to_alls, sides = all_to_alls + 1, sides + 1
            of[op.name].split = True
        elif n_readers == 1 and (op.name in (splits or {}) or readers[op.name][0].branch != "out"):
            seqs, combiners = seqs + n, combiners + n
    return Counts(seqs, combiners, pipes, sides + sum(doll.containers() for doll in dolls), all_to_alls)


def counts_by_text(text: str) -> Counts:
    """Read the notation of a term without replicas; no name may contain a bracket."""
    return Counts(
        text.count("Seq("),
        text.count("Comb(") + text.count("Comb◀("),
        text.count("Pipe("),
        text.count("["),
        text.count("A2A("),
    )
