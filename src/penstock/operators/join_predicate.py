"""Predicates of stream joins: what makes a left row and a right row a pair.

Equal columns, columns close to each other, an expression over the columns of both rows, a function of two
rows, a function of two batches, or several of these, which must all hold. They are tested in that order, each
only on the pairs that those before it allow; terms of one kind in the order in which they were written. So a
function is never reported for a pair that could not join anyway.

Equal columns may be written as an expression, `left("k") == right("k")`, alone or as a part of an `&`: they
are a term of their own then, and found as equal columns are wherever the two have one type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, ClassVar

import pyarrow as pa

from penstock.caller import find_call_site, find_definition, name_of
from penstock.errors import FunctionError, SchemaError, nearest_first
from penstock.expr import Column, Expr, SparkSql
from penstock.expr.node import post_order
from penstock.expr.nodes.forms import quote
from penstock.expr.nodes.logic import And
from penstock.expr.nodes.logic import Equal as IsEqual
from penstock.expr.types import is_row_class
from penstock.frozen import Frozen
from penstock.operators.function import (
    BatchFunction,
    UserFunction,
    require_bool,
    require_call,
    return_annotation,
)
from penstock.operators.op import Stream

LEFT, RIGHT = "left", "right"
"""The two sides of a join, which are also its input ports."""


class Equal(Frozen):
    """Both sides have the same value; null equals nothing, NaN equals NaN."""

    left: str
    right: str
    rank: ClassVar[int] = 0

    def check(self, left: Stream, right: Stream) -> None:
        """Raise a SchemaError unless both columns exist, are plain, and have one type."""
        _require(left, right, self.left, self.right)
        left.require_key(self.left)
        right.require_key(self.right)
        left_type, right_type = left.schema.field(self.left).type, right.schema.field(self.right).type
        if left_type != right_type:
            raise SchemaError(
                f'"{self.left}" is {left_type} on the left, and "{self.right}" is {right_type} on the right',
                hint=f'cast one of them: .with_columns({self.right}=col("{self.right}").cast("{left_type}"))',
            )

    def __str__(self) -> str:
        return self.left if self.left == self.right else f"{self.left} = {self.right}"


class Band(Frozen):
    """|left - right| <= width (< width when strict); null, NaN and infinities are close to nothing.

    Integers are compared exactly; if one side is a float, the difference is taken in float64.
    """

    left: str
    right: str
    width: float
    strict: bool
    rank: ClassVar[int] = 0

    def check(self, left: Stream, right: Stream) -> None:
        """Raise a SchemaError unless both columns exist and are numbers."""
        _require(left, right, self.left, self.right)
        for side, name in ((left, self.left), (right, self.right)):
            type_ = side.schema.field(name).type
            if not (pa.types.is_integer(type_) or pa.types.is_floating(type_)):
                raise SchemaError(
                    f'a band needs numbers, and column "{name}" is {type_}',
                    hint=f'cast it, or join on equality: ps.equal("{self.left}", "{self.right}")',
                )

    def __str__(self) -> str:
        sign = "<" if self.strict else "<="
        return f"|{self.left} - {self.right}| {sign} {self.width}"


class PairColumn(Column):
    """A column of one side, in an expression over the columns of both: `left("price")`.

    name  "left.price" or "right.price", its name in `pair_schema`
    """

    __slots__ = ()

    @property
    def side(self) -> str:
        """Return whose column it is."""
        return self.name.partition(".")[0]

    @property
    def own_name(self) -> str:
        """Return its name on that side."""
        return self.name.partition(".")[2]

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `left("a")`."""
        return f"{self.side}({quote(self.own_name)})"


def left(name: str) -> PairColumn:
    """Return a column of the left row, for a join's predicate: `on=left("price") > right("limit")`."""
    return _pair_column(LEFT, name)


def right(name: str) -> PairColumn:
    """Return a column of the right row, for a join's predicate; see `left`."""
    return _pair_column(RIGHT, name)


def _pair_column(side: str, name: object) -> PairColumn:
    if not isinstance(name, str) or not name:
        raise SchemaError(
            f"{name!r} cannot name a column", where=find_call_site(), hint=f'write ps.{side}("price")'
        )
    return PairColumn(f"{side}.{name}")


def pair_schema(left: pa.Schema, right: pa.Schema) -> pa.Schema:
    """Return the columns of a pair, which expressions are computed on: "left.price", "right.limit", ...

    No two are the same, whatever the names are, because all of one side begin alike.

    >>> pair_schema(pa.schema({"a": pa.int64()}), pa.schema({"a": pa.string()})).names
    ['left.a', 'right.a']
    """
    sides = ((LEFT, left), (RIGHT, right))
    return pa.schema([pa.field(f"{side}.{field.name}", field.type) for side, own in sides for field in own])


class PairExpression(Frozen):
    """An expression over `left("x")` and `right("y")` that is true; null is not true.

    Its columns are those of `pair_schema`, so a batch of pairs that has them under these names computes it by
    any lowering. A pair on which it fails, by a division by zero, follows the step's `on_error`.
    """

    expr: Expr

    @property
    def rank(self) -> int:
        """Return when it is tested: an equality of two columns, which cannot fail, with the equal columns."""
        return 1 if self.equal is None else Equal.rank

    @property
    def equal(self) -> Equal | None:
        """Return the columns of the left and of the right that it says are equal, if that is all it says."""
        if not isinstance(self.expr, IsEqual):
            return None
        sides = {node.side: node for node in self.expr.children() if isinstance(node, PairColumn)}
        return Equal(sides[LEFT].own_name, sides[RIGHT].own_name) if len(sides) == 2 else None

    def check(self, left: Stream, right: Stream) -> None:
        """Raise a SchemaError unless it is true or false, and every column says whose it is."""
        for node in post_order(self.expr):
            if isinstance(node, PairColumn):
                _require_on(
                    node.side, node.own_name, {LEFT: left, RIGHT: right}, f"ps.{{}}({quote(node.own_name)})"
                )
            elif isinstance(node, Column):
                name = quote(node.name)
                raise SchemaError(
                    f"{node} does not say which side of the join it belongs to",
                    hint=f"write ps.left({name}) or ps.right({name})",
                )
            elif isinstance(node, SparkSql):
                raise SchemaError(
                    f"{node} cannot be part of a join's predicate",
                    detail="its text cannot say which side a column belongs to",
                    hint="compute it before the join: .with_columns(x=ps.spark_expr(...))",
                )
        require_bool(self.expr, pair_schema(left.schema, right.schema), "a join's predicate")

    def __str__(self) -> str:
        return str(self.expr)


class PairFunction(UserFunction):
    """Any function of a left row and a right row that gives True or False; all else fails the pair."""

    rank: ClassVar[int] = 2

    def check(self, left: Stream, right: Stream) -> None:
        """Accept any rows: nothing can be known before the function runs."""

    def __str__(self) -> str:
        return f"{self.name}(left, right)"


class PairBatchFunction(UserFunction):
    """A function of two batches of equal length that gives a boolean array of that length; null is not true.

    Row i of the left batch and row i of the right batch are a candidate pair. How many pairs a call gets is
    the engine's choice. If it raises, and errors do not stop the run, it is called again pair by pair.
    """

    rank: ClassVar[int] = 2

    def check(self, left: Stream, right: Stream) -> None:
        """Accept any rows: nothing can be known before the function runs."""

    def __str__(self) -> str:
        return f"batch {self.name}(left, right)"


def _require(left: Stream, right: Stream, left_name: str, right_name: str) -> None:
    """Raise a SchemaError unless the left has one column and the right the other."""
    streams = {LEFT: left, RIGHT: right}
    for side, stream, name in ((LEFT, left, left_name), (RIGHT, right, right_name)):
        if not isinstance(name, str):
            stream.require(name)  # raises
        near = nearest_first(name, stream.columns)[:1] or ["b"]
        names = (name, near[0]) if side == RIGHT else (near[0], name)
        other = f"ps.equal({quote(names[0])}, {quote(names[1])})" if left_name == right_name else None
        _require_on(side, name, streams, other)


def _require_on(side: str, name: str, streams: Mapping[str, Stream], other: str | None) -> None:
    """Raise a SchemaError that names the side unless it has a column.

    other  what to write if the other side has it
    """
    if name in streams[side].columns:
        return
    names = nearest_first(name, streams[side].columns)
    opposite = RIGHT if side == LEFT else LEFT
    hint = f'did you mean "{names[0]}"?' if names else "the stream has no columns"
    if other is not None and name in streams[opposite].columns:
        hint = f"the {opposite} has one: {other.format(opposite)}"
    raise SchemaError(
        f'there is no column "{name}" on the {side} of the join',
        detail=f"the columns are {', '.join(names)}",
        hint=hint,
    )


JoinTerm = Equal | Band | PairExpression | PairFunction | PairBatchFunction


def band(left: str, right: str | float, width: float | None = None, *, strict: bool = False) -> Band:
    """Pair rows whose values differ by at most `width`: `band("x", 10)`, or `band("x", "a", 10)`."""
    if width is None:
        if isinstance(right, str):
            raise SchemaError(
                "a band needs a width", where=find_call_site(), hint=f'write ps.band("{left}", "{right}", 10)'
            )
        width, right = right, left
    if isinstance(width, bool) or not isinstance(width, (int, float)) or not 0 <= width < math.inf:
        fact = "leaves nothing out" if width == math.inf else "holds nothing"
        raise SchemaError(
            f"a band of width {width!r} {fact}",
            where=find_call_site(),
            hint="use a finite number of zero or more",
        )
    return Band(left, str(right), width, strict)


def equal(left: str, right: str) -> Equal:
    """Pair rows with equal values in columns of different names."""
    return Equal(left, right)


def terms(on: object) -> tuple[JoinTerm, ...]:
    """Return what `on=` may be, as terms in the order in which they are tested.

    A column, a predicate, an expression, a function, or a list of them that must all hold.
    """
    return tuple(sorted(_terms(on), key=lambda term: term.rank))


def _terms(on: object) -> list[JoinTerm]:
    if isinstance(on, (list, tuple)) and on:
        return [term for part in on for term in _terms(part)]
    if isinstance(on, str):
        return [Equal(on, on)]
    if isinstance(on, JoinTerm):
        return [on]
    if isinstance(on, Expr):
        return [PairExpression(expr) for expr in _split_equalities(on)]
    if isinstance(on, BatchFunction):
        return [_pair_batch_function(on)]
    if callable(on):
        return [_pair_function(on)]
    raise FunctionError(
        f"on={on!r} is not a join predicate",
        hint='use a column name, ps.equal("a", "b"), ps.band("x", 10), ps.left("a") > ps.right("b"), '
        "fn(left, right), ps.batch(fn), or a list",
    )


def _split_equalities(expr: Expr) -> list[Expr]:
    """Return the equalities of two columns that an expression needs, and what it needs besides, as one.

    Why as one: of `(n != 0) & (10 / n > 1)` neither part alone says on which pairs the whole fails.
    """
    equal: list[Expr] = []
    rest: list[Expr] = []
    todo: list[Expr] = [expr]
    while todo:
        part = todo.pop()
        if isinstance(part, And):
            todo += [part.right, part.left]
        else:
            (rest if PairExpression(part).equal is None else equal).append(part)
    if not equal:
        return [expr]
    return [*equal, *([reduce(And, rest)] if rest else [])]


_NOT_BOOL = (int, float, complex, str, bytes, list, tuple, dict, set, type(None))


def _pair_function(fn: Callable[..., Any]) -> PairFunction:
    """Return a function of two rows; raise if its annotation says that it gives no truth value."""
    require_call(fn, "left", "right")
    returns = return_annotation(fn)
    if isinstance(returns, type) and (returns in _NOT_BOOL or is_row_class(returns)):
        raise FunctionError(
            f"a join's predicate must be true or false, and {name_of(fn)} returns {returns.__name__}",
            detail=f"it is defined at {find_definition(fn)}",
            hint="return a comparison, and annotate it: def fn(left, right) -> bool",
        )
    return PairFunction(fn, None, name_of(fn), find_definition(fn))


def _pair_batch_function(function: BatchFunction) -> PairBatchFunction:
    require_call(function.call, "left", "right")
    if function.schema is not None:
        raise FunctionError(
            f"a join's predicate must be true or false, and {function} declares columns",
            hint="leave schema= out: ps.batch(fn), with fn(left, right) giving a boolean array",
        )
    return PairBatchFunction(function.call, None, function.name, function.where)
