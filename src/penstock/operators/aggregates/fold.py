"""Any associative function: lift each row, combine the parts, lower the result."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar

import pyarrow as pa

from penstock.caller import find_call_site, find_definition, name_of
from penstock.errors import FunctionError, SchemaError
from penstock.expr.schema import parse_type
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import Aggregate
from penstock.operators.function import need_call
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Fold(Aggregate):
    """`lower(combine(... combine(zero, lift(row 1)) ..., lift(row n)))`.

    `combine` must be associative and `zero` neutral: parts are combined in any grouping, and in any
    order too unless `commutative=False`.
    """

    lift: Callable[[Any], Any]
    combine: Callable[[Any, Any], Any]
    zero: Any
    lower: Callable[[Any], Any] | None
    columns: tuple[str, ...] | None
    result: pa.DataType | None
    commutative: bool

    label: ClassVar[str] = "fold"

    def type(self, up: Stream) -> pa.DataType:
        """As declared."""
        up.require(*(self.columns or ()))
        if self.result is None:
            raise SchemaError(
                f"fold {name_of(self.combine)} has no result type",
                where=find_definition(self.lower or self.combine),
                hint='say type="float64", or annotate what lower (or combine) returns',
            )
        return self.result

    def part(self, given: Any) -> Any:
        """What lift or combine gave; raises where zero is of floats and this has not its form.

        Engines keep such parts as numbers. Of parts of another kind nothing is known.
        """
        zero = self.zero
        if isinstance(zero, float):
            if not isinstance(given, Real):
                raise TypeError(f"gave {given!r:.80}, and zero is a number")
        elif isinstance(zero, tuple) and zero and all(isinstance(each, float) for each in zero):
            if not isinstance(given, tuple | list) or len(given) != len(zero):
                raise TypeError(f"gave {given!r:.80}, and zero has {_numbers(len(zero))}")
            if not all(isinstance(each, Real) for each in given):
                raise TypeError(f"gave {given!r:.80}, which are not all numbers")
        return given

    def __str__(self) -> str:
        return f"fold({name_of(self.combine)})"


def _numbers(n: int) -> str:
    return "1 number" if n == 1 else f"{n} numbers"


def fold(
    lift: Callable[[Any], Any],
    combine: Callable[[Any, Any], Any],
    zero: Any,
    lower: Callable[[Any], Any] | None = None,
    *,
    columns: str | Sequence[str] | None = None,
    type: object = None,
    commutative: bool = True,
) -> Fold:
    """Aggregate with functions of your own.

    lift(row)      one row as a part: a number or a tuple of numbers
    combine(a, b)  two parts as one; must be associative
    zero           the part of no rows
    lower(part)    the result; the part itself if left out
    columns        the columns that lift reads: rows with a null in one of them are skipped
    type           the result's type, unless `lower` (or `combine`) is annotated with it
    commutative    False when the order of rows matters: they are folded in order (time, seq)
    """
    for what, fn in (("lift", lift), ("combine", combine), ("lower", lower)):
        if not callable(fn) and (fn is not None or what != "lower"):
            raise FunctionError(
                f"fold's {what} is {fn!r}, not a function",
                where=find_call_site(),
                hint="write ps.fold(lift, combine, zero, lower)",
            )
    need_call(lift, "row")
    need_call(combine, "a", "b")
    if lower is not None:
        need_call(lower, "part")
    given = type if type is not None else _annotated(lower or combine)
    result = None if given is None else parse_type(given)
    read = None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    return Fold(None, lift, combine, zero, lower, read, result, commutative)


def _annotated(fn: Callable[..., Any]) -> object:
    try:
        return typing.get_type_hints(fn).get("return")
    except (NameError, TypeError, AttributeError):
        return None
