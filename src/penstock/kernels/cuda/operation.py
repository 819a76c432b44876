"""What a window aggregates, as plain functions on a number or a small tuple of numbers.

A state is a row of registers of one type: the operation's own part first, then two counts that every
operation has: how many values were not null, and how many rows there were. A window without rows does
not leave; a window without values is null, or zero lowered where that is the rule. `registers.py`
compiles lift and combine for the device, so they are as simple as they look. States combine in any order
and grouping.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from penstock.errors import NotSupported

Number = Literal["int64", "float64"]
Array = npt.NDArray[Any]
MOST_PARTS = 4
MOST_COLUMNS = 4


@dataclass(frozen=True, slots=True)
class Operation:
    """One aggregate: lift a value to a part, combine two parts, lower the parts of windows to results.

    zero     the neutral part, as many registers as it has numbers
    lift     (value, ...) -> part, called with one value per column; None when there is no part
    combine  (part, part) -> part; associative and commutative, with zero neutral
    lower    (parts [n, len(zero)], values [n]) -> results, on the host
    columns  how many value columns a row has
    bare     whether lift and combine know a part as a number rather than as a tuple
    nullable whether the result of no values is null, rather than what zero is lowered to
    """

    name: str
    number: Number
    zero: tuple[float, ...]
    lift: Callable[..., Any] | None
    combine: Callable[[Any, Any], Any] | None
    lower: Callable[[Array, Array], Array]
    columns: int = 1
    bare: bool = True
    nullable: bool = True

    @property
    def width(self) -> int:
        """Registers of a state: the part, the count of values, the count of rows."""
        return len(self.zero) + 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the registers and of the values."""
        return np.dtype(self.number)

    def neutral(self) -> Array:
        """The state of no rows."""
        return np.array([*self.zero, 0, 0], dtype=self.dtype)


class ExactSumOutOfRange(ArithmeticError):
    """An exact integer sum left int64: which of the lowered states, and what the sum is."""

    def __init__(self, position: int, total: int) -> None:
        super().__init__(f"the exact sum is {total}, outside int64")
        self.position = position
        self.total = total


def count() -> Operation:
    """How many values are not null."""
    return Operation("count", "int64", (), None, None, _values, columns=0, nullable=False)


def total(number: Number) -> Operation:
    """The sum; of integers exact, in two halves, so that only the result can leave int64."""
    if number == "int64":
        return Operation("sum", number, (0, 0), _halves, _plus_halves, _whole, bare=False)
    return Operation("sum", number, (0.0,), _itself, _plus, _first)


def mean() -> Operation:
    """The sum divided by the count of values, in float64."""
    return Operation("mean", "float64", (0.0,), _itself, _plus, _divided)


def least(number: Number) -> Operation:
    """The minimum. NaN is greater than any number, so it is neutral here."""
    zero = np.iinfo(np.int64).max if number == "int64" else np.nan
    return Operation("min", number, (zero,), _itself, _smaller, _first)


def greatest(number: Number) -> Operation:
    """The maximum. NaN is greater than any number."""
    zero = np.iinfo(np.int64).min if number == "int64" else -np.inf
    return Operation("max", number, (zero,), _itself, _larger, _first)


def fold(
    lift: Callable[..., Any],
    combine: Callable[[Any, Any], Any],
    zero: float | tuple[float, ...],
    lower: Callable[[Any], Any] | None = None,
    *,
    number: Number = "float64",
    columns: int = 1,
) -> Operation:
    """A user's functions. A part is a number or a tuple of up to four, as `zero` is.

    lift(a, b, ...) takes one number per column. `lower` is called once per window, in Python; without
    it the parts themselves are the results, one column each.
    """
    bare = not isinstance(zero, tuple)
    parts = zero if isinstance(zero, tuple) else (zero,)
    if not 1 <= len(parts) <= MOST_PARTS or not 1 <= columns <= MOST_COLUMNS:
        raise NotSupported(
            f"a fold of {columns} columns into {len(parts)} numbers has no cuda kernel",
            detail=f"columns: 1 to {MOST_COLUMNS}; numbers in zero: 1 to {MOST_PARTS}",
            hint='say device="cpu"',
        )
    lowered = _each(lower, bare=bare)
    return Operation("fold", number, parts, lift, combine, lowered, columns, bare, nullable=False)


def _itself(value: Any) -> Any:
    return value


def _halves(value: Any) -> Any:
    return (value >> 32, value & 0xFFFFFFFF)


def _plus(a: Any, b: Any) -> Any:
    return a + b


def _plus_halves(a: Any, b: Any) -> Any:
    return (a[0] + b[0], a[1] + b[1])


def _smaller(a: Any, b: Any) -> Any:
    return a if a < b or math.isnan(b) else b


def _larger(a: Any, b: Any) -> Any:
    return a if a > b or math.isnan(a) else b


def _values(parts: Array, values: Array) -> Array:
    return values


def _first(parts: Array, values: Array) -> Array:
    return parts[:, 0]


def _divided(parts: Array, values: Array) -> Array:
    return np.divide(parts[:, 0], values, out=np.zeros(len(values)), where=values > 0)


def _whole(parts: Array, values: Array) -> Array:
    """Both halves as one number. Invariant: fewer than 2^31 rows, so neither half has overflowed."""
    high = parts[:, 0] + (parts[:, 1] >> 32)
    low = parts[:, 1] & 0xFFFFFFFF
    outside = (high < -(2**31)) | (high >= 2**31)
    if outside.any():
        position = int(np.argmax(outside))
        raise ExactSumOutOfRange(position, (int(high[position]) << 32) + int(low[position]))
    return np.asarray((high << 32) + low)


def _each(lower: Callable[[Any], Any] | None, *, bare: bool) -> Callable[[Array, Array], Array]:
    def lowered(parts: Array, values: Array) -> Array:
        if lower is None:
            return parts[:, 0] if bare else parts
        given = parts[:, 0].tolist() if bare else [tuple(part) for part in parts.tolist()]
        return np.array([lower(part) for part in given])

    return lowered
