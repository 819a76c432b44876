"""The building blocks of WindFlow's Table 2, as frozen data that cannot be put together wrongly.

Sequential blocks (SBB) are Seq, Comb and FanOut; parallel blocks (PBB) are Pipe, Container and A2A.
Invariant: nothing here recurses, because a long chain of key-by steps nests as deep as it is long. So
each block knows its parts, its hash is fixed when it is made, and comparing walks a stack.
"""

from __future__ import annotations

from dataclasses import field

from penstock.blocks.functions import Function
from penstock.errors import GraphError
from penstock.frozen import dataclass


class Term:
    """Any building block. `parts` are the blocks directly inside; two blocks built alike are equal."""

    __slots__ = ("_hash", "_own", "parts")
    parts: tuple[Term, ...]
    _own: object  # what tells two blocks of one class apart besides their parts
    _hash: int

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Term):
            return NotImplemented
        pairs: list[tuple[Term, Term]] = [(self, other)]
        while pairs:
            one, two = pairs.pop()
            if one is two:
                continue
            if type(one) is not type(two) or one._hash != two._hash or one._own != two._own:
                return False
            if len(one.parts) != len(two.parts):
                return False
            pairs.extend(zip(one.parts, two.parts, strict=True))
        return True

    def __repr__(self) -> str:
        from penstock.blocks.printing import notation

        return notation(self)


class SBB(Term):
    """A sequential building block: one row after the other."""

    __slots__ = ()


class PBB(Term):
    """A parallel building block: a structured graph of others."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Seq(SBB):
    """A node that runs one function on each row."""

    function: Function

    def __post_init__(self) -> None:
        _require("Seq wraps a Function", Function, self.function)
        _seal(self, (), self.function)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comb(SBB):
    """Two sequential blocks fused into one node: the second is a call from the first."""

    first: SBB
    second: SBB

    def __post_init__(self) -> None:
        _require("Comb fuses two sequential blocks", SBB, self.first, self.second)
        _seal(self, (self.first, self.second))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FanOut(SBB):
    """The fan-out combiner: the first block chooses which of the others each row goes through."""

    first: SBB
    outs: tuple[SBB, ...]

    def __post_init__(self) -> None:
        _require("FanOut fuses sequential blocks", SBB, self.first, *self.outs)
        if len(self.outs) < 2:
            raise GraphError(f"a fan-out needs more than one way out, and has {len(self.outs)}")
        _seal(self, (self.first, *self.outs))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pipe(PBB):
    """Sequential blocks in a row, each a node of its own."""

    steps: tuple[SBB, ...]

    def __post_init__(self) -> None:
        _require("Pipe joins sequential blocks", SBB, *self.steps)
        if not self.steps:
            raise GraphError("a pipe needs at least one block")
        _seal(self, self.steps)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Container(PBB):
    """Parallel blocks side by side, not joined to each other.

    Identical ones are held once, with their number: `Container((pipe,), 3)` is the paper's [Δ]^3.
    """

    blocks: tuple[PBB, ...]
    copies: int = 1

    def __post_init__(self) -> None:
        _require("Container holds parallel blocks", PBB, *self.blocks)
        if not self.blocks or self.copies < 1:
            raise GraphError(f"a container needs blocks, and has {len(self.blocks)} x {self.copies}")
        if len(self.blocks) > 1:
            if self.copies > 1:
                raise GraphError("a container of several blocks holds each of them once")
            if all(block == self.blocks[0] for block in self.blocks):
                object.__setattr__(self, "copies", len(self.blocks))
                object.__setattr__(self, "blocks", self.blocks[:1])
        _seal(self, self.blocks, self.copies)

    @property
    def single(self) -> bool:
        """One block, once: written as the block itself."""
        return len(self.blocks) == 1 and self.copies == 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class A2A(PBB):
    """Every block on the left may send to every block on the right."""

    left: Container
    right: Container
    matryoshka: bool = field(init=False)  # fixed here, so that asking costs nothing at any depth

    def __post_init__(self) -> None:
        _require("A2A joins two containers", Container, self.left, self.right)
        nested = is_seed(self.left) and (is_seed(self.right) or _holds_matryoshka(self.right))
        object.__setattr__(self, "matryoshka", nested)
        _seal(self, (self.left, self.right))

    @property
    def inner(self) -> A2A | None:
        """The next doll, when this is a Matryoshka and its right side is one more A2A, not the seed."""
        block = self.right.blocks[0]
        return block if self.matryoshka and isinstance(block, A2A) else None


def is_seed(block: Term) -> bool:
    """[Φ]^n: a number of identical pipes."""
    return isinstance(block, Container) and len(block.blocks) == 1 and isinstance(block.blocks[0], Pipe)


def contain(*blocks: PBB) -> Container:
    """The blocks as one side of an A2A; a container of one block is that block, as in the paper."""
    if len(blocks) == 1 and isinstance(blocks[0], Container):
        return blocks[0]
    return Container(tuple(bare(block) for block in blocks))


def bare(block: PBB) -> PBB:
    """A block without the brackets of a container that holds nothing else."""
    while isinstance(block, Container) and block.single:
        block = block.blocks[0]
    return block


def _holds_matryoshka(side: Container) -> bool:
    block = side.blocks[0]
    return side.single and isinstance(block, A2A) and block.matryoshka


def _require(rule: str, wanted: type, *given: object) -> None:
    for part in given:
        if not isinstance(part, wanted):
            raise TypeError(f"{rule}, not {type(part).__name__}")


def _seal(term: Term, parts: tuple[Term, ...], own: object = None) -> None:
    """Fix parts and hash, the latter from the parts' own hashes: constant time at any depth."""
    object.__setattr__(term, "parts", parts)
    object.__setattr__(term, "_own", own)
    object.__setattr__(term, "_hash", hash((type(term).__name__, own, tuple(part._hash for part in parts))))
