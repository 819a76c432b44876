"""Any associative function: lift each row to a partial result, combine them, lower the whole.

The words are those of Tangwongsan et al. (lift, combine, lower), which FiBA and Scotty use too.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar

import pyarrow as pa

from penstock.caller import find_call_site, find_definition, name_of
from penstock.errors import FunctionError, SchemaError
from penstock.expr.types import parse_type
from penstock.frozen import dataclass
from penstock.operators.aggregates.basic import Aggregate
from penstock.operators.function import require_call
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Fold(Aggregate):
    """`lower(combine(... combine(zero, lift(row 1)) ..., lift(row n)))`.

    `combine` must be associative and `zero` neutral: partial results are combined in any grouping, and in
    any order too unless `commutative=False`.
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
        """Return the declared type; raise a SchemaError when there is none."""
        up.require(*(self.columns or ()))
        if self.result is None:
            raise SchemaError(
                f"fold {name_of(self.combine)} has no result type",
                where=find_definition(self.lower or self.combine),
                hint='say type="float64", or annotate what lower (or combine) returns',
            )
        return self.result

    def check_partial(self, partial: Any) -> Any:
        """Return what lift or combine gave; raise a TypeError where zero is of floats and this is not.

        Engines keep such partial results as numbers. Of other kinds nothing is known.
        """
        zero = self.zero
        if isinstance(zero, float):
            if not isinstance(partial, Real):
                raise TypeError(f"gave {partial!r:.80}, and zero is a number")
        elif isinstance(zero, tuple) and zero and all(isinstance(part, float) for part in zero):
            if not isinstance(partial, tuple | list) or len(partial) != len(zero):
                raise TypeError(f"gave {partial!r:.80}, and zero has {_count_numbers(len(zero))}")
            if not all(isinstance(part, Real) for part in partial):
                raise TypeError(f"gave {partial!r:.80}, which are not all numbers")
        return partial

    def __str__(self) -> str:
        return f"fold({name_of(self.combine)})"


def _count_numbers(n: int) -> str:
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

    lift(row)      one row as a partial result: a number or a tuple of numbers
    combine(a, b)  two partial results as one; must be associative
    zero           the partial result of no rows
    lower(part)    the final result; the partial one itself if left out
    columns        the columns that lift reads: rows with a null in one of them are skipped
    type           the result's type, unless `lower` (or `combine`) is annotated with it
    commutative    False when the order of rows matters: they are folded in order (time, seq)
    """
    for role, fn in (("lift", lift), ("combine", combine), ("lower", lower)):
        if not callable(fn) and (fn is not None or role != "lower"):
            raise FunctionError(
                f"fold's {role} is {fn!r}, not a function",
                where=find_call_site(),
                hint="write ps.fold(lift, combine, zero, lower)",
            )
    require_call(lift, "row")
    require_call(combine, "a", "b")
    if lower is not None:
        require_call(lower, "part")
    declared = type if type is not None else _return_annotation(lower or combine)
    result = None if declared is None else parse_type(declared)
    read = None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    return Fold(None, lift, combine, zero, lower, read, result, commutative)


def _return_annotation(fn: Callable[..., Any]) -> object:
    try:
        return typing.get_type_hints(fn).get("return")
    except (NameError, TypeError, AttributeError):
        return None
