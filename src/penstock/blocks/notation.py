"""Reads a term: its notation in one line, its tree, and its block counts (Table 3).

All of them walk a stack, so that a chain of 10,000 key-by steps is read like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.blocks.terms import A2A, Comb, Container, FanOut, Pipe, Seq, Term

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
    """Return one line per parallel block and per node, indented by nesting."""
    lines: list[str] = []
    todo: list[tuple[Term, int, str, int]] = [(term, 0, "", 1)]
    while todo:
        block, depth, label, copies = todo.pop()
        if isinstance(block, Container) and len(block.blocks) == 1:
            todo.append((block.blocks[0], depth, label, copies * block.copies))
            continue
        lines.append(_indent(depth) + label + _title(block) + (f" ^{copies}" if copies > 1 else ""))
        todo.extend(reversed([(part, depth + 1, side, 1) for part, side in _children(block)]))
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


def _indent(depth: int) -> str:
    return "  " * depth if depth <= _DEEPEST else "  " * _DEEPEST + f"({depth}) "


def _title(block: Term) -> str:
    if isinstance(block, Container):
        return f"{len(block.blocks)} side by side"
    return type(block).__name__ if isinstance(block, A2A | Pipe) else notation(block)


def _children(block: Term) -> list[tuple[Term, str]]:
    """Return the lines below: nodes are written whole, so nothing stands below them."""
    if isinstance(block, A2A):
        return [(block.left, "from "), (block.right, "to ")]
    return [(part, "") for part in block.parts] if isinstance(block, Container | Pipe) else []


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
    todo: list[tuple[Term, int, bool]] = [(term, 1, not _is_single(term))]
    while todo:
        block, times, counted = todo.pop()
        totals[_COLUMN[type(block)]] += times * counted
        if isinstance(block, A2A):
            todo += [(block.left, times, True), (block.right, times, block.inner is None)]
        else:
            times *= block.copies if isinstance(block, Container) else 1
            todo.extend((part, times, not _is_single(part)) for part in block.parts)
    return Counts(*totals)


def _is_single(block: Term) -> bool:
    return isinstance(block, Container) and block.single
