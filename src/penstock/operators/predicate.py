"""What makes two rows a pair: equal columns, columns close to each other, or any function of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.caller import called_from, defined_at, name_of
from penstock.errors import FunctionError, SchemaError, Where
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import is_number
from penstock.operators.calling import need_call
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Equal:
    """Both sides have the same value; null equals nothing, NaN equals NaN."""

    left: str
    right: str

    def check(self, left: Stream, right: Stream) -> None:
        """Both columns exist and have one type."""
        left.require(self.left)
        right.require(self.right)
        _same_type(left.schema.field(self.left), right.schema.field(self.right))

    def __str__(self) -> str:
        return self.left if self.left == self.right else f"{self.left} = {self.right}"


@dataclass(frozen=True, slots=True)
class Band:
    """|left - right| <= width (< width when strict); null is close to nothing."""

    left: str
    right: str
    width: float
    strict: bool

    def check(self, left: Stream, right: Stream) -> None:
        """Both columns exist and are numbers."""
        left.require(self.left)
        right.require(self.right)
        for side, name in ((left, self.left), (right, self.right)):
            found = side.schema.field(name).type
            if not is_number(found):
                raise SchemaError(
                    f'a band needs numbers, and column "{name}" is {found}',
                    hint=f'cast it, or join on equality: ps.equal("{self.left}", "{self.right}")',
                )

    def __str__(self) -> str:
        sign = "<" if self.strict else "<="
        return f"|{self.left} - {self.right}| {sign} {self.width}"


@dataclass(frozen=True, slots=True)
class PairFunction:
    """Any function of a left row and a right row that says true or false."""

    call: Callable[[Any, Any], Any]
    name: str
    where: Where | None

    def check(self, left: Stream, right: Stream) -> None:
        """Nothing can be known before it runs."""

    def __str__(self) -> str:
        return f"{self.name}(left, right)"


Term = Equal | Band | PairFunction


def band(left: str, right: str | float, width: float | None = None, *, strict: bool = False) -> Band:
    """Rows whose values differ by at most `width`: `band("x", 10)`, or `band("x", "a", 10)`."""
    if width is None:
        if isinstance(right, str):
            raise SchemaError(
                "a band needs a width", where=called_from(), hint=f'write ps.band("{left}", "{right}", 10)'
            )
        left_name, right_name, width = left, left, right
    else:
        left_name, right_name = left, str(right)
    if isinstance(width, bool) or not isinstance(width, (int, float)) or not width >= 0:
        raise SchemaError(
            f"a band of width {width!r} holds nothing",
            where=called_from(),
            hint="use a number of zero or more",
        )
    return Band(left_name, right_name, width, strict)


def terms(on: object) -> tuple[Term, ...]:
    """What `on=` may be: a column, a predicate, a function, or a list of them that must all hold."""
    if isinstance(on, (list, tuple)) and on:
        return tuple(term for part in on for term in terms(part))
    if isinstance(on, str):
        return (Equal(on, on),)
    if isinstance(on, Term):
        return (on,)
    if callable(on):
        need_call(on, "left", "right")
        return (PairFunction(on, name_of(on), defined_at(on)),)
    raise FunctionError(
        f"on={on!r} is not a join predicate",
        hint='use a column name, ps.equal("a", "b"), ps.band("x", 10), fn(left, right), or a list',
    )


def equal(left: str, right: str) -> Equal:
    """Rows with equal values in columns of different names."""
    return Equal(left, right)


def _same_type(left: pa.Field, right: pa.Field) -> None:
    if left.type != right.type:
        raise SchemaError(
            f'"{left.name}" is {left.type} on the left, and "{right.name}" is {right.type} on the right',
            hint=f'cast one of them: .map({right.name}=col("{right.name}").cast("{left.type}"))',
        )
