"""The building blocks of WindFlow's Table 2, as frozen data that cannot be put together wrongly.

Sequential blocks (SBB) are Seq, Comb and FanOut; parallel blocks (PBB) are Pipe, Container and A2A. The
algebra never calls a function; it only says where each one stands. So a function here is its name and its
role, and an operator is WindFlow's triple of distribution, logic and number of replicas (section 4.1).

Invariant: nothing here recurses, because a long chain of key-by steps nests as deep as it is long. So each
block knows its parts, its hash is fixed when it is built, and comparing walks a stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Literal, NamedTuple

from penstock.errors import GraphError
from penstock.frozen import Frozen, dataclass

Composition = Literal["combined", "dedicated", "centralised"]
"""Where a distribution runs (WindFlow 5.3): in the node before it, in a node of its own per replica, or
in one node for all replicas."""


class Kind(StrEnum):
    """The type of an operator: the ten of WindFlow's Table 1, then ours."""

    SRC = "SRC"
    SNK = "SNK"
    M = "M"
    FM = "FM"
    F = "F"
    A = "A"
    KW = "KW"
    PW = "PW"
    PAW = "PAW"
    MRW = "MRW"
    WJ = "WJ"  # window join
    SJ = "SJ"  # join with a table
    P = "P"  # a process, with a driver loop of its own
    ID = "ID"  # a relay: passes rows on


NEVER_CHAINED = frozenset({Kind.SRC, Kind.A, Kind.WJ, Kind.P})
"""Kinds that always get a node of their own: they start a stream, gather rows by key or from two sides,
or drive themselves, and none of that can be a call from the node before."""


class Distribution(StrEnum):
    """How rows reach the replicas of an operator."""

    NONE = "none"
    FORWARD = "forward"
    KEY_BY = "keyby"
    BROADCAST = "broadcast"
    REBALANCE = "rebalance"
    COMPLEX = "complex"


class Splitting(StrEnum):
    """How a split chooses among its branches."""

    FUNCTION = "function"  # the user's
    COPY = "copy"  # every branch gets every row
    TAG = "tag"  # by the output that the operator marked: out, late, errors, a port


class Function(Frozen):
    """A name and a role; for a distribution, the name is that of the operator it leads to.

    >>> str(Function("views", Kind.KW)), str(Function("views", Distribution.KEY_BY))
    ('views', 'D_keyby')
    """

    name: str
    role: Kind | Distribution | Splitting

    def __str__(self) -> str:
        if isinstance(self.role, Distribution):
            return f"D_{self.role}"
        if isinstance(self.role, Splitting):
            return f"S_{self.name}"
        return self.name


class Operator(Frozen):
    """WindFlow's triple: how rows are distributed to it, what it does, and in how many replicas."""

    name: str
    kind: Kind
    n: int = 1
    distribution: Distribution = Distribution.FORWARD

    def __post_init__(self) -> None:
        if self.n < 1:
            raise GraphError(
                f'"{self.name}" has {self.n} replicas', step=self.name, hint="use parallelism=1 or more"
            )

    @property
    def logic(self) -> Function:
        """Return the paper's f_op."""
        return Function(self.name, self.kind)

    @property
    def routing(self) -> Function:
        """Return the paper's f_d."""
        return Function(self.name, self.distribution)


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
        if not isinstance(self.function, Function):
            raise TypeError(f"Seq wraps a Function, not {type(self.function).__name__}")
        _seal(self, "Seq has no parts", SBB, own=self.function)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comb(SBB):
    """Two sequential blocks fused into one node: the second is a call from the first."""

    first: SBB
    second: SBB

    def __post_init__(self) -> None:
        _seal(self, "Comb fuses two sequential blocks", SBB, self.first, self.second)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FanOut(SBB):
    """The fan-out combiner: the first block chooses which of the others each row goes through."""

    first: SBB
    outs: tuple[SBB, ...]

    def __post_init__(self) -> None:
        _seal(self, "FanOut fuses sequential blocks", SBB, self.first, *self.outs)
        if len(self.outs) < 2:
            raise GraphError(f"a fan-out needs more than one way out, and has {len(self.outs)}")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pipe(PBB):
    """Sequential blocks in a row, each a node of its own."""

    steps: tuple[SBB, ...]

    def __post_init__(self) -> None:
        _seal(self, "Pipe joins sequential blocks", SBB, *self.steps)
        if not self.steps:
            raise GraphError("a pipe needs at least one block")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Container(PBB):
    """Parallel blocks side by side, not joined to each other.

    Identical ones are held once, with their number: `Container((pipe,), 3)` is the paper's [Δ]^3.
    """

    blocks: tuple[PBB, ...]
    copies: int = 1

    def __post_init__(self) -> None:
        _seal(self, "Container holds parallel blocks", PBB, *self.blocks, own=self.copies)
        if not self.blocks or self.copies < 1:
            raise GraphError(f"a container needs blocks, and has {len(self.blocks)} x {self.copies}")
        if len(self.blocks) > 1:
            if self.copies > 1:
                raise GraphError("a container of several blocks holds each of them once")
            if all(block == self.blocks[0] for block in self.blocks):
                object.__setattr__(self, "copies", len(self.blocks))
                object.__setattr__(self, "blocks", self.blocks[:1])
                _seal(self, "Container holds parallel blocks", PBB, *self.blocks, own=self.copies)

    @property
    def single(self) -> bool:
        """Return one block, once: written as the block itself."""
        return len(self.blocks) == 1 and self.copies == 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class A2A(PBB):
    """Every block on the left may send to every block on the right."""

    left: Container
    right: Container
    matryoshka: bool = field(init=False)  # fixed here, so that asking costs nothing at any depth

    def __post_init__(self) -> None:
        _seal(self, "A2A joins two containers", Container, self.left, self.right)
        inner = self.right.blocks[0]
        holds_doll = self.right.single and isinstance(inner, A2A) and inner.matryoshka
        nested = is_seed(self.left) and (is_seed(self.right) or holds_doll)
        object.__setattr__(self, "matryoshka", nested)

    @property
    def inner(self) -> A2A | None:
        """Return the next doll of a Matryoshka whose right side is one more A2A; None at the seed."""
        block = self.right.blocks[0]
        return block if self.matryoshka and isinstance(block, A2A) else None


def is_seed(block: Term) -> bool:
    """[Φ]^n: a number of identical pipes."""
    return isinstance(block, Container) and len(block.blocks) == 1 and isinstance(block.blocks[0], Pipe)


def contain(*blocks: PBB) -> Container:
    """Return the blocks as one side of an A2A; a container of one block is that block, as in the paper."""
    if len(blocks) == 1 and isinstance(blocks[0], Container):
        return blocks[0]
    return Container(tuple(bare(block) for block in blocks))


def bare(block: PBB) -> PBB:
    """Return a block without the brackets of a container that holds nothing else."""
    while isinstance(block, Container) and block.single:
        block = block.blocks[0]
    return block


def _seal(term: Term, rule: str, wanted: type, *parts: Term, own: object = None) -> None:
    """Check and fix the parts, and fix the hash, from the parts' own hashes: constant time at any depth."""
    for part in parts:
        if not isinstance(part, wanted):
            raise TypeError(f"{rule}, not {type(part).__name__}")
    object.__setattr__(term, "parts", parts)
    object.__setattr__(term, "_own", own)
    object.__setattr__(term, "_hash", hash((type(term).__name__, own, tuple(part._hash for part in parts))))


def is_matryoshka(term: Term) -> bool:
    """M ::= [Φ]^n | A2A([Φ]^n, M)."""
    block = bare(term) if isinstance(term, PBB) else term
    return isinstance(block, Pipe) or is_seed(block) or (isinstance(block, A2A) and block.matryoshka)


# Reading a term: its notation in one line, its tree, and its block counts (Table 3).

_DEEPEST = 20  # beyond this the depth is a number, or the indents alone would fill the memory


def notation(term: Term) -> str:
    """Return the paper's notation, e.g. `A2A([Pipe(Comb(Seq(src), Seq(D_keyby)))], [Pipe(Seq(win))]^2)`."""
    text: list[str] = []
    todo: list[str | Term] = [term]
    while todo:
        piece = todo.pop()
        if isinstance(piece, str):
            text.append(piece)
        else:
            todo.extend(reversed(list(_notation_of(piece))))
    return "".join(text)


def tree(term: Term) -> str:
    """Return one line per parallel block and per node, indented by nesting; nodes are written whole."""
    lines: list[str] = []
    todo: list[tuple[Term, int, str, int]] = [(term, 0, "", 1)]
    while todo:
        block, depth, label, copies = todo.pop()
        below: list[tuple[Term, str]] = []
        title = type(block).__name__
        if isinstance(block, Container):
            if len(block.blocks) == 1:
                todo.append((block.blocks[0], depth, label, copies * block.copies))
                continue
            title = f"{len(block.blocks)} side by side"
        if isinstance(block, A2A):
            below = [(block.left, "from "), (block.right, "to ")]
        elif isinstance(block, Container | Pipe):
            below = [(part, "") for part in block.parts]
        else:
            title = notation(block)
        indent = "  " * min(depth, _DEEPEST) + (f"({depth}) " if depth > _DEEPEST else "")
        lines.append(indent + label + title + (f" ^{copies}" if copies > 1 else ""))
        todo.extend(reversed([(part, depth + 1, side, 1) for part, side in below]))
    return "\n".join(lines)


def _notation_of(term: Term) -> Iterator[str | Term]:
    """Yield the notation of one block, with the blocks inside left to be written in their turn."""
    match term:
        case Seq(function):
            yield f"Seq({function})"
        case Comb(first, second):
            yield from ("Comb(", first, ", ", second, ")")
        case FanOut(first, outs):
            yield from ("Comb◀(", first, ", {", *_between(", ", outs), "})")
        case Pipe(steps):
            yield from ("Pipe(", *_between(" • ", steps), ")")
        case A2A(left, right):
            nested = term.inner is not None
            yield from ("A2A(", *_bracket(left), ", ", *([right] if nested else _bracket(right)), ")")
        case Container(blocks):
            yield from blocks if term.single else _bracket(term)


def _bracket(side: Container) -> Iterator[str | Term]:
    """Yield a container that counts as one even when it holds a single block."""
    yield from ("[", *_between(", ", side.blocks), "]")
    if side.copies > 1:
        yield f"^{side.copies}"


def _between(mark: str, terms: Sequence[Term]) -> Iterator[str | Term]:
    for place, term in enumerate(terms):
        if place:
            yield mark
        yield term


class Counts(NamedTuple):
    """How many building blocks a term uses, by class: one row of WindFlow's Table 3.

    Replicas count as often as they run. A container of one block is the block itself, except that the two
    sides of an A2A are containers; and inside a Matryoshka the right side is the next doll, not a container.
    """

    seqs: int
    combiners: int
    pipes: int
    containers: int
    all_to_alls: int


_COLUMN: dict[type[Term], int] = {Seq: 0, Comb: 1, FanOut: 1, Pipe: 2, Container: 3, A2A: 4}


def count(term: Term) -> Counts:
    """Return the blocks of a term by class; Comb and FanOut are both combiners.

    >>> from penstock.blocks import Function, Kind
    >>> count(Pipe((Seq(Function("src", Kind.SRC)),)))
    Counts(seqs=1, combiners=0, pipes=1, containers=0, all_to_alls=0)
    """
    totals = [0] * len(Counts._fields)

    def is_single(block: Term) -> bool:
        return isinstance(block, Container) and block.single

    todo: list[tuple[Term, int, bool]] = [(term, 1, not is_single(term))]
    while todo:
        block, times, counted = todo.pop()
        totals[_COLUMN[type(block)]] += times * counted
        if isinstance(block, A2A):
            todo += [(block.left, times, True), (block.right, times, block.inner is None)]
        else:
            times *= block.copies if isinstance(block, Container) else 1
            todo.extend((part, times, not is_single(part)) for part in block.parts)
    return Counts(*totals)
