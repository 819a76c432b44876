"""What every expression is: frozen data that knows its children, its text and its type rule.

Nodes are dataclasses; a field that holds an expression, or a tuple of them, holds children. How values are
computed is not here: the lowerings have a rule for each node class. Walks do not recurse, so that a sum of a
thousand terms is no deeper than one of two, and visit a node that is used twice once.

`Expr` adds what people write: operators and methods that build nodes. It decides nothing: types follow from
each node's `signature`. Node classes are reached through the package, because they are subclasses of it.
"""

from __future__ import annotations

import builtins
import enum
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock import expr as nodes
from penstock.errors import GraphError
from penstock.expr.types import parse_type
from penstock.frozen import Frozen

if TYPE_CHECKING:
    from penstock.expr.program import Instruction, Requirement, Signature

_TIGHTEST = 10
_USE_OPERATORS = 'combine conditions with & | ~ and parentheses: (col("a") > 1) & (col("b") > 2)'


class InputHandling(enum.Enum):
    """Which inputs a node handles itself; for the others its result is null or failed without a call."""

    STRICT = "null if an input is null, failed if an input failed"
    NULLS = "failed if an input failed; the node handles nulls"
    FAILURES = "the node handles nulls and failures"


class Node(Frozen, by_identity=True):
    """The part of an expression that is not operators and methods.

    input_handling  which inputs the node handles itself
    precedence      how tightly the printed form binds, as in Python: a looser child is put in parentheses
    requirement     what its operands must be; a node with a rule of its own has a `signature` instead
    operand_type    the type that they are brought to; None if they keep theirs
    widens_floats   whether floats are always float64
    result_type     the type of the result; None if it is that of the operands
    """

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()  # the names of the fields, as dataclasses have them
    input_handling: ClassVar[InputHandling] = InputHandling.STRICT
    precedence: ClassVar[int] = _TIGHTEST
    requirement: ClassVar[Requirement]
    operand_type: ClassVar[pa.DataType | None] = None
    widens_floats: ClassVar[bool] = False
    result_type: ClassVar[pa.DataType | None] = None

    def children(self) -> tuple[Node, ...]:
        """Return the expressions that this one is made of, in order."""
        values = (getattr(self, name) for name in self.__match_args__)
        parts = chain.from_iterable(value if isinstance(value, tuple) else (value,) for value in values)
        return tuple(part for part in parts if isinstance(part, Node))

    def own_fields(self) -> tuple[str, ...]:
        """Return the fields that are not expressions, in a form that can be compared."""
        values = ((name, getattr(self, name)) for name in self.__match_args__)
        return tuple(f"{name}={value!r}" for name, value in values if not isinstance(value, Node | tuple))

    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns that the expression reads, sorted, each once."""
        return tuple(sorted({node.name for node in post_order(self) if isinstance(node, nodes.Column)}))

    def same_as(self, other: Node) -> bool:
        """Return whether the other expression is built in the same way (`==` builds a comparison instead)."""
        numbers: dict[int, int] = {}  # by node; nodes that are built in the same way have the same number
        known: dict[tuple[object, ...], int] = {}
        for node in (*post_order(self), *post_order(other)):
            form = (type(node), node.own_fields(), *(numbers[id(child)] for child in node.children()))
            numbers[id(node)] = known.setdefault(form, len(known))
        return numbers[id(self)] == numbers[id(other)]

    def signature(self, operands: tuple[Instruction, ...]) -> Signature:
        """Return the types of operands and result; raise SchemaError if the operands do not fit."""
        self.requirement.check(self, operands)
        types = tuple(self.widen(operand.type) for operand in operands)
        return nodes.Signature(types, types[0] if self.result_type is None else self.result_type)

    def widen(self, type: pa.DataType) -> pa.DataType:
        """Return the type that operands of a type are brought to."""
        return pa.float64() if self.widens_floats and kind.is_floating(type) else self.operand_type or type

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


def _operator(
    name: str, *, reflected: bool = False, joins: str = "", shifts: int = 0
) -> Callable[[Expr, object], Expr]:
    """Return the method of an operator, which builds the node of that name.

    reflected  whether the expression stands to the right of a value that is none
    joins      the sign, if it joins conditions: for `col("a") > 1 & col("b") > 2`, where & takes the 1
    shifts     1 or -1 if a duration, "10 s" or a timedelta, shifts a time forward or back
    """

    def build(self: Expr, other: object) -> Expr:
        if joins and not (other is None or isinstance(other, Expr | bool | np.bool_)):
            raise GraphError(
                f"{other!r} {joins} {self} does not join two conditions",
                detail=f"{joins} binds more tightly than == < >",
                hint=_USE_OPERATORS,
            )
        if shifts and isinstance(other, str | timedelta):
            return nodes.Shift(self, shifts * nodes.shift_micros(other))
        operands = (self, nodes.to_expr(other))
        node: Expr = getattr(nodes, name)(*(reversed(operands) if reflected else operands))
        return node

    return build


class Expr(Node):
    """A value computed from the columns of one row; build one with `col`, `lit` and operators.

    Some methods are named like builtins, hence `builtins.str` in the annotations.
    """

    __slots__ = ()
    # NumPy must not take `np.int64(2) * col("a")` for an array of one object.
    __array_ufunc__: ClassVar[None] = None

    __hash__ = Node.__hash__  # defining == would take it away

    __add__, __radd__ = _operator("Add", shifts=1), _operator("Add", shifts=1, reflected=True)
    __sub__, __rsub__ = _operator("Subtract", shifts=-1), _operator("Subtract", reflected=True)
    __mul__, __rmul__ = _operator("Multiply"), _operator("Multiply", reflected=True)
    __truediv__, __rtruediv__ = _operator("Divide"), _operator("Divide", reflected=True)
    __floordiv__, __rfloordiv__ = _operator("FloorDivide"), _operator("FloorDivide", reflected=True)
    __mod__, __rmod__ = _operator("Modulo"), _operator("Modulo", reflected=True)
    __pow__, __rpow__ = _operator("Power"), _operator("Power", reflected=True)
    __and__, __rand__ = _operator("And", joins="&"), _operator("And", joins="&", reflected=True)
    __or__, __ror__ = _operator("Or", joins="|"), _operator("Or", joins="|", reflected=True)
    __eq__ = _operator("Equal")  # type: ignore[assignment]  # builds a comparison, as PySpark and Polars do
    __ne__ = _operator("NotEqual")  # type: ignore[assignment]  # as above
    __lt__, __le__ = _operator("Less"), _operator("LessEqual")
    __gt__, __ge__ = _operator("Greater"), _operator("GreaterEqual")

    def __neg__(self) -> Expr:
        return nodes.Negate(self)

    def __invert__(self) -> Expr:
        return nodes.Not(self)

    def __bool__(self) -> NoReturn:
        raise GraphError(
            f"{self} is not true or false before a row is there",
            detail="`and`, `or`, `not`, `if` and chains such as 1 < x < 2 ask for an answer at once",
            hint=f"{_USE_OPERATORS}; for a range use .between(1, 2); for a choice use when(...).then(...)",
        )

    def __contains__(self, item: object) -> NoReturn:
        raise GraphError(
            f"`in` cannot look into {self} before a row is there",
            hint=f"for text use .str.contains({item!r}); for one of several values use .is_in([...])",
        )

    def __iter__(self) -> Iterator[NoReturn]:
        raise GraphError(
            f"{self} is one value per row and cannot be iterated over",
            hint="give several expressions one by one, or make rows of a list with flat_map",
        )

    def abs(self) -> Expr:
        """Return the value without its sign; the least integer has none and fails the row."""
        return nodes.Absolute(self)

    __abs__ = abs

    def round(self, digits: int = 0) -> Expr:
        """Round to `digits` decimals, halves to even; floats become float64."""
        return nodes.Round(self, digits)

    def floor(self) -> Expr:
        """Round down to a whole number; the type stays."""
        return nodes.Floor(self)

    def ceil(self) -> Expr:
        """Round up to a whole number; the type stays."""
        return nodes.Ceil(self)

    def sqrt(self) -> Expr:
        """Return the square root as float64; of a negative number NaN."""
        return nodes.Sqrt(self)

    def between(self, low: object, high: object) -> Expr:
        """Return whether low <= value <= high."""
        return nodes.Between(self, nodes.to_expr(low), nodes.to_expr(high))

    def is_in(self, values: Iterable[object]) -> Expr:
        """Return whether the value equals one of the given ones, which may not include None."""
        return nodes.IsIn(self, nodes.to_literals(values))

    def is_null(self) -> Expr:
        """Return whether the value is null."""
        return nodes.IsNull(self)

    def is_not_null(self) -> Expr:
        """Return whether the value is not null."""
        return nodes.IsNotNull(self)

    def is_nan(self) -> Expr:
        """Return whether the value is NaN; null for null."""
        return nodes.IsNan(self)

    def fill_null(self, value: object) -> Expr:
        """Return the value, or the given one where it is null."""
        return nodes.FillNull(self, nodes.to_expr(value))

    def cast(self, type: pa.DataType | builtins.str) -> Expr:
        """Return the value as another type; what does not fit fails the row."""
        return nodes.Cast(self, parse_type(type))

    def field(self, name: builtins.str) -> Expr:
        """Return one field of a struct."""
        return nodes.Field(self, name)

    def json(self, path: builtins.str, type: pa.DataType | builtins.str) -> Expr:
        """Return one scalar out of JSON text, at a path such as "user.id" or "items[0].price"."""
        return nodes.JsonValue(self, path, parse_type(type))

    @property
    def str(self) -> nodes.Strings:
        """Return the functions of text."""
        return nodes.Strings(self)

    @property
    def list(self) -> nodes.Lists:
        """Return the functions of lists."""
        return nodes.Lists(self)

    @property
    def dt(self) -> nodes.Times:
        """Return the functions of dates and timestamps."""
        return nodes.Times(self)


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


def is_int32(value: object) -> bool:
    """Return whether a user gave a whole number of no more than 32 bits where one is needed."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31
