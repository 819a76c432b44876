"""Casts on arrays, by the rules listed in `expr/nodes/cast.py`; casts from text are in `arrow/parse.py`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import compute as pc
from penstock.expr.arrow.arithmetic import to_integer
from penstock.expr.arrow.evaluated import Evaluated, built, numbers
from penstock.expr.arrow.parse import parser
from penstock.expr.arrow.rule import Function, rule
from penstock.expr.arrow.time import DAY, scaled
from penstock.expr.nodes.cast import Cast
from penstock.expr.program import Line

FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31 in days since 1970


@rule.register
def _cast(node: Cast, line: Line) -> Function:
    given, wanted = line.operands[0], line.type
    if given == wanted:
        return lambda array: array
    if kind.is_string(given):
        return parser(wanted)
    if kind.is_temporal(given):
        return _from_time(given, wanted)
    if kind.is_signed_integer(wanted) and not kind.is_boolean(given):
        return lambda array: to_integer(array, wanted)
    if kind.is_decimal128(given) and kind.is_float64(wanted):
        # Arrow's own cast multiplies, and may miss the nearest float; parsing the digits does not.
        return lambda array: array.cast(pa.string()).cast(pa.float64())
    if kind.is_float32(wanted):
        return _to_float32
    return lambda array: array.cast(wanted, safe=False)


def _to_float32(array: pa.Array) -> pa.Array:
    """Through float64, as a row does it, and to the nearest float32; beyond its range, infinity."""
    wide = array.cast(pa.int8()) if kind.is_boolean(array.type) else array
    with np.errstate(all="ignore"):
        return built(numbers(wide).astype(np.float64).astype(np.float32), pa.float32(), [array]).values


def _from_time(given: pa.DataType, wanted: pa.DataType) -> Function:
    if kind.is_date32(given) and kind.is_timestamp(wanted):
        return lambda array: scaled(array, DAY, wanted)
    if kind.is_timestamp(given) and kind.is_timestamp(wanted):
        return lambda array: array.view(pa.int64()).view(wanted)
    if kind.is_timestamp(given) and kind.is_date32(wanted):
        return lambda array: built(numbers(array) // DAY, wanted, [array])
    return _date_text if kind.is_date32(given) else _moment_text


def _date_text(array: pa.Array) -> Evaluated:
    days = numbers(array)
    shown, failed = _within_four_digits(array, days, days)
    return Evaluated(shown.cast(pa.string()), failed)


def _moment_text(array: pa.Array) -> Evaluated:
    counts = numbers(array)
    shown, failed = _within_four_digits(array, counts, counts // DAY)
    text = shown.view(pa.int64()).view(pa.timestamp("us")).cast(pa.string())
    return Evaluated(pc.replace_substring(text, " ", "T"), failed)


def _within_four_digits(
    array: pa.Array, counts: np.ndarray, days: np.ndarray
) -> tuple[pa.Array, pa.BooleanArray | None]:
    """The array without the years that have not four digits, and where those were."""
    kept = built(counts, array.type, [array], (days < FIRST_DAY) | (days > LAST_DAY))
    return kept.values, kept.failed
