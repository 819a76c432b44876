"""Choices for a window step that are known before it runs: what it keeps of rows, and on which device.

The rules are here once: stages follow them, and explain() shows them without a stage. A window keeps
accumulators, which are a few numbers, a sketch, or the rows. Numbers, bools, dates and timestamps fit into
accumulators; text and decimals do not, nor do aggregates of all values. A fold fits if it can be compiled:
its parts are floats, and it reads numbers by name. Numba has the last word when a stage first runs it; the
rules are what can be known before, without Numba.

Devices hold the slices of time windows, as accumulators. Whether there is a device is for the stage to find
out, where it runs (`stages/window/groups.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dis import get_instructions
from enum import StrEnum
from keyword import iskeyword
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import NotSupported
from penstock.operators.aggregates import Aggregate, Fold
from penstock.operators.op import Stream
from penstock.options import Cuda
from penstock.timing.windows import CountWindow, SlidingSpec, Window

if TYPE_CHECKING:
    from penstock.operators.windows import Windows

AUTO, CPU, CUDA = DEVICES = ("auto", "cpu", "cuda")
AS_PARTIALS = ("paned", "map_reduce")
_RAISING = frozenset(
    [
        *("acos", "acosh", "asin", "asinh", "atanh", "cos", "cosh", "sin", "sinh", "tan"),
        *("exp", "exp2", "expm1", "log", "log10", "log1p", "log2", "pow", "sqrt", "ldexp"),
        *("fmod", "remainder", "gamma", "lgamma", "comb", "perm", "factorial"),
    ]
)
"""Functions of `math` that raise on some numbers."""


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


_WIDTHS = {
    **dict.fromkeys((AccumulatorKind.INT_SUM, AccumulatorKind.MAX_COUNT, AccumulatorKind.MIN_COUNT), 2),
    **dict.fromkeys((AccumulatorKind.LAST, AccumulatorKind.FIRST, AccumulatorKind.MOMENTS), 3),
}
# The accumulators of aggregates that are named like one of them: it, and how many values there were.
_OF_VALUES = {
    name: (AccumulatorKind.COUNT, AccumulatorKind(name.replace("_", " ")))
    for name in ("min", "max", "min_count", "max_count", "first", "last")
} | dict.fromkeys(("var", "std"), (AccumulatorKind.MOMENTS,))


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
    name = aggregate.label
    if name in ("count", "event_time_max"):
        return None
    if name not in ("sum", "mean", *_OF_VALUES):
        return "it is made from all values of a window"
    type_ = aggregate.value_type(up)
    if not is_numeric(type_):
        return f"accumulators hold numbers, and {aggregate.value} is {type_}"
    if name in ("first", "last") and not totally_ordered:
        return "rows of one time have no number that puts them in order"
    return None


def uses_sketch(aggregate: Aggregate, windows: Iterable[Window]) -> bool:
    """Return whether a sketch is kept of an aggregate instead of rows: so, unless there are count windows.

    Those sort rows before they know which window a row is in, and so have the rows anyway.
    """
    counted = any(isinstance(window, CountWindow) for window in windows)
    return aggregate.label in ("approx_distinct", "quantile") and not counted


def accumulators_of(aggregate: Aggregate, up: Stream) -> tuple[AccumulatorKind, ...]:
    """Return the accumulators of an aggregate, beside the count of rows that every window has."""
    match aggregate.label:
        case "count":
            return () if aggregate.value is None else (AccumulatorKind.COUNT,)
        case "event_time_max":
            return (AccumulatorKind.MAX_TIME,)
        case "fold":
            return (AccumulatorKind.FOLD,)
        case "sum" | "mean":
            floats = kind.is_floating(aggregate.value_type(up))
            return (AccumulatorKind.FLOAT_SUM if floats else AccumulatorKind.INT_SUM, AccumulatorKind.COUNT)
        case name:
            return _OF_VALUES[name]


def width_of(accumulator: AccumulatorKind, aggregate: Aggregate) -> int:
    """Return the number of 8-byte numbers in an accumulator's cell."""
    if accumulator is AccumulatorKind.FOLD and isinstance(aggregate, Fold):
        return len(aggregate.zero) if isinstance(aggregate.zero, tuple) else 1
    return _WIDTHS.get(accumulator, 1)


def why_python(fold: Fold, up: Stream) -> str | None:
    """Return why a fold runs in Python over kept rows; None when an accumulator holds it."""
    parts = fold.zero if isinstance(fold.zero, tuple) else (fold.zero,)
    if not fold.commutative:
        return "the order of rows matters"
    if not parts or not all(type(part) is float for part in parts):
        return "its zero is not of floats; with 0.0 in it, it could be compiled"
    if not fold.columns:
        return "it does not say which columns it reads; with columns=... it could be compiled"
    for name in fold.columns:
        type_ = up.schema.field(name).type
        if not kind.is_integer(type_) and not kind.is_floating(type_):
            return f"column {name} is not of numbers"
    for name in fold.columns:
        if not name.isidentifier() or iskeyword(name) or name.startswith("_"):
            return f"column {name} cannot be read as row.{name}"
    if not all(is_pure(call) for call in (fold.lift, fold.combine)):
        return "lift or combine has a state of its own"
    if fold.lower is None and (isinstance(fold.zero, tuple) or not kind.is_float64(fold.type(up))):
        return "its parts are not results"
    return None


def is_pure(call: Callable[..., Any]) -> bool:
    """Return whether a function has no state: what it captures and its defaults are constants."""
    if not isinstance(call, FunctionType):
        return False
    try:
        captured = [cell.cell_contents for cell in call.__closure__ or ()]
    except ValueError:  # a name that has no value yet
        return False
    defaults = [*(call.__defaults__ or ()), *(call.__kwdefaults__ or {}).values()]
    return all(_is_constant(value) for value in (*captured, *defaults))


def may_raise(call: Callable[..., Any]) -> bool:
    """Return whether Python raises on some numbers for which machine code returns NaN or an infinity.

    Powers and most functions of `math` do: math.sqrt(-1.0), math.log(0.0), 1e200 ** 2.
    """
    if not isinstance(call, FunctionType):
        return True
    powers = any(step.argrepr in ("**", "**=") for step in get_instructions(call))
    return powers or not _RAISING.isdisjoint(call.__code__.co_names)


def _is_constant(value: object) -> bool:
    if type(value) is tuple:
        return all(_is_constant(item) for item in value)
    return value is None or type(value) in (bool, int, float, str) or isinstance(value, ModuleType)


def on_cuda(op: Windows) -> bool:
    """Return whether a CUDA device was asked for, by name or with limits."""
    return op.device == CUDA or isinstance(op.device, Cuda)


def device_refusal(op: Windows, up: Stream, *, totally_ordered: bool = True) -> NotSupported | None:
    """Return the error for a step that is to run on a device and cannot."""
    why = why_not_cuda(op, up, totally_ordered=totally_ordered) if on_cuda(op) else None
    if why is None:
        return None
    return NotSupported(
        f'device="cuda" was asked for, but {why}',
        detail="a device holds tumbling and sliding windows, of aggregates that are a few numbers",
        hint='say device="auto", or give such windows and aggregates a step of their own',
    )


def why_not_cuda(op: Windows, up: Stream, *, totally_ordered: bool) -> str | None:
    """Return why a step cannot run on a device; None when it can."""
    unsliced = [str(spec) for _, spec in op.specs if not isinstance(spec, SlidingSpec)]
    if unsliced:
        return f"{unsliced[0]} is not made of slices of time"
    if op.function is not None:
        return f"rows are kept for {op.function}, which sees whole windows"
    if op.pattern in AS_PARTIALS:
        return f"{op.pattern} windows are merged from partials"
    for name, aggregate in (op.aggregates or {}).items():
        why = why_rows(aggregate, up, totally_ordered=totally_ordered)
        if why is not None:
            return f"{name}={aggregate} needs more than accumulators: {why}"
    return None


def why_not_by_itself(op: Windows) -> str | None:
    """Return why "auto" leaves a step to the cpu that a device could take; None when it does not."""
    folds = [str(fold) for fold in (op.aggregates or {}).values() if isinstance(fold, Fold)]
    # Why: kernels cannot raise. A combine that fails would return a number there, and stops the run here.
    return f"a device cannot tell when {folds[0]} fails" if folds else None


def explain_method(longest: int) -> str:
    """Explain how windows of up to `longest` slices are combined.

    A window of one slice needs nothing. Others go over two stacks (*sweep*). Where few windows close at once
    the B-PAT of SPRINGALD (IV-B) does less: a stage chooses at every watermark, and the answer is the same.
    """
    if longest == 1:
        return "direct: a window is one slice, and needs no tree"
    return (
        f"sweep: two stacks; B-PAT when few windows close at once, for a logarithm of {longest} slices each"
    )
