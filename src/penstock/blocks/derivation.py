"""The input and the result of a derivation: plain data, the same for every engine."""

from __future__ import annotations

from penstock.blocks.terms import PBB, Operator, contain
from penstock.errors import Where
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Input:
    """An edge of the graph, seen from its reader: which output of which operator it reads.

    `branch` is "out", "late", "errors", or the name of a split's branch or of an output port. A feedback
    edge enters a control port; it is no part of the term.
    """

    producer: str
    branch: str = "out"
    feedback: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """An operator in its place in the graph; `chain` asks for fusion with the operator before it."""

    op: Operator
    inputs: tuple[Input, ...] = ()
    chain: bool = False
    where: Where | None = None


@dataclass(frozen=True, slots=True)
class DerivationStep:
    """One step of a derivation: the rule, the operator that it placed, and why or with what."""

    rule: str
    operator: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.rule:<12} {self.operator}" + (f"  ({self.detail})" if self.detail else "")


@dataclass(frozen=True, slots=True)
class Feedback:
    """An edge that runs backwards, into a control port: a note beside the term."""

    producer: str
    branch: str
    consumer: str

    def __str__(self) -> str:
        return f"{self.producer}.{self.branch} feeds back into {self.consumer}"


@dataclass(frozen=True, slots=True)
class Derivation:
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
