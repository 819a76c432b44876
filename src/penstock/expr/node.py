"""What every expression node is: frozen data that knows its children, its text and its type rule.

Nodes are dataclasses; a field that holds an expression, or a tuple of them, holds children. How values are
computed is not here: the lowerings have a rule for each node class. Walks do not recurse, so that a sum of a
thousand terms is no deeper than one of two, and visit a node that is used twice once.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from penstock.expr.signature import Operand, Signature

_TIGHTEST = 10


class InputHandling(enum.Enum):
    """Which inputs a node handles itself; for the others its result is null or failed without a call."""

    STRICT = "null if an input is null, failed if an input failed"
    NULLS = "failed if an input failed; the node handles nulls"
    FAILURES = "the node handles nulls and failures"


class Node:
    """The part of an expression that is not operators and methods.

    precedence  how tightly the printed form binds, as in Python: a looser child is put in parentheses
    """

    __slots__ = ()
    input_handling: ClassVar[InputHandling] = InputHandling.STRICT
    precedence: ClassVar[int] = _TIGHTEST

    def children(self) -> tuple[Node, ...]:
        """Return the expressions that this one is made of, in order."""
        children: list[Node] = []
        for name in _field_names(type(self)):
            value = getattr(self, name)
            if isinstance(value, Node):
                children.append(value)
            elif isinstance(value, tuple):
                children += [child for child in value if isinstance(child, Node)]
        return tuple(children)

    def own_fields(self) -> tuple[str, ...]:
        """Return the fields that are not expressions, in a form that can be compared."""
        values = ((name, getattr(self, name)) for name in _field_names(type(self)))
        return tuple(f"{name}={value!r}" for name, value in values if not _holds_nodes(value))

    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns that the expression reads, sorted, each once."""
        return tuple(sorted(frozenset().union(*(node.reads() for node in post_order(self)))))

    def reads(self) -> frozenset[str]:
        """Return the columns that this very node reads, without its children."""
        return frozenset()

    def same_as(self, other: Node) -> bool:
        """Return whether the other expression is built in the same way (`==` builds a comparison instead)."""
        pending: list[tuple[Node, Node]] = [(self, other)]
        seen: set[tuple[int, int]] = set()
        while pending:
            a, b = pending.pop()
            if a is b or (id(a), id(b)) in seen:
                continue
            seen.add((id(a), id(b)))
            a_children, b_children = a.children(), b.children()
            if type(a) is not type(b) or len(a_children) != len(b_children):
                return False
            if a.own_fields() != b.own_fields():
                return False
            pending.extend(zip(a_children, b_children, strict=True))
        return True

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Return the types of operands and result; raise SchemaError if the operands do not fit."""
        raise NotImplementedError(type(self).__name__)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text inside a larger expression, from the text of the children."""
        raise NotImplementedError(type(self).__name__)

    def standalone_text(self, text: str) -> str:
        """Return the source text of a whole expression; only literals differ."""
        return text

    def __str__(self) -> str:
        texts: dict[int, str] = {}
        for node in post_order(self):
            texts[id(node)] = node.text(tuple(texts[id(child)] for child in node.children()))
        return self.standalone_text(texts[id(self)])

    __repr__ = __str__
    __hash__ = object.__hash__


def post_order(root: Node) -> list[Node]:
    """Return every distinct node below and including the root, each after its children."""
    ordered: list[Node] = []
    done: set[int] = set()
    pending = [(root, False)]
    while pending:
        node, children_done = pending.pop()
        if id(node) in done:
            continue
        if children_done:
            done.add(id(node))
            ordered.append(node)
        else:
            pending.append((node, True))
            pending.extend((child, False) for child in reversed(node.children()))
    return ordered


def method_text(receiver: Node, text: str, call: str) -> str:
    """Return the text of a method call, `col("a").abs()`; a receiver with an operator has parentheses."""
    standalone = receiver.standalone_text(text)
    needs_parentheses = receiver.precedence < _TIGHTEST and standalone == text
    return f"({standalone}).{call}" if needs_parentheses else f"{standalone}.{call}"


def operand_text(child: Node, text: str, precedence: int) -> str:
    """Return the text of an operator's operand, in parentheses when it binds less tightly."""
    return f"({text})" if child.precedence < precedence else text


def is_nonempty_text(value: object) -> bool:
    """Return whether a user gave text where text is needed, and not an empty one."""
    return isinstance(value, str) and value != ""


def is_int32(value: object) -> bool:
    """Return whether a user gave a whole number of no more than 32 bits where one is needed."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31


_NAMES: dict[type, tuple[str, ...]] = {}  # every walk asks for them at every node


def _field_names(node_class: type) -> tuple[str, ...]:
    if node_class not in _NAMES:
        _NAMES[node_class] = tuple(field.name for field in dataclasses.fields(node_class))
    return _NAMES[node_class]


def _holds_nodes(value: object) -> bool:
    return isinstance(value, Node) or (
        isinstance(value, tuple) and bool(value) and isinstance(value[0], Node)
    )
