"""The functions of WindFlow's section 3.1 (Figure 5) and of 4.2.2: what happens at the right end.

Each works on any parallel block, down the right-hand sides, without recursion; the first two also take
an open Matryoshka, where the right end is at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import overload

from penstock.blocks.functions import Function, Kind
from penstock.blocks.grammar import is_matryoshka
from penstock.blocks.matryoshka import Before, Matryoshka, operator_at_end
from penstock.blocks.terms import A2A, PBB, SBB, Comb, Container, Pipe, bare


def _every(_: Pipe) -> bool:
    return True


@overload
def combine_with_last(block: Matryoshka, after: SBB) -> Matryoshka: ...
@overload
def combine_with_last(block: PBB, after: SBB, only: Callable[[Pipe], bool] = _every) -> PBB: ...
def combine_with_last(
    block: Matryoshka | PBB, after: SBB, only: Callable[[Pipe], bool] = _every
) -> Matryoshka | PBB:
    """▷: fuse a copy of `after` to every rightmost sequential block (of the pipes that `only` picks)."""
    if isinstance(block, Matryoshka):
        return replace(block, last=Comb(block.last, after))
    return _at_right_end(
        block,
        lambda pipe: Pipe((*pipe.steps[:-1], Comb(pipe.steps[-1], after))) if only(pipe) else pipe,
    )


@overload
def pipe_with_last(block: Matryoshka, after: SBB) -> Matryoshka: ...
@overload
def pipe_with_last(block: PBB, after: SBB, only: Callable[[Pipe], bool] = _every) -> PBB: ...
def pipe_with_last(
    block: Matryoshka | PBB, after: SBB, only: Callable[[Pipe], bool] = _every
) -> Matryoshka | PBB:
    """⊢: append a copy of `after` to every rightmost pipe (that `only` picks)."""
    if isinstance(block, Matryoshka):
        return replace(block, last=after, before=Before(block.last, block.before))
    return _at_right_end(block, lambda pipe: Pipe((*pipe.steps, after)) if only(pipe) else pipe)


def rmost(block: PBB) -> tuple[PBB, ...]:
    """Rmost: the rightmost Matryoshkas of a MultiPipe, from left to right."""
    found: list[PBB] = []
    todo = [block]
    while todo:
        inner = bare(todo.pop())
        if is_matryoshka(inner):
            found.append(inner)
        elif isinstance(inner, A2A):
            todo.append(inner.right)
        elif isinstance(inner, Container):
            todo.extend(reversed(inner.blocks))
    return tuple(found)


def no_sink(block: PBB) -> bool:
    """noSink: none of the rightmost Matryoshkas is closed by a Sink."""
    return not any(ends_in_sink(seed_pipe(m)) for m in rmost(block))


def seed_pipe(m: PBB) -> Pipe:
    """One pipe of the seed of a Matryoshka."""
    while not isinstance(m, Pipe):
        m = m.right if isinstance(m, A2A) else next(part for part in m.parts if isinstance(part, PBB))
    return m


def end_of(pipe: Pipe) -> Function | None:
    """The last operator of a pipe; None in a pipe that only distributes."""
    return next((end for end in map(operator_at_end, reversed(pipe.steps)) if end is not None), None)


def ends_in_sink(pipe: Pipe) -> bool:
    """Whether the pipe is closed."""
    end = end_of(pipe)
    return end is not None and end.role is Kind.SNK


def _at_right_end(top: PBB, change: Callable[[Pipe], Pipe]) -> PBB:
    """Rebuild a block with its rightmost pipes changed: the pipe, a2a and pc cases of Figure 5."""
    done: list[PBB] = []
    todo: list[tuple[PBB, bool]] = [(top, False)]
    while todo:
        block, ready = todo.pop()
        if isinstance(block, Pipe):
            done.append(change(block))
        elif isinstance(block, A2A):
            if ready:
                right = done.pop()
                assert isinstance(right, Container), "the right side of an A2A stays a container"
                done.append(A2A(block.left, right))
            else:
                todo += [(block, True), (block.right, False)]
        elif isinstance(block, Container):
            if ready:
                done.append(Container(tuple(done.pop() for _ in block.blocks), block.copies))
            else:
                # Pushed left to right, so they are rebuilt right to left and popped in order above.
                todo.append((block, True))
                todo.extend((inner, False) for inner in block.blocks)
    return done.pop()
