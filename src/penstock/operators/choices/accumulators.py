"""What a window keeps of an aggregate: accumulators, which are a few numbers, a sketch, or the rows.

The rule is here once: stages keep what it says, and explain() shows it without a stage. Numbers, bools, dates
and timestamps fit into accumulators; text and decimals do not, nor do aggregates of all values.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import pyarrow as pa
import pyarrow.types as kind

from penstock.operators.aggregates import Aggregate, Fold
from penstock.operators.choices.folds import why_python
from penstock.operators.stream import Stream
from penstock.timing.windows import CountWindow, Window


class AccumulatorKind(StrEnum):
    """What an accumulator keeps.

    ROWS       the number of rows; of no column
    COUNT      the number of values that are not null
    INT_SUM    the exact sum of integers, in two halves: upper * 2^32 + lower
    FLOAT_SUM  the sum of floats
    MAX        the greatest integer (floats come in as integers of the same order)
    MIN        the least integer, kept as its complement
    MAX_COUNT  the greatest integer, and how many values equal it
    MIN_COUNT  the least integer as its complement, and how many values equal it
    LAST       (time, order, value) of the last value by (time, order)
    FIRST      the same of the first, time and order kept as complements
    MOMENTS    (n, mean, sum of squared distances) of floats
    MAX_TIME   the greatest time of the rows; of no column
    FOLD       the part of a user's fold: its floats
    """

    ROWS = "rows"
    COUNT = "count"
    INT_SUM = "int sum"
    FLOAT_SUM = "float sum"
    MAX = "max"
    MIN = "min"
    MAX_COUNT = "max count"
    MIN_COUNT = "min count"
    LAST = "last"
    FIRST = "first"
    MOMENTS = "moments"
    MAX_TIME = "max time"
    FOLD = "fold"


EXACT = frozenset({AccumulatorKind.ROWS, AccumulatorKind.COUNT, AccumulatorKind.INT_SUM})
"""Kinds from which what was added can be subtracted again exactly."""
_WIDTHS = {
    AccumulatorKind.INT_SUM: 2,
    AccumulatorKind.MAX_COUNT: 2,
    AccumulatorKind.MIN_COUNT: 2,
    AccumulatorKind.LAST: 3,
    AccumulatorKind.FIRST: 3,
    AccumulatorKind.MOMENTS: 3,
}
# Aggregates by name, so that a program loads only those that it uses.
_OF_VALUES: dict[str, tuple[AccumulatorKind, ...]] = {
    "Min": (AccumulatorKind.COUNT, AccumulatorKind.MIN),
    "Max": (AccumulatorKind.COUNT, AccumulatorKind.MAX),
    "MinCount": (AccumulatorKind.COUNT, AccumulatorKind.MIN_COUNT),
    "MaxCount": (AccumulatorKind.COUNT, AccumulatorKind.MAX_COUNT),
    "First": (AccumulatorKind.COUNT, AccumulatorKind.FIRST),
    "Last": (AccumulatorKind.COUNT, AccumulatorKind.LAST),
    "Var": (AccumulatorKind.MOMENTS,),
    "Std": (AccumulatorKind.MOMENTS,),
}


def is_whole(type_: pa.DataType) -> bool:
    """Return whether values of the type are kept as int64, with their order."""
    whole = kind.is_integer(type_) or kind.is_boolean(type_) or kind.is_timestamp(type_)
    return bool(whole or kind.is_date32(type_))


def is_numeric(type_: pa.DataType) -> bool:
    """Return whether accumulators can hold such values; others are only counted."""
    return bool(is_whole(type_) or kind.is_floating(type_))


def why_rows(aggregate: Aggregate, up: Stream, *, totally_ordered: bool) -> str | None:
    """Return why a window keeps rows for an aggregate; None when accumulators hold it.

    With `totally_ordered`, rows have one order column, by which first and last can be decided.
    """
    if isinstance(aggregate, Fold):
        return why_python(aggregate, up)
    match type(aggregate).__name__:
        case "Count" | "EventTimeMax":
            return None
        case "First" | "Last":
            unordered = None if totally_ordered else "rows of one time have no number that puts them in order"
            return _why_not_numbers(aggregate, up) or unordered
        case name if name in ("Sum", "Mean", *_OF_VALUES):
            return _why_not_numbers(aggregate, up)
    return "it is made from all values of a window"


def _why_not_numbers(aggregate: Aggregate, up: Stream) -> str | None:
    type_ = aggregate.value_type(up)
    return None if is_numeric(type_) else f"accumulators hold numbers, and {aggregate.value} is {type_}"


def uses_sketch(aggregate: Aggregate, windows: Iterable[Window]) -> bool:
    """Return whether a sketch is kept of an aggregate instead of rows: so, unless there are count windows.

    Those sort rows before they know which window a row is in, and so have the rows anyway.
    """
    counted = any(isinstance(window, CountWindow) for window in windows)
    return type(aggregate).__name__ in ("ApproxDistinct", "Quantile") and not counted


def accumulators_of(aggregate: Aggregate, up: Stream) -> tuple[AccumulatorKind, ...]:
    """Return the accumulators of an aggregate, beside the count of rows that every window has."""
    match type(aggregate).__name__:
        case "Count":
            return () if aggregate.value is None else (AccumulatorKind.COUNT,)
        case "EventTimeMax":
            return (AccumulatorKind.MAX_TIME,)
        case "Fold":
            return (AccumulatorKind.FOLD,)
        case "Sum" | "Mean":
            floats = kind.is_floating(aggregate.value_type(up))
            return (AccumulatorKind.FLOAT_SUM if floats else AccumulatorKind.INT_SUM, AccumulatorKind.COUNT)
        case name:
            return _OF_VALUES[name]


def width_of(accumulator: AccumulatorKind, aggregate: Aggregate) -> int:
    """Return the number of 8-byte numbers in an accumulator's cell."""
    if accumulator is AccumulatorKind.FOLD and isinstance(aggregate, Fold):
        return len(aggregate.zero) if isinstance(aggregate.zero, tuple) else 1
    return _WIDTHS.get(accumulator, 1)
