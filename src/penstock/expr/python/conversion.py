"""Casts, fields of structs, items of lists, and JSON in plain Python, by `expr/nodes/conversion.py`."""

from __future__ import annotations

import math
import re
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.types as kind

from penstock import expr as nodes
from penstock.errors import RowFailure
from penstock.expr.nodes import conversion as spec
from penstock.expr.nodes.text_and_time import DAY
from penstock.expr.program import Function, Instruction, Rules
from penstock.expr.python.rules import calendar, check_range
from penstock.expr.values import WIDE, microseconds_of, type_name

_INT, _FLOAT = re.compile(spec.INTEGER_TEXT), re.compile(spec.FLOAT_TEXT)
_DAY, _MOMENT = re.compile(spec.DAY_TEXT), re.compile(spec.MOMENT_TEXT)


def _whole_number(value: float, wanted: pa.DataType) -> int | float:
    if not math.isfinite(value):
        raise RowFailure(f"{value} cannot become {type_name(wanted)}")
    return check_range(int(value), wanted)


def _date_text(days: int, wanted: pa.DataType) -> str:
    year, month, day, _ = calendar(days)
    if not 1 <= year <= 9999:
        raise RowFailure(f"year {year} has no text of four digits")
    return f"{year:04}-{month:02}-{day:02}"


def _moment_text(value: int, wanted: pa.DataType) -> str:
    days, rest = divmod(value, DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    return f"{_date_text(days, wanted)}T{clock}"


def _int_of(text: str, wanted: pa.DataType) -> int | float:
    if not _INT.fullmatch(text):
        raise _unreadable(text, wanted)
    # Python refuses to parse thousands of digits; all but the last twenty must be zeros to be in range.
    sign, digits = ("-" if text[0] == "-" else ""), text.lstrip("+-").lstrip("0")
    if len(digits) > 20:
        raise RowFailure(f"{text:.40} overflows {type_name(wanted)}")
    return check_range(int(sign + (digits or "0")), wanted)


def _float_of(text: str, wanted: pa.DataType) -> float:
    if not _FLOAT.fullmatch(text):
        raise _unreadable(text, wanted)
    return float(text)


def _bool_of(text: str, wanted: pa.DataType) -> bool:
    if not re.fullmatch("true|false", text, re.IGNORECASE | re.ASCII):
        raise _unreadable(text, wanted)
    return len(text) == 4


def _moment_of(text: str, wanted: pa.DataType, pattern: re.Pattern[str] = _MOMENT) -> int:
    try:
        if pattern.fullmatch(text):
            return microseconds_of(datetime.fromisoformat(text))
    except ValueError:  # the month has no such day
        pass
    raise _unreadable(text, wanted)


def _unreadable(text: str, wanted: pa.DataType) -> RowFailure:
    return RowFailure(f"{text!r:.80} cannot be read as {type_name(wanted)}")


_CASTS: dict[str | None, Function] = {
    "same": lambda value, wanted: value,
    "integer to integer": check_range,
    "float to integer": _whole_number,
    "number to float": lambda value, wanted: float(value),
    "bool to number": lambda value, wanted: float(value) if kind.is_floating(wanted) else int(value),
    "bool to text": lambda value, wanted: str(value).lower(),
    "integer to text": lambda value, wanted: str(value),
    "moment to text": _moment_text,
    "day to text": _date_text,
    "text to integer": _int_of,
    "text to float": _float_of,
    "text to bool": _bool_of,
    "text to moment": _moment_of,
    "text to day": lambda text, wanted: _moment_of(text, wanted, _DAY) // DAY,
    "text to binary": lambda text, wanted: text.encode(),
    "day to moment": lambda days, wanted: check_range(days * DAY, wanted),
    "moment to day": lambda moment, wanted: moment // DAY,
    "moment to moment": lambda moment, wanted: moment,
    "decimal to float": lambda value, wanted: float(value),
    "wider decimal": lambda value, wanted: value.quantize(Decimal(1).scaleb(-wanted.scale), context=WIDE),
}


def _cast(node: nodes.Cast, out: Instruction) -> Function:
    convert = _CASTS[spec.find_cast(out.operands[0], out.type)]
    return lambda value: convert(value, out.type)


def _json(node: nodes.JsonValue, out: Instruction) -> Function:
    steps = spec.parse_path(node.path)
    return lambda text: spec.extract_json(text, steps, node.type)


def _list_item(node: nodes.ListItem, out: Instruction) -> Function:
    return lambda items: items[node.index] if -len(items) <= node.index < len(items) else None


RULES: Rules = {
    nodes.Cast: _cast,
    nodes.Field: lambda node, out: lambda struct: struct[node.name],
    nodes.ListLength: lambda node, out: len,
    nodes.ListItem: _list_item,
    nodes.JsonValue: _json,
}
