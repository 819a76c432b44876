"""What every expression node is: frozen data that knows its children, its text and its type rule.

Nodes are dataclasses; a field that holds an expression, or a tuple of them, holds children. How values
are computed is not here: the lowerings dispatch on the node's class.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    from penstock.expr.signature import Operand, Signature


class InputHandling(enum.Enum):
    """Which inputs a node handles itself; for the others its result is null or failed without a call."""

    STRICT = "null if an input is null, failed if an input failed"
    NULLS = "failed if an input failed; the node handles nulls"
    FAILURES = "the node handles nulls and failures"


class Node:
    """The part of an expression that is not operators and methods."""

    __slots__ = ()
    input_handling: ClassVar[InputHandling] = InputHandling.STRICT
    # How tightly the printed form binds, as in Python: a looser child is put in parentheses.
    precedence: ClassVar[int] = 10

    def children(self) -> tuple[Node, ...]:
        """The expressions that this one is made of, in order."""
        found: list[Node] = []
        for _, value in self._fields():
            each = value if isinstance(value, tuple) else (value,)
            found += [child for child in each if isinstance(child, Node)]
        return tuple(found)

    def own_fields(self) -> tuple[str, ...]:
        """The fields that are not expressions, in a form that can be compared."""
        return tuple(f"{name}={value!r}" for name, value in self._fields() if not _holds_nodes(value))

    def columns(self) -> tuple[str, ...]:
        """The names of the columns it reads, sorted, each once."""
        found: set[str] = set()
        for node in post_order(self):
            found |= node.reads()
        return tuple(sorted(found))

    def reads(self) -> frozenset[str]:
        """The columns that this very node reads, without its children."""
        return frozenset()

    def same_as(self, other: Node) -> bool:
        """Whether the other expression is built in the same way (`==` builds a comparison instead)."""
        return is_same(self, other)

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """The types that the children are brought to, and the type of the result; SchemaError if none fit."""
        raise NotImplementedError(type(self).__name__)

    def text(self, parts: tuple[str, ...]) -> str:
        """The expression as one would type it inside a larger one, given the text of its children."""
        raise NotImplementedError(type(self).__name__)

    def standalone_text(self, text: str) -> str:
        """The text where nothing around it makes clear that it is an expression; only literals differ."""
        return text

    def __str__(self) -> str:
        return self.standalone_text(fold_nodes(self, lambda node, parts: node.text(parts)))

    __repr__ = __str__
    __hash__ = object.__hash__

    def _fields(self) -> list[tuple[str, object]]:
        return [(name, getattr(self, name)) for name in _field_names(type(self))]


_NAMES: dict[type, tuple[str, ...]] = {}  # asked for every node of every walk, hence remembered per class


def _field_names(node_class: type) -> tuple[str, ...]:
    if node_class not in _NAMES:
        _NAMES[node_class] = tuple(field.name for field in dataclasses.fields(node_class))
    return _NAMES[node_class]


def _holds_nodes(value: object) -> bool:
    return isinstance(value, Node) or (
        isinstance(value, tuple) and bool(value) and isinstance(value[0], Node)
    )


def method_text(receiver: Node, text: str, call: str) -> str:
    """The text of a method call, `col("a").abs()`, with the receiver in parentheses where it needs them."""
    shown = receiver.standalone_text(text)
    return f"({shown}).{call}" if receiver.precedence < 10 and shown == text else f"{shown}.{call}"


def operand_text(child: Node, text: str, binds: int) -> str:
    """The text of an operator's operand, in parentheses when it binds less tightly."""
    return f"({text})" if child.precedence < binds else text


def is_nonempty_text(value: object) -> bool:
    """Whether a user gave text where text is needed, and not nothing."""
    return isinstance(value, str) and value != ""


def is_int32(value: object) -> bool:
    """Whether a user gave a plain whole number of no more than 32 bits where one is needed."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31


# Walk an expression without recursion, so that a sum of a thousand terms is no deeper than one of two.
#
# A node that is used twice is visited once. Assumes only that nodes are frozen and have `children()`.

Result = TypeVar("Result")


def post_order(root: Node) -> list[Node]:
    """Every distinct node below and including the root, each after its children."""
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


def fold_nodes(root: Node, visit: Callable[[Node, tuple[Result, ...]], Result]) -> Result:
    """What `visit` makes of the root, given what it made of the children, from the leaves up."""
    results: dict[int, Result] = {}
    for node in post_order(root):
        results[id(node)] = visit(node, tuple(results[id(child)] for child in node.children()))
    return results[id(root)]


def is_same(left: Node, right: Node) -> bool:
    """Whether two expressions have the same nodes with the same fields in the same places."""
    pending = [(left, right)]
    seen: set[tuple[int, int]] = set()
    while pending:
        a, b = pending.pop()
        if a is b or (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        if (
            type(a) is not type(b)
            or a.own_fields() != b.own_fields()
            or len(a.children()) != len(b.children())
        ):
            return False
        pending.extend(zip(a.children(), b.children(), strict=True))
    return True
